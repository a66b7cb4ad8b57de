//! The run: which benchmarks, in what blocks, until when.

pub(crate) mod bout;
pub(crate) mod child;
mod course;
mod floors;
mod lane;
mod measure;
mod pass;
mod summarise;

use crate::bench::Bench;
use crate::dispatch;
use crate::fault::Fault;
use crate::host;
use crate::select::{SelectError, Selection, select};
use course::Course;
use handover_base::clock;
use handover_base::random::SplitMix64;
use handover_base::topology::{self, Placement, Topology};
use handover_record::{ArgsError, ContenderKind, Host, Over, OverError, Record, Values};
use pass::{Order, Report, Wanted};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Everything once, with the smallest arguments: shown to work, not measured.
    Smoke,
    /// 16 to 640 rounds of each figure: about a minute and a quarter for the ladder.
    Quick,
    /// 96 to 480 rounds of each figure.
    Full,
}

/// How a run goes about it. It comes by every benchmark several times, rather than once and for
/// long: a spell of some seconds in which the host gives less (a lower frequency, a busy sibling, slow
/// wake-ups) then falls on a few rounds of every figure, not on all rounds of one.
struct Schedule {
    passes: u32,
    /// Blocks that every benchmark gets in each pass.
    blocks_min: u32,
    /// Blocks that one gets whose intervals are still wide. Looked at once a pass.
    blocks_max: u32,
    /// For all passes over so many benchmarks.
    total: Option<Duration>,
}

impl Profile {
    /// For so many benchmarks; `each` may take so long, or as long as the profile lets it.
    fn schedule(self, groups_count: usize, each: Option<Duration>) -> Schedule {
        let of_each = |time: Duration| time * u32::try_from(groups_count).unwrap_or(u32::MAX);
        let mut schedule = self.schedule_of(of_each);
        if let Some(each) = each {
            schedule.total = Some(of_each(each));
        }
        schedule
    }

    fn schedule_of(self, of_each: impl Fn(Duration) -> Duration) -> Schedule {
        match self {
            Profile::Smoke => Schedule { passes: 1, blocks_min: 1, blocks_max: 1, total: None },
            Profile::Quick => {
                let (least, most) = (of_each(QUICK_EACH_MIN), of_each(QUICK_EACH_MAX));
                let total = Some(QUICK_TOTAL.clamp(least, most));
                Schedule { passes: 8, blocks_min: 2, blocks_max: 80, total }
            }
            Profile::Full => {
                let total = Some(of_each(FULL_EACH));
                Schedule { passes: 16, blocks_min: 6, blocks_max: 30, total }
            }
        }
    }
}

/// What a quick run of the whole ladder may take, with what follows the last pass to spare.
const QUICK_TOTAL: Duration = Duration::from_secs(82);
/// The bounds of what one benchmark may take in a quick run, in all its passes.
const QUICK_EACH_MIN: Duration = Duration::from_millis(800);
const QUICK_EACH_MAX: Duration = Duration::from_secs(8);
/// What one may take in a full run.
const FULL_EACH: Duration = Duration::from_secs(30);
/// Warm-up takes at most this part of what a benchmark may take.
const WARM_SHARE: u32 = 10;

impl std::str::FromStr for Profile {
    type Err = String;
    fn from_str(text: &str) -> Result<Profile, String> {
        match text {
            "smoke" => Ok(Profile::Smoke),
            "quick" => Ok(Profile::Quick),
            "full" => Ok(Profile::Full),
            _ => Err("must be smoke, quick or full".to_string()),
        }
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Profile::Smoke => "smoke",
            Profile::Quick => "quick",
            Profile::Full => "full",
        })
    }
}

