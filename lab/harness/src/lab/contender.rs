//! Measurements of one contender or floor in the rounds of a benchmark.

use super::Plan;
use crate::bench::Bench;
use crate::crew::RoundParams;
use crate::noise;
use crate::pace;
use crate::samples::{PartSamples, ParticipantResult};
use crate::spent::ResourceUsage;
use crate::stats::{self, MedianEstimate};
use crate::workload::Role;
use handover_base::clock;
use handover_record::{Contender, Participants, Round, Summary, TimingKind, Wait};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of significant decimal digits that histograms resolve.
const HISTOGRAM_DIGITS: u8 = 3;
/// Number of sections into which the batches of a round are divided. The round's figure is the
/// median of the sections' means.
const ROUND_SECTIONS_COUNT: usize = 10;
/// Share of the samples that the trimmed mean excludes: the greatest, which contain interrupts.
const TAIL_SHARE: f64 = 0.01;
/// Minimum number of undisturbed samples for a round's undisturbed figure.
const UNDISTURBED_MIN: usize = 16;

/// A contender or a floor with its measurements so far, of one pass or of all passes.
pub(super) struct MeasuredContender {
    pub bench: &'static Bench,
    pub round_params: RoundParams,
    pub roles: Vec<Role>,
    /// Reasons why the requested placement was not possible; each becomes a warning.
    pub placement_notes: Vec<String>,
    /// `true` for the benchmark of a declared floor; `false` for a contender of the benchmark
    /// itself.
    pub is_floor: bool,
    /// CPU of the busy thread that `--neighbour` requests; `None` without one.
    pub neighbour_cpu: Option<u32>,
    pub facts: ContenderFacts,
    pub measured: Measurements,
}

/// Facts about a contender or floor that one pass hands to the next.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ContenderFacts {
    /// `true` if the contender or floor failed; no later pass runs it.
    pub is_out: bool,
    /// Number of operations in a batch; 0 if it is not determined yet.
    pub batch: u64,
    /// Figure of the last warm-up round, in the unit of the spec.
    pub figure: f64,
    /// Duration of the fastest calibration loop in the contender's rounds, in ticks; 0 if there was
    /// none.
    pub pace_ticks: u64,
}

/// Measurements of the rounds of a contender or floor.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measurements {
    pub parts: Vec<PartMeasurements>,
    /// Sum of the rounds' wall-clock times; a round's is that of the participant that ran longest.
    pub wall_ns: f64,
    /// Resource usage over all rounds, of all processes together.
    pub used: ResourceUsage,
    /// Resource usage of each participant: of its process if it is one, otherwise of its thread.
    pub by_participant: Vec<ResourceUsage>,
    /// Number of all operations of the measured and serving participants, including untimed ones.
    pub ops: u64,
    pub bytes_per_op: u64,
    /// Number of operations that one participant has in progress at a time.
    pub concurrent_operations: u64,
    /// Sums of the workload's counters, by name.
    pub counters: BTreeMap<String, f64>,
    /// Instructions, cycles and cache misses; `None` without hardware counters.
    pub hardware: Option<[u64; 3]>,
}

/// Measurements of one part of a benchmark, over all rounds of a contender or floor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PartMeasurements {
    pub rounds: Vec<Round>,
    /// Duration of each round's fastest calibration loop, and the round's undisturbed figure. The
    /// duration is in ticks, 0 if unknown; the figure is without disturbed samples.
    undisturbed_by_round: Vec<(u64, Option<f64>)>,
    /// Histogram of the operations timed alone, or of the batches if no operation was timed alone.
    #[serde(with = "as_bytes")]
    pub histogram: Histogram<u64>,
    /// Number of operations that were drawn at random from batches and timed alone.
    pub alone: u64,
    /// Number of operations in the samples.
    pub ops: u64,
    /// Number of samples.
    pub samples: u64,
    /// Sum of all operations' times, or of their values, in the spec's unit.
    pub sum: f64,
    /// Numbers of operations in a batch, one for each round and participant.
    pub batches: Vec<f64>,
    /// Operations per second of each round.
    pub rates: Vec<f64>,
    /// `true` if the rates are by wall-clock time: see [`operations_per_s`].
    pub is_rate_by_wall_clock: bool,
}

