//! Counts of fibers; each counter is written by one worker and read by all.

use handover_base::sync::atomic::{AtomicU64, Ordering, fence};

/// Numbers of fibers spawned and finished on one worker.
#[derive(Debug, Default)]
pub struct FiberCounts {
    spawned: AtomicU64,
    finished: AtomicU64,
}

impl FiberCounts {
    /// Counts a fiber that is about to be queued. Called only by the worker of these counts.
    #[inline]
    pub fn add_spawned(&self) {
        add_one(&self.spawned);
    }

    /// Counts a fiber that has finished. Called only by the worker of these counts.
    #[inline]
    pub fn add_finished(&self) {
        add_one(&self.finished);
    }

    /// Returns the number of fibers spawned on this worker so far.
    #[must_use]
    pub fn spawned_count(&self) -> u64 {
        // Relaxed: a statistic.
        self.spawned.load(Ordering::Relaxed)
    }
}

/// Adds one to a counter of which the caller is the only writer.
#[inline]
fn add_one(counter: &AtomicU64) {
    // Relaxed: no other thread writes the counter. Release: pairs with the Acquire in
    // alive_count(): a reader that sees the count sees the spawns that came before it.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
}

/// Returns the number of fibers that have not finished. The result may be too high while other
/// workers update their counters. `spawned_elsewhere` returns the number of fibers spawned by
/// threads other than the workers.
pub fn alive_count<'a>(
    all_counts: impl Iterator<Item = &'a FiberCounts> + Clone,
    spawned_elsewhere: impl FnOnce() -> u64,
) -> u64 {
    // The ends are read first, so that each fiber counted as finished is also counted as spawned.
    // Acquire: pairs with the Release in add_one().
    let load = |counter: &AtomicU64| counter.load(Ordering::Acquire);
    let finished: u64 = all_counts.clone().map(|counts| load(&counts.finished)).sum();
    let spawned: u64 = all_counts.map(|counts| load(&counts.spawned)).sum();
    (spawned + spawned_elsewhere()).saturating_sub(finished)
}

/// Returns `true` if all fibers have finished. Of several workers that each count a finished fiber
/// and then call this, at least one gets `true`.
pub fn have_all_finished<'a>(
    all_counts: impl Iterator<Item = &'a FiberCounts> + Clone,
    spawned_elsewhere: impl FnOnce() -> u64,
) -> bool {
    // SeqCst: pairs with itself in the other workers. Each fence stands between a worker's own
    // count and its reads of the other counts, so that the worker whose fence is the last sees all
    // counts.
    fence(Ordering::SeqCst);
    alive_count(all_counts, spawned_elsewhere) == 0
}
