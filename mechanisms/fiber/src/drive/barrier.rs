//! Barrier for fibers and threads.

use super::waitlist::Waitlist;
use crate::raw::Waiter;

/// Reusable barrier: each of a fixed number of participants waits until the last one arrives.
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
    participants_count: usize,
    /// Number of participants that arrived since the barrier last opened, and the queue of waiters.
    arrived: Waitlist<usize>,
}

impl Barrier {
    /// Creates a barrier for `participants_count` participants; with 0 or 1, no call ever waits.
    #[must_use]
    pub const fn new(participants_count: usize) -> Self {
        Self { participants_count, arrived: Waitlist::new(0) }
    }

    /// Waits until all participants have called this function; returns `true` to the participant
    /// that called last.
    ///
    /// # Blocking
    /// The fiber; on an ordinary thread, the thread.
    pub fn wait(&self) -> bool {
        let mut is_last = false;
        self.arrived.wait_unless(|arrived_count| {
            *arrived_count += 1;
            is_last = *arrived_count >= self.participants_count;
            if is_last {
                *arrived_count = 0;
            }
            is_last
        });
        if is_last {
            let mut locked = self.arrived.lock();
            // Participants of the next round may already be queued behind this round's.
            let before = locked.waiters.len().min(self.participants_count.saturating_sub(1));
            let round: Vec<_> = locked.waiters.drain(..before).collect();
            drop(locked);
            round.into_iter().for_each(Waiter::wake);
        }
        is_last
    }
}
