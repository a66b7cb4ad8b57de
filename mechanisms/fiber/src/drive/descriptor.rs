//! Waiting until a descriptor is ready for reading or writing.

use super::this_fiber::{deadline_ns_after, has_passed};
use crate::raw::{suspend_fiber_until, this_worker};
use handover_base::clock;
use handover_base::epoll::Flags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Waits until `fd` is readable, or at its end, or has an error.
///
/// ```
/// use handover_fiber::{Config, Runtime, readable};
/// use std::io::{ErrorKind, Read, Write};
/// use std::os::unix::net::UnixStream;
///
/// let (mut near, mut far) = UnixStream::pair()?;
/// near.set_nonblocking(true)?;
/// let runtime = Runtime::new(Config::default())?;
/// let reads = runtime.spawn(move || {
///     let mut buffer = [0; 16];
///     loop {
///         match near.read(&mut buffer) {
///             Err(error) if error.kind() == ErrorKind::WouldBlock => readable(&near)?,
///             read => return read.map(|count| buffer[..count].to_vec()),
///         }
///     }
/// })?;
/// far.write_all(b"hello")?;
/// assert_eq!(reads.join()??, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The descriptor should be non-blocking: another reader may be faster, and a wait may end without
/// a reason. Several fibers may wait for one descriptor.
///
/// # Errors
/// An error of epoll_ctl(2), such as `PermissionDenied` for a regular file, which is always ready;
/// or of creating the worker's epoll set. An ordinary thread waits in poll(2), for which a regular
/// file is ready.
///
/// # Blocking
/// Blocks the fiber; its worker runs others, and sleeps in epoll_wait(2) if there are none. On an
/// ordinary thread, blocks the thread.
///
/// # Cost
/// A system call to add the descriptor and one to remove it, two more if another fiber of the
/// worker waits for it, and a timer started and cancelled. An idle worker waits for all descriptors
/// in one call; a worker with ready fibers looks at them every 25 µs. The first wait of a worker
/// creates its epoll set and an eventfd.
pub fn readable(fd: impl AsFd) -> io::Result<()> {
    wait_until(fd.as_fd(), Flags::IN, u64::MAX).map(drop)
}

/// Waits until `fd` is readable like [`readable`], but for at most `timeout`; returns `false` on a
/// time-out.
///
/// # Errors
/// As [`readable`]. With a `timeout` of 0 a fiber too waits in poll(2).
///
/// # Blocking
/// As [`readable`], until the time-out.
pub fn readable_timeout(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    wait_until(fd.as_fd(), Flags::IN, deadline_ns_after(timeout))
}

/// Waits until `fd` is writable, or has an error. Otherwise like [`readable`].
///
/// # Errors
/// As [`readable`].
///
/// # Blocking
/// As [`readable`].
pub fn writable(fd: impl AsFd) -> io::Result<()> {
    wait_until(fd.as_fd(), Flags::OUT, u64::MAX).map(drop)
}

/// Waits until `fd` is writable like [`writable`], but for at most `timeout`; returns `false` on a
/// time-out.
///
/// # Errors
/// As [`readable_timeout`].
///
/// # Blocking
/// As [`readable`], until the time-out.
pub fn writable_timeout(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    wait_until(fd.as_fd(), Flags::OUT, deadline_ns_after(timeout))
}

/// Waits until `fd` is ready for `flags`; returns `false` if `deadline_ns` passes first.
fn wait_until(fd: BorrowedFd<'_>, flags: Flags, deadline_ns: u64) -> io::Result<bool> {
    let on_fiber = this_worker().and_then(|worker| Some((worker, worker.running_fiber()?)));
    // Once the deadline has passed, that does not block either.
    let Some((worker, running)) = on_fiber.filter(|_| !has_passed(deadline_ns)) else {
        return wait_as_thread(fd, flags, deadline_ns);
    };
    let readiness = worker.readiness()?;
    let wait = readiness.start(fd, flags)?;
    // The fiber stays on its worker meanwhile.
    let is_ready = suspend_fiber_until(
        worker,
        running,
        deadline_ns,
        |waiter| {
            readiness.set_waiter(&wait, waiter);
            None
        },
        |_| readiness.withdraw(&wait),
    );
    readiness.end(wait);
    Ok(is_ready)
}

/// Does [`wait_until`] on the calling thread, which runs no fiber.
#[cold]
fn wait_as_thread(fd: BorrowedFd<'_>, flags: Flags, deadline_ns: u64) -> io::Result<bool> {
    let flags = if flags == Flags::IN { PollFlags::IN } else { PollFlags::OUT };
    loop {
        let left_ns = deadline_ns.saturating_sub(clock::now_ns());
        // Cannot fail: it is at most 2^64 ns.
        let timeout = Timespec::try_from(Duration::from_nanos(left_ns)).ok();
        let mut polled = [PollFd::from_borrowed_fd(fd, flags)];
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) if polled[0].revents().contains(PollFlags::NVAL) => {
                return Err(Errno::BADF.into());
            }
            Ok(ready_count) => return Ok(ready_count != 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
