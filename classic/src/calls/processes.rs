//! Costs of whole processes, from start to end: the rows, and their runs.

use super::costed::{EventRecording, MeasuredFunction, ProcessCost, ProcessTask, measure_cost};
use super::folders::{TraceFolders, TraceMedium};
use super::loops::TWO_PROBES_LABEL;
use handover_harness::stats;
use handover_program::console;
use handover_program::exit::{InterruptedBeforeResults, format_chain};
use handover_suite::probe::rows::RecordingCounts;
use handover_trace::record::RECORDING_LIBRARY_IMAGE;
use indicatif::{ProgressBar, ProgressDrawTarget};
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of calls that an "empty program" makes. Its cost is that of starting and exiting.
const EMPTY_CALLS: u64 = 1;

/// Measured functions, with their labels and their recordings.
const ROWS: [(MeasuredFunction, &str, &[EventRecording]); 5] = [
    (
        MeasuredFunction::Plain,
        "Function call (function in the same source file)",
        &[EventRecording::Off],
    ),
    (
        MeasuredFunction::Stamps,
        "Function call with two time stamps, kept nowhere",
        &[EventRecording::Off],
    ),
    (MeasuredFunction::Probes, TWO_PROBES_LABEL, &ALL_RECORDINGS),
    (MeasuredFunction::Hooks, "Function call with -finstrument-functions", &ALL_RECORDINGS),
    (MeasuredFunction::Patchable, "Function call with -fpatchable-function-entry", &ALL_RECORDINGS),
];
const ALL_RECORDINGS: [EventRecording; 5] = [
    EventRecording::Off,
    EventRecording::Filtered,
    EventRecording::Newest,
    EventRecording::AtEnd,
    EventRecording::Streamed,
];

/// Table row of a measured process, with the costs of its runs.
pub(super) struct ProcessRow {
    /// Label of the row.
    pub text: String,
    pub task: ProcessTask,
    /// Costs of the runs, sorted by wall time.
    pub runs: Vec<ProcessCost>,
    /// Error after which the process was not run again.
    pub error: Option<String>,
}

impl ProcessRow {
    /// Returns the run with the least wall time.
    pub fn fastest_run(&self) -> ProcessCost {
        self.runs.first().copied().unwrap_or_default()
    }

    /// Returns the median of a figure over all runs.
    pub fn median(&self, figure: impl Fn(&ProcessCost) -> f64) -> f64 {
        stats::median(&self.runs.iter().map(figure).collect::<Vec<_>>())
    }

    /// Returns the median wall time of all runs, in ticks.
    pub fn wall_ticks(&self) -> f64 {
        self.median(|it| it.wall_ticks as f64)
    }

    /// Returns the maximum resident memory of all runs, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.runs.iter().map(|it| it.resources.usage.rss_max_bytes).max().unwrap_or_default()
    }

    /// Returns the mean counts of recorded events per run.
    pub fn mean_recorded_counts(&self) -> RecordingCounts {
        let mean = |count: fn(&RecordingCounts) -> u64| {
            let sum: u64 = self.runs.iter().map(|it| count(&it.recorded)).sum();
            sum / self.runs.len().max(1) as u64
        };
        RecordingCounts {
            events_count: mean(|it| it.events_count),
            lost_count: mean(|it| it.lost_count),
            bytes: mean(|it| it.bytes),
        }
    }

    /// Returns `true` if events are recorded.
    pub fn is_traced(&self) -> bool {
        !matches!(self.task.recording, EventRecording::Off | EventRecording::Filtered)
    }
}

