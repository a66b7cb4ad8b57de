//! Conversion of a benchmark's rounds to its records.

use super::Plan;
use super::contender::{MeasuredContender, Measurements, PartMeasurements, round_to_digits};
use super::ratios::{self, FloorPart};
use crate::noise::{self, FigureFacts};
use crate::spent::ResourceUsage;
use crate::stats::{self, MedianEstimate};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use handover_base::clock;
use handover_record::{
    FigureMode, HardwareCounts, Record, RoleUsage, Spec, Summary, TimingKind, Unit, Wait, Warning,
    WarningCode,
};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use std::collections::BTreeMap;

/// Rounds the numbers of a record. Figures get six significant digits, ratios and rate five, and
/// resource usage four.
fn round_record(mut record: Record) -> Record {
    let modes = record.modes.iter_mut().flat_map(|it| [&mut it.share, &mut it.median]);
    let hardware = record.hardware.iter_mut();
    let hardware =
        hardware.flat_map(|it| [&mut it.instructions, &mut it.cycles, &mut it.cache_misses]);
    let numbers = record.summary.numeric_fields_mut().map(|it| it.1);
    numbers
        .chain(record.bytes_per_s.iter_mut().chain(&mut record.empty))
        .chain(modes.chain(hardware).chain(record.counters.values_mut()))
        .for_each(|value| *value = round_to_digits(*value, 6));
    record.peers_without_ratio.iter_mut().for_each(|it| it.other = round_to_digits(it.other, 5));
    let ratios = record.floor.iter_mut().chain(&mut record.peers);
    ratios
        .flat_map(|it| {
            let ends = it.low.iter_mut().chain(&mut it.high);
            [&mut it.other, &mut it.ratio].into_iter().chain(ends)
        })
        .chain([&mut record.rate_per_s])
        .for_each(|value| *value = round_to_digits(*value, 5));
    [
        &mut record.cpus_user,
        &mut record.cpus_system,
        &mut record.switches_voluntary_per_op,
        &mut record.switches_involuntary_per_s,
        &mut record.faults_minor_per_op,
        &mut record.faults_major_per_s,
    ]
    .into_iter()
    .chain(record.roles.iter_mut().flat_map(|it| it.numeric_fields_mut().map(|it| it.1)))
    .for_each(|value| *value = round_to_digits(*value, 4));
    record
}

/// Data shared by all records of a benchmark.
pub(super) struct RecordContext<'a> {
    pub spec: &'static Spec,
    pub plan: &'a Plan,
    pub args: BTreeMap<String, u64>,
    pub floors: &'a [FloorPart],
    pub started_unix_ns: i64,
    /// Measured time of an empty operation in ns, timed alone and in a batch.
    pub empty_operation_ns: (f64, f64),
}

/// Returns a record for each contender and part with measured rounds.
pub(super) fn summarise_records(
    context: &RecordContext<'_>,
    contenders: &[MeasuredContender],
) -> Vec<Record> {
    let mut records = Vec::new();
    let parts_count = context.spec.parts.len().max(1);
    for part in 0..parts_count {
        for contender in contenders.iter().filter(|it| !it.is_floor && !it.facts.is_out) {
            if let Some(record) = record(context, contenders, contender, part) {
                records.push(record);
            }
        }
    }
    records
}

