//! Race between a wake-up and a deadline, for a participant that waits for both; exactly one of
//! them wins.
//!
//! ```text
//!            the deadline passes              the late waker is done
//!         ┌──────────────────▶ EXPIRED ────────────────────────▶ RELEASED
//!   WAITING ┤
//!         └──────────────────▶ WOKEN
//!            the wake-up comes
//! ```
//!
//! The node by which a waker finds the waiter is on the waiter's own stack. So a waiter whose
//! deadline has passed goes on only when it has removed its node itself, or the waker that had
//! taken the node has let go.

use handover_base::sync::atomic::{AtomicU8, Ordering};

/// State: neither the wake-up nor the deadline has occurred.
const WAITING: u8 = 0;
/// State: the wake-up occurred first.
const WOKEN: u8 = 1;
/// State: the deadline occurred first.
const EXPIRED: u8 = 2;
/// State: the deadline occurred first, and the waker does not access the waiter any more.
const RELEASED: u8 = 3;

/// Arbiter between a wake-up and a deadline, of which only the first takes effect.
#[derive(Debug)]
pub struct WakeRace {
    state: AtomicU8,
}

impl WakeRace {
    /// Creates a race that neither the wake-up nor the deadline has won.
    #[must_use]
    pub fn new() -> Self {
        Self { state: AtomicU8::new(WAITING) }
    }

    /// Records the wake-up; returns `true` if it preceded the deadline. On `false`, the caller must
    /// not access the waiter any more.
    #[must_use]
    pub fn try_wake(&self) -> bool {
        // Release: pairs with the Acquire in is_woken(). No Acquire is needed: the waker has
        // already synchronised with the waiter through the list that it took the waiter from.
        let brought =
            self.state.compare_exchange(WAITING, WOKEN, Ordering::Release, Ordering::Relaxed);
        if brought.is_err() {
            // Release: this thread's last access to the waiter; pairs with the Acquire in
            // is_released().
            self.state.store(RELEASED, Ordering::Release);
        }
        brought.is_ok()
    }

    /// Records the deadline; returns `true` if it preceded the wake-up.
    #[must_use]
    pub fn expire(&self) -> bool {
        // Acquire: pairs with the Release in try_wake(), if that has won.
        self.state.compare_exchange(WAITING, EXPIRED, Ordering::Relaxed, Ordering::Acquire).is_ok()
    }

    /// Returns `true` if the wake-up preceded the deadline.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        // Acquire: pairs with the Release in try_wake().
        self.state.load(Ordering::Acquire) == WOKEN
    }

    /// Returns `true` if the deadline preceded the wake-up, and the waker no longer accesses the
    /// waiter.
    #[must_use]
    pub fn is_released(&self) -> bool {
        // Acquire: pairs with the Release in try_wake(): the waiter's memory may be reused.
        self.state.load(Ordering::Acquire) == RELEASED
    }
}

impl Default for WakeRace {
    fn default() -> Self {
        Self::new()
    }
}
