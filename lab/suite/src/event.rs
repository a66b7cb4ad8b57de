//! The event machine.

pub mod drive;

/// Every benchmark of the event machine.
pub const ALL: &[handover_harness::Bench] = &[];
