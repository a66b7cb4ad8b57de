//! What a benchmark implements.

use crate::fault::Fault;
use crate::rig::Rig;
use crate::samples::Samples;
use handover_record::{Args, Spec};

/// A benchmark of one party: a call, a lock that is free, a queue used from one thread.
///
/// A round rigs a fresh instance on the pinned thread that will use it, so that the placement of one
/// allocation cannot bias the figure for good.
pub trait Workload: Sized {
    /// The arguments, declared with [`args!`](handover_record::args); `()` for none.
    type Args: Args;
    /// The declaration.
    const SPEC: Spec;

    /// Untimed set-up.
    ///
    /// # Errors
    /// Whatever keeps the benchmark from running here; it is shown with the benchmark's id.
    fn rig(args: &Self::Args, rig: &mut Rig) -> Result<Self, Fault>;

    /// Correct before fast: called once on an instance of its own, untimed, before anything is measured.
    ///
    /// # Errors
    /// What is wrong with the result.
    fn check(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// The measured part: calls [`Samples::batches`], or loops while [`Samples::running`].
    fn sample(&mut self, out: &mut Samples);
}

/// A benchmark of several parties that hand work over: a ping-pong, a contended lock.
///
/// Rigged once for each round; the parties share it, as threads (`&self`) or as processes, each of
/// which rigs its own instance around the same [`Rig::region`]s and [`Rig::fd`]s.
pub trait Handover: Sized + Send + Sync + 'static {
    /// The arguments, declared with [`args!`](handover_record::args); `()` for none.
    type Args: Args;
    /// The declaration; `hands_over` should be true.
    const SPEC: Spec;
    /// Whether everything that the parties share comes from the [`Rig`], so that they can be
    /// processes.
    const PROCESSES: bool = false;
    /// Whether they always are: for what a process has of its own, as its memory.
    const APART: bool = false;

    /// Who takes part, in the order in which CPUs are given out.
    fn roles(args: &Self::Args) -> Vec<Role>;

    /// Untimed set-up, on the first party's CPU.
    ///
    /// # Errors
    /// Whatever keeps the benchmark from running here.
    fn rig(args: &Self::Args, rig: &mut Rig) -> Result<Self, Fault>;

    /// One party's round, from the starting line to its end. A measured party calls
    /// [`Samples::batches`] or loops while [`Samples::running`], and then tells the others to end, in
    /// band; whoever waits for it must see that.
    ///
    /// # Errors
    /// Whatever went wrong; the round is then lost and the benchmark ends.
    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault>;

    /// After every round, untimed: was everything handed over?
    ///
    /// # Errors
    /// What is missing.
    fn verify(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// A kind of party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its name in records and faults.
    pub name: &'static str,
    /// Whether its samples count; the others only serve.
    pub measured: bool,
}

impl Role {
    /// A party whose samples count.
    pub const fn measured(name: &'static str) -> Role {
        Role { name, measured: true }
    }

    /// A party that only serves: an echo, a neighbour.
    pub const fn serving(name: &'static str) -> Role {
        Role { name, measured: false }
    }
}

/// Which party this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party {
    /// Its place in the list that [`Handover::roles`] returned.
    pub index: usize,
    /// How many there are.
    pub count: usize,
    /// The CPU it was placed on.
    pub cpu: u32,
}