impl Default for PartMeasurements {
    fn default() -> PartMeasurements {
        PartMeasurements {
            rounds: Vec::new(),
            undisturbed_by_round: Vec::new(),
            histogram: new_histogram(),
            alone: 0,
            ops: 0,
            samples: 0,
            sum: 0.0,
            batches: Vec::new(),
            rates: Vec::new(),
            is_rate_by_wall_clock: false,
        }
    }
}

fn new_histogram() -> Histogram<u64> {
    Histogram::new(HISTOGRAM_DIGITS).unwrap_or_else(|_| unreachable!())
}

/// Serialisation of a histogram as bytes, to send it to another process.
mod as_bytes {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Serialize};

    pub fn serialize<S: serde::Serializer>(
        histogram: &Histogram<u64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(histogram, &mut bytes).map_err(S::Error::custom)?;
        bytes.serialize(to)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Histogram<u64>, D::Error> {
        let bytes = Vec::<u8>::deserialize(from)?;
        let read = Deserializer::new().deserialize(&mut &bytes[..]).map_err(D::Error::custom);
        read.map(|mut it: Histogram<u64>| {
            it.auto(true);
            it
        })
    }
}

impl MeasuredContender {
    pub fn new(
        bench: &'static Bench,
        round_params: RoundParams,
        roles: Vec<Role>,
        placement_notes: Vec<String>,
        is_floor: bool,
    ) -> MeasuredContender {
        let parts = vec![PartMeasurements::default(); bench.spec().parts.len().max(1)];
        MeasuredContender {
            bench,
            round_params,
            roles,
            placement_notes,
            is_floor,
            neighbour_cpu: None,
            facts: ContenderFacts::default(),
            measured: Measurements { parts, ..Measurements::default() },
        }
    }

