//! Tests of the benchmarks' declarations, the machine code of the call benchmarks,
//! the locks, mechanisms, test generator and programs, and the loops
//! that workloads share with the classic programs.

mod attempts;
mod calls;
mod copies;
mod declarations;
mod drive;
mod fairness;
mod flowsets;
mod image;
mod locks;
mod mechanisms;
mod program;
#[cfg(feature = "mpi")]
mod ranks;
mod recording;
