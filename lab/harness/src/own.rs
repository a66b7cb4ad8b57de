//! Main program for a user's own workloads, run by `cargo bench` and read by `cargo handover`.

use crate::bench::Bench;
use crate::date::{DATE_OUT_OF_RANGE, unix_ns};
use crate::dispatch::dispatch_participant;
use crate::fault::Fault;
use crate::interrupt::{INTERRUPTED_EXIT_CODE, interrupt_flag};
use crate::lab::{Lab, Plan, Profile, RunObserver};
use crate::run_log::RunLog;
use crate::samples::Samples;
use crate::select::select;
use crate::setup::Setup;
use crate::workload::Workload;
use handover_base::units::TimeSpan;
use handover_record::{ArgRange, Contender, JSON_SCHEMA_VERSION, Record, Run, Spec};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::{Value, json};
use std::hint::black_box;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

const USAGE: &str = "\
[PATTERN]... prefix of a benchmark's id, or a glob; without one, all benchmarks
  --list             list the benchmarks, and measure nothing
  --jsonl            print the run as JSON Lines, for `handover import -`
  --profile NAME     smoke (once, to see that it works), quick, full
  --test             the same as --profile smoke
  --time TIME        measuring time of each benchmark, as in 500ms
  --no-peers         leave out the peers
  --place NAME       placement of the participants: near, far, smt, same
  --idle-gap TIME    pause before each hand-over, at most 100ms
  --neighbour        run a busy thread on a CPU next to those of the participants
  --processes        run the participants as processes instead of threads
  --set NAME=VALUE   set an argument of every benchmark that has it
  --over ARG=A..B    measure one benchmark with several values of an argument: ARG=a..b (about
                     twelve), ARG=a..b:step, or ARG=a..b:log (doubling)";

