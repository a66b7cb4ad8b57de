//! Condition variable for fibers and threads.

use super::mutex::{Mutex, MutexGuard};
use super::this_fiber::{deadline_ns_after, deadline_ns_at, has_passed};
use super::waitlist::Waitlist;
use crate::raw::Waiter;
use std::time::{Duration, Instant};

/// Condition variable for fibers and threads: releases a mutex while the caller waits for a
/// notification.
///
/// Check the condition again when [`wait`](Self::wait) returns: another participant may have
/// changed it in between. There are no spurious wake-ups, but code that relies on that relies on
/// every notifier.
///
/// ```
/// use handover_fiber::{Condition, Config, Mutex, Runtime};
/// static READY: Mutex<bool> = Mutex::new(false);
/// static CHANGED: Condition = Condition::new();
///
/// let runtime = Runtime::new(Config::default())?;
/// let waits = runtime.spawn(|| {
///     let mut ready = READY.lock();
///     while !*ready {
///         ready = CHANGED.wait(ready);
///     }
/// })?;
/// *READY.lock() = true;
/// CHANGED.notify_one();
/// waits.join()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Condition {
    waiting: Waitlist<()>,
}

impl Condition {
    /// Creates a condition variable without waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiting: Waitlist::new(()) }
    }

    /// Releases the mutex, waits for a notification, and locks the mutex again. A notification
    /// after the release is not missed.
    ///
    /// # Blocking
    /// The fiber; on an ordinary thread, the thread.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex: &'a Mutex<T> = guard.mutex;
        super::wait::suspend_caller(|waiter| {
            self.waiting.lock().waiters.push_back(waiter);
            // Only now: a notifier that locks the mutex afterwards finds this waiter in the list.
            // The waiter cannot go on, and perhaps drop the mutex, before this closure ends: only
            // the worker that calls it moves a woken fiber from its inbox to its run queue.
            drop(guard);
            None
        });
        mutex.lock()
    }

    /// Waits as [`wait`](Self::wait) does, for at most `timeout`. Returns the guard of the locked
    /// mutex, and `true` if the caller was notified, `false` on a time-out.
    ///
    /// # Blocking
    /// Blocks as [`wait`](Self::wait) does, but waits for a notification only until the time-out;
    /// locking the mutex again may take longer.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        self.wait_until_ns(guard, deadline_ns_after(timeout))
    }

    /// Waits as [`wait`](Self::wait) does, until `deadline` at most. Returns the guard of the
    /// locked mutex, and `true` if the caller was notified, `false` on a time-out.
    ///
    /// # Blocking
    /// As [`wait_timeout`](Self::wait_timeout).
    pub fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Instant,
    ) -> (MutexGuard<'a, T>, bool) {
        self.wait_until_ns(guard, deadline_ns_at(deadline))
    }

    /// Waits as [`wait`](Self::wait) does, until `deadline_ns` on CLOCK_MONOTONIC at most. Returns
    /// the guard of the locked mutex, and `true` if the caller was notified, `false` on a time-out.
    ///
    /// # Blocking
    /// As [`wait_timeout`](Self::wait_timeout).
    pub fn wait_until_ns<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline_ns: u64,
    ) -> (MutexGuard<'a, T>, bool) {
        let mutex: &'a Mutex<T> = guard.mutex;
        if has_passed(deadline_ns) {
            return (guard, false);
        }
        let commit = |waiter| {
            self.waiting.lock().waiters.push_back(waiter);
            // As in wait(): released only now.
            drop(guard);
            None
        };
        let is_notified = super::wait::suspend_caller_until(deadline_ns, commit, |waiter| {
            self.waiting.withdraw(waiter)
        });
        (mutex.lock(), is_notified)
    }

    /// Wakes the participant that has waited longest; returns `false` if no participant waits.
    pub fn notify_one(&self) -> bool {
        loop {
            let next = self.waiting.lock().waiters.pop_front();
            match next.map(Waiter::try_wake) {
                None => return false,
                Some(true) => return true,
                Some(false) => {} // its deadline has passed
            }
        }
    }

    /// Wakes all waiting participants; returns the number of participants woken.
    pub fn notify_all(&self) -> usize {
        let all = std::mem::take(&mut self.waiting.lock().waiters);
        all.into_iter().map(|waiter| usize::from(waiter.try_wake())).sum()
    }
}

impl Default for Condition {
    fn default() -> Self {
        Self::new()
    }
}
