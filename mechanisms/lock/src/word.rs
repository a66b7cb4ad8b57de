//! The lock itself: one word, two states, three lines of atomics.
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

use crate::stage;
use handover_base::sync::atomic::{AtomicBool, Ordering};

/// A try-lock that guards nothing but itself: the word inside [`TryLock`](crate::TryLock).
///
/// For those who keep the data elsewhere, or who measure the bare word. It is one byte; put it
/// into a [`CachePadded`](handover_base::sync::CachePadded) to have it alone on its cache lines.
///
/// Nothing here can break memory safety: a word unlocked by somebody who did not hold it is a
/// logic error of the program that did so, and no more.
///
/// ```
/// use handover_lock::RawTryLock;
/// static WORD: RawTryLock = RawTryLock::new();
/// assert!(WORD.try_lock());
/// assert!(!WORD.try_lock(), "busy, for the holder too");
/// WORD.unlock();
/// assert!(!WORD.is_locked());
/// ```
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RawTryLock {
    locked: AtomicBool,
}

impl RawTryLock {
    /// A free lock.
    #[cfg(not(handover_loom))]
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { locked: AtomicBool::new(false) }
    }

    /// A free lock; loom's atomics cannot be made in a constant.
    #[cfg(handover_loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { locked: AtomicBool::new(false) }
    }

    /// Takes the lock if it is free; says whether the caller now holds it.
    ///
    /// Never waits and never fails without cause: `false` means that somebody held the lock at
    /// some moment during the call.
    ///
    /// # Cost
    /// Busy: a load, which hits this core's own copy of the line as long as nobody has written it, so
    /// any number of threads can ask without slowing each other. Free: that load and one
    /// atomic exchange.
    #[inline]
    #[must_use = "a lock that was taken must be unlocked"]
    pub fn try_lock(&self) -> bool {
        // Relaxed: a hint that decides nothing but whether to try; the exchange decides.
        if self.locked.load(Ordering::Relaxed) {
            return false;
        }
        exchange_follows();
        // Acquire: pairs with the Release in unlock(), so that what the last holder wrote is seen.
        // Compared, so that a try that comes too late leaves the word alone and only holders ever
        // write it; an unconditional exchange is no cheaper (6 ns alone, either way).
        let taken =
            self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            stage::taken(self);
        } else {
            stage::lost(self);
        }
        taken
    }

    /// Frees the lock. Only its holder should; see the type's own words.
    ///
    /// # Cost
    /// A store, which the processor completes in the background.
    #[inline]
    pub fn unlock(&self) {
        stage::released(self);
        // Release: publishes what the holder wrote to the Acquire in try_lock().
        self.locked.store(false, Ordering::Release);
    }

    /// Whether somebody holds the lock; stale as soon as it is said, unless that is the caller.
    ///
    /// Relaxed: it orders nothing, so do not read guarded data on the strength of it.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed)
    }
}

/// Tells the compiler which way to lay the code out: straight on for busy, with the exchange out of
/// line. A busy try is two instructions and a jump would double it; the exchange costs ten times as much
/// as the jump to it.
#[cold]
#[inline]
fn exchange_follows() {}