/// How a run is to be made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How much is measured.
    pub profile: Profile,
    /// Where parties are placed to each other.
    pub place: Placement,
    /// Pause before each hand-over; at most [`Plan::IDLE_GAP_MAX`].
    pub idle_gap: Duration,
    /// What each benchmark may take, in all its passes; none: what the profile gives it. In
    /// [`Plan::TIMES`]; a smoke run takes none.
    pub time: Option<Duration>,
    /// A busy thread beside.
    pub neighbour: bool,
    /// Parties as processes, where a benchmark can.
    pub processes: bool,
    /// Whether peers are measured too.
    pub peers: bool,
    /// Arguments, `(name, text)`, for every benchmark that takes them.
    pub set: Vec<(String, String)>,
    /// Time beyond that of ten rounds after which a party that has not finished is given up.
    pub patience: Duration,
}

impl Plan {
    /// The default of [`patience`](Self::patience).
    pub const PATIENCE: Duration = Duration::from_secs(10);
    /// The longest pause between hand-overs.
    pub const IDLE_GAP_MAX: Duration = Duration::from_millis(100);
    /// The least and the most time that a benchmark may be given.
    pub const TIMES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            profile: Profile::Quick,
            place: Placement::Near,
            idle_gap: Duration::ZERO,
            time: None,
            neighbour: false,
            processes: false,
            peers: true,
            set: Vec::new(),
            patience: Plan::PATIENCE,
        }
    }
}

/// Why a plan cannot be run: the command line is wrong, and nothing was measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A pattern that means nothing.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// An argument that a benchmark refuses.
    #[error("{refused}, for {id}")]
    Args {
        /// The benchmark.
        id: String,
        /// Why.
        refused: ArgsError,
    },
    /// An argument that none of the chosen benchmarks takes.
    #[error("--set {name}={text}: none of the chosen benchmarks takes it{hint}")]
    Nobody {
        /// The argument.
        name: String,
        /// Its value.
        text: String,
        /// What they take.
        hint: String,
    },
    /// A sweep over an argument that is set, too.
    #[error("--set {name}: the sweep goes over it; leave it out")]
    Twice {
        /// The argument.
        name: String,
    },
    /// A sweep of something that is no single benchmark.
    #[error("{id}: a sweep takes one benchmark by its full id: {ids}")]
    NotOne {
        /// What was asked for.
        id: String,
        /// What it means.
        ids: String,
    },
    /// A sweep over an argument that the benchmark does not take.
    #[error("--over {name}: {id} has no such argument; {hint}")]
    NotTaken {
        /// The benchmark.
        id: String,
        /// The argument.
        name: String,
        /// What it takes.
        hint: String,
    },
    /// A range that is refused.
    #[error(transparent)]
    Over(#[from] OverError),
    /// The pause is too long.
    #[error("--idle-gap {0:?}: must lie in 0..={max:?}", max = Plan::IDLE_GAP_MAX)]
    IdleGap(Duration),
    /// A benchmark cannot be given so little time, or so much.
    #[error("--time {0:?}: must lie in {least:?}..=1h", least = Plan::TIMES.0)]
    Time(Duration),
    /// A smoke run measures once, however long that takes.
    #[error("--time {0:?}: a smoke run measures once; leave it out, or take --profile quick")]
    TimeOfSmoke(Duration),
    /// A benchmark that cannot run its parties as processes.
    #[error("--processes: {0} cannot run its parties as processes; name others, or leave it out")]
    Processes(String),
    /// An option for hand-overs, without one.
    #[error("{option}: none of the chosen benchmarks hands work from one party to another")]
    NoHandover {
        /// The option.
        option: &'static str,
    },
    /// The machine cannot be read.
    #[error("the CPUs of this machine cannot be read: {0}")]
    Topology(String),
}

/// One benchmark of a run: its selection with the values that its contenders get.
#[derive(Clone, Debug)]
pub struct Group {
    /// What is measured.
    pub selection: Selection,
    pub(crate) values: Values,
}

