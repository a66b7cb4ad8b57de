//! Slowest hand-offs, each with its trace.

use crate::benchmark::InstrumentedBenchmark;
use crate::error::AnatomyError;
use crate::follow::Handoff;
use crate::scratch::remove_scratch_folder;
use crate::statistics::{StageTimes, slowest_stage};
use handover_harness::{OffCpuSpan, TracedRound};
use handover_probe::read::Trace;
use handover_record::{AnatomyOutlier, AnatomyStage, OffCpuVerdict};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Maximum number of slow hand-offs that are reported.
pub(crate) const OUTLIERS_MAX: usize = 10;
/// Minimum time off the CPU that is reported as the cause of a slow hand-off, relative to its
/// excess time.
const DELAY_SHARE: f64 = 0.25;

/// One of the slowest hand-offs, and the folder of its round's traces.
#[derive(Clone, Debug)]
struct SlowHandoff {
    handoff: Handoff,
    folder: PathBuf,
    /// Details from the hand-off's round; `None` until the round has been read completely.
    details: Option<RoundDetails>,
}

/// Details of a slow hand-off that come from its round.
#[derive(Clone, Debug)]
struct RoundDetails {
    begin_ns: i64,
    off_cpu_ns: Option<u64>,
    /// Total time for which participants waited for a CPU; `None` if the kernel does not report it.
    run_delay_ns: Option<u64>,
    switches_involuntary: u64,
    /// Ids of the threads on which the hand-off started and ended.
    thread_ids: [u64; 2],
}

/// Slowest hand-offs so far, in descending order of time.
#[derive(Debug, Default)]
pub(crate) struct Outliers(Vec<SlowHandoff>);

impl Outliers {
    /// Adds a hand-off if it is among the slowest. The traces of its round are in `folder`.
    pub fn insert_if_slow(&mut self, handoff: &Handoff, folder: &Path) {
        let total = handoff.total_ticks();
        if self.0.len() == OUTLIERS_MAX
            && self.0.last().is_some_and(|last| last.handoff.total_ticks() >= total)
        {
            return;
        }
        let position = self.0.partition_point(|kept| kept.handoff.total_ticks() >= total);
        let kept = SlowHandoff { handoff: *handoff, folder: folder.to_owned(), details: None };
        self.0.insert(position, kept);
        if self.0.len() > OUTLIERS_MAX
            && let Some(dropped) = self.0.pop()
            && !self.has_round(&dropped.folder)
            && dropped.folder != folder
        {
            remove_scratch_folder(&dropped.folder);
        }
    }

    /// Returns `true` if a slow hand-off belongs to the round whose traces are in `folder`.
    pub fn has_round(&self, folder: &Path) -> bool {
        self.0.iter().any(|kept| kept.folder == folder)
    }

    /// Adds details of a round to its outliers. Its traces are in `folder`. They are thread ids,
    /// context switches and waits for a CPU.
    pub fn add_round_details(
        &mut self,
        folder: &Path,
        round: &TracedRound,
        traces: &[Trace<File>],
        tids: &[u64],
    ) {
        let tid = |thread: u32| tids.get(thread as usize).copied().unwrap_or(0);
        for kept in self.0.iter_mut().filter(|kept| kept.folder == folder) {
            let handoff = &kept.handoff;
            let ns = |ticks: u64| traces.first().map_or(0, |trace| trace.ns_from_ticks(ticks));
            let begin_ns = ns(handoff.begin_ticks);
            let end_ns = ns(handoff.begin_ticks + handoff.total_ticks());
            let thread_ids = [tid(handoff.from_thread), tid(handoff.to_thread)];
            let off_cpu_ns =
                round.off_cpu.as_ref().map(|spans| off_cpu_ns(spans, thread_ids, begin_ns..end_ns));
            kept.details = Some(RoundDetails {
                begin_ns,
                off_cpu_ns,
                run_delay_ns: round.run_delay_ns,
                switches_involuntary: round.switches_involuntary,
                thread_ids,
            });
        }
    }

