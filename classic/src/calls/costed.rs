//! Full cost of tracing, as the classic program defines it: that of a separate process, from its
//! start until its trace file is closed.

use super::folders::{TraceFolders, TraceMedium};
use super::raw;
use super::resources::ResourceUsage;
use crate::load::process::bytes_in_line;
use crate::value_name;
use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use handover_base::{clock, usage};
use handover_probe::Policy;
use handover_suite::call::EntryKind;
use handover_suite::probe::rows::{
    FunctionBody, RecordingCounts, Retention, copy_trace_to_file, count_calls, record_calls,
    ring_bytes,
};
use handover_trace::record::{RecordOptions, record};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Function that a measured process calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum MeasuredFunction {
    /// The function is in this program, without any tracing.
    Plain,
    /// The function is in this program and reads two time stamps, which are not stored.
    Stamps,
    /// The function is in this program and has two probes of this project.
    Probes,
    /// The function is in a separate C program, compiled with `-finstrument-functions`.
    Hooks,
    /// The function is in a separate C program, compiled with `-fpatchable-function-entry`.
    Patchable,
}

impl MeasuredFunction {
    /// Returns the kind of instrumentation of a C function's entry; `None` for a Rust function.
    pub fn entries(self) -> Option<EntryKind> {
        match self {
            MeasuredFunction::Plain | MeasuredFunction::Stamps | MeasuredFunction::Probes => None,
            MeasuredFunction::Hooks => Some(EntryKind::Hooks),
            MeasuredFunction::Patchable => Some(EntryKind::Patchable),
        }
    }
}

/// Way in which the events of a measured process are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum EventRecording {
    /// No events are recorded, as the recorder does not run.
    Off,
    /// No events are recorded, as the filter of the running recorder excludes the function.
    Filtered,
    /// Only the newest events are recorded, in memory.
    Newest,
    /// All events are recorded in memory, and written to the file at the end.
    AtEnd,
    /// All events are recorded, and written to the file during the run.
    Streamed,
}

/// Task of one measured process: its function, its recording and the medium of its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessTask {
    pub function: MeasuredFunction,
    pub recording: EventRecording,
    pub medium: TraceMedium,
}

/// Runs this process as a measured process, which calls the function `calls` times. Prints the
/// counts of events and the memory used on standard output. `files` are the paths of
/// [`TraceFolders::files`] and [`TraceFolders::program_path`].
pub(super) fn run_child(
    subject: MeasuredFunction,
    tool: EventRecording,
    calls: u64,
    files: &[PathBuf],
    parent: Option<i32>,
) -> anyhow::Result<()> {
    // Set here and not before exec: a pre-exec step would make the system fork by a slower method,
    // whose cost would be measured too.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    ensure!(
        parent.is_none() || getppid().map(Pid::as_raw_pid) == parent,
        "the process that started this measurement has exited"
    );
    let [trace, rings, program] = files else {
        bail!("--files: needs 3 paths: the trace, the rings and the program")
    };
    let inside = match subject {
        MeasuredFunction::Plain => Some(FunctionBody::Nothing),
        MeasuredFunction::Stamps => Some(FunctionBody::TwoStamps),
        MeasuredFunction::Probes => Some(FunctionBody::TwoProbes),
        MeasuredFunction::Hooks | MeasuredFunction::Patchable => None,
    };
    let RecordingCounts { events_count, lost_count, bytes } = match inside {
        Some(inside) => call_in_process(inside, tool, calls, [trace, rings])?,
        None => call_in_program(program, tool, calls, [trace, rings])?,
    };
    let mut out = handover_program::console::standard_output();
    writeln!(out, "COST {events_count} {lost_count} {bytes} {}", resident_bytes())?;
    Ok(out.flush()?)
}

/// Calls the function `calls` times in this process, and returns the counts of recorded events.
fn call_in_process(
    inside: FunctionBody,
    tool: EventRecording,
    calls: u64,
    files: [&PathBuf; 2],
) -> anyhow::Result<RecordingCounts> {
    let run = || count_calls(inside, calls);
    let kept = match tool {
        EventRecording::Off => None,
        EventRecording::Filtered | EventRecording::Newest => Some(Retention::Newest),
        EventRecording::AtEnd => Some(Retention::AtEnd { events_count: calls.saturating_mul(2) }),
        EventRecording::Streamed => Some(Retention::Streamed),
    };
    let (counted, recorded) = match kept {
        None => (run(), RecordingCounts::default()),
        Some(kept) => {
            record_calls(kept, tool != EventRecording::Filtered, files.map(PathBuf::as_path), run)?
        }
    };
    ensure!(counted == calls, "{calls} calls were requested, but {counted} were counted");
    Ok(recorded)
}

