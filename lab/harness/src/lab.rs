//! The run: which benchmarks, in what blocks, until when.

mod measure;
mod summarise;

use crate::bench::Bench;
use crate::fault::Fault;
use crate::host;
use crate::select::{SelectError, Selection, select};
use handover_base::clock;
use handover_base::topology::{self, Placement, Topology};
use handover_record::{ArgsError, ContenderKind, Host, Record, Values};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Everything once, with the smallest arguments: shown to work, not measured.
    Smoke,
    /// 15 to 120 rounds: about a minute for the ladder.
    Quick,
    /// 15 to 240 rounds of each figure.
    Full,
}

impl Profile {
    /// The looks: after so many blocks, it is judged whether the intervals are narrow enough. Fixed
    /// beforehand, so that looking does not bias what is seen.
    fn looks(self) -> &'static [u32] {
        match self {
            Profile::Smoke => &[1],
            Profile::Quick => &[15, 30, 60, 120],
            Profile::Full => &[15, 30, 60, 120, 240],
        }
    }

    /// The time for one benchmark, when so much has been spent and so many are left. What the quiet
    /// ones leave of their share goes to the noisy ones after them.
    fn budget(self, spent: Duration, left_count: usize) -> Duration {
        match self {
            Profile::Smoke => Duration::MAX,
            Profile::Quick => {
                let share = QUICK_TOTAL.saturating_sub(spent) / left_count.max(1) as u32;
                share.clamp(Duration::from_millis(800), Duration::from_secs(8))
            }
            Profile::Full => Duration::from_secs(30),
        }
    }
}

/// What a quick run of the whole ladder may take, with what follows the last look to spare.
const QUICK_TOTAL: Duration = Duration::from_secs(78);

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
    /// A busy thread beside.
    pub neighbour: bool,
    /// Parties as processes, where a benchmark can.
    pub processes: bool,
    /// Whether peers are measured too.
    pub peers: bool,
    /// Arguments, `(name, text)`, for every benchmark that takes them.
    pub set: Vec<(String, String)>,
}

impl Plan {
    /// The longest pause between hand-overs.
    pub const IDLE_GAP_MAX: Duration = Duration::from_millis(100);
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            profile: Profile::Quick,
            place: Placement::Near,
            idle_gap: Duration::ZERO,
            neighbour: false,
            processes: false,
            peers: true,
            set: Vec::new(),
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
    /// An argument that is refused.
    #[error(transparent)]
    Args(#[from] ArgsError),
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
    /// The pause is too long.
    #[error("--idle-gap {0:?}: must lie in 0..={max:?}", max = Plan::IDLE_GAP_MAX)]
    IdleGap(Duration),
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
    /// A benchmark begins: the `index`th of `count`.
    fn begin(&mut self, index: usize, count: usize, id: &str) {
        let _ = (index, count, id);
    }
    /// So many of at most so many blocks of it are done.
    fn block(&mut self, done: u32, most: u32) {
        let _ = (done, most);
    }
    /// It yielded these figures. An answer of false ends the run: they could not be kept.
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

    /// What will be measured.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The machine.
    pub fn host(&self) -> Host {
        host::capture()
    }

    /// Measures. Looks at `interrupted` between rounds (every 10 ms or so) and then ends, with what
    /// was measured.
    pub fn run(&self, watch: &mut dyn Watch, interrupted: &AtomicBool) -> Outcome {
        clock::calibration();
        let mut outcome = Outcome::default();
        let began = Instant::now();
        for (index, group) in self.groups.iter().enumerate() {
            let id = group.selection.spec.id;
            watch.begin(index, self.groups.len(), id);
            let left_count = self.groups.len() - index;
            let budget = self.plan.profile.budget(began.elapsed(), left_count);
            let mut round = measure::Measuring {
                lab: self,
                group,
                watch: &mut *watch,
                interrupted,
                until: Instant::now().checked_add(budget),
                budget,
            };
            match round.measure() {
                Ok(figures) => {
                    for (contender, fault) in &figures.faults {
                        let name = format!("{id} [{contender}]");
                        watch.fault(&name, fault);
                        outcome.faults.push((name, fault.to_string()));
                    }
                    note_null(&mut outcome, id, &figures.records);
                    let kept = watch.records(&figures.records);
                    outcome.records.extend(figures.records);
                    if !kept {
                        outcome.faults.push((id.to_string(), "could not be kept".to_string()));
                        return outcome;
                    }
                }
                Err(Fault::Interrupted) => {}
                Err(fault) => {
                    watch.fault(id, &fault);
                    outcome.faults.push((id.to_string(), fault.to_string()));
                }
            }
            // Relaxed: a flag alone; nothing is published with it.
            if interrupted.load(Ordering::Relaxed) {
                outcome.interrupted = true;
                return outcome;
            }
        }
        outcome
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
            values.set(name, text)?;
        }
    }
    Ok(Group { selection, values })
}