    /// Copies the traces to the folder `to` and returns the outliers, slowest first. Each has the
    /// stage that made it slow.
    pub fn into_anatomy_outliers(
        self,
        to: &Path,
        benchmark: &InstrumentedBenchmark,
        stages: &[AnatomyStage],
        net_ns: f64,
    ) -> Result<Vec<AnatomyOutlier>, AnatomyError> {
        std::fs::create_dir_all(to).map_err(AnatomyError::from_io_error_at(to))?;
        let stages_passed = benchmark.possible_stages();
        let times = StageTimes { benchmark, net_ns };
        let mut files: Vec<(PathBuf, String)> = Vec::new();
        let mut all = Vec::new();
        for kept in self.0 {
            let Some(details) = kept.details else { continue };
            let file = match files.iter().find(|(folder, _)| *folder == kept.folder) {
                Some((_, file)) => file.clone(),
                None => {
                    let stem = format!("{}-{}", benchmark.spec.replace('/', "-"), files.len() + 1);
                    let file = copy_traces(&kept.folder, to, &stem)?;
                    files.push((kept.folder, file.clone()));
                    file
                }
            };
            let stage_ns = |stage: &usize| times.stage_ns(&kept.handoff, *stage);
            let stages_ns: Vec<f64> = stages_passed.iter().map(stage_ns).collect();
            let (slow, excess_ns) = slowest_stage(&stages_ns, stages);
            let is_waking = benchmark.is_receiver_wakeup(stages_passed[slow]);
            let RoundDetails { begin_ns, off_cpu_ns, run_delay_ns, .. } = details;
            let [from_tid, to_tid] = details.thread_ids;
            all.push(AnatomyOutlier {
                total_ns: stages_ns.iter().sum(),
                stages_ns,
                slow_stage: stages[slow].name.clone(),
                excess_ns,
                off_cpu: off_cpu_verdict(is_waking, excess_ns, off_cpu_ns, run_delay_ns),
                off_cpu_ns,
                run_delay_ns: run_delay_ns.unwrap_or(0),
                switches_involuntary: details.switches_involuntary,
                file,
                begin_ns,
                from_tid,
                to_tid,
            });
        }
        // They were kept in the order of their ticks. The times, from which the cost of the sites
        // is subtracted, may have another order, if only by rounding.
        all.sort_by(|a, b| b.total_ns.total_cmp(&a.total_ns));
        Ok(all)
    }
}

/// Returns the time, in ns, in which at least one of the two threads was off the CPU. Only time
/// within `time` counts.
fn off_cpu_ns(spans: &[OffCpuSpan], tids: [u64; 2], time: Range<i64>) -> u64 {
    let thread_ids = spans.iter().filter(|span| tids.contains(&span.tid));
    let mut parts: Vec<(i64, i64)> = thread_ids
        .map(|span| (span.from_ns.max(time.start), span.until_ns.min(time.end)))
        .filter(|(from, until)| from < until)
        .collect();
    parts.sort_unstable();
    let (mut sum, mut reached) = (0, time.start);
    for (from, until) in parts {
        sum += (until - from.max(reached)).max(0);
        reached = reached.max(until);
    }
    sum as u64
}

/// Returns the verdict on whether an outlier was slow because its threads were off the CPU.
fn off_cpu_verdict(
    is_waking: bool,
    excess_ns: f64,
    off_cpu_ns: Option<u64>,
    run_delay_ns: Option<u64>,
) -> OffCpuVerdict {
    let is_much = |off_ns: u64| off_ns as f64 >= excess_ns * DELAY_SHARE;
    match (off_cpu_ns, run_delay_ns) {
        _ if is_waking => OffCpuVerdict::Asleep,
        (Some(off_ns), _) if is_much(off_ns) => OffCpuVerdict::Yes,
        (None, Some(delay_ns)) if is_much(delay_ns) => OffCpuVerdict::Likely,
        (None, None) => OffCpuVerdict::Unknown,
        _ => OffCpuVerdict::No,
    }
}

