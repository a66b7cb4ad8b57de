//! `handover bench`, or `cargo handover`: other packages' workloads, measured and stored like the
//! suite's.

use crate::app::{PlanOptions, ResultOptions};
use crate::commands::pool::pool_runs;
use crate::commands::{run, stored, sweep};
use crate::exit::{InterruptedBeforeResults, check_interrupt, join_results};
use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use handover_base::topology::Placement;
use handover_program::{child, console};
use handover_record::{ArgRange, Document};
use handover_store::{ImportError, Store};
use std::ffi::OsString;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of bytes of the output of a benchmark program.
const OUTPUT_BYTES_MAX: u64 = 1 << 28;
/// Maximum number of chunks of output, some KiB each, that are read and not yet collected.
const CHUNKS_MAX: usize = 128;
/// Maximum time to wait for the end of the output after cargo has ended by itself.
const LAST_OUTPUT_WAIT_MAX: Duration = Duration::from_secs(1);

/// Arguments of `handover bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "The package has a bench target whose `main` is `handover_harness::bench_main(&[ALL])`. The run \
is stored: `runs`, `show`, `compare`, `history` and `export` treat it like any other. A link to this binary named \
cargo-handover makes this `cargo handover`."
)]
pub struct BenchArgs {
    /// Benchmarks: prefix of ids, or glob [default: all benchmarks of the package]
    #[arg(value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Name of the package's bench target that defines the benchmarks
    #[arg(long, value_name = "NAME", default_value = "handover")]
    bench: String,
    /// Package to measure; required in a workspace of several packages
    #[arg(long, short = 'p', value_name = "NAME")]
    package: Option<String>,
    /// Measure one benchmark, given by its full id, with several values of an argument: ARG=a..b
    /// (about twelve), ARG=a..b:step, or ARG=a..b:log (doubling)
    #[arg(long, value_name = "ARG=A..B")]
    over: Option<ArgRange>,
    /// List the benchmarks without measuring
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    plan: PlanOptions,
    #[command(flatten)]
    results: ResultOptions,
}

pub fn bench(args: &BenchArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let results = &args.results;
    let page = run::report_path(results)?;
    run::check_name(results)?;
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;
    let path = stored::writable_store_path(&results.db)?;
    if args.list {
        let status = child::run(&mut cargo_bench_command(args), &interrupted)?.status;
        check_interrupt(&interrupted)?;
        return match status.success() {
            true => Ok(()),
            false => bail!("{}: see cargo's messages above", describe_failure(args, status)),
        };
    }
    let (mut ids, mut ended_badly) = (Vec::new(), None);
    for _ in 0..results.repeat {
        let (status, printed) =
            run_and_read(cargo_bench_command(args), &interrupted, OUTPUT_BYTES_MAX)?;
        let run = read_run_id(&mut printed.as_slice());
        match (Store::import_into(&path, &mut printed.as_slice()), run) {
            (Ok(_), Some(run)) => ids.push(run),
            (Err(ImportError::Store(refused)), _) => return Err(refused.into()),
            // The program ended before it printed its run.
            _ if check_interrupt(&interrupted).is_err() && printed.is_empty() => break,
            (Err(why), _) if check_interrupt(&interrupted).is_err() && !ids.is_empty() => {
                console::print_error(format_args!(
                    "the output of the interrupted repeat cannot be imported: {why}"
                ));
                break;
            }
            (Err(why), _) if check_interrupt(&interrupted).is_err() => bail!(
                "bench target {} was interrupted, and its output cannot be imported: {why}",
                args.bench
            ),
            (imported, _) if status.success() => bail!(
                "bench target {} printed no run{}; its main must be \
                 handover_harness::bench_main(&[ALL])",
                args.bench,
                imported.err().map_or_else(String::new, |why| format!(" ({why})"))
            ),
            _ => bail!("{}: see cargo's messages above", describe_failure(args, status)),
        }
        if let (Some(name), Some(run)) = (&results.name.name, ids.last()) {
            Store::open(&path)?.add_tag(run, name)?;
        }
        if check_interrupt(&interrupted).is_err() {
            break;
        }
        // Results so far are kept, and the remaining processes still run: one benchmark that cannot
        // be measured must not lose all others.
        if !status.success() {
            ended_badly = Some(describe_failure(args, status));
        }
    }
    if ids.is_empty() {
        return Err(InterruptedBeforeResults.into());
    }
    let store = Store::open_existing(&path)?;
    let runs: Vec<Document> = ids.iter().map(|id| store.load_run(id)).collect::<Result<_, _>>()?;
    let shown = pool_runs(&runs).map_or(Ok(()), |pooled| {
        run::show(&pooled, Some(store.path()), results, page.as_deref(), None, out)?;
        if args.over.is_some() && !results.json {
            writeln!(out)?;
            sweep::print_sweeps(&pooled, None, out)?;
        }
        Ok(())
    });
    let measured = match (check_interrupt(&interrupted), ended_badly) {
        (Err(_), _) if runs.iter().all(|it| it.records.is_empty()) => {
            Err(InterruptedBeforeResults.into())
        }
        (Err(interrupt), _) => Err(interrupt.into()),
        (Ok(()), Some(failure)) => Err(anyhow!(
            "{failure}: see cargo's messages above; the completed measurements are kept"
        )),
        (Ok(()), None) => Ok(()),
    };
    join_results(measured, shown)
}

