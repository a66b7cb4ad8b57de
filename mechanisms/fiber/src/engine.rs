//! What can be decided without a clock, a thread or a system call: who runs next, how often to look at
//! the time, and how many fibers there are.

#[cfg(not(handover_loom))]
mod lead;
#[cfg(not(handover_loom))]
mod pace;
#[cfg(not(handover_loom))]
mod ready;
pub(crate) mod tally;

#[cfg(not(handover_loom))]
pub(crate) use {lead::Lead, pace::Pace, ready::Ready};
