//! The run: passes over the benchmarks, each in a separate process.

pub(crate) mod child;
mod contender;
mod measure;
mod pass;
mod plan;
mod progress;
mod ratios;
mod summarise;
pub(crate) mod traced_session;

use crate::fault::Fault;
use crate::process;
use handover_base::clock;
use handover_base::random::SplitMix64;
use handover_record::Record;
use pass::{PassReport, PassRequest, PlannedVisit};
pub use plan::{BenchmarkGroup, Lab, Plan, PlanError, Profile, RunObserver, RunOutcome};
use plan::{NULL_PREFIX, Schedule};
use progress::BenchmarkProgress;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

impl Lab {
    /// Returns the time limit of all passes together; `None` for no limit. The limit exceeds the
    /// planned time if the minimum number of rounds takes longer. Some work follows the last pass.
    pub fn time_max(&self) -> Option<Duration> {
        let Schedule { passes, blocks_min, total, .. } = self.schedule();
        let contenders =
            self.groups.iter().flat_map(|group| measure::create_contenders(self, group));
        let block: Duration =
            contenders.map(|it| Duration::from_nanos(it.round_params.timing.round_ns)).sum();
        total.map(|total| total.max(block * (passes * blocks_min)))
    }

    /// Measures all benchmarks and returns the results. There are several passes, or one for a
    /// smoke run. Each pass is a separate process if the program calls
    /// [`dispatch_participant`](crate::dispatch_participant); a smoke run stays in this process.
    /// Polls `interrupted` between rounds (about every 10 ms); if it is set, stops and returns the
    /// results so far.
    pub fn run(&self, observer: &mut dyn RunObserver, interrupted: &AtomicBool) -> RunOutcome {
        self.run_by(self.schedule(), observer, interrupted)
    }

    /// Measures all benchmarks by this schedule instead of the profile's.
    fn run_by(
        &self,
        schedule: Schedule,
        observer: &mut dyn RunObserver,
        interrupted: &AtomicBool,
    ) -> RunOutcome {
        clock::calibration();
        let mut run = RunState {
            lab: self,
            observer,
            interrupted,
            began: Instant::now(),
            schedule,
            progress: Vec::new(),
            pass: 0,
            visits: 0,
            current: None,
            pending: Vec::new(),
            has_storage_failed: false,
            records: vec![Vec::new(); self.groups.len()],
            reported: vec![None; self.groups.len()],
            outcome: RunOutcome::default(),
        };
        run.begin();
        run.run_passes();
        run.finish()
    }
}

/// Minimum time between two reports of a benchmark's records in the middle of a run. They are
/// stored, so that a run that is killed loses no more than that.
const REPORT_INTERVAL: Duration = Duration::from_secs(300);

/// Divisor of a benchmark's measuring time, which gives the time limit of its warm-up.
const WARM_UP_DIVISOR: u32 = 10;

/// State of a run while its passes are measured.
struct RunState<'a> {
    lab: &'a Lab,
    observer: &'a mut dyn RunObserver,
    interrupted: &'a AtomicBool,
    /// Start of the run.
    began: Instant,
    schedule: Schedule,
    /// State of each benchmark; `None` if it could not be started.
    progress: Vec<Option<BenchmarkProgress>>,
    /// Index of the current pass.
    pass: u32,
    /// Number of visits that have started. A visit measures one benchmark in one pass.
    visits: usize,
    /// Index of the benchmark that is being measured.
    current: Option<usize>,
    /// Indices of the benchmarks that this pass has not measured yet.
    pending: Vec<usize>,
    /// `true` if the observer could not store records. The run then ends.
    has_storage_failed: bool,
    /// Most recently reported records of each benchmark.
    records: Vec<Vec<Record>>,
    /// Time of these reports; `None` before the first one.
    reported: Vec<Option<Instant>>,
    outcome: RunOutcome,
}

