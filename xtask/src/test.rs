//! `cargo xtask test`: every check, in order, up to the first that fails.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use tempfile::TempDir;

use crate::steps;
use crate::workspace::Workspace;

/// What to check.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Also run what takes long: many seeds, fuzzing, a soak, fat LTO
    #[arg(long)]
    long: bool,
    /// Run only this step; repeat it for several
    #[arg(long, value_name = "STEP")]
    only: Vec<Step>,
}

/// The steps, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// The sources are formatted
    Fmt,
    /// The house keeps its rules, and each rule has been seen to fail
    Tidy,
    /// Clippy finds nothing, with all targets and features
    Clippy,
    /// Every test passes and every example runs
    Tests,
    /// The loom models find no bad interleaving
    Loom,
    /// The binary measures, and survives its faults
    Binary,
    /// A browser shows the report
    Chromium,
    /// The documentation builds
    Docs,
    /// The dependencies' licences, bans and sources
    Deny,
    /// Miri finds no undefined behaviour in the mechanisms
    Miri,
    /// The release binary measures, and survives its faults (with --long)
    Release,
    /// Every fuzz target, for a minute (with --long)
    Fuzz,
    /// A hundred million messages, each accounted for (with --long)
    Soak,
    /// The binary with fat LTO measures (with --long)
    Dist,
}

impl Step {
    /// The steps that are run when none is named.
    fn all(long: bool) -> Vec<Self> {
        let takes_long =
            |step: &Self| matches!(step, Self::Release | Self::Fuzz | Self::Soak | Self::Dist);
        let steps = Self::value_variants().iter().copied();
        steps.filter(|step| long || !takes_long(step)).collect()
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn run(self, context: &mut Context) -> Result<()> {
        match self {
            Self::Fmt => steps::sources::fmt(context),
            Self::Tidy => steps::sources::tidy(context),
            Self::Clippy => steps::sources::clippy(context),
            Self::Tests => steps::sources::tests(context),
            Self::Docs => steps::sources::docs(context),
            Self::Loom => steps::models::loom(context),
            Self::Miri => steps::models::miri(context),
            Self::Fuzz => steps::models::fuzz(context),
            Self::Soak => steps::models::soak(context),
            Self::Binary => steps::binary::tested(context),
            Self::Release => steps::binary::release(context),
            Self::Dist => steps::binary::dist(context),
            Self::Chromium => steps::chromium::chromium(context),
            Self::Deny => steps::deny::deny(context),
        }
    }
}

/// What the steps share.
#[derive(Debug)]
pub struct Context {
    /// Where things are.
    pub workspace: Workspace,
    /// Whether to take one's time.
    pub long: bool,
    /// A folder that is removed at the end.
    pub temporary: TempDir,
    /// How many tests passed, of the step that runs.
    pub tests: u64,
    /// Whether the ladder has run into `temporary`.
    pub ladder_ran: bool,
    skipped: Vec<String>,
}

impl Context {
    /// Notes that something cannot run here, for the list at the end.
    pub fn skip(&mut self, what: &str, why: impl AsRef<str>) {
        let why = why.as_ref().trim().lines().next().unwrap_or_default();
        let line = format!("skipped: {what}: {why}");
        println!("{line}");
        self.skipped.push(line);
    }
}

struct Done {
    step: Step,
    time: Duration,
    tests: u64,
    how: &'static str,
}

/// Runs the steps; exit 1 when one fails.
pub fn test(options: &Options) -> Result<ExitCode> {
    let mut context = Context {
        workspace: Workspace::find()?,
        long: options.long,
        temporary: TempDir::with_prefix("handover-test-").context("making a temporary folder")?,
        tests: 0,
        ladder_ran: false,
        skipped: Vec::new(),
    };
    steps::prerequisites::compiler(&mut context);
    let mut steps = Step::all(options.long);
    if !options.only.is_empty() {
        let chosen = Step::value_variants().iter().filter(|step| options.only.contains(step));
        steps = chosen.copied().collect();
    }
    let mut done = Vec::new();
    let mut failed = None;
    for (step, number) in steps.iter().zip(1..) {
        println!("\n== {number}/{} {}", steps.len(), step.name());
        let start = Instant::now();
        let skipped_before = context.skipped.len();
        context.tests = 0;
        let outcome = step.run(&mut context);
        let time = start.elapsed();
        let how = match &outcome {
            Err(_) => "FAILED",
            Ok(()) if context.skipped.len() > skipped_before => "ok, see skipped",
            Ok(()) => "ok",
        };
        println!("== {} {how} in {}", step.name(), seconds(time));
        done.push(Done { step: *step, time, tests: context.tests, how });
        if let Err(error) = outcome {
            failed = Some((*step, error));
            break;
        }
    }
    print!("\n{}", table(&done));
    for line in &context.skipped {
        println!("{line}");
    }
    println!("{} skipped", context.skipped.len());
    let Some((step, error)) = failed else { return Ok(ExitCode::SUCCESS) };
    let long = if options.long { " --long" } else { "" };
    println!("\nFAILED: {}: {error:#}", step.name());
    println!("repeat it with: cargo xtask test{long} --only {}", step.name());
    Ok(ExitCode::FAILURE)
}

/// The steps with their times and tests, and their sum.
fn table(done: &[Done]) -> String {
    let mut text = format!("{:<10} {:>8} {:>6}\n", "step", "time", "tests");
    for Done { step, time, tests, how } in done {
        let tests = if *tests == 0 { String::from("-") } else { tests.to_string() };
        text += &format!("{:<10} {:>8} {tests:>6}  {how}\n", step.name(), seconds(*time));
    }
    let time: Duration = done.iter().map(|one| one.time).sum();
    let tests: u64 = done.iter().map(|one| one.tests).sum();
    text + &format!("{:<10} {:>8} {tests:>6}\n", "in all", seconds(time))
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_cheap_checks_first_and_long_ones_only_when_asked_for() {
        let names = |long| Step::all(long).into_iter().map(Step::name).collect::<Vec<_>>();
        let usual = [
            "fmt", "tidy", "clippy", "tests", "loom", "binary", "chromium", "docs", "deny", "miri",
        ];
        assert_eq!(names(false), usual);
        assert_eq!(names(true)[usual.len()..], ["release", "fuzz", "soak", "dist"]);
    }

    #[test]
    fn the_table_sums_up() {
        let done =
            |step, secs, tests, how| Done { step, time: Duration::from_secs(secs), tests, how };
        let text = table(&[done(Step::Fmt, 1, 0, "ok"), done(Step::Tests, 64, 412, "FAILED")]);
        let expected = "\
step           time  tests
fmt           1.0 s      -  ok
tests        64.0 s    412  FAILED
in all       65.0 s    412
";
        assert_eq!(text, expected);
    }
}
