//! The packet scheduler: its algorithms alone, their fairness, and their use between clients and an
//! arbiter; with the test generator, flow sets and load programs of the classic programs.

mod drive;
mod engine;
mod fairness;
pub mod flowset;
pub mod program;
pub mod tester;
mod trip;

/// The benchmarks of clients and arbiter.
pub const ALL: &[handover_harness::Bench] = drive::ALL;

/// The benchmarks of the algorithms alone.
pub const ENGINES: &[handover_harness::Bench] = engine::ALL;

/// The benchmarks of fairness.
pub const FAIRNESS: &[handover_harness::Bench] = fairness::ALL;

/// The benchmarks of one packet at a time.
pub const TRIPS: &[handover_harness::Bench] = trip::ALL;