/// Calls the function `calls` times in a C program, and returns the counts of recorded events.
fn call_in_program(
    program: &Path,
    tool: EventRecording,
    calls: u64,
    [trace, rings]: [&PathBuf; 2],
) -> anyhow::Result<RecordingCounts> {
    let events_count = calls.saturating_mul(2);
    if tool == EventRecording::Off {
        let status = Command::new(program).arg(calls.to_string()).status();
        let status = status
            .with_context(|| format!("cannot start {program}", program = program.display()))?;
        ensure!(status.success(), "{} failed: {status}", program.display());
        return Ok(RecordingCounts::default());
    }
    let file = if tool == EventRecording::AtEnd { rings } else { trace };
    let mut options = RecordOptions::new(file);
    if tool != EventRecording::Streamed {
        options.policy = Policy::Last;
        options.ring_bytes =
            ring_bytes(if tool == EventRecording::AtEnd { events_count } else { 0 });
    }
    if tool == EventRecording::Filtered {
        options.exclude = vec!["next".to_string()];
    }
    let words: [OsString; 2] = [program.into(), calls.to_string().into()];
    let done = record(&options, &words, &|| None)?;
    ensure!(done.status.success(), "{} failed: {}", program.display(), done.status);
    let (mut recorded, mut overwritten) = (RecordingCounts::default(), 0);
    for it in &done.written {
        recorded.events_count += it.events_count;
        recorded.lost_count += it.missing.total_count();
        overwritten += it.missing.overwritten;
        recorded.bytes += it.bytes;
    }
    match tool {
        EventRecording::AtEnd => {
            recorded.bytes = copy_trace_to_file(rings, trace).with_context(|| {
                format!("cannot write the recorded events to {trace}", trace = trace.display())
            })?;
            recorded.lost_count += overwritten;
        }
        _ => recorded.events_count += overwritten,
    }
    let expected = if tool == EventRecording::Filtered { 0 } else { events_count };
    let all = recorded.events_count + recorded.lost_count;
    let notes = done.notes.join("; ");
    ensure!(all == expected, "the trace has {all} events, expected {expected}; {notes}");
    Ok(recorded)
}

/// Returns the maximum resident memory of this process and of its exited children, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let own = bytes_in_line(&status, "VmHWM:").unwrap_or_default();
    own.max(usage::children_usage().rss_max_bytes)
}

/// Time, resources and recorded events of one measured process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessCost {
    /// Time from the start of the process until it has exited.
    pub wall_ticks: u64,
    pub resources: ResourceUsage,
    pub recorded: RecordingCounts,
}

/// Runs this program once more as a measured process with `calls` calls, and returns its cost.
pub(super) fn measure_cost(
    task: ProcessTask,
    calls: u64,
    folders: &TraceFolders,
) -> anyhow::Result<ProcessCost> {
    let ProcessTask { function: subject, recording: tool, medium } = task;
    let mut command = crate::own_program_command("calls")?;
    command.args(["--child", &value_name(subject), "--tool", &value_name(tool)]);
    command.args(["--calls", &calls.to_string()]);
    command.args(["--parent", &getpid().as_raw_pid().to_string()]);
    let files = folders.files(medium);
    command.arg("--files").args(&files).arg(folders.program_path(subject));
    // Trace settings in this process's environment do not apply to the child.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HANDOVER_TRACE") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let began = clock::ticks();
    let mut child = command.spawn().context("cannot start the process to measure")?;
    let (mut stdout, mut stderr) = (String::new(), String::new());
    // Read one after the other: the child prints one line on either, which fits into a pipe.
    let read_stdout = child.stdout.take().map_or(Ok(0), |mut it| it.read_to_string(&mut stdout));
    let read_stderr = child.stderr.take().map_or(Ok(0), |mut it| it.read_to_string(&mut stderr));
    let ended = raw::wait_with_usage(child);
    let wall_ticks = clock::ticks().saturating_sub(began);
    for file in files {
        // The file exists or not, depending on how far the process came.
        let _ = std::fs::remove_file(file);
    }
    read_stdout.and(read_stderr).context("cannot read the output of the measured process")?;
    let (status, mut resources) = ended.context("cannot wait for the measured process")?;
    if !status.success() {
        let stderr = stderr.trim();
        let stderr = stderr.strip_prefix("handover: ").unwrap_or(stderr);
        match stderr {
            "" => bail!("the measured process failed: {status}"),
            _ => bail!("{stderr}"),
        }
    }
    let (recorded, resident_bytes) = parse_child_output(&stdout)
        .with_context(|| format!("cannot parse the output {stdout:?} of the measured process"))?;
    resources.usage.rss_max_bytes = resident_bytes;
    Ok(ProcessCost { wall_ticks, resources, recorded })
}

/// Parses the output of [`run_child`]: counts of events, and maximum resident memory in bytes.
fn parse_child_output(stdout: &str) -> Option<(RecordingCounts, u64)> {
    let numbers = stdout.trim().strip_prefix("COST ")?.split(' ').map(str::parse);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    let [events_count, lost_count, bytes, resident_bytes] = numbers[..] else { return None };
    Some((RecordingCounts { events_count, lost_count, bytes }, resident_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_a_process_has_four_numbers() {
        let recorded = RecordingCounts { events_count: 1, lost_count: 2, bytes: 3 };
        assert_eq!(parse_child_output("COST 1 2 3 4\n"), Some((recorded, 4)));
        for wrong in ["", "COST", "COST 1 2 3", "COST 1 2 3 4 5", "COST 1 2 3 x"] {
            assert_eq!(parse_child_output(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn resident_memory_of_this_process_is_above_zero() {
        assert!(resident_bytes() > 100_000);
    }
}
