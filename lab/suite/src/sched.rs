//! The packet scheduler: its algorithms alone, their fairness, and their use between clients and an
//! arbiter; with the test generator, flow sets and load programs of the classic programs.

mod drive;
mod engine;
mod fairness;
pub mod flowset;
pub mod program;
pub mod tester;
mod trip;

/// All benchmarks of clients that send packets to an arbiter.
pub const BENCHES: &[handover_harness::Bench] = drive::BENCHES;

/// All benchmarks of scheduling algorithms without threads.
pub const ENGINES_BENCHES: &[handover_harness::Bench] = engine::BENCHES;

/// All benchmarks of fairness, whose figures are in bytes.
pub const FAIRNESS_BENCHES: &[handover_harness::Bench] = fairness::BENCHES;

/// All benchmarks of one packet at a time between a client and the arbiter.
pub const ROUND_TRIPS_BENCHES: &[handover_harness::Bench] = trip::BENCHES;
