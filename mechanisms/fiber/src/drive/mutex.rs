//! Fair mutex for fibers and threads.

use super::this_fiber::{deadline_ns_after, deadline_ns_at, has_passed};
use super::waitlist::Waitlist;
use crate::raw::MutexValue;
use crate::raw::Waiter;
use handover_base::sync::shared::{AtomicU32, Ordering};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// State of an unlocked mutex.
const FREE: u32 = 0;
/// State of a locked mutex for which no participant waits.
const HELD: u32 = 1;
/// State of a locked mutex for which a participant waits or is about to wait.
const CONTENDED: u32 = 2;

/// Mutex for fibers and threads: one participant at a time accesses the value. A waiting fiber
/// leaves its worker to other fibers.
///
/// Fair: an unlock hands the mutex to the participant that has waited longest, so that none waits
/// for ever, and the unlocking one cannot lock it again before that. Unlike the standard library's
/// mutex, it may be held across a suspension, and a panic does not poison it: the value is left as
/// the panic left it.
///
/// ```
/// use handover_fiber::{Config, Mutex, Runtime, yield_now};
/// use std::sync::Arc;
/// let runtime = Runtime::new(Config::workers(2))?;
/// let count = Arc::new(Mutex::new(0));
/// let add = |count: Arc<Mutex<u32>>| move || {
///     let mut count = count.lock();
///     let before = *count;
///     yield_now(); // holding it
///     *count = before + 1;
/// };
/// let fibers: Vec<_> =
///     (0..10).map(|_| runtime.spawn(add(count.clone()))).collect::<Result<_, _>>()?;
/// for fiber in fibers {
///     fiber.join()?;
/// }
/// assert_eq!(*count.lock(), 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
/// Locking and unlocking without contention: an atomic exchange each.
pub struct Mutex<T> {
    state: AtomicU32,
    waiting: Waitlist<()>,
    value: MutexValue<T>,
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            waiting: Waitlist::new(()),
            value: MutexValue::new(value),
        }
    }

    /// Locks the mutex, and waits while another participant holds it; returns a guard that unlocks
    /// it.
    ///
    /// # Blocking
    /// Blocks the fiber; on an ordinary thread, the thread. Blocks for ever if the caller already
    /// holds the mutex.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if !self.try_acquire() {
            self.lock_contended();
        }
        self.guard()
    }

    /// Locks the mutex if it is unlocked; returns `None` if another participant holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.try_acquire().then(|| self.guard())
    }

    /// Locks the mutex, and waits for at most `timeout` while another participant holds it. Returns
    /// `None` on a time-out.
    ///
    /// # Blocking
    /// As [`lock`](Self::lock), until the time-out.
    pub fn lock_timeout(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        self.lock_until_ns(deadline_ns_after(timeout))
    }

    /// Locks the mutex, and waits until `deadline` while another participant holds it. Returns
    /// `None` if the deadline passes first.
    ///
    /// # Blocking
    /// As [`lock`](Self::lock), until the deadline.
    pub fn lock_until(&self, deadline: Instant) -> Option<MutexGuard<'_, T>> {
        self.lock_until_ns(deadline_ns_at(deadline))
    }

    /// Locks the mutex, and waits until `deadline_ns` on CLOCK_MONOTONIC while another participant
    /// holds it. Returns `None` if the deadline passes first.
    ///
    /// # Blocking
    /// As [`lock`](Self::lock), until the deadline.
    pub fn lock_until_ns(&self, deadline_ns: u64) -> Option<MutexGuard<'_, T>> {
        loop {
            if self.try_acquire() {
                break;
            }
            if has_passed(deadline_ns) {
                return None;
            }
            if self.waiting.wait_until_unless(deadline_ns, |()| self.announce_waiter()) {
                break;
            }
        }
        Some(self.guard())
    }

    /// Creates the guard of the participant that has just locked the mutex.
    #[inline]
    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, marker: PhantomData }
    }

    /// Locks the mutex if it is unlocked; returns `true` on success.
    #[inline]
    fn try_acquire(&self) -> bool {
        // Acquire: pairs with the Release in unlock().
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Locks the mutex; waits while another participant holds it.
    #[cold]
    fn lock_contended(&self) {
        self.waiting.wait_unless(|()| self.announce_waiter());
    }

    /// Marks the mutex as contended before the caller waits. Returns `true` if the mutex was
    /// unlocked; the caller has then locked it. The wait list must be locked.
    fn announce_waiter(&self) -> bool {
        // Acquire: pairs with the Release in unlock(). If the mutex was free, it is the caller's
        // now; CONTENDED then only makes the unlock check the list.
        self.state.swap(CONTENDED, Ordering::Acquire) == FREE
    }

    /// Unlocks the mutex, or passes it to a waiting participant.
    #[inline]
    fn unlock(&self) {
        // Release: publishes the accesses to the value to the Acquire of the next holder.
        if self.state.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            self.hand_over();
        }
    }

    /// Passes the locked mutex to the participant that has waited longest, or unlocks it if none
    /// waits.
    #[cold]
    fn hand_over(&self) {
        loop {
            let mut locked = self.waiting.lock();
            let next = locked.waiters.pop_front();
            // Under the lock, so that no waiter is between its swap and the list. In the third case
            // the state stays CONTENDED. If there is a next waiter, the mutex belongs to it from
            // here on, and it learns that by being woken.
            match (&next, locked.waiters.is_empty()) {
                // Release: as in unlock().
                (None, _) => self.state.store(FREE, Ordering::Release),
                (Some(_), true) => self.state.store(HELD, Ordering::Release),
                (Some(_), false) => {}
            }
            drop(locked);
            // A waiter whose deadline has passed refuses; then the next one is tried.
            if next.is_none_or(Waiter::try_wake) {
                return;
            }
        }
    }

    /// Returns a mutable reference to the value; `&mut self` proves exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Consumes the mutex and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

// Relaxed: a snapshot, which may have changed since.
handover_base::debug_struct!(Mutex<T> as it { is_held: it.state.load(Ordering::Relaxed) != FREE });

/// Guard of a locked mutex; dropping it unlocks the mutex.
pub struct MutexGuard<'a, T> {
    pub(super) mutex: &'a Mutex<T>,
    /// Makes the guard `Sync` only if the value is `Sync`, as the guard gives access to it.
    /// `&Mutex<T>` alone is `Sync` whenever `T: Send`.
    marker: PhantomData<&'a mut T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.mutex.value.with_guard(self)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.mutex.value.with_guard_mut(self)
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.unlock();
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MutexGuard").field(&**self).finish()
    }
}
