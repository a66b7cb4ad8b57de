//! Declarations of the benchmarks, the machine code of the call ladder, and the loops that workloads share
//! with the classic programs.

mod calls;
mod copies;
mod declarations;
mod drive;
mod image;
#[cfg(feature = "mpi")]
mod ranks;
mod recording;
mod turns;