/// What a run tells whoever watches it.
pub trait Watch {
    /// A visit begins, the first of so many of so many: to the benchmark at `group` in [`Lab::groups`]. Each has
    /// one in each pass, in random order.
    fn begin(&mut self, visit: (usize, usize), group: usize) {
        let _ = (visit, group);
    }
    /// So many of at most so many blocks of this visit are done.
    fn block(&mut self, done: u32, most: u32) {
        let _ = (done, most);
    }
    /// It yielded these figures, all that it has so far: they take the place of what it yielded before.
    /// Told after the first pass, so that something is had early, and after the last. An answer of
    /// false ends the run: they could not be kept.
    fn records(&mut self, records: &[Record]) -> bool {
        let _ = records;
        true
    }
    /// It, or one contender of it, yielded none.
    fn fault(&mut self, id: &str, fault: &Fault) {
        let _ = (id, fault);
    }
}

/// Nobody watches.
impl Watch for () {}

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Every figure, in order.
    pub records: Vec<Record>,
    /// Benchmarks that yielded nothing, with the reason.
    pub faults: Vec<(String, String)>,
    /// Whether it was asked to stop before its end.
    pub interrupted: bool,
    /// The least relative difference that the run can see, of one party and of several.
    pub null_one: Option<f64>,
    /// The same, for hand-overs between CPUs.
    pub null_several: Option<f64>,
}

/// A laboratory: a suite, a plan, and this machine.
#[derive(Debug)]
pub struct Lab {
    plan: Plan,
    groups: Vec<Group>,
    topology: Topology,
    allowed: Vec<u32>,
    seed: u64,
}

