//! Decisions without a clock, a thread or a system call: the next fiber to run, the interval
//! between clock reads, and the number of fibers.

#[cfg(not(handover_loom))]
mod lead;
#[cfg(not(handover_loom))]
mod pace;
#[cfg(not(handover_loom))]
mod ready;
pub(crate) mod tally;

#[cfg(not(handover_loom))]
pub(crate) use {lead::Lead, pace::Pace, ready::Ready};