/// Copies a round's traces to `STEM.trace` and, for further processes, `STEM.trace.PID`. The reader
/// recognizes them as one family. Returns the name of the first file.
fn copy_traces(from: &Path, to: &Path, stem: &str) -> Result<String, AnatomyError> {
    let listed = std::fs::read_dir(from).map_err(AnatomyError::from_io_error_at(from))?;
    let mut paths: Vec<PathBuf> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let first = to.join(format!("{stem}.trace"));
    for (index, path) in paths.iter().enumerate() {
        let copy = match index {
            0 => first.clone(),
            _ => {
                let pid = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                to.join(format!("{stem}.trace.{pid}"))
            }
        };
        std::fs::copy(path, &copy).map_err(AnatomyError::from_io_error_at(&copy))?;
    }
    Ok(first.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::STAGES_COUNT;

    fn handoff(ticks: u32) -> Handoff {
        let mut stages_ticks = [0; STAGES_COUNT];
        stages_ticks[0] = ticks;
        Handoff { begin_ticks: 0, from_thread: 0, to_thread: 1, stages_ticks, passed: 1 }
    }

    #[test]
    fn slowest_handoffs_are_kept_and_unused_rounds_are_removed() {
        let scratch = tempfile::tempdir().expect("create a temporary folder");
        let folder = |round: u32| scratch.path().join(format!("round-{round}"));
        let mut outliers = Outliers::default();
        for round in 0..20 {
            std::fs::create_dir(folder(round)).expect("create the folder");
            outliers.insert_if_slow(&handoff(round * 7 % 20), &folder(round));
            // The caller does this after it has read the round.
            if !outliers.has_round(&folder(round)) {
                remove_scratch_folder(&folder(round));
            }
        }
        let kept: Vec<u64> = outliers.0.iter().map(|kept| kept.handoff.total_ticks()).collect();
        assert_eq!(kept, [19, 18, 17, 16, 15, 14, 13, 12, 11, 10]);
        for round in 0..19 {
            assert_eq!(folder(round).exists(), outliers.has_round(&folder(round)), "{round}");
        }
    }

    #[test]
    fn off_cpu_verdict_follows_delay_and_sleep() {
        let verdict =
            |off_cpu_ns, run_delay_ns| off_cpu_verdict(false, 900.0, off_cpu_ns, run_delay_ns);
        assert_eq!(verdict(None, Some(0)), OffCpuVerdict::No);
        assert_eq!(verdict(None, None), OffCpuVerdict::Unknown);
        assert_eq!(verdict(None, Some(800)), OffCpuVerdict::Likely);
        // A fact about this hand-off takes precedence over a fact about its round.
        assert_eq!(verdict(Some(10), Some(800)), OffCpuVerdict::No);
        assert_eq!(verdict(Some(700), None), OffCpuVerdict::Yes);
        for off_cpu_ns in [None, Some(700)] {
            assert_eq!(off_cpu_verdict(true, 900.0, off_cpu_ns, Some(0)), OffCpuVerdict::Asleep);
        }
    }

    #[test]
    fn overlapping_off_cpu_time_of_a_handoff_counts_once() {
        let span = |tid, from_ns, until_ns| OffCpuSpan { tid, from_ns, until_ns };
        let spans = [
            span(1, 0, 150),    // begins before
            span(2, 140, 160),  // at the same time, in part
            span(3, 100, 200),  // of another thread
            span(1, 190, 1000), // ends after
            span(2, 300, 400),  // later
        ];
        assert_eq!(off_cpu_ns(&spans, [1, 2], 100..200), 50 + 10 + 10);
        assert_eq!(off_cpu_ns(&spans, [4, 5], 100..200), 0);
        assert_eq!(off_cpu_ns(&[], [1, 2], 100..200), 0);
    }
}
