//! `cargo xtask test`: every check.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use tempfile::TempDir;

use crate::context::TestContext;
use crate::steps;
use crate::workspace::Workspace;

/// Options of `test`.
#[derive(clap::Args, Debug)]
pub struct TestOptions {
    /// Also run the slow checks: more seeds, fuzzing, a soak test, the release's packages
    #[arg(long)]
    long: bool,
    /// Test only the packages that were changed since their tests passed, and those outside faces/
    /// that directly depend on one of them; examples in the documentation and loom models only of
    /// changed packages, and without packaging
    #[arg(long)]
    changed: bool,
    /// Run only this step; repeat the option for several steps
    #[arg(long, value_name = "STEP")]
    only: Vec<Step>,
}

/// Steps of a test run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// Check that the sources are formatted
    Fmt,
    /// Compile every test and example, and lint the crates that differ from origin/HEAD with clippy
    Build,
    /// Check the sources against the tidy rules, and the workflows with actionlint
    Tidy,
    /// Run every test
    Tests,
    /// Run every example
    Examples,
    /// Measure the default set of benchmarks in the binary, with the shortest settings
    Binary,
    /// Check the report page in a browser
    Chromium,
    /// Run the examples in the libraries' documentation, and build the documentation
    Doctests,
    /// Check the loom models in all thread schedules
    Loom,
    /// Run the portable mechanisms' tests without the code for Linux and x86_64
    Portable,
    /// Check the dependencies' licences and sources, and bans of dependencies
    Deny,
    /// Package every crate that can be published; with --long, build each from its package
    Packages,
    /// Run the mechanisms' tests under Miri, which finds undefined behaviour
    Miri,
    /// Lint with clippy, with all features and with none (with --long)
    Clippy,
    /// Build the book and the documentation of all packages (with --long)
    Docs,
    /// Run the benchmarks and the fault tests of the release binary (with --long)
    Release,
    /// Run the mechanisms' tests under ThreadSanitizer and AddressSanitizer (with --long)
    Sanitizers,
    /// Build for aarch64, run the tests of the mechanisms and services there, under qemu, and check
    /// the portable crates for other systems (with --long)
    Aarch64,
    /// Run every fuzz target for a minute (with --long)
    Fuzz,
    /// Run a soak test of a hundred million messages, each of which is accounted for (with --long)
    Soak,
    /// Build a release, check its packages, and run the benchmarks of the Debian package in a new
    /// Debian system (with --long)
    Dist,
}

/// Phase of a test run to which a step belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Steps that run before all other phases, one after another.
    First,
    /// Steps that run built programs, which mostly wait, in parallel with the next two phases.
    Programs,
    /// Steps that compile code, and run it.
    Compiler,
    /// Steps that analyse sources and dependencies.
    Analysis,
    /// Steps that run after all other phases, with `--long`.
    Long,
}

impl Step {
    fn phase(self) -> Phase {
        match self {
            Self::Fmt | Self::Build => Phase::First,
            Self::Tests | Self::Examples | Self::Binary | Self::Chromium => Phase::Programs,
            Self::Doctests | Self::Loom | Self::Portable => Phase::Compiler,
            Self::Tidy | Self::Deny | Self::Packages | Self::Miri => Phase::Analysis,
            Self::Clippy
            | Self::Docs
            | Self::Release
            | Self::Sanitizers
            | Self::Aarch64
            | Self::Fuzz
            | Self::Soak
            | Self::Dist => Phase::Long,
        }
    }

    /// Returns the steps of a phase, in order.
    fn in_phase(phase: Phase) -> Vec<Self> {
        let steps = Self::value_variants().iter().copied();
        steps.filter(|step| step.phase() == phase).collect()
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn run(self, context: &mut TestContext) -> Result<()> {
        match self {
            Self::Fmt => steps::sources::check_format(context),
            Self::Build => steps::programs::build_tests(context),
            Self::Tidy => steps::sources::check_tidy_rules(context),
            Self::Clippy => steps::sources::lint(context),
            Self::Tests => steps::programs::run_all_tests(context),
            Self::Examples => steps::sources::run_examples(context),
            Self::Doctests => steps::sources::run_doctests(context),
            Self::Docs => steps::sources::build_docs(context),
            Self::Loom => steps::models::test_with_loom(context),
            Self::Portable => steps::models::test_portable_code(context),
            Self::Packages => steps::sources::check_packages(context),
            Self::Miri => steps::models::test_with_miri(context),
            Self::Sanitizers => steps::sanitizers::test_with_sanitizers(context),
            Self::Aarch64 => steps::aarch64::test_on_aarch64(context),
            Self::Fuzz => steps::models::run_fuzz_targets(context),
            Self::Soak => steps::models::run_soak_tests(context),
            Self::Binary => steps::binary::run_ladder(context).map(drop),
            Self::Release => steps::binary::test_release_binary(context),
            Self::Dist => steps::binary::test_release_packages(context),
            Self::Chromium => steps::chromium::test_in_chromium(context),
            Self::Deny => steps::deny::check_dependencies(context),
        }
    }
}

/// Result of one step: duration, number of passed tests, and outcome as printed.
struct StepResult {
    step: Step,
    time: Duration,
    tests: u64,
    outcome: &'static str,
}

/// Results of the steps, notes on skipped checks, and the failed steps.
#[derive(Default)]
struct Report {
    done: Vec<StepResult>,
    skipped: Vec<String>,
    failed: Vec<(Step, anyhow::Error)>,
}

impl Report {
    fn add(&mut self, other: Self) {
        self.done.extend(other.done);
        self.skipped.extend(other.skipped);
        self.failed.extend(other.failed);
    }

