//! Queues and their counters: no clock, no system call, no thread.

pub(crate) mod inbox;
pub(crate) mod incoming;
pub(crate) mod ready;
pub(crate) mod reply_slot;
pub(crate) mod waiting_senders;
