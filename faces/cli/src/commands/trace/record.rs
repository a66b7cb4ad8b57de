//! `handover trace record`, `names` and `library`: the functions of C and C++ programs.

use crate::exit::{ChildExit, to_usage_error};
use anyhow::Context;
use clap::{Args, ValueHint};
use handover_base::units::{ByteSize, TimeSpan};
use handover_probe::Policy;
use handover_probe::read::RecordingState;
use handover_program::console;
use handover_program::files::{self, FileReplacement};
use handover_trace::record::{self, RecordError, RecordOptions, RecordResult, WrittenTrace};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::ffi::OsString;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::switch::KeepPolicy;

#[derive(Debug, Args)]
pub struct TraceRecord {
    /// Output file; processes that the program starts record into FILE.PID
    #[arg(long, short = 'o', value_name = "FILE", default_value = "handover.trace")]
    pub output: PathBuf,
    /// Record only functions and probes that match: * and ?; repeatable
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub include: Vec<String>,
    /// Leave out functions and probes that match: * and ?; repeatable
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub exclude: Vec<String>,
    /// Maximum nesting depth of recorded calls
    #[arg(long, value_name = "N", default_value_t = 1023, value_parser = clap::value_parser!(u32).range(1..=1023))]
    pub depth: u32,
    /// Minimum duration of recorded calls, up to 24h, such as 1us; a number without a unit is in ns
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_min_duration)]
    pub min_duration: Duration,
    /// Policy for events that overflow the ring
    #[arg(long, value_name = "NAME", default_value = "stream")]
    pub policy: KeepPolicy,
    /// Size of each thread's ring, 8KiB to 4GiB, allocated in /dev/shm at the thread's first event
    /// [default: 4MiB; with `last`, 1MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_ring_size)]
    pub ring: Option<ByteSize>,
    /// Maximum time for which a thread waits for space in its full ring, before events are lost
    /// [default: 50; for probes of Rust programs, 0]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(..=3_600_000))]
    pub wait: Option<u32>,
    /// Run the program even if it contains nothing to trace, because it may start programs that do
    #[arg(long)]
    pub force: bool,
    /// Program and its arguments
    #[arg(value_name = "PROG", required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct TraceNames {
    /// Trace file whose recorder was killed
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub struct TraceLibrary {
    /// Folder for the library and the header; created if it does not exist
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// Range of `--ring`.
const RING_RANGE: RangeInclusive<ByteSize> = ByteSize(8 << 10)..=ByteSize(4 << 30);

/// Parses a size in [`RING_RANGE`]. A number without a unit is in bytes.
fn parse_ring_size(text: &str) -> Result<ByteSize, String> {
    let range = format!("{}..={}", RING_RANGE.start(), RING_RANGE.end());
    match text.parse().map_err(|error| format!("{error}; the range is {range}"))? {
        size if RING_RANGE.contains(&size) => Ok(size),
        _ => Err(format!("must lie in {range}")),
    }
}

/// Maximum of `--min-duration`. The recorder compares durations in ticks of the clock, as a `u64`.
const MIN_DURATION_MAX: TimeSpan = TimeSpan(24 * 3_600_000_000_000);

/// Parses a time of up to [`MIN_DURATION_MAX`]. A number without a unit is in ns.
fn parse_min_duration(text: &str) -> Result<Duration, String> {
    let span = text.parse().map(TimeSpan).or_else(|_| text.parse());
    let span = span.map_err(|error| format!("{error}; the range is 0..={MIN_DURATION_MAX}"))?;
    match span <= MIN_DURATION_MAX {
        true => Ok(span.into()),
        false => Err(format!("must lie in 0..={MIN_DURATION_MAX}")),
    }
}

pub fn record(args: &TraceRecord) -> anyhow::Result<()> {
    let policy = match args.policy {
        KeepPolicy::Stream => Policy::Stream,
        KeepPolicy::Last => Policy::Last,
    };
    files::check_output_path(&args.output)
        .map_err(|error| to_usage_error(format!("-o {}: {error}", args.output.display())))?;
    let options = RecordOptions::new(&args.output).policy(policy);
    let ring_bytes = if policy == Policy::Last { 1 << 20 } else { options.ring_bytes };
    let options = options
        .ring_bytes(args.ring.map_or(ring_bytes, |ring| ring.0))
        .include(args.include.clone())
        .exclude(args.exclude.clone())
        .depth(args.depth)
        .min_duration(args.min_duration)
        .wait(args.wait.map(|ms| Duration::from_millis(ms.into())))
        .force(args.force);
    let signals = catch_signals().context("cannot install a signal handler")?;
    let recorded = record::record(&options, &args.command, &signals).map_err(record_error)?;
    print_result(&recorded);
    match recorded.exit_code() {
        0 if recorded.written.is_empty() => {
            anyhow::bail!("no trace was written: see the messages above")
        }
        0 => Ok(()),
        code => Err(ChildExit(code).into()),
    }
}

/// Installs handlers for the signals that would end this process. SIGINT and SIGQUIT come from the
/// terminal, which sends them to the traced program too; the returned function returns a SIGTERM or
/// SIGHUP that is to be forwarded.
fn catch_signals() -> std::io::Result<impl Fn() -> Option<i32>> {
    let nobody_asks = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::clone(&nobody_asks))?;
    }
    let last = Arc::new(AtomicUsize::new(0));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(signal, Arc::clone(&last), signal as usize)?;
    }
    // Relaxed: the signal's number is the only data handed over.
    Ok(move || i32::try_from(last.swap(0, Ordering::Relaxed)).ok().filter(|signal| *signal != 0))
}

