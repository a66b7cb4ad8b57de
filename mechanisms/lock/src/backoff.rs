//! What to do between two tries.

use crate::stage;
use handover_base::sync::{hint, thread};

/// How many pauses the longest wait of a [`Backoff`] has, before it takes to yielding.
const PAUSES_MAX: u32 = 64;

/// A bounded exponential pause between two tries of one lock.
///
/// A thread that asks a busy lock again and again pulls the lock's line into its own cache each
/// time the holder has written to it, and the holder must fetch it back to unlock. Waiting a
/// little, and longer after each failure, leaves the line with the holder. This stands beside
/// [`TryLock`](crate::TryLock) and not inside it: a try is one look, and whoever has something
/// better to do than wait should go and do it.
///
/// After pauses of 1, 2, 4 ... 64 spin hints (some 2 µs in all) every further [`wait`](Self::wait)
/// yields the CPU: the holder may be waiting for it.
///
/// ```
/// use handover_lock::{Backoff, TryLock};
/// let hits = TryLock::new(0u32);
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| {
///             let mut backoff = Backoff::new();
///             loop {
///                 if let Some(mut hits) = hits.try_lock() {
///                     *hits += 1;
///                     break;
///                 }
///                 backoff.wait();
///             }
///         });
///     }
/// });
/// assert_eq!(hits.into_inner(), 2);
/// ```
///
/// Source: Anderson, "The Performance of Spin Lock Alternatives for Shared-Memory
/// Multiprocessors" (IEEE TPDS 1990), who found the pause worth having and the bound necessary.
#[derive(Debug, Clone)]
pub struct Backoff {
    pauses_next: u32,
}

impl Backoff {
    /// A fresh one: its first wait is a single pause.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { pauses_next: 1 }
    }

    /// Pauses, twice as long as the last time; yields the CPU once the pauses have reached 64.
    ///
    /// # Blocking
    /// About 10 ns to 3 µs of spinning, or one `sched_yield`.
    #[inline]
    pub fn wait(&mut self) {
        if self.is_yielding() {
            stage::waited(0);
            thread::yield_now();
            return;
        }
        stage::waited(self.pauses_next);
        for _ in 0..self.pauses_next {
            hint::spin_loop();
        }
        self.pauses_next *= 2;
    }

    /// Whether the next wait gives the CPU away: the moment to think of something else to do.
    #[inline]
    #[must_use]
    pub const fn is_yielding(&self) -> bool {
        self.pauses_next > PAUSES_MAX
    }

    /// Starts again from the shortest pause, after a success.
    #[inline]
    pub fn reset(&mut self) {
        *self = Self::new();
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_bound_and_then_the_cpu_is_yielded() {
        let mut backoff = Backoff::new();
        let mut lengths = Vec::new();
        while !backoff.is_yielding() {
            lengths.push(backoff.pauses_next);
            backoff.wait();
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 64]);
        backoff.wait();
        assert!(backoff.is_yielding(), "yielding, it stays so until reset");
        backoff.reset();
        assert!(!backoff.is_yielding());
    }
}