    /// Returns the contender's name, or a floor's id.
    pub fn name(&self) -> &'static str {
        if self.is_floor { self.bench.spec().id } else { self.bench.contender().name }
    }

    /// Sets the facts found by earlier passes, and the timing parameters that depend on them.
    pub fn adopt_facts(&mut self, facts: ContenderFacts) {
        self.facts = facts;
        self.round_params.timing.batch = facts.batch;
        self.round_params.timing.pace_ticks = facts.pace_ticks;
    }

    /// Adds the facts and measurements of a pass.
    pub fn absorb(&mut self, facts: ContenderFacts, measured: Measurements) {
        let pace_ticks = pace::min_known_ticks(self.facts.pace_ticks, facts.pace_ticks);
        self.adopt_facts(ContenderFacts { pace_ticks, ..facts });
        self.measured.absorb(measured);
    }

    /// Marks rounds as disturbed if their core was slower than in later rounds.
    pub fn reclassify_rounds(&mut self) {
        let fastest_ticks = self.facts.pace_ticks;
        self.measured.parts.iter_mut().for_each(|part| part.reclassify_rounds(fastest_ticks));
    }

    /// Updates the duration of the fastest calibration loop from the results of a round.
    pub fn update_pace(&mut self, results: &[ParticipantResult]) {
        let seen = results
            .iter()
            .map(|it| it.pace_ticks)
            .fold(self.facts.pace_ticks, pace::min_known_ticks);
        self.facts.pace_ticks = seen;
        self.round_params.timing.pace_ticks = seen;
    }

    /// Stores the figure and the batch size of a warm-up round, and returns the figure.
    pub fn add_warm_up_round(&mut self, results: &[ParticipantResult]) -> f64 {
        self.update_pace(results);
        let mut parts = results.iter().flat_map(|it| &it.parts);
        let Some(part) = parts.find(|part| !part.is_empty()) else { return 0.0 };
        let figures: Vec<f64> = part.figures().map(|it| it.0).collect();
        self.facts.figure = stats::median(&figures);
        self.facts.batch = part.batch;
        self.facts.figure
    }

    /// Returns the median of each part's rounds, with its interval; `None` for a part without
    /// rounds.
    pub fn intervals(&self) -> Vec<Option<MedianEstimate>> {
        let interval = |part: &PartMeasurements| {
            let medians: Vec<f64> = part.rounds.iter().map(|round| round.median).collect();
            (!medians.is_empty()).then(|| stats::median_of_independent(&medians))
        };
        self.measured.parts.iter().map(interval).collect()
    }

    /// Returns the number of rounds, added up over all parts.
    pub fn rounds_count(&self) -> usize {
        self.measured.parts.iter().map(|part| part.rounds.len()).sum()
    }

    /// Returns the number of rounds of the part that has the fewest. Parts without rounds do not
    /// count.
    pub fn rounds_of_rarest_part(&self) -> usize {
        let counts = self.measured.parts.iter().map(|part| part.rounds.len());
        counts.filter(|count| *count > 0).min().unwrap_or(0)
    }

    /// Returns how the operations of a part wait: by spinning, sleeping, both, or not at all.
    pub fn waits(&self, part: usize) -> Wait {
        self.bench.contender().waits_in(self.bench.spec().parts.get(part))
    }

    /// Returns the contender with its kind in a part, where a floor may be a peer.
    pub fn contender_in(&self, part: usize) -> Contender {
        self.bench.contender().in_part(self.bench.spec().parts.get(part))
    }

    /// Adds the results of a measured round, which belongs to the block `block` of the pass `pass`.
    pub fn add_round(&mut self, (pass, block): (u32, u32), results: &[ParticipantResult]) {
        let involuntary = results.iter().map(|it| it.own.switches_involuntary).sum();
        let crowded = self.round_params.is_crowded() || self.neighbour_cpu.is_some();
        let marked =
            noise::is_disturbed(involuntary, crowded) || results.iter().any(|it| it.slowed);
        self.update_pace(results);
        let pace_ticks = results.iter().map(|it| it.pace_ticks).fold(0, pace::min_known_ticks);
        let round = Round {
            pass,
            block,
            switches_involuntary: involuntary,
            is_disturbed: marked,
            ..Round::default()
        };
        for (index, part) in self.measured.parts.iter_mut().enumerate() {
            part.add_round(index, results, round, pace_ticks);
        }
        self.measured.add_round(results, self.round_params.processes);
    }

    /// Stores the share of the machine's CPU time that the hypervisor took during a pass.
    pub fn add_steal(&mut self, pass: u32, share: f64) {
        let rounds = self.measured.parts.iter_mut().flat_map(|part| &mut part.rounds);
        rounds.filter(|it| it.pass == pass).for_each(|it| it.steal = round_to_thousandths(share));
    }

    /// Returns the description of the participants for a record.
    pub fn participants(&self, plan: &Plan) -> Participants {
        let several = self.round_params.cpus.len() > 1;
        Participants {
            roles: self.roles.iter().map(|role| role.name.to_string()).collect(),
            cpus: self.round_params.cpus.clone(),
            placement: if several { plan.place.to_string() } else { String::new() },
            processes: self.round_params.processes,
            idle_gap_ns: self.round_params.timing.idle_gap_ns,
            neighbour_cpu: self.neighbour_cpu,
        }
    }
}

impl Measurements {
    /// Adds the usage, operations and counters of a round. The usage of threads is that of their
    /// process while the participant that ran longest was timed.
    fn add_round(&mut self, results: &[ParticipantResult], are_processes: bool) {
        let mut round = Measurements::default();
        for it in results {
            let own_usage = if are_processes { it.used } else { it.own };
            round.by_participant.push(ResourceUsage { delayed_ns: it.own.delayed_ns, ..own_usage });
            if are_processes {
                round.used += it.used;
            } else if it.wall_ns as f64 > round.wall_ns {
                round.used = it.used;
            }
            round.wall_ns = round.wall_ns.max(it.wall_ns as f64);
            // Usually an operation of a benchmark with several parts has one of each.
            let parts = it.parts.iter().map(|part| part.ops_total + part.ops_beside);
            round.ops += it.operations_count.unwrap_or_else(|| parts.max().unwrap_or(0));
            round.bytes_per_op = round.bytes_per_op.max(it.bytes_per_op);
            round.concurrent_operations = round.concurrent_operations.max(it.concurrent_operations);
            for (name, count) in &it.counters {
                *round.counters.entry(name.clone()).or_default() += count;
            }
            add_hardware_counts(&mut round.hardware, it.hardware);
        }
        self.absorb(round);
    }

