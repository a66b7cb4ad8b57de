//! From the rounds of a benchmark to its records.

use super::Plan;
use super::floors;
use super::measure::first_figure;
use crate::bench::Bench;
use crate::crew::Stage;
use crate::noise;
use crate::pace;
use crate::samples::Notes;
use crate::stats;
use crate::workload::Role;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use handover_base::clock;
use handover_record::{
    Beside, ContenderKind, Hardware, Mode, Parties, Ratio, Record, Round, Spec, Summary, Unit,
    Wait, Warning, WarningCode,
};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use std::collections::BTreeMap;

/// Samples of one part kept over all rounds, to look for modes.
const POOL_MAX: usize = 1 << 16;
/// Histograms resolve three significant digits.
const HISTOGRAM_DIGITS: u8 = 3;

/// One contender, or one floor, through all rounds of a benchmark.
pub(super) struct Lane {
    pub bench: &'static Bench,
    pub stage: Stage,
    pub roles: Vec<Role>,
    pub placement_notes: Vec<String>,
    pub is_floor: bool,
    /// It failed, and is not run any more.
    pub out: bool,
    pub neighbour_cpu: Option<u32>,
    pub warm_figure: f64,
    pub warm_batch: u64,
    pub(super) parts: Vec<PartLane>,
    totals: Totals,
}

/// One part of a lane.
pub(super) struct PartLane {
    rounds: Vec<Round>,
    /// The pace that the cores of each round were judged by.
    paces_ticks: Vec<u64>,
    pool: Vec<f64>,
    histogram: Histogram<u64>,
    ops: u64,
    samples: u64,
    /// Of all operations, in the spec's unit.
    sum: f64,
    batches: Vec<f64>,
    rates: Vec<f64>,
}

/// What all parties used over all rounds.
#[derive(Default)]
struct Totals {
    wall_ns: f64,
    user_ns: f64,
    system_ns: f64,
    voluntary: u64,
    involuntary: u64,
    ops: u64,
    bytes_per_op: u64,
    counters: BTreeMap<String, f64>,
    hardware: Option<[u64; 3]>,
}

impl PartLane {
    fn new() -> PartLane {
        let mut histogram = Histogram::new(HISTOGRAM_DIGITS).unwrap_or_else(|_| unreachable!());
        histogram.auto(true);
        PartLane {
            rounds: Vec::new(),
            paces_ticks: Vec::new(),
            pool: Vec::new(),
            histogram,
            ops: 0,
            samples: 0,
            sum: 0.0,
            batches: Vec::new(),
            rates: Vec::new(),
        }
    }

    /// Marks the rounds whose cores were slowed throughout, as is known now that a faster one was seen.
    fn judge_again(&mut self, fastest_ticks: u64) {
        for (round, pace) in self.rounds.iter_mut().zip(&self.paces_ticks) {
            round.marked |= pace::is_slower(*pace, fastest_ticks);
        }
    }

    pub(super) fn medians(&self) -> Vec<f64> {
        // Undisturbed rounds alone, as long as they are enough for an interval.
        let quiet: Vec<f64> =
            self.rounds.iter().filter(|round| !round.marked).map(|round| round.median).collect();
        if quiet.len() >= noise::ROUNDS_MIN {
            return quiet;
        }
        self.rounds.iter().map(|round| round.median).collect()
    }
}

impl Lane {
    pub fn new(
        bench: &'static Bench,
        stage: Stage,
        roles: Vec<Role>,
        placement_notes: Vec<String>,
        is_floor: bool,
    ) -> Lane {
        let parts = (0..bench.spec().parts.len().max(1)).map(|_| PartLane::new()).collect();
        Lane {
            bench,
            stage,
            roles,
            placement_notes,
            is_floor,
            out: false,
            neighbour_cpu: None,
            warm_figure: 0.0,
            warm_batch: 1,
            parts,
            totals: Totals::default(),
        }
    }

    /// Judges rounds again whose cores' full pace was not known when they ran.
    pub fn judge_again(&mut self) {
        if self.stage.timing.watch_pace {
            let fastest_ticks = pace::fastest_ticks();
            self.parts.iter_mut().for_each(|part| part.judge_again(fastest_ticks));
        }
    }

    /// Notes a warm-up round and returns its figure.
    pub fn warm(&mut self, notes: &[Notes]) -> f64 {
        let (figure, batch) = first_figure(notes);
        (self.warm_figure, self.warm_batch) = (figure, batch);
        figure
    }

