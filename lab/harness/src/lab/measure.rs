//! Measurement of one benchmark in one pass: check, warm-up, and blocks.

use super::contender::{ContenderFacts, MeasuredContender};
use super::{BenchmarkGroup, Lab, Profile};
use crate::bench::Bench;
use crate::counters;
use crate::crew::RoundParams;
use crate::fault::Fault;
use crate::samples::{ParticipantResult, Timing};
use handover_base::random::SplitMix64;
use handover_base::topology::PlacedCpus;
use handover_base::{affinity, clock};
use handover_record::ArgValues;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Approximate duration of a round of one participant. A short measuring time shortens it.
const ROUND: Duration = Duration::from_millis(10);
/// Approximate duration of a round of several participants. It is shorter because all their cores
/// must keep their speed.
const ROUND_OF_SEVERAL: Duration = Duration::from_millis(5);
/// Maximum size of the unused allocation that shifts the memory of a round. It has a random size,
/// and is made before the workload allocates its memory. The maximum is two pages, so that both the
/// cache sets and the pages shared with other data differ between rounds.
const SLACK_BYTES_MAX: usize = 8192;
/// Minimum number of hand-overs in a round with pauses.
const ROUND_GAPS_MIN: u32 = 8;
/// Number of consecutive rounds whose figures must agree at the end of the warm-up.
const WARM_ROUNDS: usize = 3;
/// Maximum relative difference between the figures of the last [`WARM_ROUNDS`] warm-up rounds.
const WARM_AGREE: f64 = 0.02;
/// Divisor of a round's duration, which gives the duration of the warm-up in later passes.
const WARM_AGAIN_DIVISOR: u64 = 4;
/// Minimum duration of an operation that is timed alone, as a multiple of a clock reading's cost.
/// It applies to the fastest contender.
const SINGLE_CLOCKS_MIN: f64 = 20.0;

/// Limits of one visit, which measures one benchmark in one pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisitLimits {
    /// Minimum number of blocks, regardless of time.
    pub blocks_min: u32,
    /// Maximum number of blocks of the visit.
    pub blocks_max: u32,
    /// Deadline of the visit; `None` for no limit.
    pub until: Option<Instant>,
    /// Time limit of the warm-up in the first visit.
    pub warm_up: Duration,
}

/// Runner of one benchmark in one pass: it checks, warms up, and measures blocks.
pub(super) struct BlockRunner<'a> {
    pub lab: &'a Lab,
    pub group: &'a BenchmarkGroup,
    pub interrupted: &'a AtomicBool,
    /// Index of the pass.
    pub pass: u32,
    /// Random source of the contenders' order in each block. Used for nothing else, so that the
    /// run's seed determines the orders, even if the number of warm-up rounds differs.
    order_random: SplitMix64,
    /// Random source of all else: memory placement, and the choice of operations timed alone.
    random: SplitMix64,
}

