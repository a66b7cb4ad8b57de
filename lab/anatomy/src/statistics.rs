//! Statistics of hand-offs: the stages of typical and of slow ones, without I/O.

use crate::benchmark::{
    BEFORE_SEND_STAGE, HandoffRoute, InstrumentedBenchmark, STAGES_COUNT, WAKE_STAGE_NAME,
};
use crate::follow::Handoff;
use handover_base::clock;
use handover_record::{AnatomyBand, AnatomyFloor, AnatomyStage};

/// Maximum number of hand-offs in a sample. When full, every second one is dropped, and from then
/// on only every second one is added.
const SAMPLE_HANDOFFS_MAX: usize = 1 << 19;

/// Sample of hand-offs, and their total number.
#[derive(Debug)]
pub(crate) struct HandoffSample {
    kept: Vec<Handoff>,
    /// Interval, in hand-offs, at which one is kept; doubled whenever the sample is full.
    stride: u64,
    /// Number of hand-offs since the last kept one.
    skipped: u64,
    /// Number of all hand-offs, kept or not.
    pub count: u64,
}

impl HandoffSample {
    pub fn new() -> Self {
        Self { kept: Vec::new(), stride: 1, skipped: 0, count: 0 }
    }

    pub fn add(&mut self, handoff: Handoff) {
        self.count += 1;
        self.skipped += 1;
        if self.skipped < self.stride {
            return;
        }
        self.skipped = 0;
        if self.kept.len() == SAMPLE_HANDOFFS_MAX {
            let mut keep = false;
            self.kept.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride *= 2;
        }
        self.kept.push(handoff);
    }

    /// Returns all statistics; `None` if there are fewer than [`HANDOFFS_COUNT_MIN`] hand-offs.
    /// `net_ns` is subtracted from each stage that starts and ends on one thread.
    pub fn statistics(
        mut self,
        benchmark: &InstrumentedBenchmark,
        net_ns: f64,
    ) -> Option<HandoffStatistics> {
        if self.count < HANDOFFS_COUNT_MIN {
            return None;
        }
        self.kept.sort_by_key(Handoff::total_ticks);
        let times = StageTimes { benchmark, net_ns };
        let stages_passed = benchmark.possible_stages();
        let middle =
            means(&self.kept[share_range(self.kept.len(), 0.25, 0.75)], &times, &stages_passed);
        let whole: f64 = middle.iter().sum();
        let stages: Vec<AnatomyStage> = stages_passed
            .iter()
            .zip(&middle)
            .map(|(stage, mean_ns)| self.stage(&times, *stage, *mean_ns, whole))
            .collect();
        let mut totals: Vec<f64> =
            self.kept.iter().map(|one| times.total_ns(one, &stages_passed)).collect();
        totals.sort_by(f64::total_cmp);
        let total = AnatomyStage {
            name: "in all".to_string(),
            what: benchmark.handoff.to_string(),
            passed: 1.0,
            p50_ns: quantile(&totals, 0.5),
            p99_ns: quantile(&totals, 0.99),
            mean_ns: whole,
            share: 1.0,
            crosses_threads: benchmark.route != HandoffRoute::SameThread,
            has_floor: benchmark.floor.is_some(),
        };
        let bands = BANDS.iter().filter_map(|(name, from, to)| {
            let part = share_range(self.kept.len(), *from, *to);
            let handoffs = self.kept.get(part).filter(|some| !some.is_empty())?;
            Some(AnatomyBand {
                name: (*name).to_string(),
                handoffs_count: handoffs.len() as u64 * self.stride,
                stages_ns: means(handoffs, &times, &stages_passed),
            })
        });
        let bands = bands.collect();
        Some(HandoffStatistics { stages, total, bands })
    }

    /// Returns the statistics of one stage. `whole` is the mean time of a hand-off, in ns.
    fn stage(
        &self,
        times: &StageTimes<'_>,
        stage: usize,
        mean_ns: f64,
        whole: f64,
    ) -> AnatomyStage {
        let passing = self.kept.iter().filter(|one| one.has_passed(stage));
        let mut all: Vec<f64> = passing.map(|one| times.stage_ns(one, stage)).collect();
        all.sort_by(f64::total_cmp);
        let stage_text = times.benchmark.stages[stage];
        AnatomyStage {
            name: stage_text.name.to_string(),
            what: stage_text.description.to_string(),
            passed: all.len() as f64 / self.kept.len() as f64,
            p50_ns: quantile(&all, 0.5),
            p99_ns: quantile(&all, 0.99),
            mean_ns,
            share: if whole > 0.0 { mean_ns / whole } else { 0.0 },
            crosses_threads: times.benchmark.is_across_threads(stage),
            has_floor: times.benchmark.floor.is_some_and(|(_, _, floored)| floored == stage),
        }
    }
}

/// Minimum number of hand-offs for statistics.
pub(crate) const HANDOFFS_COUNT_MIN: u64 = 16;

/// Groups of hand-offs, from typical to slow: a name, and the bounds as quantiles of the time.
const BANDS: &[(&str, f64, f64)] = &[
    ("middle half", 0.25, 0.75),
    ("75 to 90 %", 0.75, 0.9),
    ("90 to 99 %", 0.9, 0.99),
    ("slowest 1 %", 0.99, 1.0),
];

