//! `handover run --repeat`: combination of the runs of all processes into one.

use handover_harness::stats;
use handover_record::{Document, FigureMode, Ratio, Record, Round, Warning, WarningCode};
use handover_report::{FigureKey, merge_histograms, usual_timing};
use std::collections::BTreeMap;

/// Combines runs, given in order of time, into one. A single run is returned as it is; `None`
/// without runs.
///
/// The result has each figure of any run. A figure is the median over the passes of all runs that
/// have it, with an interval over them. Runs that timed its operations in another way than most
/// (singly or in batches) do not count. Its histogram has the samples of all these runs. Other
/// numbers are medians over them, or those of the last one. The time is that of the first run; all
/// else is as in the last.
pub(super) fn pool_runs(runs: &[Document]) -> Option<Document> {
    let (first, last) = (runs.first()?, runs.last()?);
    let mut pooled = last.clone();
    if runs.len() == 1 {
        return Some(pooled);
    }
    pooled.run.id = format!("{} to {} ({} runs, pooled)", first.run.id, last.run.id, runs.len());
    pooled.run.started_unix_ns = first.run.started_unix_ns;
    pooled.run.complete = runs.iter().all(|it| it.run.complete);
    let null = |of: fn(&Document) -> Option<f64>| median_if_any(runs.iter().filter_map(of));
    (pooled.run.null_one, pooled.run.null_several) =
        (null(|it| it.run.null_one), null(|it| it.run.null_several));
    let mut places: BTreeMap<FigureKey, usize> = BTreeMap::new();
    let mut figures: Vec<Vec<&Record>> = Vec::new();
    for record in runs.iter().flat_map(|it| &it.records) {
        let place = *places.entry(FigureKey::from_record(record)).or_insert(figures.len());
        if place == figures.len() {
            figures.push(Vec::new());
        }
        figures[place].push(record);
    }
    pooled.records = figures.iter().filter_map(|alike| pool_records(alike)).collect();
    Some(pooled)
}

/// Combines the records of one figure from several runs, without those whose operations were timed
/// in another way than in most runs: a warning has their number. `None` without records.
fn pool_records(records: &[&Record]) -> Option<Record> {
    let usual = usual_timing(records.iter().map(|it| it.summary.timing_kind()));
    let timed_alike = records.iter().filter(|it| it.summary.timing_kind() == usual);
    let alike: &[&Record] = &timed_alike.copied().collect::<Vec<_>>();
    let last = *alike.last()?;
    let mut pooled = last.clone();
    let each = |of: fn(&Record) -> Option<f64>| median_if_any(alike.iter().filter_map(|it| of(it)));
    let mut passes: BTreeMap<(usize, u32), Vec<f64>> = BTreeMap::new();
    pooled.rounds.clear();
    let mut passes_before = 0;
    for (run, record) in alike.iter().enumerate() {
        for round in &record.rounds {
            passes.entry((run, round.pass)).or_default().push(round.median);
            pooled.rounds.push(Round { pass: passes_before + round.pass, ..*round });
        }
        passes_before += record.rounds.iter().map(|it| it.pass + 1).max().unwrap_or(0);
    }
    let figures: Vec<f64> = passes.values().map(|rounds| stats::median(rounds)).collect();
    let figure = stats::median_over_passes(&figures);
    let modes = stats::find_modes(&figures, pooled.summary.resolution_ns);
    let both =
        modes.map(|it| [it.fast, it.slow].map(|(share, median)| FigureMode { share, median }));
    pooled.modes = both.map_or_else(Vec::new, Vec::from);
    let it = &mut pooled.summary;
    it.median = figure.median;
    (it.low, it.high) = figure.interval.unzip();
    it.ops = alike.iter().map(|it| it.summary.ops).sum();
    it.samples = alike.iter().map(|it| it.summary.samples).sum();
    it.single_ops = alike.iter().map(|it| it.summary.single_ops).sum();
    it.undisturbed = each(|it| it.summary.undisturbed);
    (it.p50, it.p90) = (each(|it| it.summary.p50), each(|it| it.summary.p90));
    (it.p99, it.p999) = (each(|it| it.summary.p99), each(|it| it.summary.p999));
    it.min = alike.iter().filter_map(|it| it.summary.min).reduce(f64::min);
    it.max = alike.iter().filter_map(|it| it.summary.max).reduce(f64::max);
    // The samples are those of batches if no operation was timed alone. The two kinds are not
    // merged.
    let has_operations = it.quantiles().is_some();
    let same_samples = alike.iter().filter(|it| it.summary.quantiles().is_some() == has_operations);
    pooled.histogram = merge_histograms(same_samples.map(|it| &*it.histogram));
    pooled.rate_per_s = each(|it| Some(it.rate_per_s)).unwrap_or(last.rate_per_s);
    pooled.bytes_per_s = each(|it| it.bytes_per_s);
    pooled.cpus_user = each(|it| Some(it.cpus_user)).unwrap_or(last.cpus_user);
    pooled.cpus_system = each(|it| Some(it.cpus_system)).unwrap_or(last.cpus_system);
    pooled.faults_minor_per_op = each(|it| Some(it.faults_minor_per_op)).unwrap_or_default();
    pooled.faults_major_per_s = each(|it| Some(it.faults_major_per_s)).unwrap_or_default();
    for ratio in pooled.floor.iter_mut().chain(&mut pooled.peers) {
        pool_ratio(ratio, alike);
    }
    pooled.warnings = merged_warnings(alike);
    let (runs_count, others_count) = (records.len(), records.len() - alike.len());
    if others_count > 0 {
        let text = format!(
            "{others_count} of {runs_count} runs timed its operations in another way (singly or in batches), and do \
             not count"
        );
        pooled.warnings.push(Warning { code: WarningCode::Timing, text });
    }
    Some(pooled)
}

