//! Traits that a benchmark implements.

use crate::fault::Fault;
use crate::samples::Samples;
use crate::setup::Setup;
use handover_record::{Args, Spec};

/// A benchmark of one participant: a call, a lock that is free, a queue used from one thread.
///
/// Each round sets up a new instance on the pinned thread that will use it, so that the placement
/// of one allocation cannot bias the figure permanently.
pub trait Workload: Sized {
    /// The arguments, declared with [`args!`](handover_record::args); `()` for none.
    type Args: Args;
    /// The declaration.
    const SPEC: Spec;

    /// Sets up an instance, untimed.
    ///
    /// # Errors
    /// Fails if the benchmark cannot run here; the error is shown with the benchmark's id.
    fn setup(args: &Self::Args, setup: &mut Setup) -> Result<Self, Fault>;

    /// Checks the results, untimed: called once on its own instance before any measurement.
    ///
    /// # Errors
    /// Fails if a result is wrong.
    fn check(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Runs the measured operations: calls [`Samples::batches`], or loops while
    /// [`Samples::running`].
    fn sample(&mut self, out: &mut Samples);
}

/// A benchmark of several participants that hand work over: a ping-pong, a contended lock.
///
/// Set up once for each round; the participants share it, as threads (`&self`) or as processes,
/// each of which sets up its own instance around the same [`Setup::region`]s and [`Setup::fd`]s.
pub trait Handover: Sized + Send + Sync + 'static {
    /// The arguments, declared with [`args!`](handover_record::args); `()` for none.
    type Args: Args;
    /// The declaration; `hands_over` should be true.
    const SPEC: Spec;
    /// `true` if everything that the participants share comes from the [`Setup`], so that they can be
    /// processes.
    const PROCESSES: bool = false;
    /// `true` if the participants are always processes: for resources that each process has, such
    /// as its memory.
    const APART: bool = false;

    /// The participants' roles, in the order in which CPUs are assigned, if their number does not
    /// depend on the arguments.
    const ROLES: &'static [Role] = &[];

    /// Returns the participants' roles, in the order in which CPUs are assigned.
    fn roles(_: &Self::Args) -> Vec<Role> {
        Self::ROLES.to_vec()
    }

    /// Sets up an instance, untimed, on the first participant's CPU.
    ///
    /// # Errors
    /// Fails if the benchmark cannot run here.
    fn setup(args: &Self::Args, setup: &mut Setup) -> Result<Self, Fault>;

    /// Plays one participant from the starting line to its end. A measured participant calls
    /// [`Samples::batches`] or loops while [`Samples::running`], and then tells the others in band
    /// to end; a participant that waits for it must notice that.
    ///
    /// # Errors
    /// Fails with any fault of the participant; the round is then lost and the benchmark ends.
    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault>;

    /// Checks after every round, untimed, that everything was handed over.
    ///
    /// # Errors
    /// Fails if something is missing.
    fn verify(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Role of a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its name in records and faults.
    pub name: &'static str,
    /// `true` if its samples count; other participants only serve.
    pub measured: bool,
}

impl Role {
    /// Creates the role of a participant whose samples count.
    pub const fn measured(name: &'static str) -> Role {
        Role { name, measured: true }
    }

    /// Creates the role of a participant that only serves: an echo, a neighbour.
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
    /// Its index in the list that [`Handover::roles`] returned.
    pub index: usize,
    /// Number of participants.
    pub count: usize,
    /// The CPU that it is placed on.
    pub cpu: u32,
}
