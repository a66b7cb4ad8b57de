//! The packet scheduler: its algorithms alone, their fairness, and their use between clients and an
//! arbiter.

mod drive;
mod engine;
mod fairness;
mod trip;

/// The benchmarks of clients and arbiter.
pub const ALL: &[handover_harness::Bench] = drive::ALL;

/// The benchmarks of the algorithms alone.
pub const ENGINES: &[handover_harness::Bench] = engine::ALL;

/// The benchmarks of fairness.
pub const FAIRNESS: &[handover_harness::Bench] = fairness::ALL;

/// The benchmarks of one packet at a time.
pub const TRIPS: &[handover_harness::Bench] = trip::ALL;