/// Converts an error of the recorder to a usage error if a program, pattern or file cannot be used.
fn record_error(error: RecordError) -> anyhow::Error {
    match error {
        RecordError::Refused(error) => to_usage_error(error),
        RecordError::Pattern { .. } | RecordError::Path { .. } => to_usage_error(error),
        RecordError::File { path, source } => {
            to_usage_error(format!("{}: {source}", path.display()))
        }
        other => other.into(),
    }
}

/// Prints a line for each written trace, and the notes of the recorder.
fn print_result(recorded: &RecordResult) {
    for trace in &recorded.written {
        console::print_error(format_args!("handover: {}", trace_line(trace)));
    }
    for note in &recorded.notes {
        console::print_error(format_args!("handover: note: {note}"));
    }
}

/// Formats the path of a trace, and its numbers of events, threads and bytes.
fn trace_line(trace: &WrittenTrace) -> String {
    let threads = match trace.threads_count {
        1 => "1 thread".to_owned(),
        count => format!("{count} threads"),
    };
    let mut line = format!(
        "{}: {} events of {threads}, {} bytes",
        trace.path.display(),
        trace.events_count,
        trace.bytes
    );
    if trace.missing.total_count() > 0 {
        let missing_count = trace.missing.total_count();
        line.push_str(&format!("; {missing_count} events are missing"));
    }
    if trace.missing.overwritten > 0 {
        let overwritten_count = trace.missing.overwritten;
        line.push_str(&format!("; {overwritten_count} older events were overwritten"));
    }
    if let RecordingState::Failed(errno) = trace.end {
        let error = std::io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0));
        line.push_str(&format!("; recording stopped early: {error}"));
    }
    line
}

pub fn names(args: &TraceNames, out: &mut dyn Write) -> anyhow::Result<()> {
    let path = args.file.display();
    let mut notes = Vec::new();
    let count = record::add_function_names(&args.file, &mut notes)
        .map_err(|error| to_usage_error(format!("{path}: {error}")))?;
    for note in notes {
        console::print_error(format_args!("handover: note: {note}"));
    }
    writeln!(out, "{path}: {count} functions named")?;
    Ok(())
}

pub fn library(args: &TraceLibrary, out: &mut dyn Write) -> anyhow::Result<()> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder)
        .map_err(|error| to_usage_error(format!("{}: {error}", folder.display())))?;
    let mut text = String::new();
    for (name, bytes) in [
        ("libhandover-trace.so", record::RECORDING_LIBRARY_IMAGE),
        ("handover_probe.h", record::PROBE_HEADER_SOURCE.as_bytes()),
    ] {
        let path = folder.join(name);
        let named = path.display();
        // Replaced atomically, as running programs have the old file mapped.
        let mut file = FileReplacement::create(&path)
            .map_err(|error| to_usage_error(format!("{named}: {error}")))?;
        let written = file.write_all(bytes).and_then(|()| file.commit());
        written.with_context(|| format!("cannot write {named}"))?;
        text += &format!("{named}\n");
    }
    // Both files are written first, as the reader of the output may have closed it.
    Ok(out.write_all(text.as_bytes())?)
}
