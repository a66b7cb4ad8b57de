//! Figures as text, in the same words on the terminal and the page.

use handover_base::units;
use handover_record::{
    Document, FigureMode, Ratio, Record, RoleUsage, Run, TimingKind, Unit, WarningCode,
};
use std::cmp::Ordering;

/// Value from which a figure is written with an exponent, in any unit.
const PLAIN_MAX: f64 = 1e15;

/// Formats a figure with its unit: `1.23 ns`, `64.0 KiB`, `12`.
pub(crate) fn figure(unit: Unit, value: f64) -> String {
    if !value.is_finite() || value.abs() >= PLAIN_MAX {
        return match unit {
            Unit::Count => format!("{value:.2e}"),
            _ => format!("{value:.2e} {unit}"),
        };
    }
    match unit {
        Unit::Ns => units::format_ns(value),
        Unit::Bytes => units::format_bytes_rate(value).trim_end_matches("/s").to_string(),
        Unit::Count => units::format_count(value),
    }
}

/// Formats the modes of a figure, each as its share and its median: `72 %` and `7.89 ns`, `+ 28 %`
/// and `30.0 ns`.
pub(crate) fn modes(record: &Record) -> Vec<[String; 2]> {
    let shown = |(place, mode): (usize, &FigureMode)| {
        let joint = if place == 0 { "" } else { "+ " };
        [format!("{joint}{:.0} %", mode.share * 100.0), figure(record.unit, mode.median)]
    };
    record.modes.iter().enumerate().map(shown).collect()
}

/// Formats the modes of a figure on one line: `121 ns in 70 %, 4.61 µs in 30 %`. The text is empty
/// if the figure does not have several.
pub(crate) fn modes_line(record: &Record) -> String {
    let shown = |mode: &FigureMode| {
        format!("{} in {:.0} %", figure(record.unit, mode.median), mode.share * 100.0)
    };
    match record.modes.len() {
        0 | 1 => String::new(),
        _ => record.modes.iter().map(shown).collect::<Vec<_>>().join(", "),
    }
}

/// Short description of a figure, in the words of the table and the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShortFigure {
    /// Median with the unit: `1.23 ns`.
    pub figure: String,
    /// Half the width of the 95 % interval, relative to the figure: `±0.4 %`.
    pub interval: String,
    /// Ratio to the floor: `3.10×`; empty without a floor.
    pub by_floor: String,
    /// Letters of the figure's warnings: `w st`; empty without warnings.
    pub warnings: String,
}

impl ShortFigure {
    /// Describes the figure of a record.
    pub fn from_record(record: &Record) -> ShortFigure {
        ShortFigure {
            figure: figure(record.unit, record.summary.median),
            interval: interval(record),
            by_floor: record.floor.as_ref().map_or_else(String::new, |it| ratio(it.ratio)),
            warnings: letters(record),
        }
    }
}

/// Formats half the width of a record's 95 % interval, relative to the figure: `±0.4 %`.
pub(crate) fn interval(record: &Record) -> String {
    // There is no interval for too few passes.
    let Some(half_width) = record.summary.relative_half_width() else { return "–".to_string() };
    let percent = half_width * 100.0;
    match percent {
        p if !p.is_finite() => "±?".to_string(),
        p if p < 9.95 => format!("±{p:.1} %"),
        p if p < 999.5 => format!("±{p:.0} %"),
        _ => "±>999 %".to_string(),
    }
}

/// Returns the kind of a figure: `median` of operations, or `mean`.
pub(crate) fn statistic(record: &Record) -> &'static str {
    if record.summary.is_median() { "median" } else { "mean" }
}

/// Formats the 99 % quantile of the operations' times; empty if no operation was timed alone.
pub(crate) fn p99(record: &Record) -> String {
    let quantiles = record.summary.quantiles();
    quantiles.map_or_else(String::new, |it| figure(record.unit, it.p99))
}

