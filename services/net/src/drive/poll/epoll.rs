//! Readiness from an epoll set.

use super::{EventSource, Flags, PollBackend, Readiness, readiness};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Maximum number of events in one wait; `Config::validate` limits `ready_max` to this.
const READY_LIMIT: usize = 1024;

pub(crate) struct EpollSet {
    set: OwnedFd,
    ready_max: usize,
}

impl PollBackend for EpollSet {
    const CREATE: &str = "epoll_create1";
    const ADD: &str = "epoll_ctl";
    const WAIT: &str = "epoll_wait";

    fn new(ready_max: usize) -> Result<Self, Errno> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { set, ready_max: ready_max.min(READY_LIMIT) })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, source: EventSource, flags: Flags) -> Result<(), Errno> {
        epoll::add(&self.set, fd, epoll::EventData::new_u64(source.pack()), flags)
    }

    /// Does nothing: the kernel removes a descriptor from the set when it is closed.
    fn remove(&mut self, _: EventSource) {}

    #[inline]
    fn wait(
        &mut self,
        timeout_ns: Option<u64>,
        mut each: impl FnMut(EventSource, Readiness),
    ) -> Result<usize, Errno> {
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            // Below 10^9.
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        // Not kept between calls: the kernel's record holds a pointer, which would make `EpollSet`
        // not `Send`.
        let mut buffer = [const { MaybeUninit::uninit() }; READY_LIMIT];
        match epoll::wait(&self.set, &mut buffer[..self.ready_max], timeout.as_ref()) {
            Ok((events, _)) => {
                for &epoll::Event { flags, data } in events.iter() {
                    each(EventSource::unpack(data.u64()), readiness(flags));
                }
                Ok(events.len())
            }
            Err(Errno::INTR) => Ok(0),
            Err(errno) => Err(errno),
        }
    }
}
