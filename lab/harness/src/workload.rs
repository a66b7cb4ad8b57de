//! Traits implemented by benchmarks.

use crate::fault::Fault;
use crate::samples::Samples;
use crate::setup::Setup;
use handover_record::{Args, Spec};

/// A benchmark with one participant: a function call, a free lock, a queue used by one thread.
///
/// Each round sets up a new instance on the pinned thread that will use it, so that the placement
/// of one allocation cannot bias the figure permanently.
pub trait Workload: Sized {
    /// Arguments, declared with [`args!`](handover_record::args); `()` for none.
    type Args: Args;
    /// Declaration of the benchmark.
    const SPEC: Spec;

    /// Creates an instance of the workload; not timed.
    ///
    /// # Errors
    /// Fails if the benchmark cannot run here; the error is shown with the benchmark's id.
    fn setup(args: &Self::Args, setup: &mut Setup) -> Result<Self, Fault>;

    /// Runs some operations and checks their results. Called once, before any measurement, on a
    /// separate instance; not timed.
    ///
    /// # Errors
    /// Fails if a result is wrong.
    fn self_test(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Runs the measured operations: calls [`Samples::time_batches`], or loops while
    /// [`Samples::is_running`].
    fn sample(&mut self, out: &mut Samples);
}

/// A benchmark with several participants that hand work over: a ping-pong, a contended lock.
///
/// Set up once for each round; the participants share it, as threads (`&self`) or as processes,
/// each of which sets up its own instance around the same [`Setup::shared_region`]s and
/// [`Setup::shared_fd`]s.
pub trait Handover: Sized + Send + Sync + 'static {
    /// Arguments, declared with [`args!`](handover_record::args); `()` for none.
    type Args: Args;
    /// Declaration of the benchmark, with `hands_over` set.
    const SPEC: Spec;
    /// `true` if the participants can be processes. The [`Setup`] must then create everything that
    /// they share.
    const PROCESSES: bool = false;
    /// `true` if the participants are always processes. This is for resources of a whole process,
    /// such as its memory.
    const ALWAYS_PROCESSES: bool = false;

    /// Roles of the participants, in the order in which CPUs are assigned. Set if their number does
    /// not depend on the arguments.
    const ROLES: &'static [Role] = &[];

    /// Returns the participants' roles, in the order in which CPUs are assigned.
    fn roles(_: &Self::Args) -> Vec<Role> {
        Self::ROLES.to_vec()
    }

    /// Creates an instance on the CPU of the first participant; not timed.
    ///
    /// # Errors
    /// Fails if the benchmark cannot run here.
    fn setup(args: &Self::Args, setup: &mut Setup) -> Result<Self, Fault>;

    /// Runs one participant from the starting line to its finish. A measured participant calls
    /// [`Samples::time_batches`] or loops while [`Samples::is_running`], and then sends the others
    /// an in-band message to finish; a participant that waits for this message must notice it.
    ///
    /// # Errors
    /// Fails with any fault of the participant; the round is then discarded and the benchmark ends.
    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault>;

    /// Checks after every round that everything was handed over; not timed.
    ///
    /// # Errors
    /// Fails if something is missing.
    fn check_round(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Role of a participant in a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// Name of the role in records and faults.
    pub name: &'static str,
    /// `true` if the participant is measured; `false` if it only serves the measured ones.
    pub measured: bool,
}

impl Role {
    /// Creates the role of a participant whose samples are measured.
    pub const fn measured(name: &'static str) -> Role {
        Role { name, measured: true }
    }

    /// Creates the role of a participant that only serves the measured ones: an echo, a neighbour.
    pub const fn serving(name: &'static str) -> Role {
        Role { name, measured: false }
    }

    /// Returns the roles of one measured server and its clients.
    pub fn server_and_clients(clients_count: u32) -> Vec<Role> {
        let mut roles = vec![Role::measured("server")];
        roles.resize(1 + clients_count as usize, Role::serving("client"));
        roles
    }
}

/// Identity of a participant within a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    /// Index of the participant in the list returned by [`Handover::roles`].
    pub index: usize,
    /// Number of participants in the round.
    pub count: usize,
    /// CPU to which the participant is pinned.
    pub cpu: u32,
}
