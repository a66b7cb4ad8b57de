//! Type-erased benchmarks: a workload with one contender, as suites list it and the lab runs it.

use crate::crew::{self, RigTogether, Stage, Together};
use crate::fault::Fault;
use crate::samples::Notes;
use crate::workload::{Handover, Role, Workload};
use handover_record::{Args, Contender, Param, Spec, Values};
use std::fmt;
use std::sync::atomic::AtomicBool;

/// One benchmark with one contender.
///
/// A suite is a slice of these; the contenders of one spec stand next to each other:
///
/// ```text
/// pub const ALL: &[Bench] = &[
///     Bench::one::<PushPopOf<Ours>>(Contender::ours("handover")),
///     Bench::one::<PushPopOf<Rtrb>>(Contender::peer("rtrb")),
/// ];
/// ```
#[derive(Clone, Copy)]
pub struct Bench {
    spec: &'static Spec,
    contender: Contender,
    params: &'static [Param],
    roles: fn(&Values) -> Vec<Role>,
    processes: bool,
    apart: bool,
    parties: Parties,
}

/// The part that depends on the workload's type; kept small, as a suite has hundreds of types.
#[derive(Clone, Copy)]
enum Parties {
    One { play: fn(&Stage) -> Result<Notes, Fault> },
    Several { rig: RigTogether },
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bench({} [{}])", self.spec.id, self.contender.name)
    }
}

impl Bench {
    /// Creates a benchmark with one participant.
    pub const fn one<W: Workload>(contender: Contender) -> Bench {
        Bench {
            spec: const { &W::SPEC },
            contender,
            params: <W::Args as Args>::PARAMS,
            roles: |_| vec![Role::measured("one")],
            processes: false,
            apart: false,
            parties: Parties::One { play: crew::play_alone::<W> },
        }
    }

    /// Creates a benchmark with several participants.
    pub const fn many<H: Handover>(contender: Contender) -> Bench {
        Bench {
            spec: const { &H::SPEC },
            contender,
            params: <H::Args as Args>::PARAMS,
            roles: |values| H::roles(&H::Args::from_values(values)),
            processes: H::PROCESSES || H::APART,
            apart: H::APART,
            parties: Parties::Several { rig: crew::rig_together::<H> },
        }
    }

    /// Returns the declaration.
    pub fn spec(&self) -> &'static Spec {
        self.spec
    }

    /// Returns the contender.
    pub fn contender(&self) -> Contender {
        self.contender
    }

    /// Returns the declarations of the arguments.
    pub fn params(&self) -> &'static [Param] {
        self.params
    }

    /// Returns the participants' roles for these arguments.
    pub fn roles(&self, values: &Values) -> Vec<Role> {
        (self.roles)(values)
    }

    /// Returns `true` if its participants can be processes.
    pub fn in_processes(&self) -> bool {
        self.processes
    }

    /// Returns `true` if its participants are always processes.
    pub(crate) fn always_in_processes(&self) -> bool {
        self.apart
    }

    pub(crate) fn round(
        &self,
        stage: &Stage,
        interrupted: &AtomicBool,
    ) -> Result<Vec<Notes>, Fault> {
        if stage.processes && !self.processes {
            return Err(Fault::Unsupported(format!(
                "{} [{}] cannot run its parties as processes; leave out --processes for it",
                self.spec.id, self.contender.name
            )));
        }
        match self.parties {
            Parties::One { play } => crew::round_alone(stage, play, interrupted),
            Parties::Several { rig } => {
                crew::round_together(stage, &self.roles(&stage.values), rig, interrupted)
            }
        }
    }

    /// Returns what a participant's process needs to play; fails for a benchmark with one
    /// participant.
    pub(crate) fn together(&self) -> Result<Together, Fault> {
        match self.parties {
            Parties::One { .. } => Err(Fault::new("a benchmark of one party has no partner")),
            Parties::Several { rig } => Ok(Together {
                spec: self.spec,
                contender: self.contender.name,
                params: self.params,
                roles: self.roles,
                rig,
            }),
        }
    }
}