impl Lab {
    /// Checks the whole plan; measures nothing.
    ///
    /// `patterns` choose among `all` ([`select`]); none means the ladder. The null benchmarks
    /// (`null/…`), where `all` has them, are always taken, last.
    ///
    /// # Errors
    /// Whatever in the plan is wrong, in words for a command line.
    pub fn new(
        all: &[&'static [Bench]],
        patterns: &[String],
        plan: Plan,
    ) -> Result<Lab, PlanError> {
        let mut chosen = select(all, patterns)?;
        check_plan(&plan, &chosen)?;
        let is_null = |it: &Selection| it.spec.id.starts_with(NULL_PREFIX);
        chosen.retain(|it| !is_null(it));
        let nulls = select(all, &[NULL_PREFIX.to_string()]).unwrap_or_default();
        chosen.extend(nulls);
        let mut groups = Vec::new();
        for selection in chosen {
            groups.push(group(selection, &plan)?);
        }
        let topology = Topology::read().map_err(|error| PlanError::Topology(error.to_string()))?;
        Ok(Lab { plan, groups, topology, allowed: topology::allowed(), seed: seed() })
    }

    /// The same for one benchmark, by its full id, with several values of one argument: all of them in
    /// each pass, so that a spell of noise falls on a few rounds of each.
    ///
    /// # Errors
    /// As [`new`](Lab::new); also a benchmark that takes no such argument, or a range that is refused.
    pub fn sweep(
        all: &[&'static [Bench]],
        id: &str,
        over: &Over,
        plan: Plan,
    ) -> Result<Lab, PlanError> {
        let name = &over.name;
        if plan.set.iter().any(|(set, _)| set == name) {
            return Err(PlanError::Twice { name: name.clone() });
        }
        let mut lab = Lab::new(all, &[id.to_string()], plan)?;
        let is_it = |group: &Group| group.selection.spec.id == id;
        let Some(at) = lab.groups.iter().position(is_it) else {
            let ids = lab.groups.iter().map(|group| group.selection.spec.id);
            let ids: Vec<&str> = ids.filter(|id| !id.starts_with(NULL_PREFIX)).collect();
            return Err(PlanError::NotOne { id: id.to_string(), ids: ids.join(", ") });
        };
        let of_it = lab.groups[at].clone();
        let params = of_it.selection.contenders.first().map_or(&[][..], |it| it.params());
        let Some(param) = params.iter().find(|param| param.name == name) else {
            let names: Vec<&str> = params.iter().map(|param| param.name).collect();
            let hint = match names.is_empty() {
                true => "it takes none".to_string(),
                false => format!("it takes {}", names.join(", ")),
            };
            return Err(PlanError::NotTaken { id: id.to_string(), name: name.clone(), hint });
        };
        lab.groups.retain(|group| group.selection.spec.id.starts_with(NULL_PREFIX));
        for (place, value) in over.values(param)?.into_iter().enumerate() {
            let mut group = of_it.clone();
            let refused = |refused| PlanError::Args { id: id.to_string(), refused };
            group.values.set_checked(name, value).map_err(refused)?;
            lab.groups.insert(place, group);
        }
        Ok(lab)
    }

    /// What will be measured.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What the random orders and placements of a run are drawn from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many times a run comes by each benchmark.
    pub fn passes_count(&self) -> u32 {
        self.schedule().passes
    }

    /// What a run may take, a little more for what follows the last pass; none: as long as it takes.
    pub fn time_max(&self) -> Option<Duration> {
        self.schedule().total
    }

    fn schedule(&self) -> Schedule {
        self.plan.profile.schedule(self.groups.len(), self.plan.time)
    }

    /// The machine.
    pub fn host(&self) -> Host {
        host::capture()
    }

    /// Measures, in several passes over all benchmarks, each in a process of its own where the program calls
    /// [`dispatch_partner`](crate::dispatch_partner); a smoke run has one pass, in this process. Looks at
    /// `interrupted` between rounds (every 10 ms or so) and then ends, with what was measured.
    pub fn run(&self, watch: &mut dyn Watch, interrupted: &AtomicBool) -> Outcome {
        clock::calibration();
        let mut run = Running {
            lab: self,
            watch,
            interrupted,
            began: Instant::now(),
            schedule: self.schedule(),
            courses: Vec::new(),
            pass: 0,
            visits: 0,
            current: None,
            pending: Vec::new(),
            is_refused: false,
            records: vec![Vec::new(); self.groups.len()],
            outcome: Outcome::default(),
        };
        run.begin();
        run.passes();
        run.finish()
    }
}

/// A number below 2^53, which JSON keeps, that nobody knows beforehand.
fn seed() -> u64 {
    RandomState::new().hash_one(0) >> 11
}

/// A run under way.
struct Running<'a> {
    lab: &'a Lab,
    watch: &'a mut dyn Watch,
    interrupted: &'a AtomicBool,
    began: Instant,
    schedule: Schedule,
    /// One for each benchmark; none where it could not begin.
    courses: Vec<Option<Course>>,
    pass: u32,
    /// Visits that have begun, of all passes.
    visits: usize,
    /// The benchmark that is visited.
    current: Option<usize>,
    /// Benchmarks that this pass has not left yet.
    pending: Vec<usize>,
    /// The figures could not be kept.
    is_refused: bool,
    /// What each has told.
    records: Vec<Vec<Record>>,
    outcome: Outcome,
}

impl Running<'_> {
    fn begin(&mut self) {
        for (index, group) in self.lab.groups.iter().enumerate() {
            let begun = Course::begin(self.lab, group);
            let course = begun.map_err(|fault| self.fault(index, None, &fault)).ok();
            self.courses.push(course);
        }
    }

    fn passes(&mut self) {
        for pass in 0..self.schedule.passes {
            self.pass = pass;
            let is_open = |index: &usize| {
                self.courses[*index].as_ref().is_some_and(|course| !course.is_closed)
            };
            self.pending = (0..self.courses.len()).filter(is_open).collect();
            // The first one goes in the order of the list, in which it tells and keeps what it yields.
            if pass > 0 {
                let place = u64::from(pass) << 32;
                SplitMix64::new(self.lab.seed ^ place).shuffle(&mut self.pending);
            }
            while !self.pending.is_empty() {
                // Relaxed: a flag alone; nothing is published with it.
                self.outcome.interrupted = self.interrupted.load(Ordering::Relaxed);
                if self.outcome.interrupted || self.is_refused {
                    return;
                }
                self.go_by();
            }
        }
    }

