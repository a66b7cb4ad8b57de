//! Plan of a run: selection of benchmarks, their arguments and CPUs, and time limits.

use crate::bench::Bench;
use crate::crew;
use crate::fault::Fault;
use crate::host;
use crate::select::{SelectError, Selection, select};
use handover_base::topology::{self, Placement, Topology};
use handover_record::{ArgRange, ArgRangeError, ArgValues, ArgsError, ContenderKind, Host, Record};
use serde::{Deserialize, Serialize};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// Prefix of the ids of null benchmarks, which measure the same operation twice.
pub(super) const NULL_PREFIX: &str = "null/";

/// Amount of measurement in a run: smoke, quick or full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// Each operation once, with the smallest arguments: a test without measurements.
    Smoke,
    /// 16 to 640 rounds of each figure; the default run takes about 75 s.
    Quick,
    /// 96 to 480 rounds of each figure, 30 s for each benchmark.
    Full,
}

/// Schedule of a run: its number of passes, its blocks per pass, and its time limit. Each benchmark
/// is measured in several passes instead of once for longer: a period of some seconds in which the
/// host is slower (a lower frequency, a busy sibling, slow wake-ups) then affects a few rounds of
/// every figure, not all rounds of one.
pub(super) struct Schedule {
    /// Number of passes.
    pub(super) passes: u32,
    /// Minimum number of blocks of a benchmark in one pass.
    pub(super) blocks_min: u32,
    /// Maximum number of blocks of a benchmark in one pass. A benchmark with narrow intervals gets
    /// the minimum.
    pub(super) blocks_max: u32,
    /// Time limit of the run: all passes over all benchmarks.
    pub(super) total: Option<Duration>,
}

impl Profile {
    /// Returns the schedule of a run of `groups_count` benchmarks. `each` replaces the profile's
    /// time per benchmark.
    fn schedule(self, groups_count: usize, each: Option<Duration>) -> Schedule {
        let of_each = |time: Duration| time * u32::try_from(groups_count).unwrap_or(u32::MAX);
        let mut schedule = self.default_schedule(of_each);
        if let (Some(total), Some(each)) = (&mut schedule.total, each) {
            *total = of_each(each);
        }
        schedule
    }