/// Replaces a ratio by the median over the runs' ratios to the same figure. Its interval is that of
/// the median over the runs. If they are too few for that, it contains the intervals of all runs.
fn pool_ratio(ratio: &mut Ratio, alike: &[&Record]) {
    let is_same = |it: &&Ratio| (&it.id, &it.contender) == (&ratio.id, &ratio.contender);
    let found: Vec<&Ratio> =
        alike.iter().flat_map(|it| it.floor.iter().chain(&it.peers)).filter(is_same).collect();
    let (ratios, others): (Vec<f64>, Vec<f64>) =
        found.iter().map(|it| (it.ratio, it.other)).unzip();
    let estimate = stats::median_over_passes(&ratios);
    let all_bounds: Option<Vec<(f64, f64)>> = found.iter().map(|it| it.interval_bounds()).collect();
    let widest = |all: Vec<(f64, f64)>| {
        all.into_iter().reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    };
    let interval = estimate.interval.or_else(|| all_bounds.and_then(widest));
    (ratio.ratio, ratio.other) = (estimate.median, stats::median(&others));
    (ratio.low, ratio.high) = interval.unzip();
}

/// Merges the warnings of the records by kind. Adds the number of runs to each.
fn merged_warnings(alike: &[&Record]) -> Vec<Warning> {
    let mut all: Vec<(Warning, usize)> = Vec::new();
    for warning in alike.iter().flat_map(|it| &it.warnings) {
        match all.iter_mut().find(|(it, _)| it.code == warning.code) {
            Some((_, count)) => *count += 1,
            None => all.push((warning.clone(), 1)),
        }
    }
    let runs_count = alike.len();
    let merged = |(mut warning, count): (Warning, usize)| {
        if runs_count > 1 {
            warning.text =
                format!("{warning} (in {count} of {runs_count} runs)", warning = warning.text);
        }
        warning
    };
    all.into_iter().map(merged).collect()
}

