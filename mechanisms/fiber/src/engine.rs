//! Decisions without a clock, a thread or a system call: the next fiber to run, the interval
//! between clock reads, the number of fibers, and offers to idle workers.

pub(crate) mod counts;
#[cfg(not(handover_loom))]
mod lead;
pub(crate) mod offers;
#[cfg(not(handover_loom))]
mod poll_interval;
#[cfg(not(handover_loom))]
mod ready_queue;

#[cfg(not(handover_loom))]
pub(crate) use {lead::SleepLead, poll_interval::PollInterval, ready_queue::ReadyQueue};
