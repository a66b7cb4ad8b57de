//! The wait of the hand-written loops.

use handover_harness::Fault;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Has an epoll set fill in who is ready, as many as there is room for; nobody where a signal came first.
/// Without a time-out it sleeps until somebody is.
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
