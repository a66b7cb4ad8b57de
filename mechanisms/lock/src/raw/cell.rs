//! The guarded cell: a word that grants access, and a guard that has it.

use crate::RawTryLock;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use handover_base::sync::{UnsafeCell, const_unless_loom};

/// Lock around a value, for threads that have other work to do while it is held.
///
/// [`try_lock`](Self::try_lock) reads before it writes: while a thread holds the lock, each try of
/// the others is a load from their own cache, however many they are. There is no queue and no
/// fairness: the first exchange gets the lock. There is no poisoning: a holder that panics frees
/// the lock, and the next holder finds the value as it was left.
///
/// # Layout
/// The word is one byte beside the value, so that a small value travels to the next holder on the
/// same cache line as the lock: one transfer instead of two. If other threads keep trying while the
/// holder writes, this sharing costs the holder; then give the value lines of its own with
/// `TryLock<CachePadded<T>>`, which puts the word on a line of its own too.
///
/// ```
/// use handover_base::sync::CachePadded;
/// use handover_lock::TryLock;
/// assert_eq!(size_of::<TryLock<u32>>(), 8);
/// assert_eq!(size_of::<TryLock<CachePadded<u32>>>(), 256); // 128 for the word, 128 for the value
/// ```
///
/// # Example
/// ```
/// use handover_lock::TryLock;
/// let journal = TryLock::new(Vec::new());
/// if let Some(mut held) = journal.try_lock() {
///     held.push("first");
///     assert!(journal.try_lock().is_none(), "locked twice by the holder");
/// } // dropped: free
/// assert_eq!(journal.into_inner(), ["first"]);
/// ```
///
/// A lock is invariant in `T`: it cannot stand for a lock of a value with a shorter lifetime.
///
/// ```compile_fail,E0597
/// let lock = handover_lock::TryLock::new("static");
/// {
///     let short = String::from("freed at the end of this block");
///     let shared: &handover_lock::TryLock<&str> = &lock;
///     *shared.try_lock().unwrap() = &short;
/// }
/// let freed: &'static str = lock.into_inner();
/// ```
#[derive(Default)]
pub struct TryLock<T: ?Sized> {
    word: RawTryLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by `&mut self`, by value, or through a TryLockGuard, and the word
// allows one guard at a time. So sharing the lock only moves access to T between threads, which T:
// Send allows.
unsafe impl<T: ?Sized + Send> Sync for TryLock<T> {}

// SAFETY: the word is plain data that belongs to no thread; T: Send allows moving the value.
unsafe impl<T: ?Sized + Send> Send for TryLock<T> {}

impl<T> TryLock<T> {
    const_unless_loom! {
        /// Creates an unlocked lock around `value`.
        #[inline]
        pub const fn new(value: T) -> Self {
            Self { word: RawTryLock::new(), value: UnsafeCell::new(value) }
        }
    }

    /// Consumes the lock and returns the value. It need not lock: no guard borrows a lock that is
    /// moved.
    #[inline]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> TryLock<T> {
    /// Acquires the lock if it is free; returns `None` if it is held. The returned guard frees the
    /// lock when dropped.
    ///
    /// `None` means that a thread (perhaps the calling one) held the lock at some moment during the
    /// call. There are no spurious failures.
    ///
    /// # Cost
    /// Like [`RawTryLock::try_lock`].
    #[inline]
    pub fn try_lock(&self) -> Option<TryLockGuard<'_, T>> {
        self.word.try_lock().then(|| TryLockGuard { lock: self, _variance: PhantomData })
    }

    /// Waits until the lock is free, and acquires it. The returned guard frees the lock when
    /// dropped.
    ///
    /// For short critical sections: the wait never sleeps.
    ///
    /// ```
    /// let counter = handover_lock::TryLock::new(0);
    /// std::thread::scope(|scope| {
    ///     for _ in 0..2 {
    ///         scope.spawn(|| *counter.lock() += 1);
    ///     }
    /// });
    /// assert_eq!(counter.into_inner(), 2);
    /// ```
    ///
    /// # Blocking
    /// Like [`RawTryLock::lock`].
    ///
    /// # Cost
    /// Free: like [`try_lock`](Self::try_lock).
    #[inline]
    pub fn lock(&self) -> TryLockGuard<'_, T> {
        self.word.lock();
        TryLockGuard { lock: self, _variance: PhantomData }
    }

    /// Returns `true` if the lock was held when it was read; this may have changed since.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.word.is_locked()
    }

    /// Returns a mutable reference to the value without locking. `&mut self` proves that there is
    /// no guard.
    ///
    /// This works even after a guard was leaked with [`core::mem::forget`], which makes every later
    /// `try_lock` fail.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: a guard borrows the lock, so that `&mut self` excludes a live guard (a forgotten
        // one cannot be used); the reference made here borrows `self` mutably.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> From<T> for TryLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for TryLock<T> {
    /// Formats the value if the lock is free, `<locked>` if it is held.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(held) => f.debug_struct("TryLock").field("value", &&*held).finish(),
            None => f.debug_struct("TryLock").field("value", &format_args!("<locked>")).finish(),
        }
    }
}

/// Exclusive access to the value of a [`TryLock`]; dropping it frees the lock.
///
/// A guard may be sent to another thread (if `T: Send`) and dropped there: the unlock is a store
/// that any thread may make, so that a guard can be handed over with the work that it protects.
/// POSIX forbids this for its locks.
///
/// ```
/// let lock = handover_lock::TryLock::new(1);
/// let mut held = lock.try_lock().unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(move || *held += 1); // taken here, freed there
/// });
/// assert_eq!(*lock.try_lock().unwrap(), 2);
/// ```
///
/// Sharing a guard between threads needs `T: Sync`, as sharing a `&mut T` does:
///
/// ```compile_fail,E0277
/// let lock = handover_lock::TryLock::new(std::cell::Cell::new(1));
/// let held = lock.try_lock().unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| held.set(2));
/// });
/// ```
///
/// A guard is invariant in `T` too: it cannot stand for a guard of a value with a shorter lifetime.
///
/// ```compile_fail,E0597
/// let lock = handover_lock::TryLock::new("static");
/// {
///     let short = String::from("freed at the end of this block");
///     let mut held: handover_lock::TryLockGuard<&str> = lock.try_lock().unwrap();
///     *held = &short;
/// }
/// let freed: &'static str = lock.into_inner();
/// ```
#[must_use = "the lock is freed as soon as the guard is dropped"]
pub struct TryLockGuard<'a, T: ?Sized> {
    lock: &'a TryLock<T>,
    /// Marker that makes the guard `Send` and `Sync` under the same conditions as `&mut T`. The
    /// lock reference alone would make the guard of a `T: Send + !Sync` `Sync`.
    _variance: PhantomData<&'a mut T>,
}

impl<T: ?Sized> Deref for TryLockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while this guard lives, its lock's word stays taken, so that no other guard
        // exists. The reference borrows the guard, so it ends before the unlock.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> DerefMut for TryLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: no other guard exists (see deref()), and `&mut self` excludes other references
        // from this one.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized> Drop for TryLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.word.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for TryLockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for TryLockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