/// Formats the clock's resolution for the end of a sentence: `, in steps of 10.0 ns`. The text is
/// empty if it is unknown.
pub(crate) fn clock_steps(document: &Document) -> String {
    let steps = document.records.iter().map(|it| it.summary.resolution_ns);
    match steps.fold(0.0, f64::max) {
        0.0 => String::new(),
        step_ns => format!(", in steps of {resolution}", resolution = units::format_ns(step_ns)),
    }
}

/// Formats a ratio: `0.83×`, `3.1×`, `310×`.
pub(crate) fn ratio(value: f64) -> String {
    match value {
        v if !v.is_finite() => "?×".to_string(),
        v if v.abs() < 0.0005 => format!("{v:.0e}×"),
        v if v.abs() < 0.0995 => format!("{v:.3}×"),
        v if v.abs() < 9.995 => format!("{v:.2}×"),
        v if v.abs() < 99.95 => format!("{v:.1}×"),
        v if v.abs() < 99_999.5 => format!("{v:.0}×"),
        v => format!("{v:.1e}×"),
    }
}

/// Compares a ratio with 1 by its interval. Returns `Equal` if the interval reaches to within
/// `least` of 1, or is missing.
pub(crate) fn compare_with_one(ratio: &Ratio, least: f64) -> Ordering {
    match ratio.interval_bounds() {
        Some((_, high)) if high < 1.0 / (1.0 + least) => Ordering::Less,
        Some((low, _)) if low > 1.0 + least => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

/// Returns the name of a floor. It is the floor's id or, for a contender of the same figure, the
/// contender's name.
pub(crate) fn floor_name<'a>(record: &Record, floor: &'a Ratio) -> &'a str {
    if floor.id == record.id { &floor.contender } else { &floor.id }
}

/// Formats the name of a floor and its figure: `floor/cache-line 41.2 ns`. The ratio divides by
/// this figure, which is from the same blocks.
pub(crate) fn floor(record: &Record, floor: &Ratio) -> String {
    format!("{} {}", floor_name(record, floor), figure(record.unit, floor.other))
}

/// Formats operations per second, or bytes per second if an operation moves bytes.
pub(crate) fn rate(record: &Record) -> String {
    let per_s = record.bytes_per_s.unwrap_or(record.rate_per_s);
    if !per_s.is_finite() || per_s.abs() >= PLAIN_MAX {
        return format!("{per_s:.1e} /s");
    }
    match record.bytes_per_s {
        Some(bytes) => units::format_bytes_rate(bytes),
        None => units::format_rate(per_s),
    }
}

/// Formats the average number of busy CPUs, from user and system time together.
pub(crate) fn cpus(record: &Record) -> String {
    let cpus = record.cpus_user + record.cpus_system;
    if cpus.is_finite() && cpus.abs() < 9_999.5 {
        format!("{cpus:.2}")
    } else {
        format!("{cpus:.0e}")
    }
}

/// Minimum rate of page faults or context switches that is shown, per operation or per second. A
/// page fault costs about a microsecond, or a millisecond with I/O.
const FAULTS_MIN: f64 = 0.01;

/// Formats the page faults of a record: `0.25/op`, `3.0/s disk`. The text is empty if they are too
/// rare to matter.
pub(crate) fn faults(record: &Record) -> String {
    let minor = record.faults_minor_per_op;
    let minor = (minor >= FAULTS_MIN).then(|| format!("{}/op", short(minor)));
    let major = record.faults_major_per_s;
    let major = (major >= FAULTS_MIN).then(|| format!("{}/s disk", short(major)));
    minor.into_iter().chain(major).collect::<Vec<_>>().join(" ")
}

/// Formats a count with two or three digits.
pub(crate) fn short(value: f64) -> String {
    match value {
        it if it < 0.995 => format!("{it:.2}"),
        it if it < 9.95 => format!("{it:.1}"),
        it => units::format_count(it.round()),
    }
}

