//! The loops: the call that each measures, and the measurement of all in turn.

use super::folders::{TraceFolders, TraceMedium};
use anyhow::Context;
use handover_base::clock;
use handover_program::exit::InterruptedBeforeResults;
use handover_suite::call::{CallLoop, CallPath, OptLevel, c_call_loop};
use handover_suite::probe::rows::{
    FunctionBody, RecordingCounts, Retention, count_calls, record_calls,
};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of rounds; each measures every row once. Some more than a confidence interval needs.
pub(super) const ROUNDS_COUNT: u64 = 25;

const O0_HEADING: &str = "Compiled with -O0";
pub(super) const O3_HEADING: &str = "Compiled with -O3";
const PROBED_HEADING: &str = "With probes (Rust, optimised)";
pub(super) const TABLE_HEADINGS: [&str; 3] = [O0_HEADING, O3_HEADING, PROBED_HEADING];

/// Label of a row that the master table shows too.
pub(super) const STATIC_CALL_LABEL: &str = "Function call (function in a static library)";
pub(super) const DYNAMIC_CALL_LABEL: &str = "Function call (function in a dynamic library)";
pub(super) const SAME_FILE_CALL_LABEL: &str = "Function call (function in the same source file)";
pub(super) const TWO_NOTIFIES_LABEL: &str = "Function call with two notify intrinsics";
pub(super) const TWO_EXTRA_CALLS_LABEL: &str = "Function call with two additional function calls";
/// Prefix of the labels of rows with probes of this project.
pub(super) const TWO_PROBES_LABEL: &str = "Function call with two probes";

/// Rows of C loops. A row has a label, the path of the call, and `true` if the cost of the first
/// row is subtracted.
const C_ROWS: [(&str, CallPath, bool); 10] = [
    (SAME_FILE_CALL_LABEL, CallPath::SameFile, false),
    (STATIC_CALL_LABEL, CallPath::Static, true),
    (DYNAMIC_CALL_LABEL, CallPath::Plt, true),
    ("Function call with one notify intrinsic", CallPath::OneProbe, true),
    (TWO_NOTIFIES_LABEL, CallPath::TwoProbes, true),
    (TWO_EXTRA_CALLS_LABEL, CallPath::TwoExtra, true),
    (EMPTY_FUNCTION_LABEL, CallPath::Empty, true),
    ("Empty function, a notify intrinsic inside", CallPath::EmptyProbe, true),
    ("Empty function in a dynamic library", CallPath::EmptyPlt, true),
    ("The loop alone, without a call", CallPath::Alone, false),
];

/// Label of the row whose calls an optimising compiler removes. A test checks the machine code.
const EMPTY_FUNCTION_LABEL: &str = "Empty function, noinline";

/// Rows of Rust loops. A row has a label, the content of the function, and the recording while the
/// loop runs.
const PROBED_ROWS: [(&str, FunctionBody, LoopRecording); 9] = [
    (SAME_FILE_CALL_LABEL, FunctionBody::Nothing, LoopRecording::None),
    (TWO_EXTRA_CALLS_LABEL, FunctionBody::TwoCalls, LoopRecording::None),
    (
        "Function call with two time stamps, kept nowhere",
        FunctionBody::TwoStamps,
        LoopRecording::None,
    ),
    ("Function call with one probe, off", FunctionBody::OneProbe, LoopRecording::None),
    ("Function call with two probes, off", FunctionBody::TwoProbes, LoopRecording::None),
    ("Function call with two probes, filtered", FunctionBody::TwoProbes, LoopRecording::Filtered),
    (
        "Function call with two probes, recorded in memory",
        FunctionBody::TwoProbes,
        LoopRecording::Newest,
    ),
    (STREAMED_LABEL, FunctionBody::TwoProbes, LoopRecording::Streamed(TraceMedium::Memory)),
    (STREAMED_LABEL, FunctionBody::TwoProbes, LoopRecording::Streamed(TraceMedium::Dir)),
];
/// Prefix of the label of a row whose trace is streamed. The label of the medium follows.
const STREAMED_LABEL: &str = "Function call with two probes, streamed to";

/// Recording of events while a loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoopRecording {
    /// The recorder does not run.
    None,
    /// The filter of the recorder excludes all events.
    Filtered,
    /// The newest events are recorded in memory.
    Newest,
    /// All events are written to the trace while the loop runs.
    Streamed(TraceMedium),
}

/// Loop of calls: in C, or in Rust.
enum LoopKind {
    C(CallLoop),
    Rust(FunctionBody, LoopRecording),
}

/// Row of the tables of loops, with the measurements of its rounds.
pub(super) struct LoopRow {
    /// Heading of the row's group.
    pub group: &'static str,
    /// Short name of the group, for narrow tables.
    pub short_group: &'static str,
    /// Label of the row.
    pub text: String,
    /// Index of the row whose cost is subtracted from the cost of this row.
    pub baseline: Option<usize>,
    kind: LoopKind,
    /// Ticks per call in each round.
    pub rounds: Vec<f64>,
    /// Counts of recorded events, over all rounds.
    pub recorded: RecordingCounts,
    /// Error after which the row was not measured again.
    pub error: Option<String>,
}