impl<'a> BlockRunner<'a> {
    pub fn new(
        lab: &'a Lab,
        group: &'a BenchmarkGroup,
        interrupted: &'a AtomicBool,
        pass: u32,
        mut random: SplitMix64,
    ) -> BlockRunner<'a> {
        let order_random = SplitMix64::new(random.next_u64());
        BlockRunner { lab, group, interrupted, pass, order_random, random }
    }

    /// Checks the results of every contender, and warms up those that pass. Returns the contenders
    /// that failed, with their faults; these are not measured.
    pub fn check_and_warm_up(
        &mut self,
        contenders: &mut [MeasuredContender],
        warm_up: Duration,
    ) -> Result<Vec<(String, Fault)>, Fault> {
        let mut faults = Vec::new();
        let _neighbour = self.start_neighbour(contenders)?;
        self.check(contenders, &mut faults)?;
        if self.lab.plan.profile != Profile::Smoke {
            self.warm_up(contenders, warm_up)?;
            choose_batches(contenders, self.group.selection.spec.batched);
        }
        Ok(faults)
    }

    /// Warms up contenders that an earlier pass, in another process, has checked.
    pub fn warm_up_again(
        &mut self,
        contenders: &mut [MeasuredContender],
        facts: &[ContenderFacts],
    ) -> Result<(), Fault> {
        let _neighbour = self.start_neighbour(contenders)?;
        for (contender, facts) in contenders.iter_mut().zip(facts) {
            contender.adopt_facts(*facts);
            if facts.is_out {
                continue;
            }
            self.check_not_interrupted()?;
            let mut round_params = self.next_round_params(contender);
            round_params.timing.round_ns /= WARM_AGAIN_DIVISOR;
            let notes = self.run_round(contender, &round_params)?;
            contender.update_pace(&notes);
        }
        Ok(())
    }

    /// Measures blocks up to the limits of a visit. After each, calls `on_block` with the number of
    /// blocks so far and their maximum.
    pub fn measure_visit(
        &mut self,
        contenders: &mut [MeasuredContender],
        visit: VisitLimits,
        on_block: &mut dyn FnMut(u32, u32) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let _neighbour = self.start_neighbour(contenders)?;
        for done in 0..visit.blocks_max {
            let spent = visit.until.is_some_and(|until| Instant::now() >= until);
            if spent && done >= visit.blocks_min {
                break;
            }
            self.measure_rounds_of_block(contenders, done)?;
            on_block(done + 1, visit.blocks_max)?;
        }
        Ok(())
    }

    /// Measures one block, next to the busy thread if the plan has one.
    pub fn measure_block(
        &mut self,
        contenders: &mut [MeasuredContender],
        block: u32,
    ) -> Result<(), Fault> {
        let _neighbour = self.start_neighbour(contenders)?;
        self.measure_rounds_of_block(contenders, block)
    }

    /// Measures one block: a round of each contender, in random order.
    pub fn measure_rounds_of_block(
        &mut self,
        contenders: &mut [MeasuredContender],
        block: u32,
    ) -> Result<(), Fault> {
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        self.order_random.shuffle(&mut order);
        for place in order {
            let contender = &mut contenders[place];
            if contender.facts.is_out {
                continue;
            }
            self.check_not_interrupted()?;
            let round_params = self.next_round_params(contender);
            let notes = self.run_round(contender, &round_params)?;
            contender.add_round((self.pass, block), &notes);
        }
        Ok(())
    }

    /// Runs a round of one contender; adds the contender's name to a fault.
    fn run_round(
        &self,
        contender: &MeasuredContender,
        round_params: &RoundParams,
    ) -> Result<Vec<ParticipantResult>, Fault> {
        contender
            .bench
            .run_round(round_params, self.interrupted)
            .map_err(|fault| fault.with_contender_name(contender.name()))
    }

    /// Returns the parameters of a contender's next round, with a new random memory placement and
    /// seed.
    fn next_round_params(&mut self, contender: &MeasuredContender) -> RoundParams {
        let mut round_params = contender.round_params.clone();
        round_params.slack_bytes = self.random.next_below(SLACK_BYTES_MAX);
        round_params.timing.seed = self.random.next_u64();
        round_params
    }

    /// Runs a short round of each contender, and checks its results. Excludes contenders that fail;
    /// fails if none is left. A contender or floor that fails is not measured, and has no ratios.
    fn check(
        &self,
        contenders: &mut [MeasuredContender],
        faults: &mut Vec<(String, Fault)>,
    ) -> Result<(), Fault> {
        for contender in contenders.iter_mut() {
            self.check_not_interrupted()?;
            let mut round_params = contender.round_params.clone();
            round_params.check = true;
            round_params.timing.batches_max = 3;
            round_params.timing.round_ns = 5_000_000_000;
            round_params.timing.idle_gap_ns = 0;
            if let Err(fault) = contender.bench.run_round(&round_params, self.interrupted) {
                contender.facts.is_out = true;
                faults.push((contender.name().to_string(), fault));
            }
        }
        if contenders.iter().all(|it| it.facts.is_out || it.is_floor)
            && let Some((_, fault)) = faults.drain(..).next()
        {
            return Err(fault);
        }
        Ok(())
    }

    /// Runs rounds of each contender until its figures agree, or its share of `budget` is used up.
    fn warm_up(
        &mut self,
        contenders: &mut [MeasuredContender],
        budget: Duration,
    ) -> Result<(), Fault> {
        let share = budget / contenders.len() as u32;
        for contender in contenders.iter_mut().filter(|it| !it.facts.is_out) {
            let until = Instant::now() + share;
            let mut figures: Vec<f64> = Vec::new();
            loop {
                self.check_not_interrupted()?;
                let round_params = self.next_round_params(contender);
                let notes = self.run_round(contender, &round_params)?;
                figures.push(contender.add_warm_up_round(&notes));
                let last = &figures[figures.len().saturating_sub(WARM_ROUNDS)..];
                let (least, most) = last
                    .iter()
                    .fold((f64::MAX, 0f64), |(least, most), it| (least.min(*it), most.max(*it)));
                let steady = figures.len() >= WARM_ROUNDS && most <= least * (1.0 + WARM_AGREE);
                if steady || Instant::now() >= until {
                    break;
                }
            }
        }
        Ok(())
    }

    fn check_not_interrupted(&self) -> Result<(), Fault> {
        // Relaxed: the flag publishes no other data.
        if self.interrupted.load(Ordering::Relaxed) { Err(Fault::Interrupted) } else { Ok(()) }
    }

    /// Starts the busy thread of `--neighbour`; `None` if the plan has none.
    fn start_neighbour(
        &self,
        contenders: &[MeasuredContender],
    ) -> Result<Option<Neighbour>, Fault> {
        contenders.first().and_then(|it| it.neighbour_cpu).map(Neighbour::start).transpose()
    }
}

