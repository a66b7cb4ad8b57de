//! Value of a mutex.

use crate::drive::MutexGuard;
use std::cell::UnsafeCell;

/// Value of a mutex, which only the holder of the mutex accesses.
#[derive(Debug)]
pub(crate) struct MutexValue<T>(UnsafeCell<T>);

// SAFETY: only the holder of the mutex accesses the value, and the mutex publishes its accesses to
// the next holder.
unsafe impl<T: Send> Sync for MutexValue<T> {}

impl<T> MutexValue<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Returns a reference to the value. The guard proves that the caller holds the mutex, since
    /// only a mutex contains a `MutexValue`.
    #[inline]
    pub(crate) fn with_guard<'a>(&'a self, _guard: &'a MutexGuard<'_, T>) -> &'a T {
        // SAFETY: a mutex has one guard at a time, and that guard is borrowed for as long as the
        // reference.
        unsafe { &*self.0.get() }
    }

    /// Returns a mutable reference to the value. The guard proves the same as for
    /// [`with_guard`](Self::with_guard).
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn with_guard_mut<'a>(&'a self, _guard: &'a mut MutexGuard<'_, T>) -> &'a mut T {
        // SAFETY: a mutex has one guard at a time, and that guard is mutably borrowed for as long
        // as the reference.
        unsafe { &mut *self.0.get() }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
