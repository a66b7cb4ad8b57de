//! One at a time, in the order in which they came.

use super::here::{deadline_ns, is_past};
use super::waiter::Waiter;
use super::waitlist::Waitlist;
use crate::raw::Guarded;
use handover_base::sync::shared::{AtomicU32, Ordering};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody waits or is about to.
const WANTED: u32 = 2;

/// A value that one fiber or thread at a time may use; whoever waits leaves its worker to others.
///
/// It is handed over to whoever has waited longest, so that nobody waits for ever, and who gives it up does not
/// get it again before. Unlike the standard library's it may be held across a suspension, and a panic does not
/// poison it: what is inside is as the panic left it.
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
/// To lock and to unlock what nobody wants: an atomic exchange each.
pub struct Mutex<T> {
    word: AtomicU32,
    waiting: Waitlist<()>,
    value: Guarded<T>,
}

impl<T> Mutex<T> {
    /// Free.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), waiting: Waitlist::new(()), value: Guarded::new(value) }
    }

    /// Waits until it is the caller's.
    ///
    /// # Blocking
    /// The fiber; on an ordinary thread, the thread. For ever if the caller has it already.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if !self.try_take() {
            self.lock_contended();
        }
        self.guard()
    }

    /// Takes it if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.try_take().then(|| self.guard())
    }

    /// Waits until it is the caller's, for so long at most.
    ///
    /// # Blocking
    /// As [`lock`](Self::lock), but no longer.
    pub fn lock_timeout(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        self.lock_until_ns(deadline_ns(timeout))
    }

    /// Waits until it is the caller's, or it is `deadline_ns` on CLOCK_MONOTONIC.
    ///
    /// # Blocking
    /// As [`lock`](Self::lock), but no longer.
    pub fn lock_until_ns(&self, deadline_ns: u64) -> Option<MutexGuard<'_, T>> {
        loop {
            if self.try_take() {
                break;
            }
            if is_past(deadline_ns) {
                return None;
            }
            if self.waiting.wait_until_unless(deadline_ns, |()| self.want()) {
                break;
            }
        }
        Some(self.guard())
    }

    /// The guard of whoever has just taken the mutex.
    #[inline]
    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, lends: PhantomData }
    }

    #[inline]
    fn try_take(&self) -> bool {
        // Acquire: pairs with the Release in unlock().
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_contended(&self) {
        self.waiting.wait_unless(|()| self.want());
    }

    /// Says, under the list's lock, that somebody waits; whether it was free, and so is the caller's.
    fn want(&self) -> bool {
        // Acquire: pairs with the Release in unlock(). If it was free it is ours now, and WANTED costs who
        // unlocks a look at the list.
        self.word.swap(WANTED, Ordering::Acquire) == FREE
    }

    #[inline]
    fn unlock(&self) {
        // Release: publishes what was done with the value to the Acquire of who takes it.
        if self.word.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            self.hand_over();
        }
    }

    #[cold]
    fn hand_over(&self) {
        loop {
            let mut inner = self.waiting.lock();
            let next = inner.waiters.pop_front();
            // Under the lock, so that nobody is between its swap and the list. Otherwise the word stays WANTED: the
            // mutex is the next one's, who is told by being woken.
            match (&next, inner.waiters.is_empty()) {
                // Release: as in unlock().
                (None, _) => self.word.store(FREE, Ordering::Release),
                (Some(_), true) => self.word.store(HELD, Ordering::Release),
                (Some(_), false) => {}
            }
            drop(inner);
            // Whose time has come does not take it: the one behind does.
            if next.is_none_or(Waiter::offer) {
                return;
            }
        }
    }

    /// The value, as nobody else can have the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: stale as soon as it is said.
        let is_held = self.word.load(Ordering::Relaxed) != FREE;
        f.debug_struct("Mutex").field("is_held", &is_held).finish_non_exhaustive()
    }
}

/// The mutex is the caller's until this is dropped.
pub struct MutexGuard<'a, T> {
    pub(super) mutex: &'a Mutex<T>,
    /// A guard lends the value, so that it is `Sync` only if the value is; a mutex always is.
    lends: PhantomData<&'a mut T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.mutex.value.held(self)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.mutex.value.held_mut(self)
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