/// Returns everything to measure for a benchmark: its contenders, then its floors.
pub(super) fn create_contenders(lab: &Lab, group: &BenchmarkGroup) -> Vec<MeasuredContender> {
    let selection = &group.selection;
    let selected = selection.contenders.iter().map(|bench| (*bench, false));
    let floors = selection.floors.iter().map(|(_, bench, _)| (*bench, true));
    let mut contenders: Vec<MeasuredContender> = Vec::new();
    for (bench, is_floor) in selected.chain(floors) {
        // Two parts of one benchmark may be floors: the benchmark is measured once.
        let is_there = |it: &MeasuredContender| {
            is_floor && it.is_floor && it.bench.spec().id == bench.spec().id
        };
        if !contenders.iter().any(is_there) {
            contenders.push(create_contender(lab, group, bench, is_floor));
        }
    }
    let used = contenders.first().map_or(&[][..], |contender| &contender.round_params.cpus);
    let cpu = neighbour_cpu(lab, group, used);
    contenders.iter_mut().for_each(|it| it.neighbour_cpu = cpu);
    contenders
}

/// Returns a contender or a floor with the parameters of its rounds, before the first round.
fn create_contender(
    lab: &Lab,
    group: &BenchmarkGroup,
    bench: &'static Bench,
    is_floor: bool,
) -> MeasuredContender {
    let usual = match lab.plan.profile {
        Profile::Smoke => ArgValues::smoke_values,
        _ => ArgValues::defaults,
    };
    let values = match (is_floor, group.selection.contenders.first()) {
        (false, _) => group.values.clone(),
        (true, None) => usual(bench.params()),
        (true, Some(own)) => {
            floor_values(usual(bench.params()), &group.values, &usual(own.params()))
        }
    };
    let roles = bench.roles(&values);
    let PlacedCpus { cpus, notes } =
        lab.topology.choose_cpus(lab.plan.place, &lab.allowed, roles.len());
    let hands_over = bench.spec().hands_over;
    let gap = if hands_over { lab.plan.idle_gap } else { Duration::ZERO };
    let round = if roles.len() > 1 { ROUND_OF_SEVERAL } else { ROUND };
    let round = round.min(lab.round_max().unwrap_or(Duration::MAX));
    let mut round = round.max(gap * ROUND_GAPS_MIN);
    if lab.plan.profile == Profile::Smoke {
        round = Duration::from_secs(5);
    }
    let round_params = RoundParams {
        spec_id: bench.spec().id,
        contender: bench.contender().name,
        values,
        parts_count: bench.spec().parts.len(),
        timing: Timing {
            round_ns: u64::try_from(round.as_nanos()).unwrap_or(u64::MAX),
            batch: 0,
            batches_max: if lab.plan.profile == Profile::Smoke { 3 } else { 0 },
            idle_gap_ns: u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX),
            watch_pace: should_watch_pace(lab, &cpus),
            pipelined: bench.spec().pipelined,
            ..Timing::default()
        },
        cpus,
        processes: bench.must_use_processes()
            || lab.plan.processes && hands_over && bench.can_use_processes(),
        check: false,
        slack_bytes: 0,
        count_hardware: counters::are_available(),
        trace: None,
        patience: lab.plan.patience,
    };
    MeasuredContender::new(bench, round_params, roles, notes, is_floor)
}

/// Returns `true` if the speed of the participants' cores should be monitored. Returns `false` in a
/// smoke run, with `--neighbour`, and if participants share a core.
fn should_watch_pace(lab: &Lab, cpus: &[u32]) -> bool {
    let plan = &lab.plan;
    let shares_core = |(index, cpu): (usize, &u32)| {
        let siblings = lab.topology.cpu(*cpu).map_or(&[][..], |it| &it.siblings);
        let others = cpus.iter().enumerate().filter(|(other, _)| *other != index);
        others.map(|(_, other)| other).any(|other| other == cpu || siblings.contains(other))
    };
    let burdened = plan.neighbour || cpus.iter().enumerate().any(shares_core);
    plan.profile != Profile::Smoke && !burdened
}

