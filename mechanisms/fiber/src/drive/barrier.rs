//! All wait for all.

use super::waitlist::Waitlist;

/// Where so many meet; the last to come has all go on, and the barrier can be used again.
///
/// ```
/// use handover_fiber::{Barrier, Config, Runtime};
/// use std::sync::Arc;
/// let runtime = Runtime::new(Config::workers(2))?;
/// let barrier = Arc::new(Barrier::new(11));
/// for _ in 0..10 {
///     let barrier = barrier.clone();
///     runtime.spawn_detached(move || barrier.wait())?;
/// }
/// barrier.wait(); // an ordinary thread may be among them
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Barrier {
    parties_count: usize,
    /// How many have come.
    arrived: Waitlist<usize>,
}

impl Barrier {
    /// For so many; for 0 and 1, nobody ever waits.
    #[must_use]
    pub const fn new(parties_count: usize) -> Self {
        Self { parties_count, arrived: Waitlist::new(0) }
    }

    /// Waits for the others; true for the one that came last.
    ///
    /// # Blocking
    /// The fiber; on an ordinary thread, the thread.
    pub fn wait(&self) -> bool {
        let mut is_last = false;
        self.arrived.wait_unless(|arrived_count| {
            *arrived_count += 1;
            is_last = *arrived_count >= self.parties_count;
            if is_last {
                *arrived_count = 0;
            }
            is_last
        });
        if is_last {
            let mut inner = self.arrived.lock();
            // Who comes for the next round may be behind them already.
            let before = inner.waiters.len().min(self.parties_count.saturating_sub(1));
            let round: Vec<_> = inner.waiters.drain(..before).collect();
            drop(inner);
            round.into_iter().for_each(super::waiter::Waiter::wake);
        }
        is_last
    }
}
