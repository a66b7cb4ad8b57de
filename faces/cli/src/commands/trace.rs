//! `handover trace`: probes of running programs, and traces that programs have written.

mod compare;
mod estimate;
mod export;
mod record;
mod show;
mod switch;

use crate::exit::to_usage_error;
use clap::{Args, Subcommand};
use handover_probe::ReadError;
use handover_program::console;
use handover_trace::{
    SiteNames, TraceError, Traces, WalkCounts, missing_event_lines, nearest_name,
};
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Enable probes of a running process, which then records their events
    On(switch::TraceOn),
    /// Disable probes of a running process
    Off(switch::TraceOff),
    /// List the probes of a process or of a trace
    List(switch::TraceList),
    /// Show calls and their times, by function or as a call tree
    Show(show::TraceShow),
    /// Compare the functions of two traces: self times, calls and durations before and after a
    /// change
    Compare(compare::TraceCompare),
    /// Write traces in the format of another tool
    Export(export::TraceExport),
    /// Show events and bytes by function, and suggest a filter for the next recording
    Estimate(estimate::TraceEstimate),
    /// Run a program and record its probes and, for C and C++, its function calls
    Record(record::TraceRecord),
    /// Look up the names of functions in a trace whose recorder was killed
    Names(record::TraceNames),
    /// Write the recording library and the C header with the probe macros
    Library(record::TraceLibrary),
}

/// Options that select traces, and functions and probes in them.
#[derive(Debug, Args)]
pub struct TraceSelection {
    /// Trace files; the traces of forked processes (FILE.PID) are included
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Leave out the traces of forked processes
    #[arg(long)]
    pub alone: bool,
    /// Only functions and probes that match: * and ?, commas for "or", - for "but not"
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub only: Option<String>,
}

impl TraceSelection {
    /// Opens the traces and their site names. Warns about traces that cannot be read.
    pub fn open(&self) -> anyhow::Result<(Traces, SiteNames)> {
        let traces = open_traces(&self.files, self.alone)?;
        let names = select_names(&traces, self.only.as_deref());
        if let Some(pattern) = &self.only
            && !has_selected_names(&names)
        {
            let names = names.iter().skip(1).map(|(_, name)| name);
            return Err(no_match_error(
                pattern,
                nearest_name(pattern, names),
                "handover trace list FILE",
            ));
        }
        Ok((traces, names))
    }
}

/// Opens traces, without those of forked processes if `alone`. Warns about traces that are skipped.
fn open_traces(files: &[PathBuf], alone: bool) -> anyhow::Result<Traces> {
    let opened = if alone { Traces::open_without_children(files) } else { Traces::open(files) };
    let traces = opened.map_err(trace_error)?;
    for error in traces.skipped_children() {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        let cause = cause.unwrap_or_default();
        console::print_error(format_args!("handover: warning: trace skipped: {error}{cause}"));
    }
    Ok(traces)
}

/// Returns the names of the traces' functions and probes; those that match `pattern` are selected,
/// or all without a pattern.
fn select_names(traces: &Traces, pattern: Option<&str>) -> SiteNames {
    match pattern {
        None => SiteNames::with_all_selected(traces),
        Some(pattern) => SiteNames::with_matching_selected(traces, pattern),
    }
}

/// Returns `true` if a name is selected, or if the trace has no names.
fn has_selected_names(names: &SiteNames) -> bool {
    // The first name stands for sites without a name.
    names.count() <= 1 || names.iter().skip(1).any(|(name, _)| names.is_selected(name))
}

/// Returns a usage error for a pattern without matches. It gives the nearest name, or the way to
/// list names.
fn no_match_error(pattern: &str, meant: Option<&str>, list_command: &str) -> anyhow::Error {
    let hint = match meant {
        Some(name) => format!("did you mean {name}?"),
        None => format!("list the probes with `{list_command}`"),
    };
    to_usage_error(format!("{pattern}: no probe matches this pattern; {hint}"))
}

/// Returns an error if a trace file is damaged. The error has the number of missing events.
fn check_undamaged(traces: &Traces) -> anyhow::Result<()> {
    let damaged = traces.missing_events().damaged;
    if damaged == 0 {
        return Ok(());
    }
    let files = traces.as_slice().iter().zip(traces.paths());
    let is_damaged = files.filter(|(trace, _)| trace.missing_events().damaged > 0);
    let paths: Vec<_> = is_damaged.map(|(_, path)| path.display().to_string()).collect();
    let paths = paths.join(", ");
    anyhow::bail!(
        "{paths}: damaged or cut off: {missing_count} events are missing",
        missing_count = damaged
    )
}

/// Prints notes about events that are missing from the output.
fn print_missing_events(traces: &Traces, found: &WalkCounts) {
    for line in missing_event_lines(traces, found) {
        console::print_error(format_args!("handover: note: {line}"));
    }
}

pub fn run(args: &TraceCommand, out: &mut dyn Write) -> anyhow::Result<()> {
    match args {
        TraceCommand::On(args) => switch::on(args, out),
        TraceCommand::Off(args) => switch::off(args, out),
        TraceCommand::List(args) => switch::list(args, out),
        TraceCommand::Show(args) => show::show(args, out),
        TraceCommand::Compare(args) => compare::compare(args, out),
        TraceCommand::Export(args) => export::export(args, out),
        TraceCommand::Estimate(args) => estimate::estimate(args, out),
        TraceCommand::Record(args) => record::record(args),
        TraceCommand::Names(args) => record::names(args, out),
        TraceCommand::Library(args) => record::library(args, out),
    }
}

/// Converts a trace error to a usage error if a file cannot be read as a trace. Traces that cannot
/// be compared are a usage error too.
fn trace_error(error: TraceError) -> anyhow::Error {
    match &error {
        TraceError::Read { path, source } => {
            let path = path.display();
            match source {
                ReadError::Io(source) => to_usage_error(format!("{path}: {source}")),
                ReadError::NotATrace => to_usage_error(format!(
                    "{path}: {source}; HANDOVER_TRACE_FILE, handover trace on and handover trace \
                     record write traces"
                )),
                _ => to_usage_error(format!("{path}: {source}")),
            }
        }
        TraceError::Incomparable { .. } => to_usage_error(error),
        _ => error.into(),
    }
}
