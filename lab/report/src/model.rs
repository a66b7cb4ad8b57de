//! Selection and order of the figures, and of the contenders that are listed.

use crate::figure_key::comparable_key;
use crate::format;
use handover_record::{ContenderKind, Document, Ratio, Record, Run, WarningCode};
use std::cmp::Ordering;

/// A run, or several runs as one, with the name under which a page shows it.
#[derive(Clone, Debug)]
pub struct NamedRun {
    /// Name in legends and headings.
    pub name: String,
    /// Run that is shown.
    pub document: Document,
}

impl From<Document> for NamedRun {
    /// Names a run by its machine and date.
    fn from(document: Document) -> NamedRun {
        let (host, date) = (&document.host.name, format_utc(document.run.started_unix_ns));
        NamedRun { name: format!("{host}, {date}"), document }
    }
}

/// Figures of a document in the order of display.
pub(crate) struct Model<'a> {
    /// Groups of figures, one per mechanism, in order of first appearance.
    pub groups: Vec<MechanismGroup<'a>>,
    /// Number of figures that the default table hides.
    pub off_ladder_count: usize,
    records: &'a [Record],
    run: &'a Run,
    /// `true` to list every contender of each figure; `false` for the representative ones only.
    pub all: bool,
}

/// Figures of one mechanism.
pub(crate) struct MechanismGroup<'a> {
    /// Mechanism: first component of the figures' ids.
    pub name: &'a str,
    pub figures: Vec<FigureRows<'a>>,
}

/// One figure with its listed contenders.
pub(crate) struct FigureRows<'a> {
    /// Id of the figure.
    pub id: &'a str,
    /// Contenders that are listed, each in a row.
    pub rows: Vec<&'a Record>,
}

impl<'a> Model<'a> {
    /// Groups the figures of a document by mechanism, and selects the contenders to list. With
    /// `all`, every contender of every figure is listed. Otherwise ours represent their figure, or
    /// its floors if there is none of ours, or else every contender; and figures that their spec
    /// hides in the default run are omitted if the document is a default run (every spec has a
    /// visible figure).
    pub fn new(document: &'a Document, all: bool) -> Model<'a> {
        let records = &document.records;
        let on_ladder = |spec: &str| records.iter().any(|it| it.spec == spec && it.ladder);
        let is_ladder = !all && records.iter().all(|it| on_ladder(&it.spec));
        let mut groups: Vec<MechanismGroup<'a>> = Vec::new();
        for record in records {
            let name = record.id.split('/').next().unwrap_or_default();
            let group = find_or_push(
                &mut groups,
                |it| it.name == name,
                || MechanismGroup { name, figures: Vec::new() },
            );
            let figure = find_or_push(
                &mut group.figures,
                |it| it.id == record.id,
                || FigureRows { id: &record.id, rows: Vec::new() },
            );
            figure.rows.push(record);
        }
        let mut off_ladder_count = 0;
        for group in &mut groups {
            group.figures.retain(|figure| {
                let kept = !is_ladder || figure.rows.iter().any(|it| it.ladder);
                off_ladder_count += usize::from(!kept);
                kept
            });
            if !all {
                group.figures.iter_mut().for_each(|figure| keep_representatives(&mut figure.rows));
            }
        }
        groups.retain(|group| !group.figures.is_empty());
        Model { groups, off_ladder_count, records, run: &document.run, all }
    }

    /// Compares a ratio with 1 by its interval. Returns `Equal` if the difference is below the
    /// resolution of this run.
    pub fn compare_with_one(&self, record: &Record, ratio: &Ratio) -> Ordering {
        let seen = if record.participants.has_several_cpus() {
            self.run.null_several
        } else {
            self.run.null_one
        };
        format::compare_with_one(ratio, seen.unwrap_or(0.0))
    }

    /// Iterates over all listed records, in order.
    pub fn rows(&self) -> impl Iterator<Item = &'a Record> {
        let figures = self.groups.iter().flat_map(|group| &group.figures);
        figures.flat_map(|figure| figure.rows.iter().copied())
    }

