//! Descriptors for which the fibers of a worker wait.

use super::state::WorkerState;
use crate::raw::Waiter;
use handover_base::epoll::{Epoll, Flags};
use handover_base::slab::{Key, Slab};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of fibers of a worker that wait for descriptors.
const WAITS_MAX: u32 = 1 << 28;
/// Maximum number of events that are read at a time.
const EVENTS_MAX: usize = 256;
/// Word of the descriptor that interrupts a wait; no wait has this index.
const INTERRUPT_WORD: u64 = u64::MAX;
/// Time in ns between two looks at the descriptors while fibers are ready. A look takes about 0.4 µs.
const LOOK_INTERVAL_NS: u64 = 25_000;

/// Epoll set of a worker, with the fibers that wait for its descriptors. Only the worker's thread accesses it.
#[derive(Debug)]
pub(crate) struct Readiness {
    set: Epoll,
    /// For each wait its fiber, from its suspension until the descriptor is ready or the wait is given up.
    waits: RefCell<Slab<Option<Waiter>>>,
    /// Time of the last look at the descriptors, in ns.
    looked_at_ns: Cell<u64>,
}

/// Wait for a descriptor, until it is passed to [`Readiness::end`].
#[derive(Debug)]
pub(crate) struct ReadinessWait<'a> {
    key: Key,
    fd: BorrowedFd<'a>,
    /// Duplicate of the descriptor that is in the set in its place, as another fiber waits for it.
    duplicate: Option<OwnedFd>,
}

impl Readiness {
    /// Creates an empty set, whose waits [`WorkerState::unpark`] interrupts.
    pub(crate) fn new(worker: &WorkerState) -> Result<Self, Errno> {
        let set = Epoll::new(EVENTS_MAX)?;
        set.add(worker.interrupt_descriptor()?, INTERRUPT_WORD, Flags::IN | Flags::ET)?;
        let waits = RefCell::new(Slab::new(WAITS_MAX));
        Ok(Self { set, waits, looked_at_ns: Cell::new(0) })
    }

    /// Adds a descriptor, of which one event of `flags` is to be reported.
    pub(crate) fn start<'a>(
        &self,
        fd: BorrowedFd<'a>,
        flags: Flags,
    ) -> Result<ReadinessWait<'a>, Errno> {
        let key = self.waits.borrow_mut().insert(None).map_err(|_| Errno::NOMEM)?;
        let add = |fd: BorrowedFd<'_>| self.set.add(fd, word(key), flags | Flags::ONESHOT);
        let added = match add(fd) {
            // The set contains each descriptor once.
            Err(Errno::EXIST) => fcntl_dupfd_cloexec(fd, 0)
                .and_then(|duplicate| add(duplicate.as_fd()).map(|()| Some(duplicate))),
            added => added.map(|()| None),
        };
        match added {
            Ok(duplicate) => Ok(ReadinessWait { key, fd, duplicate }),
            Err(errno) => {
                self.waits.borrow_mut().remove(key);
                Err(errno)
            }
        }
    }

    /// Stores the fiber that waits.
    pub(crate) fn set_waiter(&self, wait: &ReadinessWait<'_>, waiter: Waiter) {
        if let Some(slot) = self.waits.borrow_mut().get_mut(wait.key) {
            *slot = Some(waiter);
        }
    }

    /// Removes the fiber that waits; returns `false` if it was woken.
    pub(crate) fn withdraw(&self, wait: &ReadinessWait<'_>) -> bool {
        self.take_waiter(wait.key).is_some()
    }

    /// Removes the descriptor of a wait from the set.
    pub(crate) fn end(&self, wait: ReadinessWait<'_>) {
        let fd = wait.duplicate.as_ref().map_or(wait.fd, AsFd::as_fd);
        // It is in the set, as it was added and is still open.
        let _ = self.set.remove(fd);
        self.waits.borrow_mut().remove(wait.key);
    }

    /// Returns `true` if a fiber waits.
    #[inline]
    pub(crate) fn has_waits(&self) -> bool {
        !self.waits.borrow().is_empty()
    }

    /// Returns `true`, and counts as a look at `now_ns`, if the last look was long enough ago.
    pub(crate) fn is_look_due(&self, now_ns: u64) -> bool {
        let is_due = now_ns.saturating_sub(self.looked_at_ns.get()) >= LOOK_INTERVAL_NS;
        if is_due {
            self.looked_at_ns.set(now_ns);
        }
        is_due
    }

    /// Waits for events, without a time limit if `timeout_ns` is `None`, and passes the fibers whose descriptors are
    /// ready to `wake`.
    pub(crate) fn wait(&self, timeout_ns: Option<u64>, mut wake: impl FnMut(Waiter)) {
        let each = |word: u64, _| {
            let key = Key { index: word as u32, generation: (word >> 32) as u32 };
            self.take_waiter(key).into_iter().for_each(&mut wake);
        };
        if let Err(errno) = self.set.wait(timeout_ns, each) {
            panic!("wait for the descriptors of a worker: {errno}");
        }
    }

    fn take_waiter(&self, key: Key) -> Option<Waiter> {
        self.waits.borrow_mut().get_mut(key).and_then(Option::take)
    }
}

/// Returns the word of a wait in the epoll set.
fn word(key: Key) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}