/// Returns the rows of all loops, not measured yet.
pub(super) fn create_rows(folders: &TraceFolders) -> anyhow::Result<Vec<LoopRow>> {
    let mut loops = Vec::new();
    for (group, mark, level) in
        [(O0_HEADING, "-O0", OptLevel::O0), (O3_HEADING, "-O3", OptLevel::O3)]
    {
        let same_file = loops.len();
        for (text, way, is_compared) in C_ROWS {
            let kind = LoopKind::C(c_call_loop(way, level).context(text)?);
            let text = match (way, level) {
                (CallPath::Empty, OptLevel::O0) => format!("{label} (called)", label = text),
                (CallPath::Empty, OptLevel::O3) => format!("{label} (calls removed)", label = text),
                _ => text.to_string(),
            };
            loops.push(new_row(group, mark, text, is_compared.then_some(same_file), kind));
        }
    }
    let same_file = loops.len();
    for (text, inside, trace) in PROBED_ROWS {
        let text = match trace {
            LoopRecording::Streamed(medium) if !folders.has_medium(medium) => continue,
            LoopRecording::Streamed(medium) => format!("{text} {}", folders.label(medium)),
            _ => text.to_string(),
        };
        let baseline = (inside != FunctionBody::Nothing).then_some(same_file);
        loops.push(new_row(
            PROBED_HEADING,
            "probes",
            text,
            baseline,
            LoopKind::Rust(inside, trace),
        ));
    }
    Ok(loops)
}

fn new_row(
    group: &'static str,
    mark: &'static str,
    text: String,
    baseline: Option<usize>,
    kind: LoopKind,
) -> LoopRow {
    let (rounds, recorded) = (Vec::new(), RecordingCounts::default());
    LoopRow { group, short_group: mark, text, baseline, kind, rounds, recorded, error: None }
}

/// Measures every row once in each round. Each round starts with another row. A row that records
/// events makes at most `recorded_max` calls a round. A row whose recording fails is not measured
/// again.
pub(super) fn measure_rows(
    loops: &mut [LoopRow],
    calls_count: u64,
    recorded_max: u64,
    folders: &TraceFolders,
    interrupted: &AtomicBool,
) -> anyhow::Result<()> {
    let count = loops.len();
    for round in 0..ROUNDS_COUNT as usize {
        for turn in 0..count {
            let row = &mut loops[(round + turn) % count];
            if row.error.is_some() {
                continue;
            }
            // Relaxed: the signal handler publishes nothing but the flag.
            if interrupted.load(Ordering::Relaxed) {
                return Err(InterruptedBeforeResults.into());
            }
            match &row.kind {
                LoopKind::C(run) => row.rounds.push(time_loop(|n| run(n), &row.text, calls_count)?),
                LoopKind::Rust(inside, trace) => {
                    let is_recorded =
                        matches!(trace, LoopRecording::Newest | LoopRecording::Streamed(_));
                    let calls =
                        if is_recorded { calls_count.min(recorded_max) } else { calls_count };
                    let inside = *inside;
                    let run = || time_loop(|n| count_calls(inside, n), &row.text, calls);
                    match run_recorded(*trace, folders, run) {
                        Ok((ticks, recorded)) => {
                            row.rounds.push(ticks?);
                            row.recorded.events_count += recorded.events_count;
                            row.recorded.lost_count += recorded.lost_count;
                        }
                        Err(error) => row.error = Some(error.to_string()),
                    }
                }
            }
        }
    }
    Ok(())
}

/// Calls `run` while events are recorded; returns its result and the counts of recorded events.
fn run_recorded<T>(
    trace: LoopRecording,
    folders: &TraceFolders,
    run: impl FnOnce() -> T,
) -> Result<(T, RecordingCounts), handover_harness::Fault> {
    let (kept, wanted, medium) = match trace {
        LoopRecording::None => return Ok((run(), RecordingCounts::default())),
        LoopRecording::Filtered => (Retention::Newest, false, TraceMedium::Memory),
        LoopRecording::Newest => (Retention::Newest, true, TraceMedium::Memory),
        LoopRecording::Streamed(medium) => (Retention::Streamed, true, medium),
    };
    let files = folders.files(medium);
    let done = record_calls(kept, wanted, [&files[0], &files[1]], run);
    for file in files {
        // The rings have been removed already, unless recording failed early.
        let _ = std::fs::remove_file(file);
    }
    done
}

/// Runs a loop after a warm-up; returns the ticks per call.
fn time_loop(run: impl Fn(u64) -> u64, text: &str, calls_count: u64) -> anyhow::Result<f64> {
    // Untimed warm-up: the row before has left its own state in caches and branch predictors.
    black_box(run(black_box(1000)));
    let began = clock::ticks();
    let counted = run(black_box(calls_count));
    let took = clock::ticks() - began;
    anyhow::ensure!(
        counted == calls_count,
        "{text}: {calls_count} calls were requested, but {counted} were counted"
    );
    Ok(took as f64 / calls_count as f64)
}
