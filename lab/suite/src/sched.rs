//! The packet scheduler: at work between clients and their arbiter.

mod drive;
mod engine;

/// The benchmarks of this rung.
pub const ALL: &[handover_harness::Bench] = drive::ALL;

/// Those of the algorithms by themselves.
pub const ENGINES: &[handover_harness::Bench] = engine::ALL;