/// Runs a complete benchmark program for `suites`. It is the whole body of `main` in a bench target
/// with `harness = false`. An example is `fn main() -> ExitCode { bench_main(&[ALL]) }`.
///
/// Prints the progress to standard error, and then a line for each figure, or with `--jsonl` the
/// run in the format of `handover import`; the figures can then be listed, shown, compared and
/// followed like handover's own. `cargo handover` does both. If the suites have no null benchmark
/// (`null/…`, the same operation measured twice, which shows the smallest detectable difference),
/// one is added. `--help` lists the options.
///
/// After SIGINT, SIGTERM or SIGHUP, the completed measurements are printed.
///
/// Exit status: 0; 1 if a benchmark could not be measured; 2 if the command line is wrong; 130 if
/// the run was interrupted.
pub fn bench_main(suites: &[&'static [Bench]]) -> ExitCode {
    let suites = with_nulls(suites);
    if let Some(code) = run_as_participant(&suites) {
        return code;
    }
    match BenchOptions::parse(std::env::args().skip(1)) {
        Ok(asked) => run_with_options(&suites, &asked).unwrap_or_else(|error| fail(&error, 2)),
        Err(error) => fail(&error, 2),
    }
}

/// Defines the main function of a benchmark program that times closures, each written in a line:
/// see [`bench_main`].
///
/// A benchmark has an id, a description, and a state, which each round creates anew and untimed. A
/// contender, `ours` or a `peer`, is a closure that receives `&mut` state. A call of it is the
/// timed operation; its result counts as used. Arguments, `NAME: TYPE = DEFAULT in MIN..=MAX` each,
/// come before the state, which can depend on them. `--set` sets them, `--over` measures several
/// values, and a smoke run uses the minimum.
///
/// ```no_run
#[doc = include_str!("../examples/sort.rs")]
/// ```
#[macro_export]
macro_rules! measure {
    ($($id:literal, $what:literal
       $(, $arg:ident: $arg_type:ty = $default:literal in $min:literal..=$max:literal)*
       : $state:ty = $create:expr;
       $($kind:ident $name:literal: $operation:expr;)+)+) => {
        fn main() -> ::std::process::ExitCode {
            const ALL: &[&[$crate::Bench]] = &[$({
                $crate::args! {
                    struct TimedArgs {
                        $(#[doc = "Argument of the benchmark."]
                        $arg: $arg_type = $default (smoke $min, range $min..=$max)),*
                    }
                }
                impl TimedArgs {
                    fn create_state(&self) -> $state {
                        let TimedArgs { $($arg),* } = *self;
                        $create
                    }
                }
                // A repetition of its own: arguments and contenders are lists of different lengths.
                const CONTENDERS: &[$crate::Bench] = &[$({
                    struct Timed($state);
                    impl $crate::Workload for Timed {
                        type Args = TimedArgs;
                        const SPEC: $crate::Spec = $crate::Spec::new($id, $what);
                        fn setup(
                            args: &TimedArgs, _: &mut $crate::Setup,
                        ) -> ::std::result::Result<Self, $crate::Fault> {
                            ::std::result::Result::Ok(Timed(args.create_state()))
                        }
                        fn sample(&mut self, out: &mut $crate::Samples) {
                            $crate::time_operation(out, &mut self.0, $operation);
                        }
                    }
                    $crate::Bench::one::<Timed>($crate::Contender::$kind($name))
                },)+];
                CONTENDERS
            },)+];
            $crate::bench_main(ALL)
        }
    };
}

/// Times the closure of a contender declared with [`measure!`](crate::measure).
#[doc(hidden)]
pub fn time_operation<S, R>(
    out: &mut Samples,
    state: &mut S,
    mut operation: impl FnMut(&mut S) -> R,
) {
    out.time_batches(|n| {
        for _ in 0..n {
            black_box(operation(black_box(&mut *state)));
        }
    });
}

/// Returns the suites, and a null benchmark if they contain none.
fn with_nulls(suites: &[&'static [Bench]]) -> Vec<&'static [Bench]> {
    let mut suites = suites.to_vec();
    if !suites.iter().flat_map(|it| it.iter()).any(|it| it.spec().id.starts_with("null/")) {
        suites.push(NULLS);
    }
    suites
}

/// Runs the pass or participant for which this process was started, and returns the exit code.
/// Returns `None` in any other process.
pub(crate) fn run_as_participant(suites: &[&'static [Bench]]) -> Option<ExitCode> {
    let played = dispatch_participant(suites)?;
    Some(played.map_or_else(|error| fail(&error, 1), |()| ExitCode::SUCCESS))
}

/// Prints an error to standard error, and returns `code` as the exit code.
pub(crate) fn fail(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    // A failed write to standard error loses only this message.
    let _ = writeln!(io::stderr(), "{error}");
    ExitCode::from(code)
}

/// The parsed command line of a benchmark program.
#[derive(Debug, Default)]
struct BenchOptions {
    patterns: Vec<String>,
    plan: Plan,
    /// Argument to vary, and its values; `None` if no argument varies.
    over: Option<ArgRange>,
    should_print_help: bool,
    should_list: bool,
    should_print_jsonl: bool,
}

impl BenchOptions {
    /// Parses the command line; the error says which option is wrong.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<BenchOptions, String> {
        let mut asked = BenchOptions::default();
        while let Some(word) = words.next() {
            let (option, mut inline) = match word.split_once('=') {
                Some((option, value)) if option.starts_with("--") => {
                    (option, Some(value.to_string()))
                }
                _ => (word.as_str(), None),
            };
            let mut value =
                || inline.take().or_else(|| words.next()).ok_or(format!("{option}: needs a value"));
            match option {
                // Passed by cargo.
                "--bench" => {}
                "--test" => asked.plan.profile = Profile::Smoke,
                "--help" | "-h" => asked.should_print_help = true,
                "--list" => asked.should_list = true,
                "--jsonl" => asked.should_print_jsonl = true,
                "--no-peers" => asked.plan.peers = false,
                "--profile" => {
                    asked.plan.profile =
                        value()?.parse().map_err(|why| format!("--profile: {why}"))?;
                }
                "--neighbour" => asked.plan.neighbour = true,
                "--processes" => asked.plan.processes = true,
                "--place" => {
                    asked.plan.place = value()?.parse().map_err(|why| format!("--place: {why}"))?;
                }
                "--time" | "--idle-gap" => {
                    let span: TimeSpan =
                        value()?.parse().map_err(|why| format!("{option}: {why}"))?;
                    match option {
                        "--time" => asked.plan.time = Some(Duration::from_nanos(span.0)),
                        _ => asked.plan.idle_gap = Duration::from_nanos(span.0),
                    }
                }
                "--over" => {
                    asked.over = Some(value()?.parse().map_err(|why| format!("--over: {why}"))?);
                }
                "--set" => {
                    let text = value()?;
                    let (name, value) = text
                        .split_once('=')
                        .ok_or("--set: must be NAME=VALUE, as in slots_count=128")?;
                    asked.plan.set.push((name.to_string(), value.to_string()));
                }
                other if other.starts_with('-') => {
                    return Err(format!("{other}: no such option; --help lists them"));
                }
                pattern => asked.patterns.push(pattern.to_string()),
            }
            if let Some(value) = inline {
                return Err(format!("{option}={value}: {option} takes no value"));
            }
        }
        Ok(asked)
    }
}

/// Prints the help or the list of benchmarks, or runs the benchmarks and prints their figures.
fn run_with_options(suites: &[&'static [Bench]], asked: &BenchOptions) -> Result<ExitCode, String> {
    let mut patterns = asked.patterns.clone();
    if patterns.is_empty() {
        patterns.push("*".to_string());
    }
    if asked.should_print_help {
        return print(&format!("{USAGE}\n"));
    }
    if asked.should_list {
        let chosen = select(suites, &patterns).map_err(|error| error.to_string())?;
        let line = |it: &crate::select::Selection| format!("{}  {}\n", it.spec.id, it.spec.what);
        return print(&chosen.iter().map(line).collect::<String>());
    }
    let plan = asked.plan.clone();
    let lab = match (&asked.over, &asked.patterns[..]) {
        (None, _) => Lab::new(suites, &patterns, plan),
        (Some(over), [id]) => Lab::new_sweep(suites, id, over, plan),
        (Some(over), _) => {
            return Err(format!(
                "--over {over}: needs the full id of one benchmark; --list shows them"
            ));
        }
    };
    let lab = lab.map_err(|it| it.to_string())?;
    let interrupted =
        interrupt_flag().map_err(|error| format!("cannot install the signal handlers: {error}"))?;
    if asked.should_print_jsonl {
        // Interrupted when its parent ends: cargo does not forward the signals of the program that
        // reads the output.
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
    }
    let mut run = new_run(&lab)?;
    let log = RunLog::new(&lab, asked.over.as_ref().map(|over| &*over.name));
    log.time_limit_line(&lab).into_iter().for_each(print_progress);
    let mut printer = ProgressPrinter(log);
    let outcome = lab.run(&mut printer, &interrupted);
    run.complete = !outcome.interrupted;
    (run.null_one, run.null_several) = (outcome.null_one, outcome.null_several);
    let mut text = String::new();
    if asked.should_print_jsonl {
        text = format_export_lines(&run, &outcome.records)?;
    } else {
        outcome.records.iter().for_each(|record| text.push_str(&format!("{record}\n")));
    }
    let printed = print(&text)?;
    if outcome.interrupted {
        let message = "interrupted; the completed measurements are printed";
        return Ok(fail(&message, INTERRUPTED_EXIT_CODE));
    }
    Ok(if outcome.faults.is_empty() { printed } else { ExitCode::FAILURE })
}

/// Prints text to standard output; a closed pipe is no error.
fn print(text: &str) -> Result<ExitCode, String> {
    match io::stdout().write_all(text.as_bytes()) {
        // The reader has closed the pipe and needs no more output.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(format!("cannot write to standard output: {error}")),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

/// Returns the description of a run that starts now.
pub(crate) fn new_run(lab: &Lab) -> Result<Run, String> {
    let started_unix_ns = unix_ns(SystemTime::now()).ok_or(DATE_OUT_OF_RANGE)?;
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let of_cargo = |name: &str| std::env::var(name).unwrap_or_default();
    Ok(Run {
        id: format!("{:x}-{:x}", started_unix_ns / 1000, std::process::id()),
        started_unix_ns,
        version: env!("CARGO_PKG_VERSION").to_string(),
        commit: of_cargo("HANDOVER_COMMIT"),
        profile: lab.plan().profile.to_string(),
        command: words.join(" "),
        seed: lab.seed(),
        host: lab.host(),
        findings: Vec::new(),
        complete: false,
        null_one: None,
        null_several: None,
        proofs: Vec::new(),
    })
}

/// Formats a run for export: a line for the run, then a line for each record.
fn format_export_lines(run: &Run, records: &[Record]) -> Result<String, String> {
    let of = |value: Result<Value, serde_json::Error>, about: Value| -> Result<String, String> {
        let mut line = value.map_err(|error| error.to_string())?;
        if let (Value::Object(line), Value::Object(about)) = (&mut line, about) {
            line.extend(about);
        }
        Ok(format!("{line}\n"))
    };
    let mut text =
        of(serde_json::to_value(run), json!({"type": "run", "schema": JSON_SCHEMA_VERSION}))?;
    for record in records {
        let about = json!({"type": "record", "run": run.id});
        text.push_str(&of(serde_json::to_value(record), about)?);
    }
    Ok(text)
}

/// Observer that prints each fault.
pub(crate) struct FaultPrinter;

impl RunObserver for FaultPrinter {
    fn fault(&mut self, id: &str, fault: &Fault) {
        print_progress(format!("{id}: {fault}"));
    }
}

/// Observer that prints a line for each measured benchmark, and each fault.
struct ProgressPrinter(RunLog);

impl RunObserver for ProgressPrinter {
    fn begin(&mut self, visit: (usize, usize), _: usize) {
        self.0.remaining_line(visit).into_iter().for_each(print_progress);
    }

    fn records(&mut self, records: &[Record]) -> bool {
        self.0.measured_line(records).into_iter().for_each(print_progress);
        true
    }

    fn fault(&mut self, id: &str, fault: &Fault) {
        FaultPrinter.fault(id, fault);
    }
}

/// Prints a line to standard error.
fn print_progress(line: String) {
    // A failed write to standard error loses only this line.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Null benchmark: swaps a word in newly allocated memory, with two equal contenders.
struct NullSwap(Box<AtomicU64>);

impl Workload for NullSwap {
    type Args = ();
    const SPEC: Spec = Spec::new("null/one-cpu", "the same word swapped, against itself");

    fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(NullSwap(Box::new(AtomicU64::new(0))))
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for i in 0..n {
                // Relaxed: only this thread uses the word.
                black_box(self.0.swap(black_box(i), Ordering::Relaxed));
            }
        });
    }
}

/// Suite with the null benchmark and its two equal contenders.
const NULLS: &[Bench] = &[
    Bench::one::<NullSwap>(Contender::null("one")),
    Bench::one::<NullSwap>(Contender::null("other")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn parsed(line: &str) -> Result<BenchOptions, String> {
        BenchOptions::parse(line.split_whitespace().map(str::to_string))
    }

    #[test]
    fn arguments_of_cargo_and_of_a_user_are_parsed() {
        let line = "--bench sort --time=200ms --no-peers --place far --idle-gap 1ms --neighbour --processes \
                    --set n=7 --jsonl";
        let asked = parsed(line).expect("parse the arguments");
        assert_eq!(asked.patterns, ["sort"]);
        assert_eq!(asked.plan.time, Some(Duration::from_millis(200)));
        assert_eq!(asked.plan.idle_gap, Duration::from_millis(1));
        assert_eq!(asked.plan.place.to_string(), "far");
        assert!(asked.plan.neighbour && asked.plan.processes);
        assert_eq!(asked.plan.set, [("n".to_string(), "7".to_string())]);
        assert!(asked.should_print_jsonl && !asked.plan.peers && !asked.should_list);
        assert_eq!(parsed("--test").expect("parse the arguments").plan.profile, Profile::Smoke);
    }

    #[test]
    fn invalid_arguments_are_rejected_with_a_remedy() {
        for (line, why) in [
            ("--nope", "--nope: no such option; --help lists them"),
            ("--no-peers=false", "--no-peers=false: --no-peers takes no value"),
            ("--profile", "--profile: needs a value"),
            ("--profile some", "--profile: the profile must be smoke, quick or full"),
            ("--set x", "--set: must be NAME=VALUE, as in slots_count=128"),
            (
                "--over n",
                "--over: the range must have the form ARG=a..b, ARG=a..b:step or ARG=a..b:log, as in \
                 slots_count=1..4096:log",
            ),
        ] {
            assert_eq!(parsed(line).expect_err(line), why);
        }
    }

    #[test]
    fn a_run_of_another_suite_becomes_lines_with_its_nulls() {
        let patterns = ["*".to_string()];
        let plan = Plan { profile: Profile::Smoke, ..Plan::default() };
        let lab = Lab::new(&[NULLS], &patterns, plan).expect("create the lab");
        let outcome = lab.run(&mut FaultPrinter, &AtomicBool::new(false));
        let text = format_export_lines(&new_run(&lab).expect("a date of today"), &outcome.records)
            .expect("lines");
        let kinds: Vec<String> = text
            .lines()
            .map(|line| {
                serde_json::from_str::<Value>(line).expect("parse the JSON")["type"].to_string()
            })
            .collect();
        assert_eq!(kinds, ["\"run\"", "\"record\"", "\"record\""]);
        assert!(text.contains("\"schema\":1") && outcome.records.len() == 2);
    }
}