/// Statistics of the stages, of whole hand-offs, and of groups of hand-offs from typical to slow.
#[derive(Debug)]
pub(crate) struct HandoffStatistics {
    pub stages: Vec<AnatomyStage>,
    /// Statistics of whole hand-offs, in the form of a stage.
    pub total: AnatomyStage,
    pub bands: Vec<AnatomyBand>,
}

/// Conversion of a hand-off's stages from ticks to nanoseconds.
pub(crate) struct StageTimes<'a> {
    pub benchmark: &'a InstrumentedBenchmark,
    /// Cost of the probe sites, in ns. It is subtracted from each stage that starts and ends on one
    /// thread.
    pub net_ns: f64,
}

impl StageTimes<'_> {
    /// Returns the duration of a stage of a hand-off, in ns. Subtracts `net_ns` if the stage was
    /// passed on one thread.
    pub fn stage_ns(&self, handoff: &Handoff, stage: usize) -> f64 {
        let ns = ticks_to_ns(handoff.stages_ticks[stage].into());
        match handoff.has_passed(stage) && !self.benchmark.is_across_threads(stage) {
            true => ns - self.net_ns,
            false => ns,
        }
    }

    /// Returns the duration of a hand-off in ns, less `net_ns` for each stage on one thread.
    fn total_ns(&self, handoff: &Handoff, stages_passed: &[usize]) -> f64 {
        stages_passed.iter().map(|stage| self.stage_ns(handoff, *stage)).sum()
    }
}

pub(crate) fn ticks_to_ns(ticks: u64) -> f64 {
    clock::ps_from_ticks(ticks) as f64 / 1000.0
}

/// Returns the mean time of each stage in ns; negative means become 0.
fn means(handoffs: &[Handoff], times: &StageTimes<'_>, stages_passed: &[usize]) -> Vec<f64> {
    let count = handoffs.len().max(1) as f64;
    let mean = |stage: &usize| {
        let sum: f64 = handoffs.iter().map(|one| times.stage_ns(one, *stage)).sum();
        // A stage shorter than the probes' cost would become negative.
        (sum / count).max(0.0)
    };
    stages_passed.iter().map(mean).collect()
}

/// Returns the indices between two shares, from 0 to 1, of `count` sorted values.
fn share_range(count: usize, from: f64, to: f64) -> std::ops::Range<usize> {
    let at = |share: f64| (count as f64 * share).round() as usize;
    at(from)..at(to).min(count)
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * q).round() as usize).copied().unwrap_or(0.0)
}

/// Formats the stages and their sum in one line, in whole nanoseconds that add up. The floor is
/// split off from the stage that contains it.
pub(crate) fn format_stage_sum(stages: &[AnatomyStage], floor: Option<&AnatomyFloor>) -> String {
    let mut parts: Vec<(&str, f64)> = Vec::new();
    // Stages of zero are omitted, except the wake-up: zero there means that no receiver slept.
    for stage in stages.iter().filter(|stage| stage.mean_ns >= 0.5 || stage.name == WAKE_STAGE_NAME)
    {
        match floor.filter(|_| stage.has_floor) {
            Some(floor) if stage.mean_ns > 0.0 => {
                let floor_ns = (floor.figure_ns / floor.handoffs).min(stage.mean_ns);
                parts.push(("floor", floor_ns));
                parts.push((&stage.name, stage.mean_ns - floor_ns));
            }
            _ => parts.push((&stage.name, stage.mean_ns)),
        }
    }
    let total: f64 = parts.iter().map(|(_, ns)| ns).sum();
    let rounded = round_to_sum(&parts.iter().map(|(_, ns)| *ns).collect::<Vec<_>>());
    let text: Vec<String> =
        parts.iter().zip(rounded).map(|((name, _), ns)| format!("{name} {ns}")).collect();
    format!("{stages} = {total_ns:.0} ns", stages = text.join(" + "), total_ns = total.round())
}

/// Rounds numbers to integers whose sum is the rounded sum of the numbers. The numbers with the
/// largest fractions are rounded up.
fn round_to_sum(parts: &[f64]) -> Vec<u64> {
    let mut whole: Vec<u64> = parts.iter().map(|part| part.max(0.0) as u64).collect();
    let total = parts.iter().sum::<f64>().round().max(0.0) as u64;
    let mut left = total.saturating_sub(whole.iter().sum());
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|a, b| parts[*b].fract().total_cmp(&parts[*a].fract()));
    for index in order {
        if left == 0 {
            break;
        }
        whole[index] += 1;
        left -= 1;
    }
    whole
}

/// Returns the index of the stage that exceeds its median the most, and the excess in ns.
pub(crate) fn slowest_stage(stages_ns: &[f64], stages: &[AnatomyStage]) -> (usize, f64) {
    // Most hand-offs do not have a rare stage, so its usual time is zero, not the median of those
    // that have it.
    let usual = |stage: &AnatomyStage| if stage.passed > 0.5 { stage.p50_ns } else { 0.0 };
    let excess = stages_ns.iter().zip(stages).map(|(ns, stage)| ns - usual(stage));
    excess.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((BEFORE_SEND_STAGE, 0.0))
}