/// Measures each function with each of its recordings; a run makes `calls` calls. Returns a table
/// row for each.
pub(super) fn measure_programs(
    calls: u64,
    runs_count: u64,
    folders: &TraceFolders,
    interrupted: &AtomicBool,
) -> anyhow::Result<Vec<ProcessRow>> {
    let mut rows = Vec::new();
    for (subject, function_label, recordings) in ROWS {
        if subject.entries().is_some() && RECORDING_LIBRARY_IMAGE.is_empty() {
            console::print_error(format_args!(
                "calls: warning: functions of C programs are recorded on x86-64 Linux alone; the rows of \
                 {function_label} are left out"
            ));
            continue;
        }
        for tool in recordings {
            let media: &[TraceMedium] = match tool {
                EventRecording::AtEnd | EventRecording::Streamed => {
                    &[TraceMedium::Memory, TraceMedium::Dir]
                }
                _ => &[TraceMedium::Memory],
            };
            for medium in
                media.iter().copied().filter(|it| media.len() == 1 || folders.has_medium(*it))
            {
                let medium_label = folders.label(medium);
                let text = match tool {
                    EventRecording::Off if subject.entries().is_some() => {
                        format!("{function_label}, not recorded")
                    }
                    EventRecording::Off if subject == MeasuredFunction::Probes => {
                        format!("{function_label}, off")
                    }
                    EventRecording::Off => function_label.to_string(),
                    EventRecording::Filtered => format!("{function_label}, filtered"),
                    EventRecording::Newest => {
                        format!("{function_label}, newest events kept in memory")
                    }
                    EventRecording::AtEnd => {
                        format!("{function_label}, written at the end to {medium_label}")
                    }
                    EventRecording::Streamed => {
                        format!("{function_label}, streamed to {medium_label}")
                    }
                };
                rows.push((text, ProcessTask { function: subject, recording: *tool, medium }));
            }
        }
    }
    measure_in_turn(rows, calls, runs_count, folders, interrupted)
}

/// Measures empty programs, which make one call. One runs without a trace, and one with a trace on
/// each medium.
pub(super) fn measure_empty_programs(
    runs_count: u64,
    folders: &TraceFolders,
    interrupted: &AtomicBool,
) -> anyhow::Result<Vec<ProcessRow>> {
    let task =
        |recording, medium| ProcessTask { function: MeasuredFunction::Probes, recording, medium };
    let mut rows =
        vec![("without probes on".to_string(), task(EventRecording::Off, TraceMedium::Memory))];
    for medium in [TraceMedium::Memory, TraceMedium::Dir] {
        if folders.has_medium(medium) {
            let text = format!("traced to {medium_label}", medium_label = folders.label(medium));
            rows.push((text, task(EventRecording::Streamed, medium)));
        }
    }
    measure_in_turn(rows, EMPTY_CALLS, runs_count, folders, interrupted)
}

/// Runs each row once in each round. Each round starts with another row. A row that fails is not
/// run again.
fn measure_in_turn(
    rows: Vec<(String, ProcessTask)>,
    calls: u64,
    runs_count: u64,
    folders: &TraceFolders,
    interrupted: &AtomicBool,
) -> anyhow::Result<Vec<ProcessRow>> {
    let whole = |(text, task)| ProcessRow { text, task, runs: Vec::new(), error: None };
    let mut processes: Vec<ProcessRow> = rows.into_iter().map(whole).collect();
    let count = processes.len();
    let target = match console::should_show_progress_bar() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(runs_count * count as u64), target);
    for round in 0..runs_count as usize {
        for turn in 0..count {
            let it = &mut processes[(round + turn) % count];
            if it.error.is_none() {
                match measure_cost(it.task, calls, folders) {
                    Ok(cost) => it.runs.push(cost),
                    Err(error) => it.error = Some(format_chain(&error)),
                }
            }
            // Relaxed: the signal handler publishes nothing but the flag.
            if interrupted.load(Ordering::Relaxed) {
                return Err(InterruptedBeforeResults.into());
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for it in &mut processes {
        it.runs.sort_unstable_by_key(|it| it.wall_ticks);
    }
    Ok(processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_two_runs_is_their_mean() {
        let run = |wall_ticks| ProcessCost { wall_ticks, ..ProcessCost::default() };
        let (function, recording) = (MeasuredFunction::Plain, EventRecording::Off);
        let task = ProcessTask { function, recording, medium: TraceMedium::Memory };
        let runs = vec![run(10), run(30)];
        let row = ProcessRow { text: String::new(), task, runs, error: None };
        assert_eq!(row.wall_ticks(), 20.0);
    }
}