    /// The interval of each part; none for a part without rounds.
    pub fn intervals(&self) -> Vec<Option<stats::Interval>> {
        let interval = |part: &PartLane| stats::interval(&part.medians());
        self.parts.iter().map(|part| (!part.rounds.is_empty()).then(|| interval(part))).collect()
    }

    /// Rounds kept, of all parts.
    pub fn rounds_count(&self) -> usize {
        self.parts.iter().map(|part| part.rounds.len()).sum()
    }

    /// Undisturbed rounds, of the part that has the fewest.
    pub fn quiet_count(&self) -> u32 {
        let quiet = |part: &PartLane| part.rounds.iter().filter(|round| !round.marked).count();
        let parts = self.parts.iter().filter(|part| !part.rounds.is_empty());
        parts.map(quiet).min().unwrap_or(0) as u32
    }

    /// Keeps a measured round.
    pub fn keep(&mut self, block: u32, notes: &[Notes], steal: f64) {
        let involuntary = notes.iter().map(|it| it.switches_involuntary).sum();
        let crowded = self.stage.crowded() || self.neighbour_cpu.is_some();
        let parts = || notes.iter().flat_map(|it| &it.parts);
        let slowed = parts().map(|part| part.slowed).fold(0.0, f64::max);
        let marked = noise::is_marked(steal, involuntary, crowded)
            || notes.iter().any(|it| it.slowed)
            || parts().any(|part| part.slowed_taken);
        let pace_ticks = notes.iter().map(|it| it.pace_ticks).max().unwrap_or(0);
        let disturbed = Round {
            block,
            steal: thousandths(steal),
            slowed: thousandths(slowed),
            switches_involuntary: involuntary,
            marked,
            ..Round::default()
        };
        for (index, part) in self.parts.iter_mut().enumerate() {
            keep_part(part, index, notes, disturbed, pace_ticks);
        }
        let totals = &mut self.totals;
        let wall_ns = notes.iter().map(|it| it.wall_ns).max().unwrap_or(1);
        totals.wall_ns += wall_ns as f64;
        for it in notes {
            totals.user_ns += it.user_ns as f64;
            totals.system_ns += it.system_ns as f64;
            totals.voluntary += it.switches_voluntary;
            totals.involuntary += it.switches_involuntary;
            totals.ops += it.parts.iter().map(|part| part.ops_total).sum::<u64>();
            totals.bytes_per_op = totals.bytes_per_op.max(it.bytes_per_op);
            for (name, count) in &it.counters {
                *totals.counters.entry(name.clone()).or_default() += count;
            }
            if let Some(counted) = it.hardware {
                let sums = totals.hardware.get_or_insert([0; 3]);
                for (sum, count) in sums.iter_mut().zip(counted) {
                    *sum += count;
                }
            }
        }
    }

    /// How the operations waited that a part counts.
    pub fn waits(&self, part: usize) -> Wait {
        self.bench.contender().waits_in(self.bench.spec().parts.get(part))
    }

    fn parties(&self, plan: &Plan) -> Parties {
        let several = self.stage.cpus.len() > 1;
        Parties {
            roles: self.roles.iter().map(|role| role.name.to_string()).collect(),
            cpus: self.stage.cpus.clone(),
            placement: if several { plan.place.to_string() } else { String::new() },
            processes: self.stage.processes,
            idle_gap_ns: self.stage.timing.idle_gap_ns,
            neighbour_cpu: self.neighbour_cpu,
        }
    }
}

