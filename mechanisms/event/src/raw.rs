//! The crate's only home of `unsafe`: the slots of a pool, and signals.

pub(crate) mod pool;
#[cfg(not(handover_loom))]
pub(crate) mod signals;
