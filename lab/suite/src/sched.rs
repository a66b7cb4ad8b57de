//! The packet scheduler: its algorithms alone, how fair they are, and at work between clients and their
//! arbiter.

mod drive;
mod engine;
mod fairness;
mod trip;

/// The benchmarks of this rung.
pub const ALL: &[handover_harness::Bench] = drive::ALL;

/// Those of the algorithms by themselves.
pub const ENGINES: &[handover_harness::Bench] = engine::ALL;

/// Those of their fairness.
pub const FAIRNESS: &[handover_harness::Bench] = fairness::ALL;

/// Those of one packet at a time.
pub const TRIPS: &[handover_harness::Bench] = trip::ALL;
