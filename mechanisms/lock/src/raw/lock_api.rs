//! The lock word as a raw mutex of the crate `lock_api`.

use crate::RawTryLock;
use lock_api::{GuardSend, RawMutex};

// SAFETY: try_lock() and lock() return the lock to one caller at a time, by an exchange from free
// to taken, and only unlock() frees it, which is called by the holder's guard.
unsafe impl RawMutex for RawTryLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self::new();

    /// Marker that lets a guard be sent to another thread, because any thread may unlock.
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        RawTryLock::lock(self);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        RawTryLock::try_lock(self)
    }

    #[inline]
    unsafe fn unlock(&self) {
        RawTryLock::unlock(self);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        RawTryLock::is_locked(self)
    }
}
