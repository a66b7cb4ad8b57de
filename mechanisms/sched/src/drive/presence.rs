//! State that a client shares with the arbiter in addition to the mailboxes.

use super::ledger::Counts;
use handover_base::sync::shared::{AtomicBool, AtomicU64, Ordering};

/// Counters of a client, and the flag that it has left. The client publishes them to the arbiter.
#[derive(Default)]
pub(super) struct ClientState {
    has_left: AtomicBool,
    /// The client's [`Counts`], as last published.
    counts: [AtomicU64; 6],
}

impl ClientState {
    /// Publishes the client's counters to the arbiter, after a poll and when the client leaves.
    pub(super) fn store_counts(&self, counts: &Counts) {
        for (word, count) in self.counts.iter().zip(counts.to_array()) {
            // Relaxed: statistics; the final values are published by mark_left().
            word.store(count, Ordering::Relaxed);
        }
    }

    pub(super) fn counts(&self) -> Counts {
        // Relaxed: as in store_counts().
        Counts::from_array(self.counts.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    pub(super) fn mark_left(&self) {
        // Release: publishes the last counts, and the last push, to the Acquire in has_left().
        self.has_left.store(true, Ordering::Release);
    }

    pub(super) fn has_left(&self) -> bool {
        // Acquire: pairs with the Release in mark_left().
        self.has_left.load(Ordering::Acquire)
    }
}
