//! Type-erased benchmarks: a workload with one contender, as listed by suites and run by the lab.

use crate::crew::{self, RoundParams, SetupFn, SharedBenchmark};
use crate::fault::Fault;
use crate::samples::ParticipantResult;
use crate::setup::Setup;
use crate::workload::{Handover, Role, Workload};
use handover_record::{ArgValues, Args, Contender, Param, Spec};
use std::fmt;
use std::sync::atomic::AtomicBool;

/// Implementation of one benchmark of a suite by one contender.
///
/// A suite is a slice of these, listed with [`benches!`](crate::benches); the contenders of one
/// spec stand next to each other.
#[derive(Clone, Copy)]
pub struct Bench {
    spec: &'static Spec,
    contender: Contender,
    params: &'static [Param],
    roles: fn(&ArgValues) -> Vec<Role>,
    /// `true` if the participants can be processes.
    can_use_processes: bool,
    must_use_processes: bool,
    entry_point: EntryPoint,
}

/// Declares the benchmarks of a suite, one a row: `one` participant or `many`, the kind and name of
/// the contender, how it waits, calls of further methods of [`Contender`](crate::Contender), the
/// workload, and the condition under which it is built.
///
/// ```
/// # use handover_harness::{Bench, Fault, Samples, Setup, Spec, Workload, benches};
/// # struct Sort<const STABLE: bool>;
/// # impl<const STABLE: bool> Workload for Sort<STABLE> {
/// #     type Args = ();
/// #     const SPEC: Spec = Spec::new("sort/reversed", "sorting 1000 numbers");
/// #     fn setup(_: &(), _: &mut Setup) -> Result<Self, Fault> { Ok(Sort) }
/// #     fn sample(&mut self, _: &mut Samples) {}
/// # }
/// const ALL: &[Bench] = benches! {
///     one ours "unstable": Sort<false>;
///     one peer "stable".allocates(): Sort<true>, if target_os = "linux";
/// };
/// assert_eq!(ALL.len(), 2);
/// ```
#[macro_export]
macro_rules! benches {
    ($($make:ident $kind:ident $name:literal $($wait:ident)? $(.$option:ident($($of:literal)?))*:
        $workload:ty $(, if $cfg:meta)?;)*) => {
        &[$(
            $(#[cfg($cfg)])?
            $crate::Bench::$make::<$workload>(
                $crate::Contender::$kind($name)
                    $(.waits($crate::Wait::$wait))?
                    $(.$option($($of)?))*,
            ),
        )*]
    };
}

/// Function that runs the only participant, or that sets up the workload of several. Small: suites
/// have hundreds.
#[derive(Clone, Copy)]
enum EntryPoint {
    One { play: fn(&RoundParams, &mut Setup) -> Result<ParticipantResult, Fault> },
    Several { setup: SetupFn },
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
            can_use_processes: false,
            must_use_processes: false,
            entry_point: EntryPoint::One { play: crew::play_alone::<W> },
        }
    }

    /// Creates a benchmark with several participants.
    pub const fn many<H: Handover>(contender: Contender) -> Bench {
        Bench {
            spec: const { &H::SPEC },
            contender,
            params: <H::Args as Args>::PARAMS,
            roles: |values| H::roles(&H::Args::from_values(values)),
            can_use_processes: H::PROCESSES || H::ALWAYS_PROCESSES,
            must_use_processes: H::ALWAYS_PROCESSES,
            entry_point: EntryPoint::Several { setup: crew::setup_erased::<H> },
        }
    }

    /// Returns the benchmark's declaration.
    pub fn spec(&self) -> &'static Spec {
        self.spec
    }

    /// Returns the contender that the benchmark measures.
    pub fn contender(&self) -> Contender {
        self.contender
    }

    /// Returns the declarations of the benchmark's arguments.
    pub fn params(&self) -> &'static [Param] {
        self.params
    }

    /// Returns the participants' roles for these argument values.
    pub fn roles(&self, values: &ArgValues) -> Vec<Role> {
        (self.roles)(values)
    }

    /// Returns `true` if the benchmark's participants can be processes.
    pub fn can_use_processes(&self) -> bool {
        self.can_use_processes
    }

    /// Returns `true` if the benchmark's participants are always processes.
    pub fn must_use_processes(&self) -> bool {
        self.must_use_processes
    }

    /// Runs one round, and returns the result of each participant. Fails if the participants should
    /// be processes but cannot.
    pub(crate) fn run_round(
        &self,
        round_params: &RoundParams,
        interrupted: &AtomicBool,
    ) -> Result<Vec<ParticipantResult>, Fault> {
        if round_params.processes && !self.can_use_processes {
            return Err(Fault::Unsupported(format!(
                "{} [{}] cannot run its participants as processes; leave out --processes for it",
                self.spec.id, self.contender.name
            )));
        }
        match self.entry_point {
            EntryPoint::One { play } => {
                crew::run_round_of_one_participant(round_params, play, interrupted)
            }
            EntryPoint::Several { setup } => crew::run_round_of_participants(
                round_params,
                &self.roles(&round_params.values),
                setup,
                interrupted,
            ),
        }
    }

    /// Returns the data that a participant's process needs about the benchmark. Fails for a
    /// benchmark of one participant.
    pub(crate) fn shared_benchmark(&self) -> Result<SharedBenchmark, Fault> {
        match self.entry_point {
            EntryPoint::One { .. } => {
                Err(Fault::new("a benchmark of one participant cannot run in processes"))
            }
            EntryPoint::Several { setup } => Ok(SharedBenchmark {
                spec: self.spec,
                contender: self.contender.name,
                params: self.params,
                roles: self.roles,
                setup,
            }),
        }
    }
}