    /// Adds the measurements of further rounds.
    fn absorb(&mut self, other: Measurements) {
        for (part, more) in self.parts.iter_mut().zip(other.parts) {
            part.absorb(more);
        }
        self.wall_ns += other.wall_ns;
        self.used += other.used;
        self.by_participant.resize(
            self.by_participant.len().max(other.by_participant.len()),
            ResourceUsage::default(),
        );
        self.by_participant
            .iter_mut()
            .zip(other.by_participant)
            .for_each(|(sum, more)| *sum += more);
        self.ops += other.ops;
        self.bytes_per_op = self.bytes_per_op.max(other.bytes_per_op);
        self.concurrent_operations = self.concurrent_operations.max(other.concurrent_operations);
        for (name, count) in other.counters {
            *self.counters.entry(name).or_default() += count;
        }
        add_hardware_counts(&mut self.hardware, other.hardware);
    }
}

fn add_hardware_counts(sums: &mut Option<[u64; 3]>, counts: Option<[u64; 3]>) {
    if let Some(counts) = counts {
        let sums = sums.get_or_insert([0; 3]);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
}

impl PartMeasurements {
    /// Adds the measurements of further rounds.
    fn absorb(&mut self, other: PartMeasurements) {
        if self.rounds.is_empty() {
            *self = other;
            return;
        }
        self.rounds.extend(other.rounds);
        self.undisturbed_by_round.extend(other.undisturbed_by_round);
        // The histogram resizes itself; a value is rejected only if an allocation fails, and no
        // figure depends on it.
        let _ = self.histogram.add(&other.histogram);
        self.alone += other.alone;
        self.ops += other.ops;
        self.samples += other.samples;
        self.sum += other.sum;
        self.batches.extend(other.batches);
        self.rates.extend(other.rates);
        self.is_rate_by_wall_clock |= other.is_rate_by_wall_clock;
    }

    /// Adds a round's samples of the part at `index`. `round` has the indices and the disturbances
    /// of the round.
    fn add_round(
        &mut self,
        index: usize,
        results: &[ParticipantResult],
        round: Round,
        pace_ticks: u64,
    ) {
        let (mut ops, mut sum, mut rate, mut has_values) = (0, 0.0, 0.0, false);
        let (mut by_participant, mut alone) = (Vec::new(), None::<Vec<u64>>);
        for participant in results {
            let Some(samples) = participant.parts.get(index).filter(|samples| !samples.is_empty())
            else {
                continue;
            };
            let values: Vec<(f64, bool)> = samples.figures().collect();
            by_participant.push((values, samples.batch as f64));
            if let Some(ticks) = &samples.alone {
                alone
                    .get_or_insert_default()
                    .extend(ticks.iter().map(|ticks| clock::ps_from_ticks(*ticks)));
            }
            has_values |= samples.has_values;
            self.is_rate_by_wall_clock |= samples.singles;
            let own_sum = samples.figure_per_op(samples.samples_total, 1);
            ops += samples.ops_total;
            sum += own_sum;
            rate += operations_per_s(participant, samples, own_sum);
            self.batches.push(samples.batch as f64);
        }
        if by_participant.is_empty() {
            return;
        }
        let values: Vec<(f64, bool)> =
            by_participant.iter().flat_map(|(values, _)| values).copied().collect();
        let batch = stats::median(&self.batches);
        self.alone += alone.as_ref().map_or(0, Vec::len) as u64;
        // A round without any drawn operation adds none: its batches are no operations.
        let timed = alone.unwrap_or_else(|| {
            values.iter().map(|(value, _)| (value * 1000.0).round() as u64).collect()
        });
        for thousandths in timed {
            // Resizes itself: see `absorb()`.
            let _ = self.histogram.record(thousandths);
        }
        self.samples += values.len() as u64;
        let slowed = values.iter().filter(|it| it.1).count();
        let figure_of = |is_kept: fn(&(f64, bool)) -> bool| {
            let kept = |values: &Vec<(f64, bool)>| -> Vec<f64> {
                values.iter().filter(|it| is_kept(it)).map(|it| it.0).collect()
            };
            match (has_values, batch > 1.0) {
                (true, _) => stats::median(&kept(&values)),
                (false, true) => {
                    let kept = by_participant.iter().map(|(values, batch)| (kept(values), *batch));
                    figure_of_batches(&kept.collect::<Vec<_>>())
                }
                (false, false) => figure_of_operations(kept(&values)),
            }
        };
        let is_marked = round.is_disturbed && !has_values;
        let median = round_to_six_digits(figure_of(|_| true));
        let undisturbed = match (is_marked, slowed) {
            (true, _) => None,
            (false, 0) => Some(median),
            _ => (values.len() - slowed >= UNDISTURBED_MIN).then(|| figure_of(|it| !it.1)),
        };
        let mut sorted: Vec<f64> = values.iter().map(|it| it.0).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        self.rounds.push(Round {
            is_disturbed: is_marked,
            median,
            p99: round_to_six_digits(stats::quantile_sorted(&sorted, 0.99)),
            mean: round_to_six_digits(sum / ops.max(1) as f64),
            slowed: round_to_thousandths(slowed as f64 / values.len() as f64),
            ..round
        });
        self.undisturbed_by_round.push((if has_values { 0 } else { pace_ticks }, undisturbed));
        self.ops += ops;
        self.sum += sum;
        self.rates.push(rate);
    }

    /// Adds a round that has a figure but no samples.
    #[cfg(test)]
    pub fn add_figure(&mut self, round: Round) {
        self.rounds.push(round);
        self.undisturbed_by_round.push((0, Some(round.median)));
    }

    /// Returns how the operations were timed: singly or in batches.
    pub fn timing(&self) -> TimingKind {
        if stats::median(&self.batches) <= 1.0 { TimingKind::Single } else { TimingKind::Batch }
    }

    /// Marks a round as disturbed if its fastest calibration loop was slow. `fastest_ticks` is the
    /// duration of the fastest loop of all rounds.
    pub fn reclassify_rounds(&mut self, fastest_ticks: u64) {
        for (round, (pace, undisturbed)) in
            self.rounds.iter_mut().zip(&mut self.undisturbed_by_round)
        {
            if pace::is_slower(*pace, fastest_ticks) {
                round.is_disturbed = true;
                *undisturbed = None;
            }
        }
    }

    /// Returns the figure: the median over passes, with its interval.
    pub fn figure(&self) -> MedianEstimate {
        stats::median_over_passes(&self.by_pass(|round, _| Some(round.median)))
    }

    /// Returns the figure without disturbed samples. Returns `None` if none was disturbed, or too
    /// few rounds have such a figure.
    pub fn undisturbed(&self) -> Option<f64> {
        let is_disturbed = |round: &Round| round.is_disturbed || round.slowed > 0.0;
        let counted = self.undisturbed_by_round.iter().filter(|it| it.1.is_some()).count();
        (self.rounds.iter().any(is_disturbed) && counted >= noise::ROUNDS_MIN)
            .then(|| stats::median(&self.by_pass(|_, undisturbed| undisturbed)))
    }

    /// Returns one value for each pass: the median of its rounds' values. `value_of` returns a
    /// round's value, or `None` to leave the round out.
    pub fn by_pass(&self, value_of: impl Fn(&Round, Option<f64>) -> Option<f64>) -> Vec<f64> {
        let rounds = self.rounds.iter().zip(&self.undisturbed_by_round);
        medians_by_pass(
            rounds.filter_map(|(round, beside)| Some((round.pass, value_of(round, beside.1)?))),
        )
    }
}

/// Returns the median of each pass, in order of the passes. Each value is given with the index of
/// its pass.
pub(super) fn medians_by_pass(values: impl Iterator<Item = (u32, f64)>) -> Vec<f64> {
    let mut passes: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    values.for_each(|(pass, value)| passes.entry(pass).or_default().push(value));
    passes.into_values().map(|values| stats::median(&values)).collect()
}

/// Returns the operations per second of one participant. They are by its wall-clock time if it
/// timed single operations.
fn operations_per_s(participant: &ParticipantResult, samples: &PartSamples, sum_ns: f64) -> f64 {
    let over_ns = if samples.singles { participant.wall_ns as f64 } else { sum_ns };
    samples.ops_total as f64 * participant.concurrent_operations.max(1) as f64 / over_ns.max(1.0)
        * 1e9
}

/// Rounds to six significant digits, or to 0 for infinities and NaN. A round is exact to fewer
/// digits.
fn round_to_six_digits(value: f64) -> f64 {
    if value.is_finite() { round_to_digits(value, 6) } else { 0.0 }
}

/// Rounds to `digits` significant digits. A stored run is thus a third smaller. Infinities and NaN
/// are unchanged; the store rejects them.
pub(super) fn round_to_digits(value: f64, digits: i32) -> f64 {
    if value == 0.0 || value.is_subnormal() {
        return 0.0;
    }
    let scale = 10f64.powi(digits - 1 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

fn round_to_thousandths(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}

/// Returns the figure of a round of batches. It is the median of ten means, each of a tenth of the
/// round: of the samples of all participants in it. `participants` has the samples of each, and the
/// number of operations in a sample. A participant with fewer than ten samples has an equal part of
/// them in each mean. See [`Round::median`].
fn figure_of_batches(participants: &[(Vec<f64>, f64)]) -> f64 {
    let samples_max = participants.iter().map(|(samples, _)| samples.len()).max().unwrap_or(0);
    let stretches = ROUND_SECTIONS_COUNT.min(samples_max);
    let mean = |place: usize| {
        let (mut sum, mut ops) = (0.0, 0.0);
        for (samples, batch) in participants {
            // Fewer samples than stretches count in each stretch alike.
            let (stretch, share) = if samples.len() < stretches {
                (&samples[..], 1.0 / stretches as f64)
            } else {
                let cut = |place: usize| place * samples.len() / stretches;
                (&samples[cut(place)..cut(place + 1)], 1.0)
            };
            sum += share * batch * stretch.iter().sum::<f64>();
            ops += share * batch * stretch.len() as f64;
        }
        sum / ops
    };
    stats::median(&(0..stretches).map(mean).collect::<Vec<f64>>())
}

/// Returns the figure of a round of operations that were timed alone. It is their median, or with a
/// coarse clock their mean without the longest.
fn figure_of_operations(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    let median = stats::quantile_sorted(&samples, 0.5);
    if clock::calibration().resolution_ns <= Summary::STEP_SHARE_MAX * median {
        return median;
    }
    let kept = ((1.0 - TAIL_SHARE) * samples.len() as f64).ceil() as usize;
    let kept = &samples[..kept.clamp(1, samples.len())];
    kept.iter().sum::<f64>() / kept.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Samples, Timing};

    #[test]
    fn values_of_any_size_are_rounded_to_six_digits() {
        assert_eq!(round_to_six_digits(1.234_567_89), 1.234_57);
        assert_eq!(round_to_six_digits(123_456_789.0), 123_457_000.0);
        assert_eq!(round_to_six_digits(0.000_123_456_789), 0.000_123_457);
        assert_eq!(round_to_six_digits(0.0), 0.0);
        assert_eq!(round_to_six_digits(f64::NAN), 0.0);
        assert!(
            round_to_six_digits(f64::MAX).is_finite()
                && round_to_six_digits(f64::MIN_POSITIVE).is_finite()
        );
        assert_eq!(round_to_digits(0.890_380_533, 4), 0.8904);
        assert!(
            round_to_digits(f64::NAN, 4).is_nan()
                && round_to_digits(f64::INFINITY, 4).is_infinite()
        );
    }

    #[test]
    fn rounds_of_a_coarse_clock_are_averaged() {
        let step = clock::calibration().resolution_ns;
        let mut samples = vec![step; 600];
        samples.extend(vec![2.0 * step; 390]);
        samples.extend(vec![1000.0 * step; 10]);
        let figure = figure_of_operations(samples);
        assert!((figure / step - 1.394).abs() < 0.01, "{figure} of {step}");
        let long = vec![100.0 * step; 10];
        assert_eq!(figure_of_operations(long), 100.0 * step);
    }

    #[test]
    fn figure_of_batches_is_their_mean_and_ignores_a_burst() {
        // Batches of 230 operations, of which every 50th takes 64 times longer: four or five in a
        // batch.
        let batch = |place: usize| 1.0 + 63.0 * if place % 5 < 3 { 5.0 } else { 4.0 } / 230.0;
        let samples: Vec<f64> = (0..1000).map(batch).collect();
        let mean = samples.iter().sum::<f64>() / 1000.0;
        let figure = |samples: &[f64]| figure_of_batches(&[(samples.to_vec(), 230.0)]);
        assert!((figure(&samples) / mean - 1.0).abs() < 0.001);
        let mut burst = samples;
        burst[300..500].iter_mut().for_each(|it| *it *= 3.0);
        assert!((figure(&burst) / mean - 1.0).abs() < 0.001);
        assert_eq!(figure(&[2.0]), 2.0);
    }

    #[test]
    fn figure_of_batches_of_several_participants_is_that_of_all_their_operations() {
        // One participant completes nine batches in the time of one of the other, which is starved.
        let (fast, starved) = (vec![10.0; 900], vec![90.0; 100]);
        let figure = figure_of_batches(&[(fast.clone(), 100.0), (starved, 100.0)]);
        assert!((figure - 18.0).abs() < 1e-9, "{figure}");
        // The starved participant's samples may be fewer than the stretches, and of another length.
        let figure = figure_of_batches(&[(fast, 100.0), (vec![90.0; 3], 1000.0)]);
        let mean = (900.0 * 100.0 * 10.0 + 3.0 * 1000.0 * 90.0) / (900.0 * 100.0 + 3.0 * 1000.0);
        assert!((figure - mean).abs() < 1e-9, "{figure} instead of {mean}");
    }

    /// Returns a round with one participant whose samples are all `ticks`.
    fn notes(ticks: u64) -> Vec<ParticipantResult> {
        let mut samples = Samples::new(Default::default(), 1, true, None);
        (0..20).for_each(|_| samples.record_ticks(0, ticks));
        vec![samples.finish()]
    }

    #[test]
    fn quantiles_are_of_operations_alone_even_if_a_round_drew_none() {
        let drawn = Timing { round_ns: 1, batch: 64, seed: 1, ..Timing::default() };
        let mut part = PartMeasurements::default();
        let mut without = 0;
        for seed in 0..40 {
            let mut samples = Samples::new(Timing { seed, ..drawn }, 1, true, None);
            samples.start();
            // One batch, as its deadline is over.
            samples.time_batches(|n| {
                std::hint::black_box(n);
            });
            let notes = vec![samples.finish()];
            without += u32::from(notes[0].parts[0].alone.as_ref().is_some_and(Vec::is_empty));
            part.add_round(0, &notes, Round { block: seed as u32, ..Round::default() }, 0);
        }
        assert!((10..40).contains(&without), "{without} rounds drew no sample, expected about 30");
        assert_eq!(part.histogram.len(), part.alone);
        assert_eq!(part.rounds.len(), 40, "a round has no figure");
    }

    #[test]
    fn rate_is_by_wall_clock_time_only_if_the_workload_timed_operations_between_other_work() {
        let is_by_wall_clock = |results: &[ParticipantResult]| {
            let mut part = PartMeasurements::default();
            part.add_round(0, results, Round::default(), 0);
            assert_eq!(part.timing(), TimingKind::Single);
            part.is_rate_by_wall_clock
        };
        assert!(is_by_wall_clock(&notes(1000)));
        let timing = Timing { round_ns: 1, batch: 1, ..Timing::default() };
        let mut samples = Samples::new(timing, 1, true, None);
        samples.start();
        samples.time_batches(|n| assert_eq!(n, 1));
        assert!(!is_by_wall_clock(&[samples.finish()]));
    }

    #[test]
    fn rounds_of_passes_add_up_and_the_figure_is_the_median_of_their_medians() {
        let mut whole = PartMeasurements::default();
        for pass in 0..8u32 {
            let mut part = PartMeasurements::default();
            for block in 0..=pass {
                let round = Round { pass, block, ..Round::default() };
                part.add_round(0, &notes(100_000 + 1000 * u64::from(pass)), round, 0);
            }
            whole.absorb(part);
        }
        assert_eq!((whole.rounds.len(), whole.samples), (36, 720));
        let ns = |ticks: u64| clock::ps_from_ticks(ticks) as f64 / 1000.0;
        let (figure, middle) = (whole.figure(), (ns(103_000) + ns(104_000)) / 2.0);
        // Later passes have more rounds, and still the same weight.
        assert!((figure.median / middle - 1.0).abs() < 1e-4, "{figure:?}");
        // Each pass exceeds the one before, so the ends are the least and the greatest.
        let (low, high) = figure.interval.expect("too few passes");
        let is_near = |value: f64, ticks: u64| (value / ns(ticks) - 1.0).abs() < 1e-4;
        assert!(is_near(low, 100_000) && is_near(high, 107_000), "{figure:?}");
        assert_eq!(whole.undisturbed(), None, "an undisturbed part was reported as disturbed");
    }

    #[test]
    fn disturbed_rounds_stay_in_the_figure_and_the_figure_without_them_is_reported() {
        let mut part = PartMeasurements::default();
        for block in 0..40 {
            let marked = block % 2 == 0;
            let round = Round { pass: block / 5, block, is_disturbed: marked, ..Round::default() };
            part.add_round(0, &notes(if marked { 150_000 } else { 100_000 }), round, 0);
        }
        let ns = |ticks: u64| clock::ps_from_ticks(ticks) as f64 / 1000.0;
        assert!(part.figure().median > 1.1 * ns(100_000));
        let undisturbed = part.undisturbed().expect("twenty rounds");
        assert!((undisturbed / ns(100_000) - 1.0).abs() < 1e-4);
        assert_eq!(part.histogram.len(), 40 * 20, "the histogram lacks samples of some rounds");
    }

    #[test]
    fn a_pass_measured_in_another_process_arrives_unchanged() {
        let mut measured =
            Measurements { parts: vec![PartMeasurements::default()], ..Measurements::default() };
        measured.parts[0].add_round(0, &notes(5_000), Round { pass: 3, ..Round::default() }, 7);
        measured.add_round(&notes(5_000), false);
        let sent = postcard::to_allocvec(&measured).expect("serialized");
        let got: Measurements = postcard::from_bytes(&sent).expect("deserialized");
        let (got, sent) = (&got.parts[0], &measured.parts[0]);
        assert_eq!(
            (&got.rounds, &got.undisturbed_by_round, got.ops),
            (&sent.rounds, &sent.undisturbed_by_round, sent.ops)
        );
        let counted = |part: &PartMeasurements| {
            let recorded = part.histogram.iter_recorded();
            recorded.map(|it| (it.value_iterated_to(), it.count_at_value())).collect::<Vec<_>>()
        };
        assert_eq!(counted(got), counted(sent));
    }
}
