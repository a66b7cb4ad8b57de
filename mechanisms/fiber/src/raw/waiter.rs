//! Waiting participants: fibers and threads, with or without a deadline, and tasks.
//!
//! A timed wait is on the stack of its fiber, which may reuse that memory as soon as it goes on. So
//! the waking thread takes the fiber out first. Its timer is in the wheel of the fiber's worker,
//! and the fiber stays with that worker until it goes on: the timer never finds freed memory, and
//! the fiber never runs elsewhere while its worker is still suspending it.

use super::control::{FiberControl, Runnable};
use super::race::WakeRace;
#[cfg(feature = "async")]
use super::task::TaskWaiter;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::{self, Thread};

/// Waiting fiber, thread or task, and the exclusive right to wake it.
#[derive(Debug)]
pub(crate) enum Waiter {
    Fiber(Runnable),
    Thread(Arc<ThreadWaiter>),
    /// Fiber that waits with a deadline.
    TimedFiber(TimedWaker),
    #[cfg(feature = "async")]
    Task(Arc<TaskWaiter>),
}

#[cfg(feature = "async")]
impl From<Arc<TaskWaiter>> for Waiter {
    fn from(task: Arc<TaskWaiter>) -> Self {
        Self::Task(task)
    }
}

/// Thread that waits, with or without a deadline.
#[derive(Debug)]
pub(crate) struct ThreadWaiter {
    thread: Thread,
    /// Race between the wake-up and the deadline.
    pub(crate) race: WakeRace,
}

impl Waiter {
    /// Wakes the waiter; a fiber is passed to `wake_fiber`. Returns `false` if the wait's deadline
    /// had passed, so that the caller can notify the next waiter instead.
    #[inline]
    pub(crate) fn wake_with(self, wake_fiber: impl FnOnce(Runnable)) -> bool {
        match self {
            Self::Fiber(fiber) => {
                wake_fiber(fiber);
                true
            }
            Self::Thread(sleeper) => sleeper.wake(),
            Self::TimedFiber(waker) => waker.take_fiber().map(wake_fiber).is_some(),
            #[cfg(feature = "async")]
            Self::Task(task) => task.take_waker().map(std::task::Waker::wake).is_some(),
        }
    }

    /// Returns `true` if both are the same waiter. Always `false` for fibers without a deadline.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::TimedFiber(one), Self::TimedFiber(other)) => one == other,
            (Self::Thread(one), Self::Thread(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl ThreadWaiter {
    /// Creates the waiter of the calling thread.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { thread: thread::current(), race: WakeRace::new() })
    }

    /// Wakes the thread; returns `false` if the wait's deadline had passed.
    #[cold]
    fn wake(&self) -> bool {
        let in_time = self.race.try_wake();
        if in_time {
            self.thread.unpark();
        }
        in_time
    }
}

/// State of a fiber's wait with a deadline, on the stack of the fiber.
#[derive(Debug)]
pub(super) struct TimedWait {
    /// Race between the wake-up and the deadline.
    pub(super) race: WakeRace,
    /// The suspended fiber, which the winner of `race` takes.
    pub(super) fiber: UnsafeCell<Option<Runnable>>,
}

/// Right to wake a fiber that waits with a deadline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TimedWaker(pub(super) NonNull<TimedWait>);

// SAFETY: a waker accesses the timed wait through `take_fiber` only, which may run on any thread:
// `fiber` is accessed by the winner of the race only, and a `Runnable` is `Send`.
unsafe impl Send for TimedWaker {}

impl TimedWaker {
    /// Returns the fiber, which the caller must make ready; `None` if its deadline had already
    /// passed.
    pub(crate) fn take_fiber(self) -> Option<Runnable> {
        // SAFETY: the timed wait is valid until the fiber was taken out below or `try_wake` has let
        // go. Both happen in this call, which is made once, as only one waker of a timed wait is
        // passed on.
        let timed_wait = unsafe { self.0.as_ref() };
        if !timed_wait.race.try_wake() {
            return None;
        }
        // SAFETY: this thread has won the race, and only the winner accesses the fiber.
        unsafe { (*timed_wait.fiber.get()).take() }
    }
}

/// Payload of a timer: a sleeping fiber, or a wait with a deadline. A single pointer, as a wheel
/// may hold a million of them.
#[derive(Debug)]
pub(crate) struct TimerPayload(NonNull<u8>);

/// Bit of a payload's address: set for the address of a [`TimedWait`], and clear for a fiber.
const TIMED_WAIT_TAG: usize = 1;
const _: () = assert!(
    align_of::<FiberControl>() > TIMED_WAIT_TAG && align_of::<TimedWait>() > TIMED_WAIT_TAG
);

// SAFETY: a fiber is `Send`; a timed wait is only in the wheel of its own worker, and never leaves
// that thread.
unsafe impl Send for TimerPayload {}

impl TimerPayload {
    #[inline]
    pub(crate) fn for_fiber(fiber: Runnable) -> Self {
        Self(fiber.into_control().cast())
    }

    pub(super) fn for_timed_wait(timed_wait: NonNull<TimedWait>) -> Self {
        Self(timed_wait.cast::<u8>().map_addr(|addr| addr | TIMED_WAIT_TAG))
    }

    /// Prefetches the memory that [`expire`](Self::expire) reads.
    #[inline]
    pub(crate) fn prefetch(&self) {
        FiberControl::prefetch(self.0.as_ptr());
    }

    /// Returns the fiber whose deadline has passed; `None` if it was woken before.
    #[inline]
    pub(crate) fn expire(self) -> Option<Runnable> {
        if self.0.addr().get() & TIMED_WAIT_TAG == 0 {
            // SAFETY: without the tag, the pointer came from into_control(), and is converted back
            // once, as `self` is consumed.
            return Some(unsafe { Runnable::from_control(self.0.cast()) });
        }
        self.expire_timed_wait()
    }

    /// Records that the deadline has passed; returns the fiber unless it was woken before.
    #[cold]
    fn expire_timed_wait(self) -> Option<Runnable> {
        let at = self.0.as_ptr().map_addr(|addr| addr & !TIMED_WAIT_TAG).cast::<TimedWait>();
        // SAFETY: a fiber that goes on cancels its timer, on this thread, before its timed wait
        // ends.
        let timed_wait = unsafe { &*at };
        if !timed_wait.race.expire() {
            return None;
        }
        // SAFETY: this thread has won the race, and only the winner accesses the fiber.
        unsafe { (*timed_wait.fiber.get()).take() }
    }
}
