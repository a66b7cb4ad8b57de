//! The slowest hand-offs, each with the trace that it is in.

use crate::course::{Course, RESUME, STAGES_COUNT, WAKE};
use crate::error::AnatomyError;
use crate::follow::Handoff;
use crate::scratch::remove;
use crate::tally::{ns, slow_stage};
use handover_harness::Watched;
use handover_probe::read::Trace;
use handover_record::{AnatomyOutlier, AnatomyStage, OffCpu};
use std::fs::File;
use std::path::{Path, PathBuf};

/// So many are kept.
pub(crate) const OUTLIERS_MAX: usize = 10;
/// Who waited for a CPU for this part of what a hand-off took too long, or more, was likely off the CPU.
const DELAY_SHARE: f64 = 0.25;

#[derive(Clone, Debug)]
struct Kept {
    handoff: Handoff,
    folder: PathBuf,
    /// Known once its round was looked at to the end.
    told: Option<AnatomyOutlier>,
    run_delay_is_known: bool,
}

/// The slowest so far, the slowest first.
#[derive(Debug, Default)]
pub(crate) struct Outliers(Vec<Kept>);

impl Outliers {
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps a hand-off of the round whose traces lie in `folder`, if it is among the slowest.
    pub fn offer(&mut self, handoff: &Handoff, folder: &Path) {
        let total = handoff.total_ticks();
        if self.0.len() == OUTLIERS_MAX
            && self.0.last().is_some_and(|last| last.handoff.total_ticks() >= total)
        {
            return;
        }
        let place = self.0.partition_point(|kept| kept.handoff.total_ticks() >= total);
        let kept = Kept {
            handoff: *handoff,
            folder: folder.to_owned(),
            told: None,
            run_delay_is_known: false,
        };
        self.0.insert(place, kept);
        if self.0.len() > OUTLIERS_MAX
            && let Some(gone) = self.0.pop()
            && !self.are_in(&gone.folder)
            && gone.folder != folder
        {
            remove(&gone.folder);
        }
    }

    /// Whether any that is kept is of the round whose traces lie in `folder`.
    pub fn are_in(&self, folder: &Path) -> bool {
        self.0.iter().any(|kept| kept.folder == folder)
    }

    /// Notes what only the round knows.
    pub fn describe(
        &mut self,
        folder: &Path,
        watched: &Watched,
        traces: &[Trace<File>],
        tids: &[u64],
    ) {
        let tid = |thread: u32| tids.get(thread as usize).copied().unwrap_or(0);
        for kept in self.0.iter_mut().filter(|kept| kept.folder == folder) {
            let handoff = &kept.handoff;
            let begin_ns = traces.first().map_or(0, |trace| trace.ns(handoff.begin_ticks));
            kept.run_delay_is_known = watched.run_delay_ns.is_some();
            kept.told = Some(AnatomyOutlier {
                total_ns: 0.0,
                stages_ns: Vec::new(),
                slow_stage: String::new(),
                excess_ns: 0.0,
                off_cpu: OffCpu::Unknown,
                run_delay_ns: watched.run_delay_ns.unwrap_or(0),
                switches_involuntary: watched.switches_involuntary,
                file: String::new(),
                begin_ns,
                from_tid: tid(handoff.from_thread),
                to_tid: tid(handoff.to_thread),
            });
        }
    }