/// Returns the record of a contender's figure for the part at `index`; `None` if it has no rounds.
fn record(
    context: &RecordContext<'_>,
    contenders: &[MeasuredContender],
    contender: &MeasuredContender,
    index: usize,
) -> Option<Record> {
    let spec = context.spec;
    let declared = spec.parts.get(index);
    let part = &contender.measured.parts[index];
    if part.rounds.is_empty() {
        return None;
    }
    let figure = part.figure();
    let batch = stats::median(&part.batches).round() as u64;
    let is_time = spec.unit == Unit::Ns;
    let modes = if is_time { find_modes(part, figure.median) } else { None };
    let rate = stats::median(&part.rates);
    let is_smoke = context.plan.profile == super::Profile::Smoke;
    let mut warnings = noise::noise_warnings(&FigureFacts {
        rounds: &part.rounds,
        figure,
        undisturbed: part.undisturbed(),
        modes,
        is_time,
        is_smoke,
    });
    let measured_count = contender.roles.iter().filter(|role| role.measured).count() as u64;
    let concurrent_operations =
        (measured_count * contender.measured.concurrent_operations.max(1)) as f64;
    if is_time && context.plan.profile != super::Profile::Smoke {
        warnings.extend(noise::rate_warning(
            rate,
            figure.median,
            concurrent_operations,
            part.is_rate_by_wall_clock,
        ));
    }
    warnings.extend(
        contender
            .placement_notes
            .iter()
            .map(|text| Warning { code: WarningCode::Placement, text: text.clone() }),
    );
    if contender.round_params.is_crowded() && contender.waits(index) == Wait::Spin {
        let text =
            "participants that spin share a CPU: the figure includes their yields to each other";
        warnings.push(Warning { code: WarningCode::Placement, text: text.to_string() });
    }
    let floor = ratios::ratio_to_floor(spec, context.floors, contenders, contender, index);
    warnings.extend(floor.as_ref().filter(|_| !is_smoke).and_then(ratios::warning_if_beaten));
    let totals = &contender.measured;
    let per_op = |count: f64| count / totals.ops.max(1) as f64;
    let (used, all) = (totals.used, usage_rates(String::new(), totals.used, totals));
    Some(round_record(Record {
        id: declared.map_or(spec.id.to_string(), |part| format!("{}/{}", spec.id, part.name)),
        spec: spec.id.to_string(),
        contender: contender.bench.contender().name.to_string(),
        kind: contender.contender_in(index).kind,
        waits: contender.waits(index),
        allocates: contender.bench.contender().allocates,
        what: declared.map_or(spec.what, |part| part.what).to_string(),
        unit: spec.unit,
        ladder: spec.ladder && declared.is_none_or(|part| part.ladder),
        args: context.args.clone(),
        participants: contender.participants(context.plan),
        started_unix_ns: context.started_unix_ns,
        summary: summary(part, figure, batch),
        rate_per_s: rate,
        bytes_per_s: (totals.bytes_per_op > 0).then_some(rate * totals.bytes_per_op as f64),
        cpus_user: used.user_ns as f64 / totals.wall_ns.max(1.0),
        cpus_system: used.system_ns as f64 / totals.wall_ns.max(1.0),
        switches_voluntary_per_op: all.switches_voluntary_per_op,
        switches_involuntary_per_s: all.switches_involuntary_per_s,
        faults_minor_per_op: all.faults_minor_per_op,
        faults_major_per_s: all.faults_major_per_s,
        roles: usage_by_role(contender),
        empty: is_time.then(|| match batch {
            1 => context.empty_operation_ns.0,
            _ => context.empty_operation_ns.1 + context.empty_operation_ns.0 / batch as f64,
        }),
        floor,
        peers: ratios::ratios_to_peers(spec, contenders, contender, index),
        peers_without_ratio: ratios::peers_with_other_waits(contenders, contender, index),
        modes: modes.map_or_else(Vec::new, |(_, modes)| {
            [modes.fast, modes.slow].map(|(share, median)| FigureMode { share, median }).to_vec()
        }),
        counters: totals.counters.iter().map(|(name, sum)| (name.clone(), per_op(*sum))).collect(),
        hardware: totals.hardware.map(|[instructions, cycles, misses]| HardwareCounts {
            instructions: per_op(instructions as f64),
            cycles: per_op(cycles as f64),
            cache_misses: per_op(misses as f64),
        }),
        rounds: part.rounds.clone(),
        histogram: encode_histogram(&part.histogram),
        warnings,
        anatomy: None,
    }))
}

