//! MPI, if a library is installed: for programs launched as its ranks, and as a contender for
//! `rpc/noop`, `bulk/pull` and `bulk/push`.
//!
//! The library is loaded at run time, the launcher's own first: Open MPI's for ranks of Open MPI's
//! `mpiexec`, MPICH's for ranks of MPICH's. So one binary can be a rank of either, needs neither at
//! build time, and runs without both.

mod ranks;

pub use crate::raw::mpi::Mpi;
pub use ranks::{NOOP_BENCHES, PULL_BENCHES, PUSH_BENCHES, dispatch_rank};
#[doc(hidden)]
pub use ranks::{RankOperation, RankTask};