    /// Returns the arguments in which a record differs from others of its figure: `slots=64`. A
    /// sweep has such records.
    pub fn varying_arguments(&self, record: &Record) -> String {
        let varying = record.args.iter().filter(|(name, value)| self.varies(record, name, **value));
        varying.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    /// Returns `true` if another record of the same figure has another value of the argument.
    pub fn varies(&self, record: &Record, name: &str, value: u64) -> bool {
        let mut others = self.records.iter().filter(|it| it.id == record.id);
        others.any(|it| it.args.get(name) != Some(&value))
    }

    /// Returns a record's contender, with the arguments that distinguish it from others of its
    /// figure.
    pub fn contender_label(&self, record: &Record) -> String {
        match self.varying_arguments(record) {
            varied if varied.is_empty() => record.contender.clone(),
            varied => format!("{}, {varied}", record.contender),
        }
    }

    /// Returns the warnings of the listed records: each kind with its texts and figures.
    pub fn warnings(&self) -> Vec<WarningGroup<'a>> {
        let mut warnings: Vec<WarningGroup<'a>> = Vec::new();
        let several = |id: &str| self.rows().filter(|it| it.id == id).count() > 1;
        for record in self.rows() {
            let name = match several(&record.id) {
                true => format!("{} [{}]", record.id, self.contender_label(record)),
                false => record.id.clone(),
            };
            for warning in &record.warnings {
                let group = find_or_push(
                    &mut warnings,
                    |it| it.code == warning.code,
                    || WarningGroup { code: warning.code, texts: Vec::new() },
                );
                let found = find_or_push(
                    &mut group.texts,
                    |it| it.0 == warning.text,
                    || (warning.text.as_str(), Vec::new()),
                );
                if found.1.last() != Some(&name) {
                    found.1.push(name.clone());
                }
            }
        }
        warnings
    }
}

/// Warnings of one kind: each text with the figures that it applies to.
pub(crate) struct WarningGroup<'a> {
    pub code: WarningCode,
    /// Texts of the warnings, each with the names of its figures.
    pub texts: Vec<(&'a str, Vec<String>)>,
}

/// Removes all rows except those that represent the figure. These are ours, or else the floors, or
/// else all; one of a null benchmark.
fn keep_representatives(rows: &mut Vec<&Record>) {
    for kind in [ContenderKind::Ours, ContenderKind::Floor] {
        if rows.iter().any(|it| it.kind == kind) {
            return rows.retain(|it| it.kind == kind);
        }
    }
    // Two records of the same contender: one row is enough, as it shows the difference to the
    // other.
    if rows.iter().all(|it| it.kind == ContenderKind::Null) {
        rows.truncate(1);
    }
}

/// Returns the first element that `is_it` accepts. If there is none, appends the result of `make`.
pub(crate) fn find_or_push<T>(
    list: &mut Vec<T>,
    is_it: impl Fn(&T) -> bool,
    make: impl FnOnce() -> T,
) -> &mut T {
    let place = list.iter().position(is_it).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    });
    &mut list[place]
}

/// Returns the record of the same figure in another run, if its operations were timed in the same
/// way.
pub(crate) fn matching_record<'a>(other: &'a Document, record: &Record) -> Option<&'a Record> {
    let key = comparable_key(record);
    other.records.iter().find(|it| it.id == record.id && comparable_key(it) == key)
}

/// Returns the line that describes the machine: its name, CPU model, CPUs and hypervisor.
pub(crate) fn host_line(document: &Document) -> String {
    let host = &document.host;
    let mut parts = Vec::new();
    if !host.name.is_empty() {
        parts.push(host.name.clone());
    }
    if !host.cpu_model.is_empty() {
        parts.push(host.cpu_model.clone());
    }
    if host.cpus_online > 0 {
        parts.push(match host.cpus_allowed.len() {
            0 => format!("{} CPUs", host.cpus_online),
            allowed => format!("{allowed} of {online} CPUs", online = host.cpus_online),
        });
    }
    if let Some(hypervisor) = &host.hypervisor {
        parts.push(hypervisor.clone());
    }
    parts.join(", ")
}

/// Returns the line that describes the run: its id, profile and start.
pub(crate) fn run_line(document: &Document) -> String {
    let run = &document.run;
    let (id, profile, start_time) = (&run.id, &run.profile, format_utc(run.started_unix_ns));
    format!("run {id}, {profile}, {start_time}")
}

/// Formats nanoseconds since the Unix epoch as `2026-11-21 21:30 UTC`.
pub(crate) fn format_utc(unix_ns: i64) -> String {
    // The range of an i64 lies within that of a timestamp.
    let time = jiff::Timestamp::from_nanosecond(unix_ns.into()).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::format_utc;

    #[test]
    fn days_are_converted_to_dates() {
        let at = |seconds: i64| format_utc(seconds * 1_000_000_000);
        assert_eq!(at(0), "1970-01-01 00:00 UTC");
        assert_eq!(at(-1), "1969-12-31 23:59 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(at(1_795_296_600), "2026-11-21 21:30 UTC");
        assert_eq!(format_utc(i64::MAX), "2262-04-11 23:47 UTC");
        assert_eq!(format_utc(i64::MIN), "1677-09-21 00:12 UTC");
    }
}