/// Describes the resource usage by role, or in total if the record has no roles.
pub(crate) fn resources(record: &Record) -> String {
    let counted =
        |count: f64, what: &str| (count >= FAULTS_MIN).then(|| format!("{} {what}", short(count)));
    let role = |it: &RoleUsage| {
        let cpus = match it.role.as_str() {
            "" => format!("{:.2} CPUs", it.cpus),
            role => format!("{role}: {cpus:.2} CPUs", cpus = it.cpus),
        };
        let delayed = it.delayed.filter(|it| *it >= FAULTS_MIN);
        let parts = [
            Some(cpus),
            delayed.map(|threads| format!("{threads:.2} threads waiting for a CPU on average")),
            counted(it.switches_voluntary_per_op, "switches/op"),
            counted(it.switches_involuntary_per_s, "involuntary switches/s"),
            counted(it.faults_minor_per_op, "page faults/op"),
            counted(it.faults_major_per_s, "page faults/s from disk"),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    if !record.roles.is_empty() {
        return record.roles.iter().map(role).collect::<Vec<_>>().join("; ");
    }
    role(&RoleUsage {
        role: String::new(),
        cpus: record.cpus_user + record.cpus_system,
        delayed: None,
        switches_voluntary_per_op: record.switches_voluntary_per_op,
        switches_involuntary_per_s: record.switches_involuntary_per_s,
        faults_minor_per_op: record.faults_minor_per_op,
        faults_major_per_s: record.faults_major_per_s,
    })
}

/// Returns the version of a run's build, with the commit if it is known: `0.1.0 (0123abc)`.
pub(crate) fn build(run: &Run) -> String {
    match run.commit.as_str() {
        "" => run.version.clone(),
        commit => format!("{} ({commit})", run.version),
    }
}

/// Formats a count with its noun: `1 run`, `2 runs`, `2 processes`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}{}", if noun.ends_with('s') { "es" } else { "s" }),
    }
}

/// Maximum number of names that a sentence lists; the others are counted.
const NAMES_MAX: usize = 4;

/// Lists at most [`NAMES_MAX`] names, and counts the others: `a, b, c, d and 3 more`.
pub(crate) fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let shown = names.iter().take(NAMES_MAX).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Formats a share: `0.4 %`, `12 %`.
pub(crate) fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        p if !p.is_finite() => "? %".to_string(),
        p if p.abs() < 9.95 => format!("{p:.1} %"),
        p if p.abs() < 99_999.5 => format!("{p:.0} %"),
        p => format!("{p:.0e} %"),
    }
}

/// Returns the sentence about the smallest difference that this run can detect.
pub(crate) fn null_line(one: Option<f64>, several: Option<f64>) -> String {
    let limits: Vec<String> = [(one, "one CPU"), (several, "across CPUs")]
        .into_iter()
        // Never below the last digit that is shown.
        .filter_map(|(width, where_)| Some(format!("{} ({where_})", share(width?.max(0.001)))))
        .collect();
    if limits.is_empty() {
        return "The smallest visible difference was not measured in this run.".to_string();
    }
    format!("This run cannot see differences under {limits}.", limits = limits.join(", "))
}

/// Returns a short description of a kind of warning, for the legend.
pub(crate) fn warning_text(code: WarningCode) -> &'static str {
    match code {
        WarningCode::Steal => "steal: the hypervisor took CPU time away",
        WarningCode::Switches => "disturbed: other work ran on the CPUs of the benchmark",
        WarningCode::Slowed => {
            "slowed: the cores ran below their usual pace (busy sibling thread or lower frequency)"
        }
        WarningCode::Bimodal => "two modes: shown separately, not averaged",
        WarningCode::Wide => "wide: the interval was still wide at the time limit",
        WarningCode::Drift => "drift: the last rounds differ from the first",
        WarningCode::Resolution => "resolution: below the resolution of the clock and the loop",
        WarningCode::Few => "few: too few passes for an interval",
        WarningCode::Rate => "rate: the rate contradicts the figure",
        WarningCode::Placement => {
            "placement: the participants do not run at the requested placement"
        }
        WarningCode::FloorBeaten => {
            "floor beaten: the figure is below its floor, which is therefore not a lower bound"
        }
        WarningCode::Timing => {
            "timing: runs that timed its operations in another way than most do not count"
        }
        WarningCode::Seen => "seen: earlier runs on this machine lie outside this run's interval",
        WarningCode::Smoke => "smoke: run once, not measured",
    }
}

