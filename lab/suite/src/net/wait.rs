//! The epoll wait of the hand-written loops.

use handover_harness::Fault;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Waits for events, and stores as many as `events` has capacity for; none if a signal came first.
/// Without a time-out, sleeps until there is an event.
pub(super) fn wait(
    set: &OwnedFd,
    events: &mut Vec<epoll::Event>,
    timeout: Option<&Timespec>,
) -> Result<(), Fault> {
    events.clear();
    match epoll::wait(set, spare_capacity(events), timeout) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
