//! System calls on an eventfd, retried on EINTR.

use crate::PairError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Creates a non-blocking eventfd with the count zero.
pub(crate) fn create_eventfd() -> Result<OwnedFd, PairError> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    rustix::event::eventfd(0, flags)
        .map_err(|errno| PairError::SystemCall { call: "eventfd2", error: errno.into() })
}

/// Adds one to an eventfd's count. EAGAIN is no error: at its maximum the count makes the eventfd
/// readable, which is enough for a notification.
#[inline]
pub(crate) fn increment_eventfd(eventfd: &OwnedFd) {
    match retry_on_intr(|| rustix::io::write(eventfd, &1u64.to_ne_bytes())) {
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(errno) => panic!("write to an eventfd failed: {errno}"),
    }
}

/// Reads an eventfd's count and resets it to zero; `None` if it was zero.
#[inline]
pub(crate) fn read_eventfd_count(eventfd: &OwnedFd) -> Option<u64> {
    let mut count = [0; 8];
    match retry_on_intr(|| rustix::io::read(eventfd, &mut count)) {
        Ok(_) => Some(u64::from_ne_bytes(count)),
        Err(Errno::AGAIN) => None,
        Err(errno) => panic!("read from an eventfd failed: {errno}"),
    }
}

/// Sleeps until `fd` is readable or `timeout` has passed. Without a timeout, it may sleep for ever.
pub(crate) fn wait_readable(fd: impl AsFd, timeout: Option<Duration>) {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        // At the deadline, still polls once, with a timeout of zero.
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], left.as_ref()) {
            Ok(_) => return,
            Err(Errno::INTR) => {}
            Err(errno) => panic!("poll(2) of a descriptor failed: {errno}"),
        }
    }
}