/// Returns the name of a kind of warning, such as `disturbed`.
pub fn warning_name(code: WarningCode) -> &'static str {
    let text = warning_text(code);
    text.split_once(':').map_or(text, |(name, _)| name)
}

/// Returns the letters of a record's warnings, each once: `w st`.
pub(crate) fn letters(record: &Record) -> String {
    let mut letters: Vec<&str> = Vec::new();
    for warning in &record.warnings {
        let letter = warning.code.table_letters();
        if !letters.contains(&letter) {
            letters.push(letter);
        }
    }
    letters.join(" ")
}

/// Formats the arguments that `is_shown` accepts, and the placement of the participants, in one
/// line.
pub(crate) fn arguments(record: &Record, is_shown: impl Fn(&str, u64) -> bool) -> String {
    let args = record.args.iter().filter(|(name, value)| is_shown(name, **value));
    let mut conditions: Vec<String> = args.map(|(name, value)| format!("{name}={value}")).collect();
    let participants = &record.participants;
    if participants.cpus.len() > 1 {
        let roles = participants.roles.iter().zip(&participants.cpus);
        let placed: Vec<String> = roles.map(|(role, cpu)| format!("{role} on CPU {cpu}")).collect();
        conditions.push(placed.join(", "));
    }
    if participants.processes {
        conditions.push("in processes".to_string());
    }
    if participants.idle_gap_ns > 0 {
        let time = units::format_ns(participants.idle_gap_ns as f64);
        conditions.push(match record.summary.timing_kind() {
            TimingKind::Single => format!("idle gap {time}"),
            TimingKind::Batch => format!("idle gap {time} before each batch"),
        });
    }
    if let Some(cpu) = participants.neighbour_cpu {
        conditions.push(format!("with a busy thread on CPU {cpu} (--neighbour)"));
    }
    conditions.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_rounded_by_their_size() {
        let shown: Vec<String> =
            [0.0, 0.0123, 0.834, 1.0, 3.104, 31.04, 310.4, 3.1e7].into_iter().map(ratio).collect();
        assert_eq!(shown, ["0e0×", "0.012×", "0.83×", "1.00×", "3.10×", "31.0×", "310×", "3.1e7×"]);
    }

    #[test]
    fn figures_of_any_size_are_short() {
        for unit in [Unit::Ns, Unit::Bytes, Unit::Count] {
            for value in [0.0, 1e-300, 0.71, 12.0, 1e12, 1e15, 1e300, f64::MAX, f64::INFINITY] {
                let shown = figure(unit, value);
                assert!(shown.len() <= 18, "{shown}");
            }
        }
        assert_eq!(figure(Unit::Bytes, 65536.0), "64.0 KiB");
    }

    #[test]
    fn null_line_contains_the_measured_limits() {
        assert_eq!(
            null_line(Some(0.012), Some(0.034)),
            "This run cannot see differences under 1.2 % (one CPU), 3.4 % (across CPUs)."
        );
        assert_eq!(
            null_line(None, Some(0.12)),
            "This run cannot see differences under 12 % (across CPUs)."
        );
        assert!(null_line(Some(0.0003), None).contains("under 0.1 % (one CPU)"));
        assert!(null_line(None, None).contains("was not measured"));
    }
}
