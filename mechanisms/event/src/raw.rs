//! The crate's only modules with `unsafe`: the slots of a pool, queues of any type, and signals.

pub(crate) mod pool;
#[cfg(not(handover_loom))]
pub(crate) mod queue;
#[cfg(not(handover_loom))]
pub(crate) mod signals;