/// Keeps a part's samples of a round; `round` says what disturbed it.
fn keep_part(part: &mut PartLane, index: usize, notes: &[Notes], round: Round, pace_ticks: u64) {
    let mut values = Vec::new();
    let (mut ops, mut sum, mut rate, mut told) = (0, 0.0, 0.0, false);
    for party in notes {
        let Some(said) = party.parts.get(index).filter(|said| !said.samples.is_empty()) else {
            continue;
        };
        values.extend(said.samples.iter().map(|sample| said.figure(*sample, said.batch)));
        told |= said.told;
        let own_sum = said.figure(said.samples_total, 1);
        ops += said.ops_total;
        sum += own_sum;
        let over_ns = if said.singles { party.wall_ns as f64 } else { own_sum };
        let abreast = party.abreast.max(1) as f64;
        rate += said.ops_total as f64 * abreast / over_ns.max(1.0) * 1e9;
        part.batches.push(said.batch as f64);
    }
    if values.is_empty() {
        return;
    }
    for value in &values {
        // It grows with its values; only memory running out could refuse one, and the figures do not
        // depend on it.
        let _ = part.histogram.record((value * 1000.0).round() as u64);
    }
    let step = values.len().div_ceil(POOL_MAX / 64).max(1);
    part.pool.extend(values.iter().step_by(step).take(POOL_MAX.saturating_sub(part.pool.len())));
    part.samples += values.len() as u64;
    values.sort_unstable_by(f64::total_cmp);
    let figure = match told {
        true => stats::quantile_sorted(&values, 0.5),
        false => figure(&values, stats::median(&part.batches)),
    };
    part.rounds.push(Round {
        marked: round.marked && !told,
        median: six_digits(figure),
        p99: six_digits(stats::quantile_sorted(&values, 0.99)),
        mean: six_digits(sum / ops.max(1) as f64),
        ..round
    });
    part.paces_ticks.push(pace_ticks);
    part.ops += ops;
    part.sum += sum;
    part.rates.push(rate);
}

/// Six significant digits: no round is better known than that.
fn six_digits(value: f64) -> f64 {
    if value.is_finite() { in_digits(value, 6) } else { 0.0 }
}

