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
            // Release: pairs with the Acquire in counts(). The packets sent are stored first.
            word.store(count, Ordering::Release);
        }
    }

    /// Returns the client's counters, as last published. If the client publishes them meanwhile,
    /// some are older than others, but no packet is transmitted or dropped that was not sent.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = [0; 6];
        for (count, word) in counts.iter_mut().zip(&self.counts).rev() {
            // Acquire: pairs with the Release in store_counts(). The packets sent are loaded last,
            // so that their number is at least as new as the others.
            *count = word.load(Ordering::Acquire);
        }
        Counts::from_array(counts)
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

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn counters_read_during_a_publication_never_exceed_the_packets_sent() {
        const SENT_MAX: u64 = if cfg!(miri) { 100 } else { 1_000_000 };
        let (state, barrier) = (ClientState::default(), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                for sent in 1..=SENT_MAX {
                    let dropped = sent / 3;
                    let transmitted = sent - dropped;
                    state.store_counts(&Counts { sent, transmitted, dropped, ..Counts::default() });
                }
            });
            barrier.wait();
            loop {
                let Counts { sent, transmitted, dropped, .. } = state.counts();
                assert!(sent >= transmitted + dropped, "{sent} < {transmitted} + {dropped}");
                if dropped == SENT_MAX / 3 {
                    break;
                }
            }
        });
    }
}
