//! One benchmark: checked, warmed up, and then measured in blocks.

use super::summarise::{self, Lane};
use super::{Group, Lab, Profile, Watch};
use crate::bench::Bench;
use crate::counters;
use crate::crew::Stage;
use crate::date::{DATE_REFUSED, unix_ns};
use crate::fault::Fault;
use crate::noise;
use crate::samples::{Notes, Timing, empty_ns};
use crate::stats;
use handover_base::topology::Placed;
use handover_base::{affinity, clock, usage};
use handover_record::{Contender, ContenderKind, Record, Values};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// A round lasts about this long; one of several parties half of it, as all their cores must be at their
/// pace from its begin to its end.
const ROUND: Duration = Duration::from_millis(10);
const ROUND_OF_SEVERAL: Duration = Duration::from_millis(5);
/// With a pause before each hand-over, a round holds at least this many of them.
const ROUND_GAPS_MIN: u32 = 8;
/// Warm-up ends when so many rounds agree within [`WARM_AGREE`].
const WARM_ROUNDS: usize = 3;
const WARM_AGREE: f64 = 0.02;
/// The intervals are narrow enough when each reaches at most this far.
const NARROW: f64 = 0.02;
/// Operations are timed one by one when the shortest contender's lasts this many readings of the clock.
const SINGLE_CLOCKS_MIN: f64 = 20.0;

/// One benchmark in the course of a run, which comes back to it pass by pass.
pub(super) struct Course {
    started_unix_ns: i64,
    empty: (f64, f64),
    lanes: Vec<Lane>,
    blocks: u32,
    rounds_told: usize,
    /// Every figure was good at the end of the last visit.
    pub settled: bool,
    /// It failed, or a lane of it died in mid-run: no pass comes back to it.
    pub closed: bool,
}

/// What one visit may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    /// So many blocks at least, however long they take.
    pub blocks_min: u32,
    /// So many at most, where the intervals are not narrow yet and there is time.
    pub blocks_max: u32,
    /// `None`: no end.
    pub until: Option<Instant>,
    /// For the warm-up of the first visit.
    pub warm_up: Duration,
}

/// One visit to one benchmark.
pub(super) struct Measuring<'a> {
    pub lab: &'a Lab,
    pub group: &'a Group,
    pub watch: &'a mut dyn Watch,
    pub interrupted: &'a AtomicBool,
}

