//! `handover bench`, or `cargo handover`: other packages' workloads, measured and stored like the
//! suite's.

use crate::app::StoreOption;
use crate::commands::stored;
use crate::exit::{Interrupted, to_usage_error};
use anyhow::{Context, bail};
use clap::Args;
use handover_program::{child, console};
use handover_store::{ImportError, Store};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Seek, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

/// Arguments of `handover bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "The package has a bench target whose `main` is `handover_harness::bench_main(&[ALL])`. The run \
is stored: `list`, `show`, `compare`, `history` and `export` know it like any other. A link to this binary named \
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
    /// List the benchmarks without measuring
    #[arg(long)]
    list: bool,
    /// Number of runs, each in a separate process; `compare` needs five per side
    #[arg(long, value_name = "COUNT", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Name of the runs
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Length of the measurement: smoke, quick, full
    #[arg(long, value_name = "NAME", default_value = "quick")]
    profile: String,
    /// Measuring time of each benchmark, as in 500ms
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
    /// Do not measure the peers (alternative implementations)
    #[arg(long)]
    no_peers: bool,
    /// Set an argument of every benchmark that has it
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    db: StoreOption,
}

pub fn bench(args: &BenchArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(name) = &args.name {
        handover_store::check_tag(name).map_err(to_usage_error)?;
    }
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;
    let path = stored::writable_store_path(&args.db)?;
    let (mut last, mut ended_badly) = (String::new(), None);
    for _ in 0..args.repeat {
        let mut printed =
            tempfile::tempfile().context("cannot create a temporary file for the output")?;
        let mut command = cargo(args);
        if !args.list {
            command.stdout(Stdio::from(printed.try_clone()?));
        }
        let status = child::run(&mut command, &interrupted)?;
        // Relaxed: the flag publishes no other data.
        if interrupted.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        let failed = || format!("cargo bench --bench {} failed with {status}", args.bench);
        if args.list {
            return if status.success() {
                Ok(())
            } else {
                bail!("{}: see its messages above", failed())
            };
        }
        printed.rewind()?;
        let run = first_run(&mut BufReader::new(&printed));
        printed.rewind()?;
        match (Store::import_into(&path, &mut BufReader::new(printed)), run) {
            (Ok(_), Some(run)) => last = run,
            (Err(ImportError::Store(refused)), _) => return Err(refused.into()),
            (imported, _) if status.success() => bail!(
                "bench target {} printed no run{}; its main must be \
                 handover_harness::bench_main(&[ALL])",
                args.bench,
                imported.err().map_or_else(String::new, |why| format!(" ({why})"))
            ),
            _ => bail!("{}: see its messages above", failed()),
        }
        if let Some(name) = &args.name {
            Store::open(&path)?.add_tag(&last, name)?;
        }
        // Results so far are kept, and the remaining processes still run: one benchmark that cannot
        // be measured must not lose all others.
        if !status.success() {
            ended_badly = Some(failed());
        }
    }
    let store = Store::open_existing(&path)?;
    let document = store.load_run(&last)?;
    let table = handover_report::render_table(
        &document,
        console::output_width(),
        console::output_style(false),
    );
    out.write_all(table.as_bytes())?;
    writeln!(out, "run {} is in {}", document.run.id, store.path().display())?;
    match ended_badly {
        Some(how) => bail!("{how}: see its messages above; the completed measurements are kept"),
        None => Ok(()),
    }
}

/// Returns the id of the run that the lines start with; `None` if they start with no run.
fn first_run(lines: &mut dyn BufRead) -> Option<String> {
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    let started: serde_json::Value = serde_json::from_str(&line).ok()?;
    Some(started["id"].as_str()?.to_owned())
}

/// Returns the `cargo bench` command, with the cargo that called this process or the one in
/// `PATH`.
fn cargo(args: &BenchArgs) -> Command {
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
        command.args(["--jsonl", "--profile", &args.profile]);
    }
    if let Some(time) = &args.time {
        command.args(["--time", time]);
    }
    if args.no_peers {
        command.arg("--no-peers");
    }
    for set in &args.set {
        command.args(["--set", set]);
    }
    command.args(&args.patterns).env("HANDOVER_COMMIT", commit());
    command
}

/// Returns the commit of the package's tree, in the format of handover's own runs; empty without a
/// commit.
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