    /// Goes by the benchmarks that the pass has not left yet, until one takes its process with it.
    fn go_by(&mut self) {
        let order = self.order();
        let (lab, interrupted) = (self.lab, self.interrupted);
        let is_apart = lab.plan.profile != Profile::Smoke && dispatch::is_possible();
        let mut take = |report| self.take(report);
        let gone = match is_apart {
            true => child::run(lab, &order, interrupted, &mut take),
            false => {
                pass::run(lab, &order, interrupted, &mut take);
                Ok(())
            }
        };
        let Err(fault) = gone else { return };
        let Some(lost) = self.current.take().or(self.pending.first().copied()) else { return };
        self.pending.retain(|index| *index != lost);
        if matches!(fault, Fault::Interrupted) {
            return;
        }
        if let Some(course) = &mut self.courses[lost] {
            course.is_closed = true;
        }
        self.fault(lost, None, &fault);
    }

    /// What is left of a pass to do.
    fn order(&self) -> Order {
        let Schedule { passes, blocks_min, blocks_max, total } = self.schedule;
        let wanted = |group: &usize| {
            let course = self.courses[*group].as_ref();
            Wanted {
                group: *group,
                weight: course.map_or(0, Course::weight),
                known: course.map_or_else(Vec::new, Course::known),
            }
        };
        let each = total.map_or(Duration::MAX, |total| total / self.lab.groups.len().max(1) as u32);
        Order {
            pass: self.pass,
            seed: self.lab.seed,
            sequence: self.pending.iter().map(wanted).collect(),
            budget: total.map(|total| {
                (total * (self.pass + 1) / passes).saturating_sub(self.began.elapsed())
            }),
            blocks_min,
            blocks_max,
            warm_up: each / WARM_SHARE,
        }
    }

    /// Takes what a pass reports; `false` if it is to end.
    fn take(&mut self, report: Report) -> bool {
        match report {
            Report::Begin { group } => {
                self.current = Some(group);
                let count = self.schedule.passes as usize * self.lab.groups.len();
                self.watch.begin((self.visits, count), group);
                self.visits += 1;
            }
            Report::Block { done, most } => self.watch.block(done, most),
            Report::Visited { group, mut visited } => {
                self.current = None;
                self.pending.retain(|index| *index != group);
                for (contender, fault) in std::mem::take(&mut visited.faults) {
                    self.fault(group, Some(&contender), &fault);
                }
                if let Some(fault) = visited.ended.as_ref().filter(|it| !it.is_interrupted()) {
                    self.fault(group, None, fault);
                }
                if let Some(course) = &mut self.courses[group] {
                    course.absorb(*visited);
                }
                if self.pass == 0 {
                    self.tell(group);
                }
            }
            Report::End { steal } => {
                let lanes = self.courses.iter_mut().flatten().flat_map(|course| &mut course.lanes);
                lanes.for_each(|lane| lane.note_steal(self.pass, steal));
            }
        }
        // Relaxed: a flag alone; nothing is published with it.
        !self.is_refused && !self.interrupted.load(Ordering::Relaxed)
    }

    /// Tells of a fault of a benchmark, or of one contender of it.
    fn fault(&mut self, group: usize, contender: Option<&str>, fault: &Fault) {
        let id = self.lab.groups[group].selection.spec.id;
        let name = contender.map_or_else(|| id.to_string(), |who| format!("{id} [{who}]"));
        self.watch.fault(&name, fault);
        self.outcome.faults.push((name, fault.to_string()));
    }

    /// Tells what a benchmark has yielded, if it has yielded more than was told.
    fn tell(&mut self, index: usize) {
        let group = &self.lab.groups[index];
        let Some(course) = self.courses[index].as_mut().filter(|course| course.is_news()) else {
            return;
        };
        self.records[index] = course.records(self.lab, group);
        if !self.watch.records(&self.records[index]) {
            let id = group.selection.spec.id.to_string();
            self.outcome.faults.push((id, "could not be kept".to_string()));
            self.is_refused = true;
        }
    }

