//! MPI, if a library is installed: for programs launched as its ranks, and as a contender for
//! `rpc/noop`, `bulk/pull` and `bulk/push`.
//!
//! The library is loaded at run time, the launcher's own first: Open MPI's for ranks of Open MPI's
//! `mpiexec`, MPICH's for ranks of MPICH's. So one binary can be a rank of either, needs neither at
//! build time, and runs without both.

mod ranks;

use crate::raw::mpi;
use handover_harness::Fault;

pub use ranks::{ALL, dispatch_rank};
#[doc(hidden)]
pub use ranks::{Task, Work};

fn fault(why: String) -> Fault {
    Fault::new(why)
}

/// An initialised MPI library. A process can initialise it once, and all ranks must finalise it.
pub struct World(mpi::World);

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl World {
    /// Initialises MPI. A process without a launcher is the only rank.
    ///
    /// # Errors
    /// Fails if no library is found or it cannot be initialised.
    ///
    /// # Blocking
    /// Blocks until all ranks have called it: some 0.3 s on one machine.
    pub fn begin() -> Result<Self, Fault> {
        mpi::World::begin().map(Self).map_err(fault)
    }

    /// Returns the library's description of itself.
    ///
    /// # Errors
    /// Fails if the library does not give one.
    pub fn library(&self) -> Result<String, Fault> {
        self.0.library().map_err(fault)
    }

    /// Returns this rank's index and the number of ranks.
    ///
    /// # Errors
    /// Fails with the library's error.
    pub fn rank(&self) -> Result<(u32, u32), Fault> {
        self.0.rank().map_err(fault)
    }

    /// Sends bytes to a rank.
    ///
    /// # Errors
    /// Fails with the library's error.
    ///
    /// # Blocking
    /// Blocks until the bytes may be changed again; possibly until the rank receives them.
    #[inline]
    pub fn send(&self, to_rank: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.0.send(to_rank, bytes).map_err(fault)
    }

    /// Receives at most `into.len()` bytes from a rank.
    ///
    /// # Errors
    /// Fails with the library's error.
    ///
    /// # Blocking
    /// Blocks until the rank has sent a message.
    #[inline]
    pub fn receive(&self, from_rank: u32, into: &mut [u8]) -> Result<(), Fault> {
        self.0.receive(from_rank, into).map_err(fault)
    }

    /// Returns the time of `MPI_Wtime`, in seconds.
    #[inline]
    #[must_use]
    pub fn wtime_s(&self) -> f64 {
        self.0.wtime()
    }

    /// Finalises MPI, together with all other ranks.
    ///
    /// # Errors
    /// Fails with the library's error.
    pub fn end(self) -> Result<(), Fault> {
        self.0.end().map_err(fault)
    }
}
