//! The epoll wait of the hand-written loops.

use handover_harness::Fault;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

/// Creates an epoll set with these streams, edge-triggered, each with its index as data.
pub(super) fn create_epoll_set<'a>(
    streams: impl IntoIterator<Item = &'a TcpStream>,
    flags: epoll::EventFlags,
) -> Result<OwnedFd, Fault> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, stream) in (0..).zip(streams) {
        stream.set_nonblocking(true)?;
        epoll::add(&set, stream, epoll::EventData::new_u64(index), flags | epoll::EventFlags::ET)?;
    }
    Ok(set)
}

/// Waits for events and stores them in `events`, up to its capacity. Stores none if a signal
/// interrupted the wait. Sleeps without limit if `timeout` is `None`.
pub(crate) fn wait_for_events(
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