impl RunState<'_> {
    /// Creates the state of each benchmark. Reports a fault if a benchmark cannot be started.
    fn begin(&mut self) {
        for (index, group) in self.lab.groups.iter().enumerate() {
            let begun = BenchmarkProgress::new(self.lab, group);
            let progress = begun.map_err(|fault| self.add_fault(index, None, &fault)).ok();
            self.progress.push(progress);
        }
    }

    /// Measures all benchmarks in each pass, until the last pass or an earlier end of the run.
    fn run_passes(&mut self) {
        for pass in 0..self.schedule.passes {
            self.pass = pass;
            let is_open = |index: &usize| {
                self.progress[*index].as_ref().is_some_and(|progress| !progress.is_closed)
            };
            self.pending = (0..self.progress.len()).filter(is_open).collect();
            // The first pass follows the list's order, in which results are reported and stored.
            if pass > 0 {
                let place = u64::from(pass) << 32;
                SplitMix64::new(self.lab.seed ^ place).shuffle(&mut self.pending);
            }
            while !self.pending.is_empty() {
                if self.should_stop() {
                    return;
                }
                self.measure_pending();
            }
        }
    }

    /// Measures the benchmarks that are pending in this pass. Returns early if the process of the
    /// pass dies.
    fn measure_pending(&mut self) {
        let request = self.pass_request();
        let (lab, interrupted) = (self.lab, self.interrupted);
        let is_apart = lab.plan.profile != Profile::Smoke && process::can_self_exec();
        let mut handle = |report| self.handle_report(report);
        let gone = match is_apart {
            true => child::run_pass_process(lab, &request, interrupted, &mut handle),
            false => {
                pass::run_pass(lab, &request, interrupted, &mut handle);
                Ok(())
            }
        };
        let Err(fault) = gone else { return };
        let Some(lost) = self.current.take().or(self.pending.first().copied()) else { return };
        self.pending.retain(|index| *index != lost);
        if matches!(fault, Fault::Interrupted) {
            return;
        }
        if let Some(progress) = &mut self.progress[lost] {
            progress.is_closed = true;
        }
        self.add_fault(lost, None, &fault);
    }

    /// Returns the work for the process of a pass. It has the benchmarks that are still to be
    /// measured, and their limits.
    fn pass_request(&self) -> PassRequest {
        let Schedule { passes, blocks_min, blocks_max, total } = self.schedule;
        let wanted = |group: &usize| {
            let progress = self.progress[*group].as_ref();
            PlannedVisit {
                group: *group,
                weight: progress.map_or(0, BenchmarkProgress::weight),
                facts: progress.map_or_else(Vec::new, BenchmarkProgress::contender_facts),
            }
        };
        let each = total.map_or(Duration::MAX, |total| total / self.lab.groups.len().max(1) as u32);
        PassRequest {
            pass: self.pass,
            seed: self.lab.seed,
            sequence: self.pending.iter().map(wanted).collect(),
            budget: total.map(|total| {
                (total * (self.pass + 1) / passes).saturating_sub(self.began.elapsed())
            }),
            blocks_min,
            blocks_max,
            warm_up: each / WARM_UP_DIVISOR,
        }
    }

    /// Handles a report from the process of a pass; returns `false` to stop the pass.
    fn handle_report(&mut self, report: PassReport) -> bool {
        match report {
            PassReport::Begin { group } => {
                self.current = Some(group);
                let count = self.schedule.passes as usize * self.lab.groups.len();
                self.observer.begin((self.visits, count), group);
                self.visits += 1;
            }
            PassReport::Block { done, most } => self.observer.block(done, most),
            PassReport::Visited { group, mut visited } => {
                self.current = None;
                self.pending.retain(|index| *index != group);
                for (contender, fault) in std::mem::take(&mut visited.faults) {
                    self.add_fault(group, Some(&contender), &fault);
                }
                if let Some(fault) = visited.ended.as_ref().filter(|it| !it.is_interrupted()) {
                    self.add_fault(group, None, fault);
                }
                if let Some(progress) = &mut self.progress[group] {
                    progress.add_visit(*visited);
                }
                if self.reported[group].is_none_or(|it| it.elapsed() >= REPORT_INTERVAL) {
                    self.report_records(group);
                }
            }
            PassReport::End { steal } => {
                let contenders = self
                    .progress
                    .iter_mut()
                    .flatten()
                    .flat_map(|progress| &mut progress.contenders);
                contenders.for_each(|contender| contender.add_steal(self.pass, steal));
            }
        }
        !self.should_stop()
    }

    /// Returns `true` if the run was interrupted, or records could not be stored.
    fn should_stop(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        self.has_storage_failed || self.interrupted.load(Ordering::Relaxed)
    }

    /// Reports a fault of a benchmark or of a contender, and adds it to the outcome.
    fn add_fault(&mut self, group: usize, contender: Option<&str>, fault: &Fault) {
        let id = self.lab.groups[group].selection.spec.id;
        let name = contender.map_or_else(|| id.to_string(), |who| format!("{id} [{who}]"));
        self.observer.fault(&name, fault);
        self.outcome.faults.push((name, fault.to_string()));
    }

    /// Reports a benchmark's records if it has rounds that were not reported yet.
    fn report_records(&mut self, index: usize) {
        let group = &self.lab.groups[index];
        let Some(progress) =
            self.progress[index].as_mut().filter(|progress| progress.has_new_rounds())
        else {
            return;
        };
        self.records[index] = progress.records(self.lab, group);
        self.reported[index] = Some(Instant::now());
        for record in &mut self.records[index] {
            let RunOutcome { null_one, null_several, .. } = &self.outcome;
            let least =
                if record.participants.has_several_cpus() { null_several } else { null_one };
            let least = least.unwrap_or(0.0);
            ratios::remove_if_undetectable(&mut record.warnings, record.floor.as_ref(), least);
        }
        if !self.observer.records(&self.records[index]) {
            let id = group.selection.spec.id.to_string();
            self.outcome.faults.push((id, "its records could not be stored".to_string()));
            self.has_storage_failed = true;
        }
    }

    /// Reports the results of all passes and returns the outcome.
    fn finish(mut self) -> RunOutcome {
        // The null benchmarks first: they give the smallest difference that this run can detect.
        let is_other =
            |index: &usize| !self.lab.groups[*index].selection.spec.id.starts_with(NULL_PREFIX);
        let mut order: Vec<usize> = (0..self.progress.len()).collect();
        order.sort_by_key(is_other);
        for index in order {
            if !self.has_storage_failed {
                self.report_records(index);
            }
            let id = self.lab.groups[index].selection.spec.id;
            store_null_difference(&mut self.outcome, id, &self.records[index]);
        }
        self.outcome.records = self.records.into_iter().flatten().collect();
        // Also if the last visit was interrupted, after which no benchmark is pending. Relaxed: the
        // flag publishes no other data.
        self.outcome.interrupted = self.interrupted.load(Ordering::Relaxed);
        self.outcome
    }
}

