//! To wait for what others do under a mutex.

use super::here::{deadline_ns, is_past};
use super::mutex::{Mutex, MutexGuard};
use super::waiter::Waiter;
use super::waitlist::Waitlist;
use handover_base::sync::shared::{AtomicBool, Ordering};
use std::time::Duration;

/// Where fibers and threads wait, giving up a mutex, until somebody says that there is something new.
///
/// Look again when [`wait`](Self::wait) returns: somebody else may have been there before. Nobody is woken for no
/// reason, but who relies on that relies on every notifier.
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
    /// Nobody waits.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiting: Waitlist::new(()) }
    }

    /// Gives up the mutex, waits to be notified, and takes the mutex again. A notification that comes after it
    /// was given up is not missed.
    ///
    /// # Blocking
    /// The fiber; on an ordinary thread, the thread.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex: &'a Mutex<T> = guard.mutex;
        let is_done = AtomicBool::new(false);
        super::waiter::wait(|waiter| {
            let guard = guard; // the fiber's own stack may be in use again before this is over
            self.waiting.lock().waiters.push_back(waiter);
            // Only now: whoever notifies has the mutex first, and then finds us in the list.
            drop(guard);
            // Release: pairs with the Acquire below.
            is_done.store(true, Ordering::Release);
            None
        });
        // Whoever was woken that soon must not go on, and perhaps end the mutex, before it is given up.
        // Acquire: pairs with the Release above.
        while !is_done.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        mutex.lock()
    }

    /// The same for so long at most; and whether it was notified.
    ///
    /// # Blocking
    /// As [`wait`](Self::wait), but no longer for a notification; the mutex is waited for as long as it takes.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        self.wait_until_ns(guard, deadline_ns(timeout))
    }

    /// The same until it is `deadline_ns` on CLOCK_MONOTONIC.
    ///
    /// # Blocking
    /// As [`wait_timeout`](Self::wait_timeout).
    pub fn wait_until_ns<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline_ns: u64,
    ) -> (MutexGuard<'a, T>, bool) {
        let mutex: &'a Mutex<T> = guard.mutex;
        if is_past(deadline_ns) {
            return (guard, false);
        }
        let commit = |waiter| {
            self.waiting.lock().waiters.push_back(waiter);
            // As in wait(). Until this is over its worker, with which it stays, cannot run the fiber.
            drop(guard);
            None
        };
        let is_notified =
            super::waiter::wait_until(deadline_ns, commit, |waiter| self.waiting.withdraw(waiter));
        (mutex.lock(), is_notified)
    }

    /// Wakes the one that has waited longest; whether there was one.
    pub fn notify_one(&self) -> bool {
        loop {
            let next = self.waiting.lock().waiters.pop_front();
            match next.map(Waiter::offer) {
                None => return false,
                Some(true) => return true,
                Some(false) => {} // its time had come
            }
        }
    }

    /// Wakes all who wait; how many.
    pub fn notify_all(&self) -> usize {
        let all = std::mem::take(&mut self.waiting.lock().waiters);
        all.into_iter().map(|waiter| usize::from(waiter.offer())).sum()
    }
}

impl Default for Condition {
    fn default() -> Self {
        Self::new()
    }
}