    /// Returns the schedule with the profile's times. `of_each` multiplies a time by the number of
    /// benchmarks.
    fn default_schedule(self, of_each: impl Fn(Duration) -> Duration) -> Schedule {
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

/// Time limit of a quick run of all default benchmarks. It includes a reserve after the last pass.
const QUICK_TOTAL: Duration = Duration::from_secs(82);
/// Minimum time of one benchmark in a quick run, over all passes.
const QUICK_EACH_MIN: Duration = Duration::from_millis(800);
/// Maximum time of one benchmark in a quick run, over all passes.
const QUICK_EACH_MAX: Duration = Duration::from_secs(8);
/// Time of one benchmark in a full run.
const FULL_EACH: Duration = Duration::from_secs(30);

/// Maximum share of a run's time that the minimum number of rounds takes. The rest is for starting
/// processes and for the warm-up.
const ROUNDS_SHARE: f64 = 0.6;
/// Minimum duration of a round that is shortened to fit the run's time.
const ROUND_MIN: Duration = Duration::from_millis(1);

impl std::str::FromStr for Profile {
    type Err = String;
    fn from_str(text: &str) -> Result<Profile, String> {
        match text {
            "smoke" => Ok(Profile::Smoke),
            "quick" => Ok(Profile::Quick),
            "full" => Ok(Profile::Full),
            _ => Err("the profile must be smoke, quick or full".to_string()),
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

/// Configuration of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Amount of measurement in the run.
    pub profile: Profile,
    /// Placement of the participants relative to each other.
    #[serde(with = "placement_name")]
    pub place: Placement,
    /// Pause before each hand-over, at most [`Plan::IDLE_GAP_MAX`].
    pub idle_gap: Duration,
    /// Time of each benchmark over all passes; `None` for the profile's time. It must be within
    /// [`Plan::BENCHMARK_TIME_RANGE`]. A smoke run does not use it, as it measures each operation
    /// once.
    pub time: Option<Duration>,
    /// `true` to run a busy thread next to the participants.
    pub neighbour: bool,
    /// `true` to run participants as processes where a benchmark supports this.
    pub processes: bool,
    /// `true` to measure peers, the alternative implementations.
    pub peers: bool,
    /// Names and values of arguments that are set in every benchmark that has them.
    pub set: Vec<(String, String)>,
    /// Time limit of a participant, in addition to the time of ten rounds. When it passes, the
    /// participant is abandoned and its round fails.
    pub patience: Duration,
}

/// Serialisation of a placement by its name, to send a plan to another process.
mod placement_name {
    use handover_base::topology::Placement;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(place: &Placement, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(place.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Placement, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl Plan {
    /// Default value of [`patience`](Self::patience).
    pub const PATIENCE_DEFAULT: Duration = crew::PATIENCE_DEFAULT;
    /// Maximum pause before a hand-over.
    pub const IDLE_GAP_MAX: Duration = Duration::from_millis(100);
    /// Shortest and longest allowed time of a benchmark.
    pub const BENCHMARK_TIME_RANGE: (Duration, Duration) =
        (Duration::from_millis(100), Duration::from_secs(3600));
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
            patience: Plan::PATIENCE_DEFAULT,
        }
    }
}

/// Error for a plan that cannot be run, because the command line is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The pattern does not select any benchmark.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// An argument has an invalid value for a benchmark.
    #[error("{id}: {error}")]
    Args {
        /// Id of the benchmark.
        id: String,
        /// Error of the argument.
        error: ArgsError,
    },
    /// None of the chosen benchmarks has the argument.
    #[error("--set {name}={text}: none of the chosen benchmarks has this argument{hint}")]
    Nobody {
        /// Name of the argument.
        name: String,
        /// Value of the argument.
        text: String,
        /// Arguments that the chosen benchmarks have.
        hint: String,
    },
    /// The argument that the sweep varies is also set with `--set`.
    #[error("--set {name}: the sweep varies this argument; leave out --set")]
    Twice {
        /// Name of the argument.
        name: String,
    },
    /// The id for a sweep does not match exactly one benchmark.
    #[error("{id}: a sweep needs the full id of one benchmark; this matches {ids}")]
    NotOne {
        /// Id that was requested for the sweep.
        id: String,
        /// Benchmarks that the id matches.
        ids: String,
    },
    /// The benchmark does not have the argument of the sweep.
    #[error("--over {name}: {id} has no such argument; {hint}")]
    NotTaken {
        /// Id of the benchmark.
        id: String,
        /// Name of the argument.
        name: String,
        /// Arguments that the benchmark has.
        hint: String,
    },
    /// The range of the sweep is invalid.
    #[error(transparent)]
    ArgRange(#[from] ArgRangeError),
    /// The pause before hand-overs is too long.
    #[error("--idle-gap {0:?}: must lie in 0..={max:?}", max = Plan::IDLE_GAP_MAX)]
    IdleGap(Duration),
    /// The time of a benchmark is outside [`Plan::BENCHMARK_TIME_RANGE`].
    #[error("--time {0:?}: must lie in {least:?}..=1h", least = Plan::BENCHMARK_TIME_RANGE.0)]
    Time(Duration),
    /// The benchmark does not support participants as processes.
    #[error(
        "--processes: {0} cannot run its participants as processes; choose other benchmarks, or leave out --processes"
    )]
    Processes(String),
    /// An option for hand-overs was set, but no chosen benchmark hands over.
    #[error("{option}: none of the chosen benchmarks hands work from one participant to another")]
    NoHandover {
        /// Name of the option.
        option: &'static str,
    },
    /// The CPU topology of the machine cannot be read.
    #[error("the CPUs of this machine cannot be read: {0}")]
    Topology(String),
}

/// One benchmark of a run: its contenders and the values of its arguments.
#[derive(Clone, Debug)]
pub struct BenchmarkGroup {
    /// The benchmark and its contenders.
    pub selection: Selection,
    pub(crate) values: ArgValues,
}

/// Observer of a run's progress. All methods do nothing by default.
pub trait RunObserver {
    /// Called at the start of a visit, in which a pass measures one benchmark. The benchmark is at
    /// index `group` of [`Lab::groups`]. `visit` is the number of earlier visits and the total
    /// number. Each pass visits each benchmark once, in random order after the first pass.
    fn begin(&mut self, visit: (usize, usize), group: usize) {
        let _ = (visit, group);
    }
    /// Called when `done` blocks of the current visit are measured, of at most `most`.
    fn block(&mut self, done: u32, most: u32) {
        let _ = (done, most);
    }
    /// Called with all records of a benchmark so far. They replace the records of earlier calls. It
    /// is called after the first pass, so that early results exist, and after the last, for the
    /// null benchmarks first. Return `false` to end the run, for example if the records could not
    /// be stored.
    fn records(&mut self, records: &[Record]) -> bool {
        let _ = records;
        true
    }
    /// Called when a benchmark, or one of its contenders, failed to produce a figure.
    fn fault(&mut self, id: &str, fault: &Fault) {
        let _ = (id, fault);
    }
}

/// Observer that ignores everything.
impl RunObserver for () {}

/// Result of a run: its figures, its faults, and the smallest differences that it can detect.
#[derive(Clone, Debug, Default)]
pub struct RunOutcome {
    /// All figures, in the order of the run.
    pub records: Vec<Record>,
    /// Benchmarks and contenders that failed, as `id` or `id [contender]`, each with the error.
    pub faults: Vec<(String, String)>,
    /// `true` if the run was interrupted.
    pub interrupted: bool,
    /// Smallest relative difference that the run can detect in a benchmark on one CPU.
    pub null_one: Option<f64>,
    /// Smallest relative difference that the run can detect in a benchmark on several CPUs.
    pub null_several: Option<f64>,
}

/// Benchmarks and a plan that were checked for this machine and are ready to run.
#[derive(Debug)]
pub struct Lab {
    pub(super) plan: Plan,
    pub(super) groups: Vec<BenchmarkGroup>,
    pub(super) topology: Topology,
    /// CPUs that this process may use.
    pub(super) allowed: Vec<u32>,
    pub(super) seed: u64,
}

impl Lab {
    /// Creates a lab after checking the plan; measures nothing.
    ///
    /// `patterns` select among `all` ([`select`]); without patterns, the default run. The null
    /// benchmarks (`null/…`) of `all` are always included, last.
    ///
    /// # Errors
    /// Fails if any part of the plan is invalid, with a message for a command line.
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
            groups.push(create_group(selection, &plan)?);
        }
        let topology = Topology::read().map_err(|error| PlanError::Topology(error.to_string()))?;
        Ok(Lab { plan, groups, topology, allowed: topology::allowed_cpus(), seed: seed() })
    }

    /// Creates a lab that measures one benchmark with several values of one argument. The benchmark
    /// is given by its full id. Each pass measures all values, so that a period of noise affects a
    /// few rounds of each value.
    ///
    /// # Errors
    /// Fails like [`new`](Lab::new), and if the benchmark does not have the argument or the range
    /// is invalid.
    pub fn new_sweep(
        all: &[&'static [Bench]],
        id: &str,
        over: &ArgRange,
        plan: Plan,
    ) -> Result<Lab, PlanError> {
        let name = &over.name;
        if plan.set.iter().any(|(set, _)| set == name) {
            return Err(PlanError::Twice { name: name.clone() });
        }
        let mut lab = Lab::new(all, &[id.to_string()], plan)?;
        let is_it = |group: &BenchmarkGroup| group.selection.spec.id == id;
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
                true => "it has no arguments".to_string(),
                false => format!("its arguments are {names}", names = names.join(", ")),
            };
            return Err(PlanError::NotTaken { id: id.to_string(), name: name.clone(), hint });
        };
        lab.groups.retain(|group| group.selection.spec.id.starts_with(NULL_PREFIX));
        for (place, value) in over.values(param)?.into_iter().enumerate() {
            let mut group = of_it.clone();
            let refused = |error| PlanError::Args { id: id.to_string(), error };
            group.values.set_value(name, value).map_err(refused)?;
            lab.groups.insert(place, group);
        }
        Ok(lab)
    }

