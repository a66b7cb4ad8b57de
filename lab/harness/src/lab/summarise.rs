//! Conversion of a benchmark's rounds to its records.

use super::Plan;
use super::floors;
use super::lane::{Lane, PartMeasured, in_digits, medians_by_pass};
use crate::bench::Bench;
use crate::noise::{self, Findings};
use crate::stats::{self, Estimate};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use handover_base::clock;
use handover_record::{
    Beside, ContenderKind, Hardware, Mode, Ratio, Record, Round, Spec, Summary, TimingKind, Unit,
    Wait, Warning, WarningCode,
};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use std::collections::BTreeMap;

/// Rounds a record's figures to six digits, its ratios to five, and values that are never compared
/// to four.
fn in_few_digits(mut record: Record) -> Record {
    let modes = record.modes.iter_mut().flat_map(|it| [&mut it.share, &mut it.median]);
    let hardware = record.hardware.iter_mut();
    let hardware =
        hardware.flat_map(|it| [&mut it.instructions, &mut it.cycles, &mut it.cache_misses]);
    let numbers = record.summary.numbers_mut().map(|it| it.1);
    numbers
        .chain(record.bytes_per_s.iter_mut().chain(&mut record.empty))
        .chain(modes.chain(hardware).chain(record.counters.values_mut()))
        .for_each(|value| *value = in_digits(*value, 6));
    record.beside.iter_mut().for_each(|it| it.other = in_digits(it.other, 5));
    let ratios = record.floor.iter_mut().chain(&mut record.peers);
    ratios
        .flat_map(|it| {
            let ends = it.low.iter_mut().chain(&mut it.high);
            [&mut it.other, &mut it.ratio].into_iter().chain(ends)
        })
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

/// Data common to all records of a benchmark.
pub(super) struct Context<'a> {
    pub spec: &'static Spec,
    pub plan: &'a Plan,
    pub args: BTreeMap<String, u64>,
    pub floors: &'a [(&'static str, &'static Bench, usize)],
    pub started_unix_ns: i64,
    /// Cost of the empty operation, alone and in a batch, in ns.
    pub empty: (f64, f64),
}