/// Returns the CPU for the busy thread of `--neighbour`; prefers a CPU without a participant.
/// Returns `None` if there is no such thread.
fn neighbour_cpu(lab: &Lab, group: &BenchmarkGroup, used: &[u32]) -> Option<u32> {
    if !lab.plan.neighbour || !group.selection.spec.hands_over {
        return None;
    }
    let free = lab.allowed.iter().copied().find(|cpu| !used.contains(cpu));
    free.or_else(|| used.last().copied())
}

/// Decides, for all contenders together, if operations are timed alone or in batches. If the
/// fastest contender's operation takes at least twenty clock readings, every contender's operations
/// are timed alone. All contenders follow one rule, so that none has more overhead.
fn choose_batches(contenders: &mut [MeasuredContender], is_always_batched: bool) {
    let cost = clock::calibration().cost_ns;
    let racing = contenders.iter().filter(|it| !it.is_floor && !it.facts.is_out);
    let least = racing.map(|it| it.facts.figure).fold(f64::MAX, f64::min);
    let single = !is_always_batched && least >= SINGLE_CLOCKS_MIN * cost;
    for contender in contenders.iter_mut() {
        // A floor is timed like its contenders, unless it is too short to be timed alone.
        let alone =
            single && (!contender.is_floor || contender.facts.figure >= SINGLE_CLOCKS_MIN * cost);
        let batch = if alone { 1 } else { contender.facts.batch.max(1) };
        contender.adopt_facts(ContenderFacts { batch, ..contender.facts });
    }
}

/// Thread that keeps a CPU busy until it is dropped.
struct Neighbour {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    fn start(cpu: u32) -> Result<Neighbour, Fault> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let body = move || {
            // If pinning fails, it still keeps a CPU busy, perhaps another one.
            let _ = affinity::pin(cpu);
            let mut turns = 0u64;
            // Relaxed: the flag publishes no other data.
            while !seen.load(Ordering::Relaxed) {
                turns = std::hint::black_box(turns.wrapping_mul(31).wrapping_add(1));
            }
        };
        let thread = thread::Builder::new()
            .name("neighbour".into())
            .spawn(body)
            .map_err(|refused| Fault::participant_not_started("neighbour", &refused))?;
        Ok(Neighbour { stop, thread: Some(thread) })
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // Relaxed: the flag publishes no other data; `join` orders the rest.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the arguments of a floor: its defaults, and the values that the user set for the
/// benchmark. An example is a larger message. Values outside the floor's bounds are ignored.
fn floor_values(floor: ArgValues, values: &ArgValues, usual: &ArgValues) -> ArgValues {
    let mut followed = floor;
    for (name, value) in values.by_name() {
        let is_chosen = usual.by_name().get(name) != Some(value);
        if is_chosen && followed.by_name().contains_key(name) {
            let _out_of_bounds = followed.set_value(name, *value);
        }
    }
    followed
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_record::{Args, args};

    args! {
        /// Arguments of the compared benchmark.
        struct Own {
            /// Size in bytes.
            size: u32 = 8 (smoke 1, range 1..=100),
            /// Argument that the floor does not have.
            depth: u32 = 2 (smoke 1, range 1..=9),
        }
    }
    args! {
        /// Arguments of the benchmark's floor.
        struct Floors {
            /// Size in bytes.
            size: u32 = 64 (smoke 1, range 1..=64),
            /// Argument that the benchmark does not have.
            step: u32 = 3 (smoke 1, range 1..=9),
        }
    }

    #[test]
    fn floor_follows_the_chosen_arguments_and_keeps_the_defaults() {
        let usual = ArgValues::defaults(Own::PARAMS);
        let floor = || ArgValues::defaults(Floors::PARAMS);
        let mut values = usual.clone();
        assert_eq!(floor_values(floor(), &values, &usual).by_name(), floor().by_name());
        values.parse_and_set("depth", "5").unwrap();
        values.parse_and_set("size", "40").unwrap();
        let followed = floor_values(floor(), &values, &usual);
        assert_eq!((followed.get("size"), followed.get("step")), (40, 3));
        assert!(!followed.by_name().contains_key("depth"));
        values.parse_and_set("size", "100").unwrap();
        assert_eq!(
            floor_values(floor(), &values, &usual).get("size"),
            64,
            "the floor took a size that its bounds exclude"
        );
    }
}