/// Stores in the outcome the difference between the two equal contenders of a null benchmark.
fn store_null_difference(outcome: &mut RunOutcome, id: &str, records: &[Record]) {
    if !id.starts_with(NULL_PREFIX) {
        return;
    }
    for record in records {
        for ratio in &record.peers {
            let (low, high) = ratio.interval_bounds().unwrap_or((ratio.ratio, ratio.ratio));
            let width = (high - 1.0).abs().max((1.0 - low).abs());
            let several = record.participants.has_several_cpus();
            let slot = if several { &mut outcome.null_several } else { &mut outcome.null_one };
            *slot = Some(slot.unwrap_or(0.0).max(width));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bench, Samples, Setup, Workload, own};
    use handover_record::{Contender, Run, Spec};
    use std::collections::BTreeSet;
    use std::hint::black_box;
    use std::sync::{Mutex, PoisonError};

    const IDS: [&str; 4] = ["order/a", "order/b", "order/c", "order/d"];
    const NAMES: [&str; 3] = ["one", "two", "three"];

    /// Contenders in the order in which they were set up, since the last block.
    static SET_UP: Mutex<Vec<usize>> = Mutex::new(Vec::new());

    /// Workload that notes when it is set up: contender `PLACE` of benchmark `GROUP`.
    struct Noted<const GROUP: usize, const PLACE: usize>(u64);

    impl<const GROUP: usize, const PLACE: usize> Workload for Noted<GROUP, PLACE> {
        type Args = ();
        const SPEC: Spec = Spec::new(IDS[GROUP], "notes when it is set up").ladder();

        fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> {
            SET_UP.lock().unwrap_or_else(PoisonError::into_inner).push(PLACE);
            Ok(Noted(1))
        }

        fn sample(&mut self, out: &mut Samples) {
            out.time_batches(|n| {
                (0..n).for_each(|i| self.0 = black_box(self.0.rotate_left(7) ^ i))
            });
        }
    }

    const fn contenders<const GROUP: usize>() -> [Bench; 3] {
        [
            Bench::one::<Noted<GROUP, 0>>(Contender::ours(NAMES[0])),
            Bench::one::<Noted<GROUP, 1>>(Contender::ours(NAMES[1])),
            Bench::one::<Noted<GROUP, 2>>(Contender::ours(NAMES[2])),
        ]
    }

    static ALL: [[Bench; 3]; 4] =
        [contenders::<0>(), contenders::<1>(), contenders::<2>(), contenders::<3>()];

    fn lab(profile: Profile) -> Lab {
        let all: Vec<&'static [Bench]> = ALL.iter().map(|it| &it[..]).collect();
        let plan = Plan { profile, ..Plan::default() };
        Lab::new(&all, &["*".to_string()], plan).expect("create the lab")
    }

    /// Visit of a pass to a benchmark: the benchmark's index, and the order of its contenders in
    /// each block.
    #[derive(Debug, PartialEq, Eq)]
    struct Visited {
        group: usize,
        blocks: Vec<[usize; 3]>,
    }

    #[derive(Default)]
    struct Visits(Vec<Visited>);

    impl Visits {
        /// Returns the order of benchmarks in each pass.
        fn groups(&self) -> Vec<Vec<usize>> {
            self.0.chunks(IDS.len()).map(|pass| pass.iter().map(|it| it.group).collect()).collect()
        }

        fn blocks(&self) -> impl Iterator<Item = [usize; 3]> {
            self.0.iter().flat_map(|it| it.blocks.clone())
        }
    }

    impl RunObserver for Visits {
        fn begin(&mut self, _: (usize, usize), group: usize) {
            self.0.push(Visited { group, blocks: Vec::new() });
        }

        fn block(&mut self, _: u32, _: u32) {
            // Before the first block, contenders are also checked and warmed up.
            let set_up =
                std::mem::take(&mut *SET_UP.lock().unwrap_or_else(PoisonError::into_inner));
            let order = set_up.last_chunk().expect("each contender has a round");
            self.0.last_mut().expect("a visit has begun").blocks.push(*order);
        }
    }

    /// One test at a time measures, as all note in one place.
    fn alone() -> std::sync::MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the orders of a run with three passes of two blocks.
    fn orders(lab: &Lab) -> Visits {
        let _alone = alone();
        let schedule = Schedule { passes: 3, blocks_min: 2, blocks_max: 2, total: None };
        let mut visits = Visits::default();
        let outcome = lab.run_by(schedule, &mut visits, &AtomicBool::new(false));
        assert!(outcome.faults.is_empty() && outcome.records.len() == 12, "{:?}", outcome.faults);
        visits
    }

    fn with_seed(seed: u64) -> Lab {
        Lab { seed, ..lab(Profile::Smoke) }
    }

    #[test]
    fn stored_seed_reproduces_the_random_orders() {
        let lab = lab(Profile::Smoke);
        let stored =
            serde_json::to_string(&own::new_run(&lab).expect("read the date")).expect("JSON");
        let run: Run = serde_json::from_str(&stored).expect("parse the JSON");
        assert_eq!(orders(&with_seed(run.seed)).0, orders(&lab).0);
    }

    #[test]
    fn different_seeds_give_different_orders_of_benchmarks_and_contenders() {
        let [one, other] = [1, 2].map(|seed| orders(&with_seed(seed)));
        let in_list_order: Vec<usize> = (0..IDS.len()).collect();
        assert_eq!((one.groups().len(), other.groups().len()), (3, 3));
        assert_eq!((&one.groups()[0], &other.groups()[0]), (&in_list_order, &in_list_order));
        assert_ne!(one.groups()[1..], other.groups()[1..]);
        // The first pass visits the benchmarks in the same order, so contenders' orders differ.
        assert_ne!(one.0[..IDS.len()], other.0[..IDS.len()]);
        let passes: BTreeSet<_> =
            one.0.iter().filter(|it| it.group == 0).map(|it| &it.blocks).collect();
        assert!(passes.len() > 1, "each pass has the same orders: {passes:?}");
    }

    #[test]
    fn each_benchmark_and_contender_follows_each_other_one() {
        let (mut groups, mut contenders) = (BTreeSet::new(), BTreeSet::new());
        for visits in (1..=12).map(|seed| orders(&with_seed(seed))) {
            for pass in &visits.groups()[1..] {
                groups.extend(pass.windows(2).flat_map(|it| it.first_chunk().copied()));
                assert_eq!(pass.iter().collect::<BTreeSet<_>>().len(), IDS.len(), "{pass:?}");
            }
            for block in visits.blocks() {
                contenders.extend(block.windows(2).flat_map(|it| it.first_chunk().copied()));
                assert_eq!(block.iter().collect::<BTreeSet<_>>().len(), NAMES.len(), "{block:?}");
            }
        }
        let pairs = |count: usize| -> BTreeSet<[usize; 2]> {
            let all = (0..count).flat_map(|a| (0..count).map(move |b| [a, b]));
            all.filter(|[a, b]| a != b).collect()
        };
        assert_eq!((groups, contenders), (pairs(IDS.len()), pairs(NAMES.len())));
    }

    /// Observer that interrupts the run after the first block of the last benchmark.
    struct LastVisitInterrupter<'a> {
        group: usize,
        interrupted: &'a AtomicBool,
    }

    impl RunObserver for LastVisitInterrupter<'_> {
        fn begin(&mut self, _: (usize, usize), group: usize) {
            self.group = group;
        }

        fn block(&mut self, _: u32, _: u32) {
            let is_last = self.group == IDS.len() - 1;
            // Relaxed: the flag publishes no other data.
            self.interrupted.fetch_or(is_last, Ordering::Relaxed);
        }
    }

    #[test]
    fn interrupt_during_the_last_visit_interrupts_the_run() {
        let _alone = alone();
        let interrupted = AtomicBool::new(false);
        let mut observer = LastVisitInterrupter { group: 0, interrupted: &interrupted };
        let schedule = Schedule { passes: 1, blocks_min: 2, blocks_max: 2, total: None };
        let outcome = lab(Profile::Smoke).run_by(schedule, &mut observer, &interrupted);
        assert!(outcome.interrupted && !outcome.records.is_empty());
    }

    #[test]
    fn warm_up_does_not_change_the_orders() {
        let _alone = alone();
        let lab = lab(Profile::Quick);
        let [short, long] = [0, 200].map(|warm_up_ms| {
            let request = PassRequest {
                pass: 0,
                seed: 7,
                sequence: vec![PlannedVisit { group: 0, weight: 1, facts: Vec::new() }],
                budget: None,
                blocks_min: 4,
                blocks_max: 4,
                warm_up: Duration::from_millis(warm_up_ms),
            };
            let mut visits = Visits::default();
            let mut report = |report| {
                match report {
                    PassReport::Begin { group } => visits.begin((0, 1), group),
                    PassReport::Block { done, most } => visits.block(done, most),
                    PassReport::Visited { .. } | PassReport::End { .. } => {}
                }
                true
            };
            pass::run_pass(&lab, &request, &AtomicBool::new(false), &mut report);
            visits.0
        });
        assert_eq!(short, long);
        assert_eq!(short[0].blocks.len(), 4);
    }
}