/// So many significant digits: a stored run is a third smaller. What is no number stays, and is refused by who
/// keeps it.
fn in_digits(value: f64, digits: i32) -> f64 {
    if value == 0.0 || value.is_subnormal() {
        return 0.0;
    }
    let scale = 10f64.powi(digits - 1 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

/// A share, as well as anybody wants to know it.
fn thousandths(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}

/// The same record with figures of six digits, ratios of five, and of four where nobody compares any.
fn in_few_digits(mut record: Record) -> Record {
    let modes = record.modes.iter_mut().flat_map(|it| [&mut it.share, &mut it.median]);
    let hardware = record.hardware.iter_mut();
    let hardware =
        hardware.flat_map(|it| [&mut it.instructions, &mut it.cycles, &mut it.cache_misses]);
    let numbers = record.summary.numbers_mut().into_iter().map(|it| it.1);
    numbers
        .chain(record.bytes_per_s.iter_mut().chain(&mut record.empty))
        .chain(modes.chain(hardware).chain(record.counters.values_mut()))
        .for_each(|value| *value = in_digits(*value, 6));
    record.beside.iter_mut().for_each(|it| it.other = in_digits(it.other, 5));
    let ratios = record.floor.iter_mut().chain(&mut record.peers);
    ratios
        .flat_map(|it| [&mut it.other, &mut it.ratio, &mut it.low, &mut it.high])
        .chain([&mut record.rate_per_s])
        .for_each(|value| *value = in_digits(*value, 5));
    [
        &mut record.cpus_user,
        &mut record.cpus_system,
        &mut record.switches_voluntary_per_op,
        &mut record.switches_involuntary_per_s,
    ]
    .into_iter()
    .for_each(|value| *value = in_digits(*value, 4));
    record
}

/// A clock's step coarser than this share of the median makes the median jump from step to step.
const STEP_SHARE_MAX: f64 = 0.05;
/// Then the mean is taken, of all but this share of the greatest samples: interrupts are no part of it.
const TAIL_SHARE: f64 = 0.01;

/// The figure of a round: the median of its sorted samples or, where the clock's step is too coarse for
/// a median, the mean without the tail. A clock that counts steps makes each sample wrong by up to a
/// step, but their mean right.
fn figure(sorted: &[f64], batch: f64) -> f64 {
    let median = stats::quantile_sorted(sorted, 0.5);
    let step_ns = clock::calibration().resolution_ns / batch.max(1.0);
    if step_ns <= STEP_SHARE_MAX * median {
        return median;
    }
    let kept = ((1.0 - TAIL_SHARE) * sorted.len() as f64).ceil() as usize;
    let kept = &sorted[..kept.clamp(1, sorted.len())];
    kept.iter().sum::<f64>() / kept.len() as f64
}

/// What all records of a benchmark share.
pub(super) struct Context<'a> {
    pub spec: &'static Spec,
    pub plan: &'a Plan,
    pub args: BTreeMap<String, u64>,
    pub floors: &'a [(&'static str, &'static Bench, usize)],
    pub started_unix_ns: i64,
    /// The empty operation, alone and in a batch.
    pub empty: (f64, f64),
}

/// A record for each part of each contender that has samples.
pub(super) fn records(context: &Context<'_>, lanes: &[Lane]) -> Vec<Record> {
    let mut records = Vec::new();
    let parts_count = context.spec.parts.len().max(1);
    for part in 0..parts_count {
        for lane in lanes.iter().filter(|lane| !lane.is_floor && !lane.out) {
            if let Some(record) = record(context, lanes, lane, part) {
                records.push(record);
            }
        }
    }
    records
}

fn record(context: &Context<'_>, lanes: &[Lane], lane: &Lane, index: usize) -> Option<Record> {
    let spec = context.spec;
    let declared = spec.parts.get(index);
    let part = &lane.parts[index];
    if part.rounds.is_empty() {
        return None;
    }
    let figure = stats::interval(&part.medians());
    let batch = stats::median(&part.batches).round() as u64;
    let is_time = spec.unit == Unit::Ns;
    let modes = if batch == 1 && is_time {
        stats::modes(&part.pool, clock::calibration().resolution_ns)
    } else {
        None
    };
    let smoke = context.plan.profile == super::Profile::Smoke;
    let mut warnings = noise::warnings(&part.rounds, figure, modes, is_time, smoke);
    warnings.extend(
        lane.placement_notes
            .iter()
            .map(|text| Warning { code: WarningCode::Placement, text: text.clone() }),
    );
    let floor = floors::ratio_to_floor(context, lanes, lane, index);
    warnings.extend(floor.as_ref().filter(|_| !smoke).and_then(floors::beaten));
    let rate = stats::median(&part.rates);
    let totals = &lane.totals;
    let per_op = |count: f64| count / totals.ops.max(1) as f64;
    Some(in_few_digits(Record {
        id: declared.map_or(spec.id.to_string(), |part| format!("{}/{}", spec.id, part.name)),
        spec: spec.id.to_string(),
        contender: lane.bench.contender().name.to_string(),
        kind: lane.bench.contender().kind,
        waits: lane.waits(index),
        allocates: lane.bench.contender().allocates,
        what: declared.map_or(spec.what, |part| part.what).to_string(),
        unit: spec.unit,
        ladder: spec.ladder && declared.is_none_or(|part| part.ladder),
        args: context.args.clone(),
        parties: lane.parties(context.plan),
        started_unix_ns: context.started_unix_ns,
        summary: summary(part, figure, batch),
        rate_per_s: rate,
        bytes_per_s: (totals.bytes_per_op > 0).then_some(rate * totals.bytes_per_op as f64),
        cpus_user: totals.user_ns / totals.wall_ns.max(1.0),
        cpus_system: totals.system_ns / totals.wall_ns.max(1.0),
        switches_voluntary_per_op: per_op(totals.voluntary as f64),
        switches_involuntary_per_s: totals.involuntary as f64 / totals.wall_ns.max(1.0) * 1e9,
        empty: is_time.then(|| match batch {
            1 => context.empty.0,
            _ => context.empty.1 + context.empty.0 / batch as f64,
        }),
        floor,
        peers: peer_ratios(context, lanes, lane, index),
        beside: beside(lanes, lane, index),
        modes: modes.map_or_else(Vec::new, |modes| {
            [modes.fast, modes.slow].map(|(share, median)| Mode { share, median }).to_vec()
        }),
        counters: totals.counters.iter().map(|(name, sum)| (name.clone(), per_op(*sum))).collect(),
        hardware: totals.hardware.map(|[instructions, cycles, misses]| Hardware {
            instructions: per_op(instructions as f64),
            cycles: per_op(cycles as f64),
            cache_misses: per_op(misses as f64),
        }),
        rounds: part.rounds.clone(),
        histogram: encode(&part.histogram),
        warnings,
        anatomy: None,
    }))
}

fn summary(part: &PartLane, figure: stats::Interval, batch: u64) -> Summary {
    let at = |q: f64| part.histogram.value_at_quantile(q) as f64 / 1000.0;
    Summary {
        ops: part.ops,
        samples: part.samples,
        batch,
        median: figure.median,
        low: figure.low,
        high: figure.high,
        min: part.histogram.min() as f64 / 1000.0,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: part.histogram.max() as f64 / 1000.0,
        mean: part.sum / part.ops.max(1) as f64,
    }
}

fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail; should it ever, a record without histogram is still a record.
    match V2DeflateSerializer::new().serialize(histogram, &mut bytes) {
        Ok(_) => STANDARD.encode(bytes),
        Err(_) => String::new(),
    }
}

