//! The value inside a mutex.

use crate::drive::MutexGuard;
use std::cell::UnsafeCell;

/// Reached by who holds the mutex.
#[derive(Debug)]
pub(crate) struct Guarded<T>(UnsafeCell<T>);

// SAFETY: one at a time reaches the value, and the mutex publishes what it did to the next one.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// The guard shows that the caller holds the mutex around this value, which is the only place where one is.
    #[inline]
    pub(crate) fn held<'a>(&'a self, _guard: &'a MutexGuard<'_, T>) -> &'a T {
        // SAFETY: there is one guard of a mutex at a time, and it is borrowed for as long.
        unsafe { &*self.0.get() }
    }

    /// The same, to be changed.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn held_mut<'a>(&'a self, _guard: &'a mut MutexGuard<'_, T>) -> &'a mut T {
        // SAFETY: there is one guard of a mutex at a time, and it is borrowed alone for as long.
        unsafe { &mut *self.0.get() }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