/// Finds two modes in a part's operations, rounds or passes; `None` if none of them has two. Also
/// returns the name of the values that have them.
fn find_modes(part: &PartMeasurements, figure: f64) -> Option<(&'static str, stats::Modes)> {
    let step = clock::calibration().resolution_ns;
    if part.timing() == TimingKind::Single {
        let counted = part.histogram.iter_recorded();
        let values: Vec<(f64, u64)> = counted
            .map(|it| (it.value_iterated_to() as f64 / 1000.0, it.count_since_last_iteration()))
            .collect();
        if let Some(modes) = stats::find_modes_of_counts(&values, step) {
            return Some(("operations", modes));
        }
    }
    let step = step.min(figure / 100.0);
    let rounds: Vec<f64> = part.rounds.iter().map(|round| round.median).collect();
    let passes = part.by_pass(|round, _| Some(round.median));
    [("rounds", rounds), ("passes", passes)]
        .into_iter()
        .find_map(|(of, values)| Some((of, stats::find_modes(&values, step)?)))
}

/// Returns the figure of a part with its interval and quantiles. There are no quantiles if only
/// batches were timed.
fn summary(part: &PartMeasurements, figure: MedianEstimate, batch: u64) -> Summary {
    // Histograms of batches have no quantiles of operations.
    let has_operations = batch <= 1 || part.alone > 0;
    let at = |q: f64| has_operations.then(|| part.histogram.value_at_quantile(q) as f64 / 1000.0);
    Summary {
        ops: part.ops,
        samples: part.samples,
        batch,
        median: figure.median,
        low: figure.interval.map(|ends| ends.0),
        high: figure.interval.map(|ends| ends.1),
        undisturbed: part.undisturbed(),
        single_ops: part.alone,
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

/// Compresses the histogram and encodes it as base64, as records store it.
fn encode_histogram(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail; if it did, a record without a histogram is still valid.
    match V2DeflateSerializer::new().serialize(histogram, &mut bytes) {
        Ok(_) => STANDARD.encode(bytes),
        Err(_) => String::new(),
    }
}

/// CPU usage, in CPUs, above which the threads that are not participants are listed.
const OTHERS_CPUS_MIN: f64 = 0.005;

/// Returns the resource usage of each role and, if noticeable, of other threads. The list is empty
/// if there would be only one entry.
fn usage_by_role(contender: &MeasuredContender) -> Vec<RoleUsage> {
    let totals = &contender.measured;
    let mut by_role: Vec<(&str, ResourceUsage)> = Vec::new();
    let mut others = totals.used;
    for (role, spent) in contender.roles.iter().zip(&totals.by_participant) {
        match by_role.iter_mut().find(|it| it.0 == role.name) {
            Some((_, sum)) => *sum += *spent,
            None => by_role.push((role.name, *spent)),
        }
        others = others.saturating_sub(*spent);
    }
    let mut roles: Vec<RoleUsage> = by_role
        .into_iter()
        .map(|(role, spent)| usage_rates(role.to_string(), spent, totals))
        .collect();
    let others = usage_rates(RoleUsage::OTHER_THREADS_ROLE.to_string(), others, totals);
    if others.cpus > OTHERS_CPUS_MIN {
        roles.push(others);
    }
    if roles.len() > 1 { roles } else { Vec::new() }
}

/// Converts resource usage to rates: per second of wall-clock time, and per operation.
fn usage_rates(role: String, spent: ResourceUsage, totals: &Measurements) -> RoleUsage {
    let cpus = |ns: u64| ns as f64 / totals.wall_ns.max(1.0);
    let per_op = |count: u64| count as f64 / totals.ops.max(1) as f64;
    let per_s = |count: u64| count as f64 / totals.wall_ns.max(1.0) * 1e9;
    RoleUsage {
        role,
        cpus: cpus(spent.user_ns + spent.system_ns),
        delayed: spent.delayed_ns.map(cpus),
        switches_voluntary_per_op: per_op(spent.switches_voluntary),
        switches_involuntary_per_s: per_s(spent.switches_involuntary),
        faults_minor_per_op: per_op(spent.faults_minor),
        faults_major_per_s: per_s(spent.faults_major),
    }
}
