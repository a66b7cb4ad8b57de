//! The packet scheduler: its algorithms alone, their fairness, and their use between clients and an
//! arbiter; with the test generator, flow sets and load programs of the classic programs.

mod by_hand;
pub(crate) mod drive;
pub(crate) mod engine;
pub(crate) mod fairness;
pub mod flowset;
pub mod program;
pub mod tester;
pub(crate) mod trip;
