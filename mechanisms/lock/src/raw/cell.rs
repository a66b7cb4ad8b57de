//! The guarded cell: the word decides, the guard is the permission.

use crate::RawTryLock;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use handover_base::sync::UnsafeCell;

/// A value behind a lock that can be tried and never waited for.
///
/// [`try_lock`](Self::try_lock) looks before it writes: while somebody holds the lock, asking
/// costs a load from the asker's own cache, however many ask. There is no queue and no fairness:
/// whoever exchanges first has it. There is no poisoning: a holder that panics frees the lock, and
/// what it left half done is the next holder's to find.
///
/// # Layout
/// The word is one byte beside the value, so a small value travels to the next holder on the same
/// cache line as the lock: one transfer instead of two. Where others keep asking while the holder
/// writes, that sharing costs the holder; then give the value lines of its own with
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
///     assert!(journal.try_lock().is_none(), "busy, for its own holder too");
/// } // dropped: free
/// assert_eq!(journal.into_inner(), ["first"]);
/// ```
///
/// A lock never stands for one of a value that lives shorter (it is invariant in `T`):
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

// SAFETY: the value is reached by `&mut self`, by value, or through a Guard, of which the word
// admits one at a time; sharing the lock therefore only moves access to T from thread to thread,
// which is what T: Send allows.
unsafe impl<T: ?Sized + Send> Sync for TryLock<T> {}

// SAFETY: the word is plain data and owns no thread; the value goes along as T: Send allows.
unsafe impl<T: ?Sized + Send> Send for TryLock<T> {}

impl<T> TryLock<T> {
    /// A free lock around `value`.
    #[cfg(not(handover_loom))]
    #[inline]
    pub const fn new(value: T) -> Self {
        Self { word: RawTryLock::new(), value: UnsafeCell::new(value) }
    }

    /// A free lock around `value`; loom's atomics cannot be made in a constant.
    #[cfg(handover_loom)]
    pub fn new(value: T) -> Self {
        Self { word: RawTryLock::new(), value: UnsafeCell::new(value) }
    }

    /// Takes the value out. No lock is needed: owning it means that nobody else can hold it.
    #[inline]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> TryLock<T> {
    /// Takes the lock if it is free; dropping the guard frees it.
    ///
    /// `None` means that somebody (perhaps this very thread) held the lock at some moment during
    /// the call. There are no failures without cause.
    ///
    /// # Cost
    /// As [`RawTryLock::try_lock`].
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.word.try_lock().then(|| Guard { lock: self, as_if: PhantomData })
    }

    /// Whether somebody holds the lock; stale as soon as it is said.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.word.is_locked()
    }

    /// The value, without locking: `&mut` proves that no guard is about.
    ///
    /// It works after a guard was leaked with [`core::mem::forget`], too, when `try_lock` never
    /// will again.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: a guard borrows the lock, so `&mut self` means that none is alive (a forgotten
        // one can no longer be used), and the reference made here borrows `self` in its turn.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> From<T> for TryLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for TryLock<T> {
    /// Shows the value if the lock can be had, `<locked>` if not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(held) => f.debug_struct("TryLock").field("value", &&*held).finish(),
            None => f.debug_struct("TryLock").field("value", &format_args!("<locked>")).finish(),
        }
    }
}

/// The permission to use what a [`TryLock`] guards; dropping it frees the lock.
///
/// It may be sent to another thread (where `T: Send`) and dropped there: the unlock is a store
/// that any thread may make, and a guard handed over with the work it protects is what such a lock
/// is for. A lock of the operating system would forbid that.
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
/// Sharing one between threads needs `T: Sync`, as sharing a `&mut T` does:
///
/// ```compile_fail,E0277
/// let lock = handover_lock::TryLock::new(std::cell::Cell::new(1));
/// let held = lock.try_lock().unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| held.set(2));
/// });
/// ```
///
/// Nor does a guard stand for one of a value that lives shorter:
///
/// ```compile_fail,E0597
/// let lock = handover_lock::TryLock::new("static");
/// {
///     let short = String::from("freed at the end of this block");
///     let mut held: handover_lock::Guard<&str> = lock.try_lock().unwrap();
///     *held = &short;
/// }
/// let freed: &'static str = lock.into_inner();
/// ```
#[must_use = "the lock is freed as soon as the guard is dropped"]
pub struct Guard<'a, T: ?Sized> {
    lock: &'a TryLock<T>,
    /// Send and Sync exactly where `&mut T` is; the reference above alone would make the guard
    /// of a `T: Send + !Sync` shareable.
    as_if: PhantomData<&'a mut T>,
}

impl<T: ?Sized> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard exists, so its lock's word was taken and not freed since: nobody
        // else has access. The reference borrows the guard, so it ends before the unlock.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in deref(), and `&mut self` means that no other reference came from here.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.word.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