const _: () = assert!(STAGES_COUNT <= 8, "`passed` has fewer bits than there are stages");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::{NOTICE_STAGE, find_instrumented_benchmark};

    fn stage(name: &str, mean_ns: f64, has_floor: bool) -> AnatomyStage {
        let passed = f64::from(u8::from(mean_ns > 0.0));
        AnatomyStage { name: name.into(), mean_ns, has_floor, passed, ..AnatomyStage::default() }
    }

    #[test]
    fn line_adds_up_and_shows_the_floor() {
        let stages = [
            stage("handle", 20.4, false),
            stage("find", 0.0, false),
            stage("notice", 64.4, true),
            stage("wake", 0.0, false),
        ];
        let floor = AnatomyFloor { id: "floor/cache-line".into(), figure_ns: 60.8, handoffs: 2.0 };
        let text = format_stage_sum(&stages, Some(&floor));
        assert_eq!(text, "handle 21 + floor 30 + notice 34 + wake 0 = 85 ns");
        assert_eq!(format_stage_sum(&stages, None), "handle 20 + notice 65 + wake 0 = 85 ns");
    }

    #[test]
    fn stage_faster_than_the_floor_is_all_floor() {
        let floor = AnatomyFloor { id: "floor/cache-line".into(), figure_ns: 80.0, handoffs: 2.0 };
        let text = format_stage_sum(&[stage("travel", 35.0, true)], Some(&floor));
        assert_eq!(text, "floor 35 + travel 0 = 35 ns");
    }

    #[test]
    fn rounded_parts_add_up_to_the_rounded_sum() {
        for parts in [vec![0.5, 0.5, 0.5], vec![1.2, 3.4, 5.9], vec![0.0, 0.4], vec![]] {
            let total = parts.iter().sum::<f64>().round() as u64;
            assert_eq!(round_to_sum(&parts).iter().sum::<u64>(), total, "{parts:?}");
        }
    }

    #[test]
    fn stages_of_the_middle_half_add_up_to_its_time() {
        let benchmark = find_instrumented_benchmark("ring/mailbox").expect("find the benchmark");
        let mut sample = HandoffSample::new();
        for at in 0..1000u32 {
            let mut stages_ticks = [0; STAGES_COUNT];
            (stages_ticks[BEFORE_SEND_STAGE], stages_ticks[NOTICE_STAGE]) =
                (1000 + at % 7 * 10, 5000 + at * 10);
            let passed = 1 << BEFORE_SEND_STAGE | 1 << NOTICE_STAGE;
            sample.add(Handoff {
                begin_ticks: 0,
                from_thread: 0,
                to_thread: 1,
                stages_ticks,
                passed,
            });
        }
        let statistics = sample.statistics(benchmark, 0.0).expect("enough");
        let sum: f64 = statistics.stages.iter().map(|stage| stage.mean_ns).sum();
        assert!((sum - statistics.total.mean_ns).abs() < 1e-6);
        assert!(
            (statistics.stages.iter().map(|stage| stage.share).sum::<f64>() - 1.0).abs() < 1e-9
        );
        assert!(
            (statistics.total.p50_ns / sum - 1.0).abs() < 0.02,
            "the median lies outside the middle half"
        );
        assert!(
            statistics.bands.windows(2).all(|two| {
                two[0].stages_ns.iter().sum::<f64>() < two[1].stages_ns.iter().sum()
            })
        );
        let counted: u64 = statistics.bands[..].iter().map(|band| band.handoffs_count).sum();
        assert_eq!(counted, 750);
    }

    #[test]
    fn full_sample_still_covers_the_whole_run() {
        let mut sample = HandoffSample::new();
        let one = Handoff {
            begin_ticks: 0,
            from_thread: 0,
            to_thread: 1,
            stages_ticks: [1; 6],
            passed: 63,
        };
        (0..SAMPLE_HANDOFFS_MAX as u64 * 3).for_each(|_| sample.add(one));
        assert_eq!(sample.count, SAMPLE_HANDOFFS_MAX as u64 * 3);
        assert!(
            sample.kept.len() <= SAMPLE_HANDOFFS_MAX && sample.kept.len() > SAMPLE_HANDOFFS_MAX / 3
        );
    }

    #[test]
    fn slow_stage_is_farthest_above_its_median() {
        let mut usual =
            [stage("handle", 0.0, false), stage("notice", 0.0, false), stage("wake", 0.0, false)];
        (usual[0].p50_ns, usual[1].p50_ns, usual[2].p50_ns) = (20.0, 60.0, 40_000.0);
        (usual[0].passed, usual[1].passed, usual[2].passed) = (1.0, 0.99, 0.01);
        assert_eq!(slowest_stage(&[500.0, 70.0, 0.0], &usual), (0, 480.0));
        assert_eq!(slowest_stage(&[20.0, 0.0, 41_000.0], &usual), (2, 41_000.0));
    }
}