/// Returns the median of the values; `None` if there are none.
pub(super) fn median_if_any(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| stats::median(&values))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a run of eight passes around `median`.
    fn run(median: f64) -> Document {
        let json = include_str!("pool/document.json");
        let mut document: Document = serde_json::from_str(json).expect("a document");
        let record = &mut document.records[0];
        let round =
            |pass: u32| Round { pass, median: median + f64::from(pass), ..Round::default() };
        record.rounds = (0..8).map(round).collect();
        record.summary.median = median + 3.5;
        document
    }

    #[test]
    fn figure_is_the_median_over_the_passes_of_all_runs() {
        let runs = [run(10.0), run(20.0), run(30.0)];
        let pooled = pool_runs(&runs).expect("pool the runs");
        let it = &pooled.records[0];
        assert_eq!(it.summary.median, 23.5);
        let (low, high) = it.summary.interval_bounds().expect("24 passes");
        // Passes of a run are correlated here, so the bounds may be the extreme passes.
        assert!((10.0..=20.0).contains(&low) && (27.0..=37.0).contains(&high), "{low} {high}");
        let passes: Vec<u32> = it.rounds.iter().map(|it| it.pass).collect();
        assert_eq!(passes, (0..24).collect::<Vec<_>>());
        assert!(pooled.run.id.ends_with(" (3 runs, pooled)"), "{}", pooled.run.id);
    }

    #[test]
    fn modes_are_those_of_the_passes_of_all_runs() {
        let pooled = pool_runs(&[run(1000.0), run(1000.0), run(9000.0)]).expect("pool the runs");
        let modes = &pooled.records[0].modes;
        let shares: Vec<_> = modes.iter().map(|it| (it.share * 24.0).round()).collect();
        assert_eq!(shares, [16.0, 8.0], "{modes:?}");
        assert!(
            pool_runs(&[run(1000.0), run(1000.0)]).expect("pool the runs").records[0]
                .modes
                .is_empty()
        );
    }

    #[test]
    fn pooled_warnings_have_the_number_of_runs() {
        let mut runs = [run(10.0), run(10.0), run(10.0)];
        for run in &mut runs[1..] {
            let text = "wide".to_string();
            run.records[0].warnings = vec![Warning { code: WarningCode::Wide, text }];
        }
        runs[0].records[0].warnings.clear();
        let pooled = pool_runs(&runs).expect("pool the runs");
        let texts: Vec<_> = pooled.records[0].warnings.iter().map(|it| &*it.text).collect();
        assert_eq!(texts, ["wide (in 2 of 3 runs)"]);
    }

    #[test]
    fn single_run_is_unchanged_and_no_run_gives_none() {
        let mut one = run(10.0);
        one.records[0].peers = vec![ratio_of(9.9, 10.1)];
        assert_eq!(pool_runs(std::slice::from_ref(&one)), Some(one));
        assert_eq!(pool_runs(&[]), None);
    }

    #[test]
    fn histogram_has_the_samples_of_all_runs() {
        let runs = [run(10.0), run(10.0)];
        let one = &*runs[0].records[0].histogram;
        let both = merge_histograms([one, one].into_iter());
        assert_ne!(both, one);
        assert_eq!(pool_runs(&runs).expect("pool the runs").records[0].histogram, both);
    }

    fn ratio_of(low: f64, high: f64) -> Ratio {
        Ratio {
            id: "a/b".to_string(),
            contender: "peer".to_string(),
            other: 1.0,
            ratio: (low + high) / 2.0,
            low: Some(low),
            high: Some(high),
        }
    }

    #[test]
    fn interval_of_few_ratios_contains_those_of_all_runs() {
        let mut runs = [run(10.0), run(20.0)];
        runs[0].records[0].peers = vec![ratio_of(0.9, 1.1)];
        runs[1].records[0].peers = vec![ratio_of(1.0, 1.4)];
        let bounds = |runs: &[Document]| {
            let pooled = pool_runs(runs).expect("pool the runs");
            pooled.records[0].peers[0].interval_bounds()
        };
        assert_eq!(bounds(&runs), Some((0.9, 1.4)));
        runs[1].records[0].peers[0].low = None;
        assert_eq!(bounds(&runs), None);
    }

    #[test]
    fn figure_that_the_last_run_lacks_is_kept() {
        let mut runs = [run(10.0), run(20.0), run(30.0)];
        runs[0].run.started_unix_ns = 7;
        let mut second = runs[0].records[0].clone();
        second.id = "another/figure".to_string();
        runs[0].records.push(second.clone());
        runs[1].records.push(second);
        runs[2].records.clear();
        let pooled = pool_runs(&runs).expect("pool the runs");
        let ids: Vec<_> = pooled.records.iter().map(|it| &it.id).collect();
        assert_eq!(ids, [&runs[0].records[0].id, "another/figure"]);
        assert_eq!(pooled.records[0].rounds.len(), 16);
        assert_eq!(pooled.run.started_unix_ns, 7);
    }

    #[test]
    fn runs_that_timed_operations_in_another_way_than_most_are_left_out() {
        let mut runs = [run(10.0), run(20.0), run(1000.0)];
        for (run, batch) in runs.iter_mut().zip([90, 90, 1]) {
            let it = &mut run.records[0].summary;
            (it.batch, it.samples, it.single_ops) = (batch, 3000, 700);
        }
        let pooled = pool_runs(&runs).expect("pool the runs");
        let it = &pooled.records[0].summary;
        assert_eq!((it.median, it.batch, it.timed_alone_count()), (18.5, 90, 1400));
        let warning = pooled.records[0].warnings.last().expect("a warning");
        assert_eq!(warning.code, WarningCode::Timing);
        assert!(warning.text.starts_with("1 of 3 runs timed its operations in another way"));
        runs[1].records[0].summary.batch = 1;
        let pooled = pool_runs(&runs).expect("pool the runs");
        assert_eq!(pooled.records[0].summary.timed_alone_count(), 6000);
    }

    #[test]
    fn figures_of_different_placements_are_not_pooled() {
        let mut runs = [run(10.0), run(1000.0)];
        runs[1].records[0].participants.placement = "far".to_string();
        let pooled = pool_runs(&runs).expect("pool the runs");
        let medians: Vec<f64> = pooled.records.iter().map(|it| it.summary.median).collect();
        assert_eq!(medians, [13.5, 1003.5]);
    }
}
