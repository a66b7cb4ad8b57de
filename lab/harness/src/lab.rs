//! The run: which benchmarks, in what blocks, until when.

pub(crate) mod bout;
mod floors;
mod measure;
mod summarise;

use crate::bench::Bench;
use crate::fault::Fault;
use crate::host;
use crate::select::{SelectError, Selection, select};
use handover_base::clock;
use handover_base::topology::{self, Placement, Topology};
use handover_record::{ArgsError, ContenderKind, Host, Over, OverError, Record, Values};
use std::ops::ControlFlow;
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
    /// A visit to a benchmark begins: the `index`th of `count`. Each benchmark has several.
    fn begin(&mut self, index: usize, count: usize, id: &str) {
        let _ = (index, count, id);
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
        Ok(Lab { plan, groups, topology, allowed: topology::allowed() })
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

    /// Measures, in several passes over all benchmarks. Looks at `interrupted` between rounds (every
    /// 10 ms or so) and then ends, with what was measured.
    pub fn run(&self, watch: &mut dyn Watch, interrupted: &AtomicBool) -> Outcome {
        clock::calibration();
        let mut run = Running {
            lab: self,
            watch,
            interrupted,
            began: Instant::now(),
            schedule: self.schedule(),
            courses: self.groups.iter().map(|_| None).collect(),
            records: vec![Vec::new(); self.groups.len()],
            outcome: Outcome::default(),
        };
        let ended = run.passes();
        run.finish(ended)
    }
}

/// Why a run ends before its last pass.
enum Ended {
    Interrupted,
    /// The figures could not be kept.
    Refused,
}

/// A run under way.
struct Running<'a> {
    lab: &'a Lab,
    watch: &'a mut dyn Watch,
    interrupted: &'a AtomicBool,
    began: Instant,
    schedule: Schedule,
    /// One for each benchmark that has begun.
    courses: Vec<Option<measure::Course>>,
    /// What each has told.
    records: Vec<Vec<Record>>,
    outcome: Outcome,
}

impl Running<'_> {
    fn passes(&mut self) -> ControlFlow<Ended> {
        let count = self.lab.groups.len();
        for pass in 0..self.schedule.passes {
            // One that could not begin, or was closed, takes no part of the pass either.
            let is_open = |index: &usize| match &self.courses[*index] {
                Some(course) => !course.closed,
                None => pass == 0,
            };
            let open: Vec<usize> = (0..count).filter(is_open).collect();
            let mut left: usize = open.iter().map(|index| self.weight(*index)).sum();
            for index in open {
                let id = self.lab.groups[index].selection.spec.id;
                let place = pass as usize * count + index;
                self.watch.begin(place, self.schedule.passes as usize * count, id);
                let weight = self.weight(index);
                let visit = self.share(pass, weight, left);
                left = left.saturating_sub(weight);
                self.visit(index, pass, visit)?;
                // Relaxed: a flag alone; nothing is published with it.
                if self.interrupted.load(Ordering::Relaxed) {
                    return ControlFlow::Break(Ended::Interrupted);
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// How much of a pass a benchmark wants: by its contenders and floors, if its figures are not good
    /// yet.
    fn weight(&self, index: usize) -> usize {
        let selection = &self.lab.groups[index].selection;
        match &self.courses[index] {
            Some(course) if course.settled => 0,
            _ => selection.contenders.len() + selection.floors.len(),
        }
    }

    /// What a benchmark may take in this pass: its part of what is left of the pass. What the quiet
    /// ones leave goes to the noisy ones after them.
    fn share(&self, pass: u32, weight: usize, left: usize) -> measure::Visit {
        let Schedule { passes, blocks_min, blocks_max, total } = self.schedule;
        let share = total.map(|total| {
            let end = total * (pass + 1) / passes;
            let part = weight as f64 / left.max(1) as f64;
            end.saturating_sub(self.began.elapsed()).mul_f64(part.min(1.0))
        });
        let each = total.map_or(Duration::MAX, |total| total / self.lab.groups.len().max(1) as u32);
        measure::Visit {
            blocks_min,
            blocks_max,
            until: share.and_then(|share| Instant::now().checked_add(share)),
            warm_up: each / WARM_SHARE,
        }
    }

    fn visit(&mut self, index: usize, pass: u32, visit: measure::Visit) -> ControlFlow<Ended> {
        let group = &self.lab.groups[index];
        let id = group.selection.spec.id;
        let mut measuring = measure::Measuring {
            lab: self.lab,
            group,
            watch: &mut *self.watch,
            interrupted: self.interrupted,
        };
        let mut faults = Vec::new();
        let mut visited = Ok(());
        if self.courses[index].is_none() {
            match measuring.begin(visit) {
                Ok((course, out)) => {
                    self.courses[index] = Some(course);
                    faults =
                        out.into_iter().map(|(who, why)| (format!("{id} [{who}]"), why)).collect();
                }
                Err(fault) => visited = Err(fault),
            }
        }
        if let Some(course) = &mut self.courses[index] {
            visited = measuring.visit(course, visit);
            course.closed = visited.is_err();
        }
        match visited {
            Ok(()) | Err(Fault::Interrupted) => {}
            Err(fault) => faults.push((id.to_string(), fault)),
        }
        for (name, fault) in faults {
            self.watch.fault(&name, &fault);
            self.outcome.faults.push((name, fault.to_string()));
        }
        let closed = self.courses[index].as_ref().is_some_and(|course| course.closed);
        let last = pass + 1 == self.schedule.passes || closed;
        if pass == 0 || last { self.tell(index) } else { ControlFlow::Continue(()) }
    }

    /// Tells what a benchmark has yielded, if it has yielded more than was told.
    fn tell(&mut self, index: usize) -> ControlFlow<Ended> {
        let Some(course) = &mut self.courses[index] else {
            return ControlFlow::Continue(());
        };
        let group = &self.lab.groups[index];
        if !course.is_news() {
            return ControlFlow::Continue(());
        }
        self.records[index] = course.records(self.lab, group);
        if self.watch.records(&self.records[index]) {
            return ControlFlow::Continue(());
        }
        let id = group.selection.spec.id.to_string();
        self.outcome.faults.push((id, "could not be kept".to_string()));
        ControlFlow::Break(Ended::Refused)
    }

    /// A run that was ended before its last pass tells what has come since the first.
    fn finish(mut self, ended: ControlFlow<Ended>) -> Outcome {
        self.outcome.interrupted = matches!(ended, ControlFlow::Break(Ended::Interrupted));
        if !matches!(ended, ControlFlow::Break(Ended::Refused)) {
            for index in 0..self.courses.len() {
                if self.tell(index).is_break() {
                    break;
                }
            }
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
            let width = (ratio.high - 1.0).abs().max((1.0 - ratio.low).abs());
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
