//! The lock word: two states and three atomic operations.
//!
//! ```text
//!            try_lock: test, then exchange
//!        ┌──────────────────────────────────┐
//!        │                                  ▼
//!     ┌──────┐                          ┌────────┐──┐ try_lock: test only,
//!     │ free │                          │ locked │  │ no write, "busy"
//!     └──────┘                          └────────┘◀─┘
//!        ▲                                  │
//!        └──────────────────────────────────┘
//!                  unlock: a store
//! ```

use crate::{Backoff, stage};
use handover_base::sync::atomic::{AtomicBool, Ordering};
use handover_base::sync::const_unless_loom;

/// Lock without a value: only the lock word, as contained in a [`TryLock`](crate::TryLock).
///
/// For callers that keep the data elsewhere, or measure the bare word. It is one byte; put it
/// into a [`CachePadded`](handover_base::sync::CachePadded) to have it alone on its cache lines.
///
/// It guards no memory, so that misuse is memory-safe: unlocking a word that one does not hold is
/// only a logic error.
///
/// ```
/// use handover_lock::RawTryLock;
/// static WORD: RawTryLock = RawTryLock::new();
/// assert!(WORD.try_lock());
/// assert!(!WORD.try_lock(), "locked twice by the holder");
/// WORD.unlock();
/// assert!(!WORD.is_locked());
/// ```
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RawTryLock {
    locked: AtomicBool,
}

impl RawTryLock {
    const_unless_loom! {
        /// Creates an unlocked lock.
        #[inline]
        #[must_use]
        pub const fn new() -> Self {
            Self { locked: AtomicBool::new(false) }
        }
    }

    /// Acquires the lock if it is free; returns `true` if it did so.
    ///
    /// Never waits and never fails spuriously: `false` means that a thread held the lock at some
    /// moment during the call.
    ///
    /// # Cost
    /// Busy: a load, which hits this core's own copy of the line as long as no thread writes it, so
    /// that any number of threads can try without slowing each other. Free: that load and one
    /// atomic exchange.
    #[inline]
    #[must_use = "a lock that was taken must be unlocked"]
    pub fn try_lock(&self) -> bool {
        // Relaxed: a hint whether to try; the exchange decides.
        if self.locked.load(Ordering::Relaxed) {
            return false;
        }
        cold_path();
        // Acquire: pairs with the Release in unlock(), so that the last holder's writes are
        // visible. A compare-and-swap, so that a try that comes too late does not write the word
        // and only holders do; an unconditional exchange is no cheaper (6 ns alone, either way).
        let taken =
            self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            stage::record_taken(self);
        } else {
            stage::record_lost(self);
        }
        taken
    }

    /// Acquires the lock; waits with a [`Backoff`](crate::Backoff) while it is held.
    ///
    /// There is no queue: a thread that tries at the right moment gets the lock before others that
    /// wait for longer.
    ///
    /// # Blocking
    /// Spins for some 2 µs, then yields the CPU between tries, until the lock is free. It never
    /// sleeps, so that waiting for long occupies a CPU; the holder itself waits for ever.
    ///
    /// # Cost
    /// Free: like [`try_lock`](Self::try_lock).
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.wait_and_lock();
        }
    }

    #[cold]
    fn wait_and_lock(&self) {
        let mut backoff = Backoff::new();
        while !self.try_lock() {
            backoff.wait();
        }
    }

    /// Frees the lock. Only the holder should call this; see the type's description.
    ///
    /// # Cost
    /// A store, which the processor completes in the background.
    #[inline]
    pub fn unlock(&self) {
        stage::record_released(self);
        // Release: publishes the holder's writes to the Acquire in try_lock().
        self.locked.store(false, Ordering::Release);
    }

    /// Returns `true` if the lock was held when read. This may have changed since, unless the
    /// caller holds the lock.
    ///
    /// Relaxed: it orders nothing, so do not read guarded data because of it.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed)
    }
}

/// Marks the caller's path as unlikely. An attempt usually finds the lock held; that case is laid
/// out without a jump, which would double its two instructions; the exchange, which costs ten times
/// a jump, is out of line.
#[cold]
#[inline]
fn cold_path() {}
