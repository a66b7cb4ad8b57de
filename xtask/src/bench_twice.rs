//! `cargo xtask bench-twice`: runs one build twice and checks that the figures agree, or that
//! figures which differ carry a warning.

use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::run::Run;
use crate::steps::binary::{Record, build, show};
use crate::workspace::Workspace;

/// Options of `bench-twice`.
#[derive(clap::Args, Debug)]
pub struct BenchTwiceOptions {
    /// Length of the measurement: smoke, quick or full
    #[arg(long, default_value = "quick")]
    profile: String,
    /// Benchmarks [default: the ladder]
    patterns: Vec<String>,
}

/// Maximum relative difference of two figures that agree.
const AGREE_WITHIN: f64 = 0.05;

/// Minimum share of figures that agree or are flagged.
const AGREE_SHARE_MIN: f64 = 0.90;

/// Maximum share of flagged figures.
const FLAGGED_SHARE_MAX: f64 = 0.20;

/// Codes of warnings that a figure may differ in another run.
const NOISE: [&str; 7] = ["steal", "switches", "slowed", "wide", "drift", "bimodal", "few"];

/// Runs twice and compares; exit code 1 if the two runs do not agree.
pub fn bench_twice(options: &BenchTwiceOptions) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    build(&workspace, "release")?;
    let binary = workspace.binary("release");
    let folder = tempfile::tempdir()?;
    let mut runs = Vec::new();
    for name in ["a.db", "b.db"] {
        let store = folder.path().join(name);
        Run::program(&binary)
            .args(["run", "--profile", &options.profile])
            .args(&options.patterns)
            .args(["--db"])
            .args([&store])
            .within(folder.path())
            .run()?;
        runs.push(show(&binary, &store)?.records);
    }
    let pairs = pairs(&runs[0], &runs[1]);
    ensure!(!pairs.is_empty(), "the two runs have no figure in common");
    print!("{}", table(&pairs));
    let verdict = verdict(&pairs);
    println!("{}", verdict.text);
    Ok(if verdict.good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Figure that was measured twice.
#[derive(Debug)]
struct Pair {
    id: String,
    contender: String,
    /// `true` if `a` and `b` are ratios to the floor, as for figures between CPUs, where the
    /// distance of the two CPUs differs from run to run; `false` if they are medians.
    by_floor: bool,
    a: f64,
    b: f64,
    flagged: bool,
}

impl Pair {
    fn ratio(&self) -> f64 {
        self.b / self.a
    }

    fn agrees(&self) -> bool {
        (self.ratio().ln()).abs() <= (1.0 + AGREE_WITHIN).ln()
    }
}

fn pairs(a: &[Record], b: &[Record]) -> Vec<Pair> {
    let same =
        |one: &Record, other: &Record| one.id == other.id && one.contender == other.contender;
    let both = a.iter().filter_map(|one| Some((one, b.iter().find(|other| same(one, other))?)));
    both.map(|(one, other)| pair(one, other)).collect()
}

fn pair(one: &Record, other: &Record) -> Pair {
    let (by_floor, a, b) = match (&one.floor, &other.floor) {
        (Some(a), Some(b)) if cpus_count(one) > 1 => (true, a.ratio, b.ratio),
        _ => (false, one.summary.median, other.summary.median),
    };
    let flagged = is_noisy(one) || is_noisy(other);
    Pair { id: one.id.clone(), contender: one.contender.clone(), by_floor, a, b, flagged }
}

fn cpus_count(record: &Record) -> usize {
    let mut cpus = record.parties.cpus.clone();
    cpus.sort_unstable();
    cpus.dedup();
    cpus.len()
}

fn is_noisy(record: &Record) -> bool {
    record.warnings.iter().any(|warning| NOISE.contains(&warning.code.as_str()))
}

fn table(pairs: &[Pair]) -> String {
    let mut text =
        format!("{:<40} {:<12} {:>12} {:>12} {:>7}\n", "id", "contender", "A", "B", "B/A");
    for pair in pairs {
        let unit = if pair.by_floor { "x floor" } else { "" };
        let remark = match (pair.flagged, pair.agrees()) {
            (true, true) => "flagged",
            (true, false) => "flagged, apart",
            (false, true) => "",
            (false, false) => "APART",
        };
        let line = format!(
            "{:<40} {:<12} {:>12.4} {:>12.4} {:>7.3} {unit:<7} {remark}",
            pair.id,
            pair.contender,
            pair.a,
            pair.b,
            pair.ratio()
        );
        text += line.trim_end();
        text.push('\n');
    }
    text
}

struct Verdict {
    good: bool,
    text: String,
}

fn verdict(pairs: &[Pair]) -> Verdict {
    let share = |counted: &dyn Fn(&Pair) -> bool| {
        pairs.iter().filter(|pair| counted(pair)).count() as f64 / pairs.len() as f64
    };
    let told = share(&|pair| pair.agrees() || pair.flagged);
    let flagged = share(&|pair| pair.flagged);
    let good = told >= AGREE_SHARE_MIN && flagged <= FLAGGED_SHARE_MAX;
    let text = format!(
        "{} figures: {:.1} % within {:.0} % or flagged (at least {:.0} %), {:.1} % flagged (at most {:.0} %): {}",
        pairs.len(),
        told * 100.0,
        AGREE_WITHIN * 100.0,
        AGREE_SHARE_MIN * 100.0,
        flagged * 100.0,
        FLAGGED_SHARE_MAX * 100.0,
        if good { "the two runs agree" } else { "the two runs do not agree" },
    );
    Verdict { good, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::binary::StoredRun;

    fn document(median: f64, ratio: f64, code: &str) -> Result<StoredRun> {
        let text = format!(
            r#"{{"schema": 1, "run": {{}}, "host": {{}}, "records": [
            {{"id": "clock/now", "contender": "ours", "summary": {{"median": {median}}},
              "floor": {{"ratio": 1.0}}, "parties": {{"cpus": [0]}}, "warnings": []}},
            {{"id": "lock/passed", "contender": "ours", "summary": {{"median": 9.0}},
              "floor": {{"ratio": {ratio}}}, "parties": {{"cpus": [0, 1]}},
              "warnings": [{{"code": "{code}", "text": ""}}]}}]}}"#
        );
        Ok(serde_json::from_str(&text)?)
    }

    fn verdict_of(a: StoredRun, b: StoredRun) -> Verdict {
        verdict(&pairs(&a.records, &b.records))
    }

    #[test]
    fn figures_of_one_cpu_are_compared_by_median_and_others_by_their_floor() -> Result<()> {
        let (a, b) = (document(10.0, 2.0, "smoke")?, document(10.4, 3.0, "smoke")?);
        let pairs = pairs(&a.records, &b.records);
        assert_eq!((pairs[0].by_floor, pairs[0].agrees()), (false, true));
        assert_eq!((pairs[1].by_floor, pairs[1].agrees()), (true, false));
        assert!(table(&pairs).contains("APART"));
        assert!(!verdict(&pairs).good);
        Ok(())
    }

    #[test]
    fn equal_runs_agree_and_runs_with_noise_everywhere_do_not() -> Result<()> {
        assert!(verdict_of(document(10.0, 2.0, "smoke")?, document(10.4, 2.0, "smoke")?).good);
        assert!(!verdict_of(document(10.0, 2.0, "smoke")?, document(10.0, 2.0, "steal")?).good);
        assert!(!verdict_of(document(10.0, 2.0, "smoke")?, document(10.6, 2.0, "smoke")?).good);
        Ok(())
    }
}