/// Returns a record for each part of each contender that has samples.
pub(super) fn records(context: &Context<'_>, lanes: &[Lane]) -> Vec<Record> {
    let mut records = Vec::new();
    let parts_count = context.spec.parts.len().max(1);
    for part in 0..parts_count {
        for lane in lanes.iter().filter(|lane| !lane.is_floor && !lane.known.is_out) {
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
    let part = &lane.measured.parts[index];
    if part.rounds.is_empty() {
        return None;
    }
    let figure = part.figure();
    let batch = stats::median(&part.batches).round() as u64;
    let is_time = spec.unit == Unit::Ns;
    let modes = if is_time { modes(part, figure.median) } else { None };
    let rate = stats::median(&part.rates);
    let is_smoke = context.plan.profile == super::Profile::Smoke;
    let mut warnings = noise::warnings(&Findings {
        rounds: &part.rounds,
        figure,
        undisturbed: part.undisturbed(),
        modes,
        is_time,
        is_smoke,
    });
    let measured_count = lane.roles.iter().filter(|role| role.measured).count() as u64;
    let at_a_time = (measured_count * lane.measured.abreast.max(1)) as f64;
    if is_time && context.plan.profile != super::Profile::Smoke {
        warnings.extend(noise::rate(rate, figure.median, at_a_time));
    }
    warnings.extend(
        lane.placement_notes
            .iter()
            .map(|text| Warning { code: WarningCode::Placement, text: text.clone() }),
    );
    if lane.stage.crowded() && lane.waits(index) == Wait::Spin {
        let text = "parties that spin share a CPU: the figure is of their giving way to each other";
        warnings.push(Warning { code: WarningCode::Placement, text: text.to_string() });
    }
    let floor = floors::ratio_to_floor(context, lanes, lane, index);
    warnings.extend(floor.as_ref().filter(|_| !is_smoke).and_then(floors::beaten));
    let totals = &lane.measured;
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
        modes: modes.map_or_else(Vec::new, |(_, modes)| {
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

/// Returns the two modes of operations, of rounds or of passes, whichever is found first, with its
/// name.
fn modes(part: &PartMeasured, figure: f64) -> Option<(&'static str, stats::Modes)> {
    let step = clock::calibration().resolution_ns;
    if part.timing() == TimingKind::Single {
        let counted = part.histogram.iter_recorded();
        let values: Vec<(f64, u64)> = counted
            .map(|it| (it.value_iterated_to() as f64 / 1000.0, it.count_since_last_iteration()))
            .collect();
        if let Some(modes) = stats::modes_counted(&values, step) {
            return Some(("operations", modes));
        }
    }
    let step = step.min(figure / 100.0);
    let rounds: Vec<f64> = part.rounds.iter().map(|round| round.median).collect();
    let passes = part.by_pass(|round, _| Some(round.median));
    [("rounds", rounds), ("passes", passes)]
        .into_iter()
        .find_map(|(of, values)| Some((of, stats::modes(&values, step)?)))
}

fn summary(part: &PartMeasured, figure: Estimate, batch: u64) -> Summary {
    // Histograms of batches have no quantiles of operations.
    let has_operations = batch <= 1 || part.alone > 0;
    let at = |q: f64| has_operations.then(|| part.histogram.value_at_quantile(q) as f64 / 1000.0);
    Summary {
        ops: part.ops,
        samples: part.samples,
        batch,
        median: figure.median,
        low: figure.ends.map(|ends| ends.0),
        high: figure.ends.map(|ends| ends.1),
        undisturbed: part.undisturbed(),
        alone: part.alone,
        resolution_ns: clock::calibration().resolution_ns,
        min: has_operations.then(|| part.histogram.min() as f64 / 1000.0),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: has_operations.then(|| part.histogram.max() as f64 / 1000.0),
        mean: part.sum / part.ops.max(1) as f64,
    }
}

fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail; if it did, a record without a histogram is still valid.
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
            let (ours, other) = (&ours.measured.parts[index], &lane.measured.parts[index]);
            ratio(ours, other, &id, lane.bench.contender().name)
        })
        .collect()
}

/// Returns the lanes that a lane is compared with, regardless of how they wait.
fn rivals<'a>(lanes: &'a [Lane], ours: &'a Lane) -> impl Iterator<Item = &'a Lane> {
    let contender = ours.bench.contender();
    lanes
        .iter()
        .filter(move |lane| !lane.is_floor && !lane.known.is_out && !std::ptr::eq(*lane, ours))
        .filter(move |lane| contender.is_held_against(&lane.bench.contender()))
}

/// Returns the peers that wait in another way, with their figures.
fn beside(lanes: &[Lane], ours: &Lane, index: usize) -> Vec<Beside> {
    if ours.bench.contender().kind == ContenderKind::Floor {
        return Vec::new();
    }
    rivals(lanes, ours)
        .filter(|lane| lane.waits(index) != ours.waits(index))
        .filter(|lane| !lane.measured.parts[index].rounds.is_empty())
        .map(|lane| Beside {
            contender: lane.bench.contender().name.to_string(),
            waits: lane.waits(index),
            other: lane.measured.parts[index].figure().median,
        })
        .collect()
}

/// Returns the ratio of two lanes' parts: per pass, from the logarithms of the ratios within
/// blocks, so that a/b and b/a agree. `None` if no block has both.
pub(super) fn ratio(
    ours: &PartMeasured,
    other: &PartMeasured,
    id: &str,
    contender: &str,
) -> Option<Ratio> {
    let at = |round: &Round| (round.pass, round.block);
    let by_block: BTreeMap<_, f64> =
        other.rounds.iter().map(|it| (at(it), it.median)).filter(|it| it.1 > 0.0).collect();
    let logs =
        ours.rounds.iter().filter(|it| it.median > 0.0).filter_map(|round| {
            Some((round.pass, (round.median / by_block.get(&at(round))?).ln()))
        });
    let by_pass = medians_by_pass(logs);
    if by_pass.is_empty() {
        return None;
    }
    let found = stats::over_passes(&by_pass).map(f64::exp);
    Some(Ratio {
        id: id.to_string(),
        contender: contender.to_string(),
        other: other.figure().median,
        ratio: found.median,
        low: found.ends.map(|ends| ends.0),
        high: found.ends.map(|ends| ends.1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part with one round per block and three blocks per pass.
    fn part(figure: impl Fn(u32) -> f64) -> PartMeasured {
        let mut part = PartMeasured::default();
        for block in 0..24 {
            let pass = block / 3;
            // Blocks are numbered from 0 in each pass.
            let block_of_pass = block % 3;
            part.put(Round {
                pass,
                block: block_of_pass,
                median: figure(block),
                ..Round::default()
            });
        }
        part
    }

    #[test]
    fn drift_common_to_both_leaves_the_ratio_alone() {
        let (ours, other) = (part(|it| 2.0 * f64::from(it + 1)), part(|it| f64::from(it + 1)));
        let it = ratio(&ours, &other, "a/b", "other").expect("blocks with both");
        let (low, high) = it.ends().expect("eight passes");
        assert!((it.ratio - 2.0).abs() < 1e-9 && high - low < 1e-9, "{it:?}");
        let turned = ratio(&other, &ours, "a/b", "ours").expect("blocks with both");
        assert!((it.ratio * turned.ratio - 1.0).abs() < 1e-9);
        assert!(ratio(&ours, &part(|_| 0.0), "a/b", "nothing").is_none());
    }
}