    /// Tells what has come since the first pass.
    fn finish(mut self) -> Outcome {
        for index in 0..self.courses.len() {
            if self.is_refused {
                break;
            }
            self.tell(index);
        }
        for (group, records) in self.lab.groups.iter().zip(&self.records) {
            note_null(&mut self.outcome, group.selection.spec.id, records);
        }
        self.outcome.records = self.records.into_iter().flatten().collect();
        self.outcome
    }
}

/// Every suite's null benchmarks: the same thing twice.
const NULL_PREFIX: &str = "null/";

/// What the nulls of a run tell: by how much two of the same may differ.
fn note_null(outcome: &mut Outcome, id: &str, records: &[Record]) {
    if !id.starts_with(NULL_PREFIX) {
        return;
    }
    for record in records {
        for ratio in &record.peers {
            let (low, high) = ratio.ends().unwrap_or((ratio.ratio, ratio.ratio));
            let width = (high - 1.0).abs().max((1.0 - low).abs());
            let several = record.parties.cpus.windows(2).any(|pair| pair[0] != pair[1]);
            let slot = if several { &mut outcome.null_several } else { &mut outcome.null_one };
            *slot = Some(slot.unwrap_or(0.0).max(width));
        }
    }
}

fn check_plan(plan: &Plan, chosen: &[Selection]) -> Result<(), PlanError> {
    if plan.idle_gap > Plan::IDLE_GAP_MAX {
        return Err(PlanError::IdleGap(plan.idle_gap));
    }
    if let Some(time) = plan.time {
        if !(Plan::TIMES.0..=Plan::TIMES.1).contains(&time) {
            return Err(PlanError::Time(time));
        }
        if plan.profile == Profile::Smoke {
            return Err(PlanError::TimeOfSmoke(time));
        }
    }
    let handovers = chosen.iter().any(|it| it.spec.hands_over);
    for (option, asked) in [
        ("--idle-gap", !plan.idle_gap.is_zero()),
        ("--neighbour", plan.neighbour),
        ("--processes", plan.processes),
    ] {
        if asked && !handovers {
            return Err(PlanError::NoHandover { option });
        }
    }
    if plan.processes {
        let cannot = chosen.iter().find(|it| {
            it.spec.hands_over && !it.contenders.iter().any(|bench| bench.in_processes())
        });
        if let Some(cannot) = cannot {
            return Err(PlanError::Processes(cannot.spec.id.to_string()));
        }
    }
    for (name, text) in &plan.set {
        let benches = chosen.iter().flat_map(|it| &it.contenders);
        let mut names: Vec<_> = benches.flat_map(|it| it.params()).map(|it| it.name).collect();
        if !names.iter().any(|taken| taken == name) {
            names.sort_unstable();
            names.dedup();
            let hint = match names.is_empty() {
                true => "; they take none".to_string(),
                false => format!("; they take {}", names.join(", ")),
            };
            return Err(PlanError::Nobody { name: name.clone(), text: text.clone(), hint });
        }
    }
    Ok(())
}

fn group(mut selection: Selection, plan: &Plan) -> Result<Group, PlanError> {
    if !plan.peers {
        let all = selection.contenders.clone();
        selection.contenders.retain(|bench| bench.contender().kind != ContenderKind::Peer);
        if selection.contenders.is_empty() {
            selection.contenders = all;
        }
    }
    if plan.processes && selection.spec.hands_over {
        selection.contenders.retain(|bench| bench.in_processes());
    }
    let params = selection.contenders.first().map_or(&[][..], |bench| bench.params());
    let mut values = match plan.profile {
        Profile::Smoke => Values::smoke(params),
        _ => Values::defaults(params),
    };
    for (name, text) in &plan.set {
        if params.iter().any(|param| param.name == name) {
            let id = selection.spec.id.to_string();
            values.set(name, text).map_err(|refused| PlanError::Args { id, refused })?;
        }
    }
    Ok(Group { selection, values })
}
