//! All of this crate's `unsafe`: memory shared with other processes, and the number of the CPU.

mod cpu;
mod mapping;

pub(crate) use cpu::current_cpu;
pub(crate) use mapping::Mapping;
pub use mapping::ZeroInit;