impl Measuring<'_> {
    /// Checks every contender and warms it up. Contenders that fail are out of the race, and named with
    /// the reason.
    pub fn begin(&self, visit: Visit) -> Result<(Course, Vec<(String, Fault)>), Fault> {
        let started_unix_ns = unix_ns(SystemTime::now()).ok_or_else(|| Fault::new(DATE_REFUSED))?;
        let mut faults = Vec::new();
        let mut lanes = self.lanes()?;
        let neighbour = self.neighbour(&mut lanes)?;
        self.check(&mut lanes, &mut faults)?;
        if self.lab.plan.profile != Profile::Smoke {
            self.warm_up(&mut lanes, visit.warm_up)?;
            choose_batches(&mut lanes, self.group.selection.spec.batched);
        }
        drop(neighbour);
        let course = Course {
            started_unix_ns,
            empty: empty_ns(),
            lanes,
            blocks: 0,
            rounds_told: 0,
            settled: false,
            closed: false,
        };
        Ok((course, faults))
    }

    /// Measures some blocks more: the fewest where the figures are good already. That is looked at once a
    /// visit, at its end.
    pub fn visit(&mut self, course: &mut Course, visit: Visit) -> Result<(), Fault> {
        let neighbour = self.neighbour(&mut course.lanes)?;
        let wanted = if course.settled { visit.blocks_min } else { visit.blocks_max };
        for done in 0..wanted {
            let spent = visit.until.is_some_and(|until| Instant::now() >= until);
            if spent && done >= visit.blocks_min {
                break;
            }
            self.block(&mut course.lanes, course.blocks)?;
            course.blocks += 1;
            self.watch.block(done + 1, wanted);
        }
        drop(neighbour);
        course.lanes.iter_mut().for_each(Lane::judge_again);
        course.settled = course.is_settled();
        Ok(())
    }

    /// One block more.
    pub fn one_block(&mut self, course: &mut Course) -> Result<(), Fault> {
        let neighbour = self.neighbour(&mut course.lanes)?;
        self.block(&mut course.lanes, course.blocks)?;
        course.blocks += 1;
        drop(neighbour);
        Ok(())
    }

    /// A lane for each contender, then one for each floor.
    fn lanes(&self) -> Result<Vec<Lane>, Fault> {
        let selection = &self.group.selection;
        let mut lanes = Vec::new();
        for bench in &selection.contenders {
            lanes.push(self.lane(bench, false)?);
        }
        for (_, bench, _) in &selection.floors {
            // Two figures of one benchmark may be floors: it is measured once.
            let is_there = |it: &Lane| it.is_floor && it.bench.spec().id == bench.spec().id;
            if !lanes.iter().any(is_there) {
                lanes.push(self.lane(bench, true)?);
            }
        }
        Ok(lanes)
    }

    fn lane(&self, bench: &'static Bench, is_floor: bool) -> Result<Lane, Fault> {
        let lab = self.lab;
        let usual = match lab.plan.profile {
            Profile::Smoke => Values::smoke,
            _ => Values::defaults,
        };
        let values = match (is_floor, self.group.selection.contenders.first()) {
            (false, _) => self.group.values.clone(),
            (true, None) => usual(bench.params()),
            (true, Some(own)) => {
                beside(usual(bench.params()), &self.group.values, &usual(own.params()))
            }
        };
        let roles = bench.roles(&values);
        let Placed { cpus, notes } = lab.topology.place(lab.plan.place, &lab.allowed, roles.len());
        let hands_over = bench.spec().hands_over;
        let gap = if hands_over { lab.plan.idle_gap } else { Duration::ZERO };
        let round = if roles.len() > 1 { ROUND_OF_SEVERAL } else { ROUND };
        let mut round = round.max(gap * ROUND_GAPS_MIN);
        if lab.plan.profile == Profile::Smoke {
            round = Duration::from_secs(5);
        }
        let stage = Stage {
            spec_id: bench.spec().id,
            contender: bench.contender().name,
            values,
            parts_count: bench.spec().parts.len(),
            timing: Timing {
                round_ns: u64::try_from(round.as_nanos()).unwrap_or(u64::MAX),
                batch: 0,
                batches_max: if lab.plan.profile == Profile::Smoke { 3 } else { 0 },
                idle_gap_ns: u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX),
                watch_pace: self.watches_pace(&cpus),
            },
            cpus,
            processes: bench.always_in_processes()
                || lab.plan.processes && hands_over && bench.in_processes(),
            check: false,
            count_hardware: counters::available(),
            trace: None,
            patience: lab.plan.patience,
        };
        Ok(Lane::new(bench, stage, roles, notes, is_floor))
    }

    /// A core is watched for others on it; not where those are our own.
    fn watches_pace(&self, cpus: &[u32]) -> bool {
        let plan = &self.lab.plan;
        let shares_core = |(index, cpu): (usize, &u32)| {
            let siblings = self.lab.topology.cpu(*cpu).map_or(&[][..], |it| &it.siblings);
            let others = cpus.iter().enumerate().filter(|(other, _)| *other != index);
            others.map(|(_, other)| other).any(|other| other == cpu || siblings.contains(other))
        };
        let burdened = plan.neighbour || cpus.iter().enumerate().any(shares_core);
        plan.profile != Profile::Smoke && !burdened
    }

    /// Correct before fast. A contender that fails is out of the race; so is a floor, and ratios to it.
    fn check(&self, lanes: &mut [Lane], faults: &mut Vec<(String, Fault)>) -> Result<(), Fault> {
        for lane in lanes.iter_mut() {
            self.go_on()?;
            let mut stage = lane.stage.clone();
            stage.check = true;
            stage.timing.batches_max = 3;
            stage.timing.round_ns = 5_000_000_000;
            stage.timing.idle_gap_ns = 0;
            if let Err(fault) = lane.bench.round(&stage, self.interrupted) {
                lane.out = true;
                let name = lane.bench.contender().name;
                let name = if lane.is_floor { lane.bench.spec().id } else { name };
                faults.push((name.to_string(), fault));
            }
        }
        if lanes.iter().all(|lane| lane.out || lane.is_floor)
            && let Some((_, fault)) = faults.drain(..).next()
        {
            return Err(fault);
        }
        Ok(())
    }

    fn warm_up(&self, lanes: &mut [Lane], budget: Duration) -> Result<(), Fault> {
        let share = budget / lanes.len() as u32;
        for lane in lanes.iter_mut().filter(|lane| !lane.out) {
            let until = Instant::now() + share;
            let mut figures: Vec<f64> = Vec::new();
            loop {
                self.go_on()?;
                let notes = lane.bench.round(&lane.stage, self.interrupted)?;
                figures.push(lane.warm(&notes));
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

    /// One round of each lane, the order rotated.
    fn block(&mut self, lanes: &mut [Lane], block: u32) -> Result<(), Fault> {
        let count = lanes.len();
        for turn in 0..count {
            let lane = &mut lanes[(turn + block as usize) % count];
            if lane.out {
                continue;
            }
            self.go_on()?;
            let before = usage::steal_ticks();
            let notes = lane.bench.round(&lane.stage, self.interrupted)?;
            let steal = match (before, usage::steal_ticks()) {
                (Some(before), Some(after)) => {
                    let total = after.total_ns.saturating_sub(before.total_ns);
                    let stolen = after.steal_ns.saturating_sub(before.steal_ns);
                    stolen as f64 / total.max(1) as f64
                }
                _ => 0.0,
            };
            lane.keep(block, &notes, steal);
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), Fault> {
        // Relaxed: a flag alone; nothing is published with it.
        if self.interrupted.load(Ordering::Relaxed) { Err(Fault::Interrupted) } else { Ok(()) }
    }

    /// A thread that burns the CPU next to the parties: one that none of them uses, or the last
    /// party's own where there is no other.
    fn neighbour(&self, lanes: &mut [Lane]) -> Result<Option<Neighbour>, Fault> {
        if !self.lab.plan.neighbour || !self.group.selection.spec.hands_over {
            return Ok(None);
        }
        let used = &lanes[0].stage.cpus;
        let free = self.lab.allowed.iter().copied().find(|cpu| !used.contains(cpu));
        let Some(cpu) = free.or_else(|| used.last().copied()) else {
            return Ok(None);
        };
        for lane in lanes.iter_mut() {
            lane.neighbour_cpu = Some(cpu);
        }
        Neighbour::start(cpu).map(Some)
    }
}

/// Above twenty readings of the clock for the shortest contender, each operation of every contender is
/// timed alone; below, batches. One rule for all contenders, so that none is burdened more.
fn choose_batches(lanes: &mut [Lane], always: bool) {
    let cost = clock::calibration().cost_ns;
    let racing = lanes.iter().filter(|lane| !lane.is_floor && !lane.out);
    let least = racing.map(|lane| lane.warm_figure).fold(f64::MAX, f64::min);
    let single = !always && least >= SINGLE_CLOCKS_MIN * cost;
    for lane in lanes.iter_mut() {
        // A floor is timed as its contenders are, unless it is too short for that.
        let alone = single && (!lane.is_floor || lane.warm_figure >= SINGLE_CLOCKS_MIN * cost);
        lane.stage.timing.batch = if alone { 1 } else { lane.warm_batch.max(1) };
    }
}

impl Course {
    /// Whether the benchmark has yielded more than it has told.
    pub fn is_news(&self) -> bool {
        self.rounds_count() > self.rounds_told
    }

    /// What the benchmark has yielded so far.
    pub fn records(&mut self, lab: &Lab, group: &Group) -> Vec<Record> {
        self.rounds_told = self.rounds_count();
        self.lanes.iter_mut().for_each(Lane::judge_again);
        let context = summarise::Context {
            spec: group.selection.spec,
            plan: &lab.plan,
            args: group.values.all().clone(),
            floors: &group.selection.floors,
            started_unix_ns: self.started_unix_ns,
            empty: self.empty,
        };
        summarise::records(&context, &self.lanes)
    }

    /// The first contender, and how it is played.
    pub fn contender(&self) -> (&'static Bench, Stage) {
        (self.lanes[0].bench, self.lanes[0].stage.clone())
    }

    /// The figure so far, of a part of the first contender; `None` where there is none.
    pub fn figure_ns(&self, part: usize) -> Option<f64> {
        Some(self.lanes[0].intervals().get(part).copied().flatten()?.median)
    }

    /// The same, of a part of a floor.
    pub fn floor_ns(&self, bench: &'static Bench, part: usize) -> Option<f64> {
        let is_its = |lane: &&Lane| lane.is_floor && lane.bench.spec().id == bench.spec().id;
        let floor = self.lanes.iter().find(is_its)?;
        Some(floor.intervals().get(part).copied().flatten()?.median)
    }

    /// Rounds of all its lanes.
    fn rounds_count(&self) -> usize {
        self.lanes.iter().map(Lane::rounds_count).sum()
    }

    /// Whether every figure has enough undisturbed rounds, and an interval narrow enough. A peer that is
    /// clearly not the best one need not be known as well.
    fn is_settled(&self) -> bool {
        let racing = || self.lanes.iter().filter(|lane| !lane.is_floor && !lane.out);
        let figures: Vec<_> =
            racing().map(|lane| (lane.bench.contender(), lane.intervals())).collect();
        // Of the peers of one contender, where they are no rivals of all.
        let best = |of: &Contender, part: usize| {
            let peers = figures
                .iter()
                .filter(|(it, _)| it.kind == ContenderKind::Peer && it.rival_of == of.rival_of);
            peers.filter_map(|(_, parts)| parts[part]).map(|it| it.high).fold(f64::MAX, f64::min)
        };
        let is_good = |it: &Contender, part: usize, figure: stats::Interval| {
            let is_peer = it.kind == ContenderKind::Peer;
            figure.half_width() <= NARROW || (is_peer && figure.low > best(it, part))
        };
        racing().all(|lane| lane.quiet_count() >= noise::ROUNDS_MIN as u32)
            && figures.iter().all(|(contender, parts)| {
                let known = parts.iter().enumerate().filter_map(|(part, it)| Some((part, (*it)?)));
                known.into_iter().all(|(part, figure)| is_good(contender, part, figure))
            })
    }
}

/// Burns a CPU until dropped.
struct Neighbour {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    fn start(cpu: u32) -> Result<Neighbour, Fault> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let body = move || {
            // Unpinned it still burns a CPU, only perhaps another one.
            let _ = affinity::pin(cpu);
            let mut turns = 0u64;
            // Relaxed: a flag alone.
            while !seen.load(Ordering::Relaxed) {
                turns = std::hint::black_box(turns.wrapping_mul(31).wrapping_add(1));
            }
        };
        let thread = thread::Builder::new()
            .name("neighbour".into())
            .spawn(body)
            .map_err(|refused| Fault::not_started("neighbour", &refused))?;
        Ok(Neighbour { stop, thread: Some(thread) })
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // Relaxed: a flag alone; join orders the rest.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The figure of the first part that has samples, for warm-up.
pub(super) fn first_figure(notes: &[Notes]) -> (f64, u64) {
    let mut parts = notes.iter().flat_map(|it| &it.parts);
    let Some(part) = parts.find(|part| !part.samples.is_empty()) else {
        return (0.0, 1);
    };
    let figures: Vec<f64> =
        part.samples.iter().map(|sample| part.figure(*sample, part.batch)).collect();
    (stats::median(&figures), part.batch)
}

/// The arguments of a floor: its usual ones, but where the benchmark that it stands beside has another than
/// its own usual one of the same name. Who moves more is to be held against more that is moved. What is out
/// of the floor's bounds it does not follow.
fn beside(floor: Values, values: &Values, usual: &Values) -> Values {
    let mut followed = floor;
    for (name, value) in values.all() {
        let is_chosen = usual.all().get(name) != Some(value);
        if is_chosen && followed.all().contains_key(name) {
            let _out_of_bounds = followed.set_checked(name, *value);
        }
    }
    followed
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_record::{Args, args};

    args! {
        /// Of a benchmark.
        struct Own {
            /// Bytes.
            size: u32 = 8 (smoke 1, range 1..=100),
            /// Nothing that a floor knows of.
            depth: u32 = 2 (smoke 1, range 1..=9),
        }
    }
    args! {
        /// Of its floor.
        struct Floors {
            /// Bytes.
            size: u32 = 64 (smoke 1, range 1..=64),
            /// Nothing that the benchmark knows of.
            step: u32 = 3 (smoke 1, range 1..=9),
        }
    }

    #[test]
    fn a_floor_follows_what_was_chosen_and_keeps_what_is_usual() {
        let usual = Values::defaults(Own::PARAMS);
        let floor = || Values::defaults(Floors::PARAMS);
        let mut values = usual.clone();
        assert_eq!(beside(floor(), &values, &usual).all(), floor().all());
        values.set("depth", "5").unwrap();
        values.set("size", "40").unwrap();
        let followed = beside(floor(), &values, &usual);
        assert_eq!((followed.get("size"), followed.get("step")), (40, 3));
        assert!(!followed.all().contains_key("depth"));
        values.set("size", "100").unwrap();
        assert_eq!(beside(floor(), &values, &usual).get("size"), 64, "it cannot");
    }
}