    /// Returns the benchmarks that will be measured.
    pub fn groups(&self) -> &[BenchmarkGroup] {
        &self.groups
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the seed of the run's random numbers.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of passes of the run, each of which measures every benchmark.
    pub fn passes_count(&self) -> u32 {
        self.schedule().passes
    }

    /// Returns the maximum duration of a round at which the minimum number of rounds still fits in
    /// the plan's time. Returns `None` if the plan sets no time. The rounds of all contenders may
    /// take [`ROUNDS_SHARE`] of the time.
    pub(super) fn round_max(&self) -> Option<Duration> {
        self.plan.time?;
        let Schedule { passes, blocks_min, total, .. } = self.schedule();
        let contenders =
            |it: &BenchmarkGroup| it.selection.contenders.len() + it.selection.floors.len();
        let count: usize = self.groups.iter().map(contenders).sum();
        let rounds = u32::try_from(count).ok()?.saturating_mul(passes * blocks_min).max(1);
        Some((total?.mul_f64(ROUNDS_SHARE) / rounds).max(ROUND_MIN))
    }

    pub(super) fn schedule(&self) -> Schedule {
        self.plan.profile.schedule(self.groups.len(), self.plan.time)
    }

    /// Returns a description of this machine.
    pub fn host(&self) -> Host {
        host::capture_host()
    }
}

/// Returns a random seed below 2^53, which JSON represents exactly.
fn seed() -> u64 {
    RandomState::new().hash_one(0) >> 11
}

/// Fails if an option of the plan is out of range or applies to no chosen benchmark.
fn check_plan(plan: &Plan, chosen: &[Selection]) -> Result<(), PlanError> {
    if plan.idle_gap > Plan::IDLE_GAP_MAX {
        return Err(PlanError::IdleGap(plan.idle_gap));
    }
    let allowed = Plan::BENCHMARK_TIME_RANGE.0..=Plan::BENCHMARK_TIME_RANGE.1;
    if let Some(time) = plan.time.filter(|time| !allowed.contains(time)) {
        return Err(PlanError::Time(time));
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
            it.spec.hands_over && !it.contenders.iter().any(|bench| bench.can_use_processes())
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
                true => "; they have no arguments".to_string(),
                false => format!("; their arguments are {names}", names = names.join(", ")),
            };
            return Err(PlanError::Nobody { name: name.clone(), text: text.clone(), hint });
        }
    }
    Ok(())
}

/// Returns a selected benchmark with the contenders and the argument values that the plan requests.
fn create_group(mut selection: Selection, plan: &Plan) -> Result<BenchmarkGroup, PlanError> {
    if !plan.peers {
        let all = selection.contenders.clone();
        selection.contenders.retain(|bench| bench.contender().kind != ContenderKind::Peer);
        if selection.contenders.is_empty() {
            selection.contenders = all;
        }
    }
    if plan.processes && selection.spec.hands_over {
        selection.contenders.retain(|bench| bench.can_use_processes());
    }
    let params = selection.contenders.first().map_or(&[][..], |bench| bench.params());
    let mut values = match plan.profile {
        Profile::Smoke => ArgValues::smoke_values(params),
        _ => ArgValues::defaults(params),
    };
    for (name, text) in &plan.set {
        if params.iter().any(|param| param.name == name) {
            let id = selection.spec.id.to_string();
            values.parse_and_set(name, text).map_err(|error| PlanError::Args { id, error })?;
        }
    }
    Ok(BenchmarkGroup { selection, values })
}
