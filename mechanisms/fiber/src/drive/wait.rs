//! Waiting and waking: a fiber leaves its worker to others, a thread sleeps.

use crate::raw::{
    Runnable, ThreadWaiter, Waiter, Waiters, park_running, suspend_fiber_until, this_worker,
};
use handover_base::clock;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

impl Waiter {
    /// Wakes the waiting fiber or thread, unless its deadline has passed.
    #[inline]
    pub(crate) fn wake(self) {
        self.try_wake();
    }

    /// Wakes the waiting fiber or thread. Returns `false` if its deadline had passed, so that the
    /// caller can pass the notification to the next waiter.
    #[inline]
    pub(crate) fn try_wake(self) -> bool {
        self.wake_with(wake_fiber)
    }
}

/// Wakes all waiters of a gate, tasks last.
#[inline]
pub(crate) fn wake_all(waiters: Waiters<Waiter>) {
    let mut tasks = TasksToWake::default();
    tasks.wake_others(waiters);
    tasks.wake();
}

/// Tasks to wake after the other waiters of a gate.
///
/// Their wakers are foreign code, which may panic, or drop futures that wait for the same gate. The
/// other waiters must be awake and their nodes released by then.
#[derive(Default)]
pub(crate) struct TasksToWake {
    #[cfg(feature = "async")]
    wakers: Vec<std::task::Waker>,
}

impl TasksToWake {
    /// Wakes the fibers and threads among the waiters of a gate, and keeps the tasks.
    #[inline]
    pub(crate) fn wake_others(&mut self, waiters: Waiters<Waiter>) {
        for waiter in waiters {
            match waiter {
                #[cfg(feature = "async")]
                Waiter::Task(task) => self.wakers.extend(task.take_waker()),
                other => other.wake(),
            }
        }
    }

    /// Wakes the tasks.
    #[inline]
    pub(crate) fn wake(self) {
        #[cfg(feature = "async")]
        self.wakers.into_iter().for_each(std::task::Waker::wake);
    }
}

/// Makes a woken fiber ready, from any thread.
#[inline]
fn wake_fiber(fiber: Runnable) {
    match this_worker() {
        Some(worker) => worker.wake(fiber),
        None => fiber.push_to_home(false),
    }
}

/// Suspends the calling fiber or thread. `commit` stores the passed waiter for the participant that
/// will wake it, or returns the waiter if the caller need not wait.
///
/// `commit` runs once the fiber is suspended, on its worker: the fiber may be woken at once.
#[inline(always)] // see park_running()
pub(crate) fn suspend_caller(commit: impl FnOnce(Waiter) -> Option<Waiter>) {
    let Some(running) = this_worker().and_then(|worker| worker.running_fiber()) else {
        return wait_as_thread(commit);
    };
    park_running(running, |fiber| match commit(Waiter::Fiber(fiber)) {
        Some(Waiter::Fiber(fiber)) => Some(fiber),
        _ => None,
    });
}

/// Suspends the caller like [`suspend_caller`], until `deadline_ns` at most. Returns `true` if the
/// caller was woken, or `commit` returned the waiter. `withdraw` removes the waiter that `commit`
/// has stored, and returns `true` if it was still stored.
pub(crate) fn suspend_caller_until(
    deadline_ns: u64,
    commit: impl FnOnce(Waiter) -> Option<Waiter>,
    withdraw: impl FnMut(&Waiter) -> bool,
) -> bool {
    match this_worker().and_then(|worker| Some((worker, worker.running_fiber()?))) {
        Some((worker, running)) => {
            suspend_fiber_until(worker, running, deadline_ns, commit, withdraw)
        }
        None => wait_as_thread_until(deadline_ns, commit, withdraw),
    }
}

/// Does [`suspend_caller`] for a thread that runs no fiber.
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

/// Does [`suspend_caller_until`] for a thread that runs no fiber.
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
