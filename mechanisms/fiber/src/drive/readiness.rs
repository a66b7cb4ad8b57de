//! Descriptors for which the fibers of a worker wait.

use super::state::WorkerState;
use crate::raw::Waiter;
use handover_base::epoll::{Epoll, Flags};
use handover_base::slab::{Key, Slab};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of a worker's fibers that wait for descriptors at a time.
const WAITS_MAX: u32 = 1 << 28;
/// Maximum number of events that are read at a time.
const EVENTS_MAX: usize = 256;
/// Epoll data word of the descriptor that interrupts a wait; no wait has this word.
const INTERRUPT_WORD: u64 = u64::MAX;
/// Interval, in ns, at which the descriptors are polled while fibers are ready. A poll takes about
/// 0.4 µs.
const POLL_INTERVAL_NS: u64 = 25_000;

/// Epoll set of a worker, with the fibers that wait for its descriptors. Only the worker's thread
/// accesses it.
#[derive(Debug)]
pub(crate) struct Readiness {
    set: Epoll,
    /// Waiting fiber of each wait; `None` before the fiber is suspended, and after its removal.
    waits: RefCell<Slab<Option<Waiter>>>,
    /// Time of the last poll of the descriptors, in ns.
    last_poll_ns: Cell<u64>,
}

/// Wait of a fiber for a descriptor, from [`Readiness::start`] to [`Readiness::end`].
#[derive(Debug)]
pub(crate) struct ReadinessWait<'a> {
    key: Key,
    fd: BorrowedFd<'a>,
    /// Duplicate of `fd` that is in the set instead, if another fiber waits for `fd` too.
    duplicate: Option<OwnedFd>,
}

impl Readiness {
    /// Creates an epoll set with only the descriptor by which [`WorkerState::unpark`] interrupts a
    /// wait.
    pub(crate) fn new(worker: &WorkerState) -> io::Result<Self> {
        let set = Epoll::new(EVENTS_MAX)?;
        set.add(worker.interrupt_descriptor()?, INTERRUPT_WORD, Flags::IN | Flags::ET)?;
        let waits = RefCell::new(Slab::new(WAITS_MAX));
        Ok(Self { set, waits, last_poll_ns: Cell::new(0) })
    }

    /// Starts a wait: adds a descriptor to the set, for one event among `flags`.
    pub(crate) fn start<'a>(
        &self,
        fd: BorrowedFd<'a>,
        flags: Flags,
    ) -> io::Result<ReadinessWait<'a>> {
        let key = self.waits.borrow_mut().insert(None).map_err(|_| Errno::NOMEM)?;
        let add = |fd: BorrowedFd<'_>| self.set.add(fd, word(key), flags | Flags::ONESHOT);
        let added = match add(fd) {
            // The set contains each descriptor once.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fcntl_dupfd_cloexec(fd, 0)
                    .map_err(io::Error::from)
                    .and_then(|duplicate| add(duplicate.as_fd()).map(|()| Some(duplicate)))
            }
            added => added.map(|()| None),
        };
        match added {
            Ok(duplicate) => Ok(ReadinessWait { key, fd, duplicate }),
            Err(error) => {
                self.waits.borrow_mut().remove(key);
                Err(error)
            }
        }
    }

    /// Stores the fiber of a wait.
    pub(crate) fn set_waiter(&self, wait: &ReadinessWait<'_>, waiter: Waiter) {
        if let Some(slot) = self.waits.borrow_mut().get_mut(wait.key) {
            *slot = Some(waiter);
        }
    }

    /// Removes the fiber of a wait; returns `false` if the fiber was already woken.
    pub(crate) fn withdraw(&self, wait: &ReadinessWait<'_>) -> bool {
        self.take_waiter(wait.key).is_some()
    }

    /// Ends a wait, and removes its descriptor from the set.
    pub(crate) fn end(&self, wait: ReadinessWait<'_>) {
        let fd = wait.duplicate.as_ref().map_or(wait.fd, AsFd::as_fd);
        // It is in the set, as it was added and is still open.
        let _ = self.set.remove(fd);
        self.waits.borrow_mut().remove(wait.key);
    }

    /// Returns `true` if a fiber waits for a descriptor.
    #[inline]
    pub(crate) fn has_waits(&self) -> bool {
        !self.waits.borrow().is_empty()
    }

    /// Returns `true` if the descriptors must be polled again; stores `now_ns` as the time of this
    /// poll.
    pub(crate) fn begin_poll_if_due(&self, now_ns: u64) -> bool {
        let is_due = now_ns.saturating_sub(self.last_poll_ns.get()) >= POLL_INTERVAL_NS;
        if is_due {
            self.last_poll_ns.set(now_ns);
        }
        is_due
    }

    /// Waits for events, and calls `wake` with each fiber whose descriptor is ready. Waits without
    /// a time limit if `timeout_ns` is `None`.
    pub(crate) fn wait(&self, timeout_ns: Option<u64>, mut wake: impl FnMut(Waiter)) {
        let each = |word: u64, _| {
            let key = Key { index: word as u32, generation: (word >> 32) as u32 };
            self.take_waiter(key).into_iter().for_each(&mut wake);
        };
        if let Err(error) = self.set.wait(timeout_ns, each) {
            panic!("cannot wait for the descriptors of a worker: {error}");
        }
    }

    /// Removes and returns the fiber of a wait.
    fn take_waiter(&self, key: Key) -> Option<Waiter> {
        self.waits.borrow_mut().get_mut(key).and_then(Option::take)
    }
}

/// Returns the epoll data word that contains `key`.
fn word(key: Key) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}
