//! Offers: a worker announces fibers that other workers may steal, and no worker sleeps through an
//! announcement.
//!
//! The two sides are Dekker's algorithm. A worker that offers writes its count, passes a fence, and
//! reads the number of idle workers. A worker that goes to sleep adds itself to that number, passes
//! a fence, and reads the counts of the others. So at least one of the two sees the other, and a
//! worker that is seen is woken. The fences are those of [`BiasedLock`](crate::raw::BiasedLock):
//! the offering side's is light, the sleeping side's heavy.
//!
//! A worker that left fibers of a long queue unchecked is no idle worker in this sense. It sleeps
//! until the next long check of that queue is due. One of the workers that then wake claims it.

use handover_base::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Number of idle workers of a runtime.
#[derive(Debug, Default)]
pub struct IdleCount(AtomicU32);

/// Announcements of a worker to the others. They are the number of fibers that others may steal,
/// the time from which on they may make a long check of its queue, and a flag that the worker is
/// idle.
#[derive(Debug, Default)]
pub struct Offers {
    /// Number of fibers announced so far, modulo 2^32: they became ready on this worker and could
    /// be stolen. Written by this worker only.
    count: AtomicU32,
    /// `true` while the worker is idle and no other worker has woken it.
    is_idle: AtomicBool,
    /// Time in ns from which on another worker may check many fibers of this worker's queue.
    next_long_check_ns: AtomicU64,
}

impl Offers {
    /// Announces that this worker's queue contains a further fiber to steal. Returns `true` if
    /// there is an idle worker, which the caller must then [wake](Self::try_wake).
    #[inline]
    #[must_use]
    pub fn announce(&self, idle_count: &IdleCount, fence_light: impl FnOnce()) -> bool {
        // Relaxed: only this worker writes it.
        let count = self.count.load(Ordering::Relaxed).wrapping_add(1);
        // Release: a thread that sees the offer finds the fiber in the queue; pairs with the
        // Acquire in announced_count().
        self.count.store(count, Ordering::Release);
        fence_light();
        // Relaxed: ordered by the fence.
        idle_count.0.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of fibers announced, modulo 2^32.
    #[inline]
    #[must_use]
    pub fn announced_count(&self) -> u32 {
        // Acquire: pairs with the Release in announce(): the offered fibers are in the queue, or
        // were taken.
        self.count.load(Ordering::Acquire)
    }

    /// Declares this worker idle. Afterwards it may sleep if no other worker [has new
    /// offers](Self::has_new_since).
    pub fn begin_idle(&self, idle_count: &IdleCount, fence_heavy: impl FnOnce()) {
        // Relaxed: the heavy fence orders these accesses before the reads of the other workers'
        // offers.
        self.is_idle.store(true, Ordering::Relaxed);
        idle_count.0.fetch_add(1, Ordering::Relaxed); // Relaxed: as above
        fence_heavy();
    }

    /// Returns `true` if this worker has announced fibers since `announced_count()` returned
    /// `seen`.
    #[must_use]
    pub fn has_new_since(&self, seen: u32) -> bool {
        // Relaxed: ordered by the heavy fence in begin_idle().
        self.count.load(Ordering::Relaxed) != seen
    }

    /// Returns `true` if this worker is no longer idle, because another worker has woken it.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        // Relaxed: the thread that clears the flag unparks this worker afterwards.
        !self.is_idle.load(Ordering::Relaxed)
    }

    /// Declares this worker not idle. Returns `true` if another worker has woken it for an offer.
    /// This worker must then steal before it runs any other fiber. If it steals any or leaves any
    /// unchecked, it must wake another idle worker of each pool that it serves, as it may have
    /// missed the fiber for which it was woken. Otherwise that worker could sleep through the
    /// offer. These wake-ups end: a worker that has been woken is no longer idle.
    #[must_use]
    pub fn end_idle(&self, idle_count: &IdleCount) -> bool {
        // Relaxed: from here on the number is only a hint to others.
        idle_count.0.fetch_sub(1, Ordering::Relaxed);
        // Acquire: pairs with the Release in try_wake(): the offer is visible.
        !self.is_idle.swap(false, Ordering::Acquire)
    }

    /// Claims the right to wake this worker if it is idle. Returns `true` to a single caller, which
    /// must then unpark the worker.
    #[must_use]
    pub fn try_wake(&self) -> bool {
        // Relaxed: checked again by the swap.
        // Release: publishes the offer to the Acquire in end_idle().
        self.is_idle.load(Ordering::Relaxed) && self.is_idle.swap(false, Ordering::Release)
    }

    /// Claims a long check of this worker's queue for another worker, at the time `now_ns`. Returns
    /// `true` at most once in each `interval_ns`.
    #[must_use]
    pub fn claim_long_check(&self, now_ns: u64, interval_ns: u64) -> bool {
        let (next_ns, after_ns) = (self.next_long_check_ns(), now_ns + interval_ns);
        // Relaxed: only the claim must be exclusive; the lock of the queue synchronises.
        let order = Ordering::Relaxed;
        now_ns >= next_ns
            && self.next_long_check_ns.compare_exchange(next_ns, after_ns, order, order).is_ok()
    }

    /// Returns the time in ns from which on the next long check can be claimed.
    #[must_use]
    pub fn next_long_check_ns(&self) -> u64 {
        self.next_long_check_ns.load(Ordering::Relaxed) // Relaxed: a hint
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;

    #[test]
    fn long_check_is_claimed_once_in_each_interval() {
        let offers = Offers::default();
        let claims =
            [5_000, 5_000, 5_999, 6_000, 6_001].map(|at| offers.claim_long_check(at, 1_000));
        assert_eq!(claims, [true, false, false, true, false]);
        assert_eq!(offers.next_long_check_ns(), 7_000);
    }
}
