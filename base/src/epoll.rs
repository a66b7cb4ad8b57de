//! An epoll set whose entries carry a word of the caller's choice.
//!
//! ```
//! use handover_base::epoll::{Epoll, Flags};
//! use rustix::event::{EventfdFlags, eventfd};
//!
//! let set = Epoll::new(64)?;
//! let event = eventfd(1, EventfdFlags::CLOEXEC)?;
//! set.add(&event, 7, Flags::IN | Flags::ET)?;
//! let mut ready = Vec::new();
//! assert_eq!(set.wait(Some(0), |word, flags| ready.push((word, flags)))?, 1);
//! assert_eq!(ready, [(7, Flags::IN)]);
//! assert_eq!(set.wait(Some(0), |_, _| ())?, 0, "an edge was reported twice");
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::raw::linux;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

pub use rustix::event::epoll::EventFlags as Flags;

/// Maximum number of events that one [`Epoll::wait`] returns.
pub const READY_EVENTS_MAX: usize = 1024;

/// `true` once the kernel has refused epoll_pwait2(2), which is called for time limits that are no
/// whole milliseconds. Miri lacks the call.
static IS_PWAIT2_REFUSED: AtomicBool = AtomicBool::new(cfg!(miri));

/// Number of nanoseconds in a millisecond.
const MS: u64 = 1_000_000;

/// Converts a time limit.
fn to_timespec(timeout_ns: u64) -> Timespec {
    // At most 2^64 / 10^9, and below 10^9.
    Timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as i64,
        tv_nsec: (timeout_ns % 1_000_000_000) as i64,
    }
}

/// Converts a time limit, rounded up to milliseconds that epoll_wait(2) accepts.
fn to_whole_ms(timeout_ns: u64) -> Timespec {
    to_timespec(timeout_ns.div_ceil(MS).min(i32::MAX as u64) * MS)
}

/// Set of file descriptors (epoll set). [`wait`](Self::wait) reports the ready ones.
#[derive(Debug)]
pub struct Epoll {
    set: OwnedFd,
    /// Maximum number of events that one `wait` returns.
    ready_max: usize,
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Epoll {
    /// Creates an empty set. Each wait reports at most `ready_max` events, and at most
    /// [`READY_EVENTS_MAX`].
    ///
    /// # Errors
    /// An error of epoll_create1(2).
    pub fn new(ready_max: usize) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { set, ready_max: ready_max.clamp(1, READY_EVENTS_MAX) })
    }

    /// Adds a descriptor, for whose events [`wait`](Self::wait) reports `word`. Closing the last
    /// duplicate of the descriptor removes it.
    ///
    /// # Errors
    /// An error of epoll_ctl(2).
    pub fn add(&self, fd: impl AsFd, word: u64, flags: Flags) -> io::Result<()> {
        Ok(epoll::add(&self.set, fd, epoll::EventData::new_u64(word), flags)?)
    }

    /// Changes the word and the flags of a descriptor. Events that are pending are reported again.
    ///
    /// # Errors
    /// An error of epoll_ctl(2).
    pub fn modify(&self, fd: impl AsFd, word: u64, flags: Flags) -> io::Result<()> {
        Ok(epoll::modify(&self.set, fd, epoll::EventData::new_u64(word), flags)?)
    }

    /// Removes a descriptor from the set.
    ///
    /// # Errors
    /// An error of epoll_ctl(2).
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.set, fd)?)
    }

    /// Waits for events and calls `each` with the word and the flags of each event. Returns the
    /// number of events. There is no time limit if `timeout_ns` is `None`. A signal ends the wait
    /// without events. Where the kernel has no epoll_pwait2(2), as before Linux 5.11, or a filter
    /// of system calls refuses it, the time limit is rounded up to milliseconds, and 24 days at
    /// most.
    ///
    /// # Errors
    /// An error of epoll_wait(2).
    ///
    /// # Blocking
    /// Up to the timeout; not at all if it is zero.
    #[inline]
    pub fn wait(
        &self,
        timeout_ns: Option<u64>,
        mut each: impl FnMut(u64, Flags),
    ) -> io::Result<usize> {
        // Not kept between calls: the kernel's record holds a pointer, which would make `Epoll` not
        // `Send`.
        let mut buffer = [const { MaybeUninit::uninit() }; READY_EVENTS_MAX];
        let buffer = &mut buffer[..self.ready_max];
        let is_whole_ms = |ns: u64| ns.is_multiple_of(MS) && ns / MS <= i32::MAX as u64;
        let waited = match timeout_ns {
            // Relaxed: the flag publishes no other data.
            Some(ns) if !is_whole_ms(ns) && !IS_PWAIT2_REFUSED.load(Ordering::Relaxed) => {
                match linux::epoll_pwait2(self.set.as_fd(), buffer, &to_timespec(ns)) {
                    Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => {
                        IS_PWAIT2_REFUSED.store(true, Ordering::Relaxed);
                        return self.wait(timeout_ns, each);
                    }
                    waited => waited,
                }
            }
            _ => {
                let timeout = timeout_ns.map(to_whole_ms);
                epoll::wait(&self.set, buffer, timeout.as_ref()).map(|(events, _)| &*events)
            }
        };
        match waited {
            Ok(events) => {
                events.iter().for_each(|&epoll::Event { flags, data }| each(data.u64(), flags));
                Ok(events.len())
            }
            Err(Errno::INTR) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn time_limits_are_rounded_up_to_milliseconds_where_they_cannot_be_exact() {
        let ns = |limit: Timespec| (limit.tv_sec, limit.tv_nsec);
        assert_eq!(ns(to_timespec(1_000_000_001)), (1, 1));
        assert_eq!(ns(to_whole_ms(1_000_000_001)), (1, 1_000_000));
        assert_eq!(ns(to_whole_ms(1)), (0, 1_000_000));
        assert_eq!(ns(to_whole_ms(0)), (0, 0));
        assert_eq!(ns(to_whole_ms(u64::MAX)), (2_147_483, 647_000_000));
    }

    #[test]
    fn wait_of_less_than_a_millisecond_is_not_rounded_up() {
        let set = Epoll::new(8).expect("create an epoll set");
        let until = Instant::now() + Duration::from_secs(60);
        // Other programs may delay a wait's end, and signals may end it early, but not each of
        // many.
        loop {
            let began = Instant::now();
            assert_eq!(set.wait(Some(100_000), |_, _| ()).expect("wait"), 0);
            let waited = began.elapsed();
            if IS_PWAIT2_REFUSED.load(Ordering::Relaxed) {
                println!("skipped: epoll_pwait2 is refused");
                return;
            }
            if (Duration::from_micros(100)..Duration::from_micros(900)).contains(&waited) {
                break;
            }
            assert!(Instant::now() < until, "no wait took from 100 to 900 µs");
        }
        let event = rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC)
            .expect("create an eventfd");
        set.add(&event, 7, Flags::IN).expect("add it");
        let mut ready = Vec::new();
        assert_eq!(set.wait(Some(100_001), |word, _| ready.push(word)).expect("wait"), 1);
        assert_eq!(ready, [7]);
    }
}