    /// Runs steps one after another, until one fails.
    fn run(&mut self, steps: &[Step], context: &mut TestContext) {
        for step in steps.iter().copied() {
            println!("\n== {}", step.name());
            let start = Instant::now();
            context.passed_count = 0;
            let result = step.run(context);
            let time = start.elapsed();
            let outcome = match &result {
                Err(_) => "FAILED",
                Ok(()) if !context.skipped.is_empty() => "ok, see skipped",
                Ok(()) => "ok",
            };
            println!("== {} {outcome} in {}", step.name(), format_seconds(time));
            self.skipped.append(&mut context.skipped);
            self.done.push(StepResult { step, time, tests: context.passed_count, outcome });
            if let Err(error) = result {
                self.failed.push((step, error));
                return;
            }
        }
    }

    /// Runs all steps: first those that build, then those that run programs, compile and analyse in
    /// parallel.
    fn run_all(&mut self, context: &mut TestContext) {
        self.run(&Step::in_phase(Phase::First), context);
        if !self.failed.is_empty() {
            return;
        }
        let reports = thread::scope(|scope| {
            let lanes = [Phase::Programs, Phase::Compiler, Phase::Analysis].map(|phase| {
                let mut context = context.clone();
                scope.spawn(move || {
                    let mut report = Self::default();
                    report.run(&Step::in_phase(phase), &mut context);
                    report
                })
            });
            lanes.map(thread::ScopedJoinHandle::join)
        });
        for report in reports {
            match report {
                Ok(report) => self.add(report),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        if self.failed.is_empty() && context.is_long {
            self.run(&Step::in_phase(Phase::Long), context);
        }
    }
}

/// Runs the selected steps, by default all; the exit code is 1 if one fails.
pub fn run_test_steps(options: &TestOptions) -> Result<ExitCode> {
    let start = Instant::now();
    let temporary =
        TempDir::with_prefix("handover-test-").context("cannot create a temporary folder")?;
    let mut context = TestContext {
        workspace: Workspace::find()?,
        is_long: options.long,
        selection: None,
        has_selected_steps: !options.only.is_empty(),
        differing_crates: BTreeSet::new(),
        has_clippy: false,
        temporary: temporary.path().to_owned(),
        programs: None,
        passed_count: 0,
        has_run_ladder: false,
        skipped: Vec::new(),
    };
    context.differing_crates = context.workspace.changed_crates();
    if options.changed {
        let selection = steps::programs::select_changed(&context.workspace);
        let count = context.workspace.crates.len();
        let names = selection.affected.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        println!("{} of {count} packages are tested: {names}", selection.affected.len());
        context.selection = Some(selection);
    }
    let mut report = Report::default();
    steps::prerequisites::install_compiler(&mut context);
    steps::prerequisites::install_clippy(&mut context);
    report.skipped.append(&mut context.skipped);
    if options.only.is_empty() {
        report.run_all(&mut context);
    } else {
        let chosen = Step::value_variants().iter().filter(|step| options.only.contains(step));
        report.run(&chosen.copied().collect::<Vec<_>>(), &mut context);
    }
    print!("\n{}", format_table(&report.done, start.elapsed()));
    for line in &report.skipped {
        println!("{line}");
    }
    println!("{} skipped", report.skipped.len());
    let long = if options.long { " --long" } else { "" };
    for (step, error) in &report.failed {
        println!("\nFAILED: {}: {error:#}", step.name());
        println!("repeat it with: cargo xtask test{long} --only {}", step.name());
    }
    Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Formats a table of the steps with their times and numbers of tests. Its last row has the elapsed
/// time, which is less than the sum as steps run in parallel, and the total number of tests.
fn format_table(done: &[StepResult], elapsed: Duration) -> String {
    let mut text = format!("{:<10} {:>8} {:>6}\n", "step", "time", "tests");
    for StepResult { step, time, tests, outcome } in done {
        let tests = if *tests == 0 { String::from("-") } else { tests.to_string() };
        text +=
            &format!("{:<10} {:>8} {tests:>6}  {outcome}\n", step.name(), format_seconds(*time));
    }
    let tests: u64 = done.iter().map(|one| one.tests).sum();
    text + &format!("{:<10} {:>8} {tests:>6}\n", "in all", format_seconds(elapsed))
}

fn format_seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_usual_and_of_long_runs_are_distinct() {
        let names = |phase| Step::in_phase(phase).into_iter().map(Step::name).collect::<Vec<_>>();
        assert_eq!(names(Phase::First), ["fmt", "build"]);
        assert_eq!(names(Phase::Programs), ["tests", "examples", "binary", "chromium"]);
        assert_eq!(names(Phase::Compiler), ["doctests", "loom", "portable"]);
        assert_eq!(names(Phase::Analysis), ["tidy", "deny", "packages", "miri"]);
        let long = ["clippy", "docs", "release", "sanitizers", "aarch64", "fuzz", "soak", "dist"];
        assert_eq!(names(Phase::Long), long);
    }

    #[test]
    fn table_has_the_elapsed_time_and_the_sum_of_tests() {
        let done = |step, secs, tests, outcome| StepResult {
            step,
            time: Duration::from_secs(secs),
            tests,
            outcome,
        };
        let steps = [done(Step::Fmt, 1, 0, "ok"), done(Step::Tests, 64, 412, "FAILED")];
        let text = format_table(&steps, Duration::from_secs(64));
        let expected = "\
step           time  tests
fmt           1.0 s      -  ok
tests        64.0 s    412  FAILED
in all       64.0 s    412
";
        assert_eq!(text, expected);
    }
}
