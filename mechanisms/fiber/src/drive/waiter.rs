//! Waiting participants: a fiber, which leaves its worker to others, or a thread, which sleeps.

use crate::raw::{self, Race, Runnable, TimedWaker};
use handover_base::clock;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::Duration;

/// A waiting participant, and the right to wake it.
#[derive(Debug)]
pub(crate) enum Waiter {
    Fiber(Runnable),
    Thread(Arc<ThreadWaiter>),
    /// A fiber that waits until a deadline at most.
    TimedFiber(TimedWaker),
}

/// A waiting thread.
#[derive(Debug)]
pub(crate) struct ThreadWaiter {
    thread: Thread,
    race: Race,
}

impl Waiter {
    /// Wakes the participant, unless its deadline has passed.
    #[inline]
    pub(crate) fn wake(self) {
        self.try_wake();
    }

    /// Wakes the participant as `wake` does; returns `false` if its deadline had passed, so that
    /// the caller can pass the notification to the next waiter.
    #[inline]
    pub(crate) fn try_wake(self) -> bool {
        match self {
            Self::Fiber(fiber) => {
                wake_fiber(fiber);
                true
            }
            Self::Thread(sleeper) => sleeper.wake(),
            Self::TimedFiber(waker) => waker.take_fiber().map(wake_fiber).is_some(),
        }
    }

    /// Returns `true` if both are the same waiter; always `false` for fibers without a deadline.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::TimedFiber(one), Self::TimedFiber(other)) => one == other,
            (Self::Thread(one), Self::Thread(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl ThreadWaiter {
    fn new() -> Arc<Self> {
        Arc::new(Self { thread: thread::current(), race: Race::new() })
    }

    #[cold]
    fn wake(&self) -> bool {
        let in_time = self.race.try_wake();
        if in_time {
            self.thread.unpark();
        }
        in_time
    }
}

#[inline]
fn wake_fiber(fiber: Runnable) {
    match raw::current() {
        Some(worker) if fiber.home() == worker.address() => worker.push_woken(fiber),
        Some(worker) => worker.send(fiber),
        None => fiber.push_to_home(false),
    }
}

/// Suspends the caller and passes it to `commit`, which stores it where it will be woken, or
/// returns it.
///
/// `commit` runs once the fiber is suspended, on its worker: the fiber may be woken at once.
#[inline(always)] // see raw::park
pub(crate) fn wait(commit: impl FnOnce(Waiter) -> Option<Waiter>) {
    let Some(running) = raw::current().and_then(|worker| worker.running()) else {
        return wait_as_thread(commit);
    };
    raw::park(running, |fiber| match commit(Waiter::Fiber(fiber)) {
        Some(Waiter::Fiber(fiber)) => Some(fiber),
        _ => None,
    });
}

/// Waits as `wait`, until `deadline_ns` at most; returns `true` if the caller was woken, or
/// `commit` returned it. `withdraw` removes the waiter from where `commit` has stored it, and
/// returns `true` if it was still there.
pub(crate) fn wait_until(
    deadline_ns: u64,
    commit: impl FnOnce(Waiter) -> Option<Waiter>,
    withdraw: impl FnMut(&Waiter) -> bool,
) -> bool {
    match raw::current().and_then(|worker| Some((worker, worker.running()?))) {
        Some((worker, running)) => raw::wait_until(worker, running, deadline_ns, commit, withdraw),
        None => wait_as_thread_until(deadline_ns, commit, withdraw),
    }
}

#[cold]
fn wait_as_thread(commit: impl FnOnce(Waiter) -> Option<Waiter>) {
    let sleeper = ThreadWaiter::new();
    if commit(Waiter::Thread(Arc::clone(&sleeper))).is_some() {
        return;
    }
    while !sleeper.race.is_woken() {
        thread::park();
    }
}

#[cold]
fn wait_as_thread_until(
    deadline_ns: u64,
    commit: impl FnOnce(Waiter) -> Option<Waiter>,
    mut withdraw: impl FnMut(&Waiter) -> bool,
) -> bool {
    let sleeper = ThreadWaiter::new();
    if commit(Waiter::Thread(Arc::clone(&sleeper))).is_some() {
        return true;
    }
    while !sleeper.race.is_woken() {
        let left_ns = deadline_ns.saturating_sub(clock::now_ns());
        if left_ns != 0 {
            thread::park_timeout(Duration::from_nanos(left_ns));
        } else if sleeper.race.expire() {
            let waiter = Waiter::Thread(Arc::clone(&sleeper));
            // If it is not there, another thread has it, and will let go of it or put it back.
            while !withdraw(&waiter) && !sleeper.race.is_released() {
                thread::yield_now();
            }
            return false;
        }
    }
    true
}