    /// Copies the traces to the folder `to`, and tells what made each slow.
    pub fn tell(
        self,
        to: &Path,
        course: &Course,
        stages: &[AnatomyStage],
        net_ns: f64,
    ) -> Result<Vec<AnatomyOutlier>, AnatomyError> {
        std::fs::create_dir_all(to).map_err(AnatomyError::at(to))?;
        let places = course.places();
        let mut files: Vec<(PathBuf, String)> = Vec::new();
        let mut all = Vec::new();
        for kept in self.0 {
            let Some(mut told) = kept.told else { continue };
            told.file = match files.iter().find(|(folder, _)| *folder == kept.folder) {
                Some((_, file)) => file.clone(),
                None => {
                    let stem = format!("{}-{}", course.spec.replace('/', "-"), files.len() + 1);
                    let file = copy(&kept.folder, to, &stem)?;
                    files.push((kept.folder, file.clone()));
                    file
                }
            };
            let of = |place: &usize| {
                let ns = ns(kept.handoff.stages_ticks[*place].into());
                let own = kept.handoff.passes(*place) && !course.crosses(*place);
                if own { ns - net_ns } else { ns }
            };
            told.stages_ns = places.iter().map(of).collect();
            told.total_ns = told.stages_ns.iter().sum();
            let (slow, excess_ns) = slow_stage(&told.stages_ns, stages);
            told.slow_stage.clone_from(&stages[slow].name);
            told.excess_ns = excess_ns;
            told.off_cpu = off_cpu(places[slow], &told, kept.run_delay_is_known);
            all.push(told);
        }
        Ok(all)
    }
}

fn off_cpu(slow: usize, told: &AnatomyOutlier, run_delay_is_known: bool) -> OffCpu {
    match run_delay_is_known {
        _ if slow == WAKE => OffCpu::Asleep,
        false => OffCpu::Unknown,
        true if told.run_delay_ns as f64 >= told.excess_ns * DELAY_SHARE => OffCpu::Likely,
        true => OffCpu::No,
    }
}

const _: () = assert!(WAKE < STAGES_COUNT && RESUME < STAGES_COUNT);

/// Copies a round's traces; the file, or the first of several as the reader takes them for a family:
/// `STEM.trace`, and `STEM.trace.PID` of the others.
fn copy(from: &Path, to: &Path, stem: &str) -> Result<String, AnatomyError> {
    let listed = std::fs::read_dir(from).map_err(AnatomyError::at(from))?;
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
        std::fs::copy(path, &copy).map_err(AnatomyError::at(&copy))?;
    }
    Ok(first.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handoff(ticks: u32) -> Handoff {
        let mut stages_ticks = [0; STAGES_COUNT];
        stages_ticks[0] = ticks;
        Handoff { begin_ticks: 0, from_thread: 0, to_thread: 1, stages_ticks, passed: 1 }
    }

    #[test]
    fn the_slowest_are_kept_and_rounds_without_any_go() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = |round: u32| scratch.path().join(format!("round-{round}"));
        let mut outliers = Outliers::new();
        for round in 0..20 {
            std::fs::create_dir(folder(round)).expect("a folder");
            outliers.offer(&handoff(round * 7 % 20), &folder(round));
            // As the caller does when the round was looked at.
            if !outliers.are_in(&folder(round)) {
                remove(&folder(round));
            }
        }
        let kept: Vec<u64> = outliers.0.iter().map(|kept| kept.handoff.total_ticks()).collect();
        assert_eq!(kept, [19, 18, 17, 16, 15, 14, 13, 12, 11, 10]);
        for round in 0..19 {
            assert_eq!(folder(round).exists(), outliers.are_in(&folder(round)), "{round}");
        }
    }

    #[test]
    fn who_waited_for_a_cpu_was_likely_off_it_and_who_slept_was_asleep() {
        let mut told = AnatomyOutlier {
            total_ns: 1000.0,
            stages_ns: Vec::new(),
            slow_stage: String::new(),
            excess_ns: 900.0,
            off_cpu: OffCpu::Unknown,
            run_delay_ns: 0,
            switches_involuntary: 0,
            file: String::new(),
            begin_ns: 0,
            from_tid: 0,
            to_tid: 0,
        };
        assert_eq!(off_cpu(0, &told, true), OffCpu::No);
        assert_eq!(off_cpu(0, &told, false), OffCpu::Unknown);
        assert_eq!(off_cpu(WAKE, &told, true), OffCpu::Asleep);
        told.run_delay_ns = 800;
        assert_eq!(off_cpu(0, &told, true), OffCpu::Likely);
    }
}
