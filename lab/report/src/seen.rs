//! Changes to a run before it is shown: warnings about figures that differ from earlier runs on the
//! same machine, and removal of the ratios of smoke runs.

use crate::figure_key::{FigureKey, comparable_key};
use crate::format;
use handover_record::{Document, Record, TimingKind, Warning, WarningCode};
use std::collections::BTreeMap;

/// Minimum number of runs, including this one, for a warning.
const RUNS_MIN: usize = 3;

/// Adds a warning to each figure whose interval excludes a median of the `earlier` runs. The
/// warning gives the range of the medians. The interval is the precision within one run; the next
/// run may lie outside.
///
/// Figures count if they have the same id, contender, arguments, placement and kind of timing. Runs
/// on other machines and smoke runs are ignored.
pub fn warn_of_differing_runs(document: &mut Document, earlier: &[Document]) {
    let is_comparable = |it: &&Document| {
        it.host.name == document.host.name
            && it.host.cpu_model == document.host.cpu_model
            && it.run.id != document.run.id
    };
    let mut known: BTreeMap<(FigureKey, TimingKind), Vec<f64>> = BTreeMap::new();
    for record in earlier.iter().filter(is_comparable).flat_map(|it| &it.records) {
        if !is_smoke(record) {
            known.entry(comparable_key(record)).or_default().push(record.summary.median);
        }
    }
    for record in document.records.iter_mut().filter(|it| !is_smoke(it)) {
        let Some((low, high)) = record.summary.interval_bounds() else { continue };
        let Some(medians) = known.get(&comparable_key(record)) else { continue };
        let is_outside = medians.iter().any(|median| *median < low || *median > high);
        if medians.len() + 1 < RUNS_MIN || !is_outside {
            continue;
        }
        let least = medians.iter().copied().fold(record.summary.median, f64::min);
        let most = medians.iter().copied().fold(record.summary.median, f64::max);
        let text = format!(
            "medians from {} to {} in {} runs on this machine",
            format::figure(record.unit, least),
            format::figure(record.unit, most),
            medians.len() + 1
        );
        record.warnings.push(Warning { code: WarningCode::Seen, text });
    }
}

/// Removes the ratios of figures from smoke runs, which are not measurements.
pub fn remove_smoke_ratios(document: &mut Document) {
    for record in document.records.iter_mut().filter(|it| is_smoke(it)) {
        record.floor = None;
        record.peers.clear();
        record.peers_without_ratio.clear();
    }
}

/// Returns `true` if a figure comes from a smoke run, which is not a measurement.
pub(crate) fn is_smoke(record: &Record) -> bool {
    record.warnings.iter().any(|it| it.code == WarningCode::Smoke)
}
