//! Waiting participants: a fiber, which leaves its worker to others, or a thread, which sleeps.

use crate::raw::{self, Race, Ring, Runnable};
use handover_base::clock;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::Duration;

/// A waiting participant, and the right to wake it.
#[derive(Debug)]
pub(crate) enum Waiter {
    Fiber(Runnable),
    Thread(Arc<Sleeper>),
    /// A fiber that waits until a deadline at most.
    Alarm(Ring),
}

/// A waiting thread.
#[derive(Debug)]
pub(crate) struct Sleeper {
    thread: Thread,
    race: Race,
}

impl Waiter {
    /// Wakes the participant, unless its deadline has passed.
    #[inline]
    pub(crate) fn wake(self) {
        self.offer();
    }

    /// Wakes the participant as `wake` does; returns `false` if its deadline had passed, so that
    /// the caller can pass the notification to the next waiter.
    #[inline]
    pub(crate) fn offer(self) -> bool {
        match self {
            Self::Fiber(fiber) => {
                wake_fiber(fiber);
                true
            }
            Self::Thread(sleeper) => sleeper.wake(),
            Self::Alarm(ring) => ring.brought().map(wake_fiber).is_some(),
        }
    }

    /// Returns `true` if both are the same waiter; always `false` for fibers without a deadline.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Alarm(one), Self::Alarm(other)) => one == other,
            (Self::Thread(one), Self::Thread(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Sleeper {
    fn new() -> Arc<Self> {
        Arc::new(Self { thread: thread::current(), race: Race::new() })
    }

    #[cold]
    fn wake(&self) -> bool {
        let in_time = self.race.bring();
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
        None => fiber.send_home(false),
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
    let sleeper = Sleeper::new();
    if commit(Waiter::Thread(Arc::clone(&sleeper))).is_some() {
        return;
    }
    while !sleeper.race.is_brought() {
        thread::park();
    }
}

#[cold]
fn wait_as_thread_until(
    deadline_ns: u64,
    commit: impl FnOnce(Waiter) -> Option<Waiter>,
    mut withdraw: impl FnMut(&Waiter) -> bool,
) -> bool {
    let sleeper = Sleeper::new();
    if commit(Waiter::Thread(Arc::clone(&sleeper))).is_some() {
        return true;
    }
    while !sleeper.race.is_brought() {
        let left_ns = deadline_ns.saturating_sub(clock::now_ns());
        if left_ns != 0 {
            thread::park_timeout(Duration::from_nanos(left_ns));
        } else if sleeper.race.expire() {
            let waiter = Waiter::Thread(Arc::clone(&sleeper));
            // If it is not there, another thread has it, and will let go of it or put it back.
            while !withdraw(&waiter) && !sleeper.race.is_let_go() {
                thread::yield_now();
            }
            return false;
        }
    }
    true
}