fn peer_ratios(context: &Context<'_>, lanes: &[Lane], ours: &Lane, index: usize) -> Vec<Ratio> {
    let contender = ours.bench.contender();
    if contender.kind == ContenderKind::Floor {
        return Vec::new();
    }
    let part = context.spec.parts.get(index);
    let id =
        part.map_or(context.spec.id.to_string(), |it| format!("{}/{}", context.spec.id, it.name));
    rivals(lanes, ours)
        .filter(|lane| lane.waits(index) == ours.waits(index))
        .filter_map(|lane| {
            ratio(&ours.parts[index], &lane.parts[index], &id, lane.bench.contender().name)
        })
        .collect()
}

/// Lanes that a lane is compared with, however they wait.
fn rivals<'a>(lanes: &'a [Lane], ours: &'a Lane) -> impl Iterator<Item = &'a Lane> {
    let contender = ours.bench.contender();
    lanes
        .iter()
        .filter(move |lane| !lane.is_floor && !lane.out && !std::ptr::eq(*lane, ours))
        .filter(move |lane| contender.is_held_against(&lane.bench.contender()))
}

/// Peers that wait in another way, with their figures.
fn beside(lanes: &[Lane], ours: &Lane, index: usize) -> Vec<Beside> {
    if ours.bench.contender().kind == ContenderKind::Floor {
        return Vec::new();
    }
    rivals(lanes, ours)
        .filter(|lane| lane.waits(index) != ours.waits(index))
        .filter(|lane| !lane.parts[index].rounds.is_empty())
        .map(|lane| Beside {
            contender: lane.bench.contender().name.to_string(),
            waits: lane.waits(index),
            other: stats::median(&lane.parts[index].medians()),
        })
        .collect()
}

/// The ratio of two lanes' parts: of rounds in one block, undisturbed in both where there are enough.
pub(super) fn ratio(ours: &PartLane, other: &PartLane, id: &str, contender: &str) -> Option<Ratio> {
    let by_block: BTreeMap<u32, &Round> = other.rounds.iter().map(|it| (it.block, it)).collect();
    let both: Vec<(&Round, &Round)> = ours
        .rounds
        .iter()
        .filter_map(|round| Some((round, *by_block.get(&round.block)?)))
        .collect();
    let quiet: Vec<_> = both.iter().filter(|(a, b)| !a.marked && !b.marked).collect();
    let taken = if quiet.len() >= noise::ROUNDS_MIN { quiet } else { both.iter().collect() };
    let pairs: Vec<(f64, f64)> = taken.iter().map(|(a, b)| (a.median, b.median)).collect();
    let found = stats::ratio(&pairs)?;
    Some(Ratio {
        id: id.to_string(),
        contender: contender.to_string(),
        other: stats::median(&other.medians()),
        ratio: found.median,
        low: found.low,
        high: found.high,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits_are_kept_of_any_size() {
        assert_eq!(six_digits(1.234_567_89), 1.234_57);
        assert_eq!(six_digits(123_456_789.0), 123_457_000.0);
        assert_eq!(six_digits(0.000_123_456_789), 0.000_123_457);
        assert_eq!(six_digits(0.0), 0.0);
        assert_eq!(six_digits(f64::NAN), 0.0);
        assert!(six_digits(f64::MAX).is_finite() && six_digits(f64::MIN_POSITIVE).is_finite());
        assert_eq!(in_digits(0.890_380_533, 4), 0.8904);
        assert!(in_digits(f64::NAN, 4).is_nan() && in_digits(f64::INFINITY, 4).is_infinite());
    }

    #[test]
    fn a_stepping_clock_has_its_rounds_averaged() {
        let step = clock::calibration().resolution_ns;
        let mut samples = vec![step; 600];
        samples.extend(vec![2.0 * step; 390]);
        samples.extend(vec![1000.0 * step; 10]);
        let figure = figure(&samples, 1.0);
        assert!((figure / step - 1.394).abs() < 0.01, "{figure} of {step}");
        let long = vec![100.0 * step; 10];
        assert_eq!(super::figure(&long, 1.0), 100.0 * step);
    }
}
