//! Seven locks behind one trait, so that one procedure can test and measure them all.
//!
//! The trait is what the locks have in common: try, and unlock by dropping the result of the try.
//! Each lock lies in place, in 128-byte-aligned memory of its own, and every call is inlined down
//! to the lock's own instructions or its C function, so that [`Lock`] adds nothing to a
//! measurement.
//!
//! | type | try | unlock |
//! |---|---|---|
//! | [`HandoverTryLock`] | load; if free, compare-and-swap | store |
//! | [`RawCas`] | compare-and-swap, always | store |
//! | [`PthreadMutex`] | C call; load and compare-and-swap; owner's bookkeeping | C call; exchange |
//! | [`PthreadSpin`] | C call; compare-and-swap or exchange, always | C call; store |
//! | [`PosixSem`] | C call; load; if free, compare-and-swap | C call; exchange-add |
//! | [`StdMutex`] | compare-and-swap, always; poison flag | exchange; poison flag |
//! | [`ParkingLotMutex`] | load; if free, compare-and-swap | compare-and-swap |
//!
//! The third column shows why a lock that can wake sleepers costs more to unlock: it must find out
//! whether there are any.

use core::pin::Pin;
use handover_base::sync::CachePadded;
use handover_base::sync::shared::{AtomicBool, Ordering};
use handover_lock::RawTryLock;

pub use crate::raw::posix::{Posix, PosixGuard, PosixSem, PthreadMutex, PthreadSpin};

/// A lock with a `try_lock`, which is unlocked when its [`Guard`](Self::Guard) is dropped.
pub trait Lock: Send + Sync + 'static {
    /// Name of the lock in tables: lower case, no spaces.
    const NAME: &'static str;
    /// Short description of the lock.
    const DESCRIPTION: &'static str;
    /// Guard, created only by a successful `try_lock`. No thread can thus unlock a lock that it
    /// does not hold.
    type Guard<'a>
    where
        Self: 'a;

    /// Creates an unlocked lock at its final address, because some locks must not be moved.
    ///
    /// # Panics
    /// If the C library cannot make one (out of memory).
    fn new_unlocked() -> Pin<Box<Self>>;

    /// Locks and returns the guard; returns `None` without waiting if the lock is held.
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
}

/// This project's lock, [`RawTryLock`], alone on its cache lines.
#[derive(Debug, Default)]
pub struct HandoverTryLock(CachePadded<RawTryLock>);

/// Guard of [`HandoverTryLock`].
#[derive(Debug)]
#[must_use = "the lock is freed as soon as the guard is dropped"]
pub struct HandoverGuard<'a>(&'a RawTryLock);

impl Lock for HandoverTryLock {
    const NAME: &'static str = "handover";
    const DESCRIPTION: &'static str = "test, then compare-and-swap; unlock is a store";
    type Guard<'a> = HandoverGuard<'a>;

    fn new_unlocked() -> Pin<Box<Self>> {
        Box::pin(Self::default())
    }

    #[inline]
    fn try_lock(&self) -> Option<HandoverGuard<'_>> {
        self.0.try_lock().then(|| HandoverGuard(&self.0))
    }
}

impl Drop for HandoverGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Lock whose `try_lock` is a compare-and-swap without a test before it. Each failed call thus
/// moves the cache line away from the holder.
#[derive(Debug, Default)]
pub struct RawCas(CachePadded<AtomicBool>);

/// Guard of [`RawCas`].
#[derive(Debug)]
#[must_use = "the lock is freed as soon as the guard is dropped"]
pub struct RawCasGuard<'a>(&'a AtomicBool);

impl Lock for RawCas {
    const NAME: &'static str = "cas";
    const DESCRIPTION: &'static str = "compare-and-swap without a test; unlock is a store";
    type Guard<'a> = RawCasGuard<'a>;

    fn new_unlocked() -> Pin<Box<Self>> {
        Box::pin(Self::default())
    }

    #[inline]
    fn try_lock(&self) -> Option<RawCasGuard<'_>> {
        // Acquire: pairs with the Release in RawCasGuard::drop().
        let taken = self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| RawCasGuard(&self.0))
    }
}

impl Drop for RawCasGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: publishes the holder's writes to the Acquire in RawCas::try_lock().
        self.0.store(false, Ordering::Release);
    }
}

/// A `std::sync::Mutex`, acquired by `try_lock`; a poisoned one counts as free.
#[derive(Debug, Default)]
pub struct StdMutex(CachePadded<std::sync::Mutex<()>>);

impl Lock for StdMutex {
    const NAME: &'static str = "std_mutex";
    const DESCRIPTION: &'static str = "std::sync::Mutex::try_lock";
    type Guard<'a> = std::sync::MutexGuard<'a, ()>;

    fn new_unlocked() -> Pin<Box<Self>> {
        Box::pin(Self::default())
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        match self.0.try_lock() {
            Ok(held) => Some(held),
            Err(std::sync::TryLockError::Poisoned(held)) => Some(held.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// A `parking_lot::Mutex`, acquired by `try_lock`.
#[derive(Debug, Default)]
pub struct ParkingLotMutex(CachePadded<parking_lot::Mutex<()>>);

impl Lock for ParkingLotMutex {
    const NAME: &'static str = "parking_lot";
    const DESCRIPTION: &'static str = "parking_lot::Mutex::try_lock";
    type Guard<'a> = parking_lot::MutexGuard<'a, ()>;

    fn new_unlocked() -> Pin<Box<Self>> {
        Box::pin(Self::default())
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        self.0.try_lock()
    }
}
