//! Race between a wake-up and a deadline, for a participant that waits for both; exactly one of
//! them wins.
//!
//! ```text
//!            the deadline passes              the late waker is done
//!         ┌──────────────────▶ LATE ────────────────────────▶ LET_GO
//!   ARMED ┤
//!         └──────────────────▶ BROUGHT
//!            the wake-up comes
//! ```
//!
//! The node by which a waker finds the waiter is on the waiter's own stack. So a waiter whose
//! deadline has passed goes on only when it has removed its node itself, or the waker that had
//! taken the node has let go.

use handover_base::sync::atomic::{AtomicU8, Ordering};

const ARMED: u8 = 0;
const BROUGHT: u8 = 1;
const LATE: u8 = 2;
const LET_GO: u8 = 3;

/// State of the race.
#[derive(Debug)]
pub struct Race {
    state: AtomicU8,
}

impl Race {
    /// Makes a race that is not decided.
    #[must_use]
    pub fn new() -> Self {
        Self { state: AtomicU8::new(ARMED) }
    }

    /// Records the wake-up; returns `true` if it came before the deadline. On `false`, the caller
    /// must not access the waiter any more.
    #[must_use]
    pub fn bring(&self) -> bool {
        // Release: pairs with the Acquire in is_brought(). No Acquire is needed: the waker has
        // already synchronised with the waiter through the list that it took the waiter from.
        let brought =
            self.state.compare_exchange(ARMED, BROUGHT, Ordering::Release, Ordering::Relaxed);
        if brought.is_err() {
            // Release: this thread's last access to the waiter; pairs with the Acquire in
            // is_let_go().
            self.state.store(LET_GO, Ordering::Release);
        }
        brought.is_ok()
    }

    /// Records the deadline; returns `true` if it came before the wake-up.
    #[must_use]
    pub fn expire(&self) -> bool {
        // Acquire: pairs with the Release in bring(), if that has won.
        self.state.compare_exchange(ARMED, LATE, Ordering::Relaxed, Ordering::Acquire).is_ok()
    }

    /// Returns `true` if the wake-up came before the deadline.
    #[must_use]
    pub fn is_brought(&self) -> bool {
        // Acquire: pairs with the Release in bring().
        self.state.load(Ordering::Acquire) == BROUGHT
    }

    /// Returns `true` if the wake-up came after the deadline, and the waker does not access the
    /// waiter any more.
    #[must_use]
    pub fn is_let_go(&self) -> bool {
        // Acquire: pairs with the Release in bring(): the waiter's memory may be reused.
        self.state.load(Ordering::Acquire) == LET_GO
    }
}

impl Default for Race {
    fn default() -> Self {
        Self::new()
    }
}
