//! Costs of whole processes, from start to end: the rows, and their runs.

use super::costed::{Cost, Subject, Task, Tool, measure_cost};
use super::folders::{Medium, TraceFolders};
use super::loops::TWO_PROBES;
use handover_program::console;
use handover_program::exit::{InterruptedEarly, format_chain};
use handover_suite::probe::rows::RecordingCounts;
use handover_trace::record::RECORDING_LIBRARY_IMAGE;
use indicatif::{ProgressBar, ProgressDrawTarget};
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of calls of an empty program, which has only `main`.
const EMPTY_CALLS: u64 = 1;

/// Measured functions with their labels, and the recordings that each is measured with.
const ROWS: [(Subject, &str, &[Tool]); 5] = [
    (Subject::Plain, "Function call (function in the same source file)", &[Tool::Off]),
    (Subject::Stamps, "Function call with two time stamps, kept nowhere", &[Tool::Off]),
    (Subject::Probes, TWO_PROBES, &ALL_TOOLS),
    (Subject::Hooks, "Function call with -finstrument-functions", &ALL_TOOLS),
    (Subject::Patchable, "Function call with -fpatchable-function-entry", &ALL_TOOLS),
];
const ALL_TOOLS: [Tool; 5] = [Tool::Off, Tool::Filtered, Tool::Newest, Tool::AtEnd, Tool::Streamed];

/// Table row of a measured process, with the costs of its runs.
pub(super) struct ProcessRow {
    pub text: String,
    pub task: Task,
    /// Costs of the runs, sorted by wall time.
    pub runs: Vec<Cost>,
    /// Error after which the process was not run again.
    pub error: Option<String>,
}

impl ProcessRow {
    /// Returns the run with the least wall time.
    pub fn best(&self) -> Cost {
        self.runs.first().copied().unwrap_or_default()
    }

    /// Returns the median of a figure of all runs.
    pub fn median(&self, figure: impl Fn(&Cost) -> f64) -> f64 {
        let mut values: Vec<f64> = self.runs.iter().map(figure).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    }

    pub fn wall_ticks(&self) -> f64 {
        self.median(|it| it.wall_ticks as f64)
    }

    /// Returns the maximum resident memory of all runs, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.runs.iter().map(|it| it.resources.usage.rss_max_bytes).max().unwrap_or_default()
    }

    /// Returns the mean counts of all runs.
    pub fn recorded(&self) -> RecordingCounts {
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

    pub fn is_traced(&self) -> bool {
        !matches!(self.task.tool, Tool::Off | Tool::Filtered)
    }
}

/// Measures every process of the table, `runs_count` times each.
pub(super) fn measure_programs(
    calls: u64,
    runs_count: u64,
    folders: &TraceFolders,
    interrupted: &AtomicBool,
) -> anyhow::Result<Vec<ProcessRow>> {
    let mut rows = Vec::new();
    for (subject, of_subject, tools) in ROWS {
        if subject.entries().is_some() && RECORDING_LIBRARY_IMAGE.is_empty() {
            console::print_error(format_args!(
                "calls: warning: functions of C programs are recorded on x86-64 Linux alone; the rows of \
                 {of_subject} are left out"
            ));
            continue;
        }
        for tool in tools {
            let media: &[Medium] = match tool {
                Tool::AtEnd | Tool::Streamed => &[Medium::Memory, Medium::Dir],
                _ => &[Medium::Memory],
            };
            for medium in
                media.iter().copied().filter(|it| media.len() == 1 || folders.has_medium(*it))
            {
                let shown = folders.label(medium);
                let text = match tool {
                    Tool::Off if subject.entries().is_some() => format!("{of_subject}, no tool"),
                    Tool::Off if subject == Subject::Probes => format!("{of_subject}, off"),
                    Tool::Off => of_subject.to_string(),
                    Tool::Filtered => format!("{of_subject}, filtered"),
                    Tool::Newest => format!("{of_subject}, recorded in memory"),
                    Tool::AtEnd => format!("{of_subject}, output to {shown}"),
                    Tool::Streamed => format!("{of_subject}, streamed to {shown}"),
                };
                rows.push((text, Task { subject, tool: *tool, medium }));
            }
        }
    }
    measured(rows, calls, runs_count, folders, interrupted)
}

/// Measures programs that do nothing, untraced and traced.
pub(super) fn measure_empty_programs(
    runs_count: u64,
    folders: &TraceFolders,
    interrupted: &AtomicBool,
) -> anyhow::Result<Vec<ProcessRow>> {
    let task = |tool, medium| Task { subject: Subject::Probes, tool, medium };
    let mut rows = vec![("without probes on".to_string(), task(Tool::Off, Medium::Memory))];
    for medium in [Medium::Memory, Medium::Dir] {
        if folders.has_medium(medium) {
            let text = format!("traced to {}", folders.label(medium));
            rows.push((text, task(Tool::Streamed, medium)));
        }
    }
    measured(rows, EMPTY_CALLS, runs_count, folders, interrupted)
}

/// Runs each row once in each round; each round starts with another row. A row that fails is not run again.
fn measured(
    rows: Vec<(String, Task)>,
    calls: u64,
    runs_count: u64,
    folders: &TraceFolders,
    interrupted: &AtomicBool,
) -> anyhow::Result<Vec<ProcessRow>> {
    let whole = |(text, task)| ProcessRow { text, task, runs: Vec::new(), error: None };
    let mut processes: Vec<ProcessRow> = rows.into_iter().map(whole).collect();
    let count = processes.len();
    let target = match console::wants_progress_bar() {
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
                return Err(InterruptedEarly.into());
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
