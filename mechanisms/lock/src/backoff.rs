//! Waiting between two attempts to take a lock.

use crate::stage;
use handover_base::sync::{hint, thread};

/// Number of spin hints in the longest pause of a [`Backoff`]. Later waits yield the CPU.
const HINTS_MAX: u32 = 64;

/// Exponentially growing, bounded pauses between attempts to take a lock.
///
/// A thread that tries a busy lock again and again pulls the lock's line into its own cache each
/// time the holder has written to it, and the holder must fetch the line back to unlock. Waiting a
/// little, and longer after each failure, leaves the line with the holder. This is separate from
/// [`TryLock`](crate::TryLock), whose try reads once: a caller with other work should do that
/// instead of waiting.
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
/// Source: Anderson, "The Performance of Spin Lock Alternatives for Shared-Memory Multiprocessors"
/// (IEEE TPDS 1990), who found that the pause pays and that it needs a bound.
#[derive(Debug, Clone)]
pub struct Backoff {
    /// Number of spin hints in the next pause. If it exceeds [`HINTS_MAX`], the next wait yields
    /// the CPU.
    next_hints_count: u32,
}

impl Backoff {
    /// Creates a backoff whose first wait is a single spin hint.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { next_hints_count: 1 }
    }

    /// Pauses for twice as many spin hints as the last time, from 1 up to 64. Later calls yield the
    /// CPU instead.
    ///
    /// # Blocking
    /// About 10 ns to 3 µs of spinning, or one `sched_yield`.
    #[inline]
    pub fn wait(&mut self) {
        if self.is_yielding() {
            stage::record_waited(0);
            thread::yield_now();
            return;
        }
        stage::record_waited(self.next_hints_count);
        for _ in 0..self.next_hints_count {
            hint::spin_loop();
        }
        self.next_hints_count *= 2;
    }

    /// Returns `true` if the next wait yields the CPU. The caller may prefer to do other work.
    #[inline]
    #[must_use]
    pub const fn is_yielding(&self) -> bool {
        self.next_hints_count > HINTS_MAX
    }

    /// Resets the backoff to the shortest pause; to be called after a successful attempt.
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
    fn pauses_double_up_to_the_maximum_then_yield() {
        let mut backoff = Backoff::new();
        let mut lengths = Vec::new();
        while !backoff.is_yielding() {
            lengths.push(backoff.next_hints_count);
            backoff.wait();
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 64]);
        backoff.wait();
        assert!(backoff.is_yielding(), "stopped yielding without a reset");
        backoff.reset();
        assert!(!backoff.is_yielding());
    }
}
