#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[cfg(feature = "programs")]
mod calls;
#[cfg(feature = "programs")]
mod common;
#[cfg(not(feature = "programs"))]
mod disabled;
#[cfg(feature = "programs")]
mod eventual;
#[cfg(feature = "programs")]
mod evh_perf;
#[cfg(feature = "programs")]
mod hello;
#[cfg(feature = "programs")]
pub mod load;
#[cfg(feature = "programs")]
mod margo;
pub mod names;
#[cfg(feature = "programs")]
mod node_microbench;
#[cfg(feature = "programs")]
mod notify;
#[cfg(feature = "programs")]
mod program;
pub mod ranks;
#[cfg(feature = "programs")]
mod scale;
#[cfg(feature = "programs")]
mod sched;
#[cfg(feature = "programs")]
mod stamp;
#[cfg(feature = "programs")]
mod trylock;

#[cfg(feature = "programs")]
use common::{
    MILLIONS_RANGE, SECONDS_RANGE, available_memory_bytes, number_parser, own_arguments,
    own_program_command, parse_cpu, raise_descriptors_limit, run_on_cpus, value_name,
    whole_number_parser,
};
#[cfg(not(feature = "programs"))]
pub use disabled::{Program, plot_eventuals};
#[cfg(feature = "programs")]
pub use eventual::plot::draw_plots as plot_eventuals;
#[cfg(feature = "programs")]
pub use program::Program;