/// Runs `cargo bench`, and returns its exit status and the output of the benchmark program, at most
/// `bytes_max` bytes.
///
/// A signal ends cargo before the program, which then prints the completed measurements: the output
/// is read until all its writers have closed it, or a second interrupt ends this process. If cargo
/// ends by itself, the program has ended, too; another process that inherited its standard output
/// is waited for at most [`LAST_OUTPUT_WAIT_MAX`].
fn run_and_read(
    mut command: Command,
    interrupted: &AtomicBool,
    bytes_max: u64,
) -> anyhow::Result<(ExitStatus, Vec<u8>)> {
    let (output, writer) =
        io::pipe().context("cannot create a pipe for the output of cargo bench")?;
    command.stdout(writer);
    let (sender, chunks) = sync_channel(CHUNKS_MAX);
    // One byte more than allowed shows that the output is too long.
    let mut output = output.take(bytes_max + 1);
    let reader = thread::spawn(move || io::copy(&mut output, &mut ChunkSender(sender)));
    let mut bytes: Vec<u8> = Vec::new();
    let status = child::run_with(&mut command, interrupted, || {
        chunks.try_iter().for_each(|chunk| bytes.extend_from_slice(&chunk));
    })?
    .status;
    // The pipe ends when all of its writers are closed, and `command` holds one.
    drop(command);
    let is_ended_by_signal = status.signal().is_some() || check_interrupt(interrupted).is_err();
    if is_ended_by_signal {
        console::print_error(format_args!(
            "waiting for the output of the benchmark program; interrupt again to end"
        ));
    }
    let until = (!is_ended_by_signal).then(|| Instant::now() + LAST_OUTPUT_WAIT_MAX);
    let wait_max =
        || until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
    let end = loop {
        match chunks.recv_timeout(wait_max()) {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            Err(end) => break end,
        }
    };
    if end == RecvTimeoutError::Disconnected {
        let copied = reader.join().map_err(|_| anyhow!("the reader of the output panicked"))?;
        copied.context("cannot read the output of cargo bench")?;
    }
    ensure!(
        bytes.len() as u64 <= bytes_max,
        "cargo bench printed more than {bytes_max} bytes; select fewer benchmarks"
    );
    Ok((status, bytes))
}

/// Writer that sends to a channel the bytes of each write.
struct ChunkSender(SyncSender<Vec<u8>>);

impl Write for ChunkSender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the error message for a failed `cargo bench`.
fn describe_failure(args: &BenchArgs, status: ExitStatus) -> String {
    format!("cargo bench --bench {target} failed with {status}", target = args.bench)
}

/// Reads the id of the run in the first line; `None` if it is not a run.
fn read_run_id(lines: &mut dyn BufRead) -> Option<String> {
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    let started: serde_json::Value = serde_json::from_str(&line).ok()?;
    Some(started["id"].as_str()?.to_owned())
}

/// Returns the `cargo bench` command. The program is the cargo that called this process, or the one
/// in `PATH`.
fn cargo_bench_command(args: &BenchArgs) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(["bench", "--quiet", "--bench", &args.bench]);
    if let Some(package) = &args.package {
        command.args(["--package", package]);
    }
    command.arg("--");
    if args.list {
        command.arg("--list");
    } else {
        command.arg("--jsonl");
    }
    let plan = &args.plan;
    let nanoseconds = |time: Duration| format!("{}ns", time.as_nanos());
    command.args(["--profile", &plan.profile.to_string()]);
    if let Some(time) = plan.time {
        command.args(["--time", &nanoseconds(time)]);
    }
    if plan.place != Placement::Near {
        command.args(["--place", &plan.place.to_string()]);
    }
    if !plan.idle_gap.is_zero() {
        command.args(["--idle-gap", &nanoseconds(plan.idle_gap)]);
    }
    for (option, is_on) in [
        ("--no-peers", plan.no_peers),
        ("--neighbour", plan.neighbour),
        ("--processes", plan.processes),
    ] {
        command.args(is_on.then_some(option));
    }
    for (name, value) in &plan.set {
        command.args(["--set", &format!("{name}={value}")]);
    }
    if let Some(over) = &args.over {
        command.args(["--over", &over.to_string()]);
    }
    command.args(&args.patterns).env("HANDOVER_COMMIT", commit());
    command
}

/// Returns the git commit of the package, with `+dirty` after it if files are changed. It is empty
/// without a commit.
fn commit() -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return String::new();
    };
    let dirty = git(&["status", "--porcelain"]).is_some_and(|changed| !changed.is_empty());
    if dirty { format!("{commit}+dirty") } else { commit }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script as `cargo bench`.
    fn run_script(script: &str, bytes_max: u64) -> anyhow::Result<(ExitStatus, String)> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stderr(Stdio::null());
        let (status, bytes) = run_and_read(command, &AtomicBool::new(false), bytes_max)?;
        Ok((status, String::from_utf8(bytes)?))
    }

    #[test]
    fn process_that_inherited_the_output_does_not_prevent_the_end() -> anyhow::Result<()> {
        let start = Instant::now();
        let (status, printed) = run_script("sleep 60 & echo $!", OUTPUT_BYTES_MAX)?;
        assert!(status.success() && start.elapsed() < Duration::from_secs(30));
        let killed = Command::new("kill").arg(printed.trim()).status()?;
        assert!(killed.success(), "the process was still running: {printed}");
        Ok(())
    }

    #[test]
    fn output_after_a_signal_ended_cargo_is_read_to_its_end() -> anyhow::Result<()> {
        let script = "(sleep 2; echo late) & kill -TERM $$; wait";
        let (status, printed) = run_script(script, OUTPUT_BYTES_MAX)?;
        assert!(status.signal().is_some(), "{status}");
        assert_eq!(printed, "late\n");
        Ok(())
    }

    #[test]
    fn output_over_the_limit_is_an_error_that_names_it() -> anyhow::Result<()> {
        assert_eq!(run_script("printf 12345", 5)?.1, "12345");
        let error = run_script("printf 123456", 5).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("more than 5 bytes")));
        Ok(())
    }
}
