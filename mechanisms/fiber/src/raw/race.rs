//! Who waits, but not for ever: whoever brings what it waits for and the time race, and one of them wins.
//!
//! ```text
//!            the time comes                     the one that waits has taken its place
//!         ┌──────────────────▶ LATE ── found too late ──▶ LET_GO
//!   ARMED ┤
//!         └──────────────────▶ BROUGHT
//!            it is brought
//! ```
//!
//! Where the one that waits has its place lies on its own stack. So if it was late it goes on only when it has taken
//! itself out of there, or whoever had taken it out says that it has let go.

use handover_base::sync::atomic::{AtomicU8, Ordering};

const ARMED: u8 = 0;
const BROUGHT: u8 = 1;
const LATE: u8 = 2;
const LET_GO: u8 = 3;

/// Between who brings something and the time.
#[derive(Debug)]
pub struct Race {
    state: AtomicU8,
}

impl Race {
    /// Neither has come.
    #[must_use]
    pub fn new() -> Self {
        Self { state: AtomicU8::new(ARMED) }
    }

    /// It has been brought: whether in time. If not, the caller must touch nothing any more of the one that waits.
    #[must_use]
    pub fn bring(&self) -> bool {
        // Release: pairs with the Acquire in is_brought(). There is nothing to acquire: whoever has hold of the
        // one that waits got it from where that had put itself.
        let brought =
            self.state.compare_exchange(ARMED, BROUGHT, Ordering::Release, Ordering::Relaxed);
        if brought.is_err() {
            // Release: our last use of it, for the Acquire in is_let_go().
            self.state.store(LET_GO, Ordering::Release);
        }
        brought.is_ok()
    }

    /// The time has come: whether before it was brought.
    #[must_use]
    pub fn expire(&self) -> bool {
        // Acquire: pairs with the Release in bring(), if that has won.
        self.state.compare_exchange(ARMED, LATE, Ordering::Relaxed, Ordering::Acquire).is_ok()
    }

    /// Whether it was brought in time.
    #[must_use]
    pub fn is_brought(&self) -> bool {
        // Acquire: pairs with the Release in bring().
        self.state.load(Ordering::Acquire) == BROUGHT
    }

    /// Whether it was brought too late, and whoever did has nothing to do with it any more.
    #[must_use]
    pub fn is_let_go(&self) -> bool {
        // Acquire: pairs with the Release in bring(): the place may be used again.
        self.state.load(Ordering::Acquire) == LET_GO
    }
}

impl Default for Race {
    fn default() -> Self {
        Self::new()
    }
}
