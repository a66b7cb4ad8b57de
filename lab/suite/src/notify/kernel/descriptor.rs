//! Waits for a descriptor.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use std::os::fd::AsFd;
use std::time::Duration;

/// Sleeps until `fd` is readable or `timeout` has passed (`None`: no timeout). Returns `true` if
/// `fd` is readable. A signal restarts the timeout.
pub(super) fn wait_readable(fd: impl AsFd, timeout: Option<Duration>) -> bool {
    // A timeout that is too long for the kernel's clock has none.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match retry_on_intr(|| poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref())) {
        Ok(ready_count) => ready_count > 0,
        Err(errno) => panic!("poll failed: {errno}"),
    }
}
