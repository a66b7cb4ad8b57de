//! MPI, where there is a library of it: for programs that are launched as its ranks, and as a contender for
//! `rpc/noop`, `bulk/pull` and `bulk/push`.
//!
//! The library is looked for when it is needed, the launcher's own first: Open MPI's for ranks of Open MPI's
//! `mpiexec`, MPICH's for those of MPICH's. So one binary is a rank of either, needs neither to be built, and
//! runs where there is none.

mod ranks;

use crate::raw::mpi;
use handover_harness::Fault;

pub use ranks::{ALL, dispatch_rank};
#[doc(hidden)]
pub use ranks::{Task, Work};

fn fault(why: String) -> Fault {
    Fault::new(why)
}

/// MPI, begun. A process can begin it once, and all ranks must end it.
pub struct World(mpi::World);

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl World {
    /// Begins it. A process that no launcher has started is the only rank.
    ///
    /// # Errors
    /// No library is found, or it cannot begin.
    ///
    /// # Blocking
    /// Until all ranks have begun it: some 0.3 s on one machine.
    pub fn begin() -> Result<Self, Fault> {
        mpi::World::begin().map(Self).map_err(fault)
    }

    /// Which library it is, in its own words.
    ///
    /// # Errors
    /// It does not say.
    pub fn library(&self) -> Result<String, Fault> {
        self.0.library().map_err(fault)
    }

    /// Which rank this is, and of how many.
    ///
    /// # Errors
    /// The library's.
    pub fn rank(&self) -> Result<(u32, u32), Fault> {
        self.0.rank().map_err(fault)
    }

    /// Sends bytes to a rank.
    ///
    /// # Errors
    /// The library's.
    ///
    /// # Blocking
    /// Until they can be changed again; perhaps until the rank receives them.
    #[inline]
    pub fn send(&self, to_rank: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.0.send(to_rank, bytes).map_err(fault)
    }

    /// Receives as many bytes at most.
    ///
    /// # Errors
    /// The library's.
    ///
    /// # Blocking
    /// Until the rank has sent some.
    #[inline]
    pub fn receive(&self, from_rank: u32, into: &mut [u8]) -> Result<(), Fault> {
        self.0.receive(from_rank, into).map_err(fault)
    }

    /// The time of `MPI_Wtime`, in seconds.
    #[inline]
    #[must_use]
    pub fn wtime_s(&self) -> f64 {
        self.0.wtime()
    }

    /// Ends it, with all other ranks.
    ///
    /// # Errors
    /// The library's.
    pub fn end(self) -> Result<(), Fault> {
        self.0.end().map_err(fault)
    }
}
