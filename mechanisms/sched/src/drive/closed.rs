//! Remains of an arbiter that has ended.

use super::ledger::Ledger;
use super::presence::Presence;
use handover_base::sync::{Arc, CachePadded};
use std::fmt;

/// Remains of an arbiter that has ended.
#[derive(Clone)]
pub struct Closed<S> {
    /// The scheduler, with the packets queued in it.
    pub scheduler: S,
    /// Sum of the ledgers of clients that left before those kept; its client number has no meaning.
    pub earlier: Ledger,
    /// Number of sweeps over the mailboxes.
    pub sweeps: u64,
    /// Number of these sweeps that found no packet to take or to mark.
    pub sweeps_empty: u64,
    /// Time from start to end.
    pub elapsed_ns: u64,
    /// Ledgers in the order of joining; with the presence of clients that were there at the end.
    pub(super) clients: Vec<(Ledger, Option<Arc<CachePadded<Presence>>>)>,
}

/// Number of ledgers of departed clients that are kept for [`Closed`].
pub const LEDGERS_MAX: usize = 4096;

impl<S> Closed<S> {
    /// Returns the ledger of each client, in the order of joining; of the clients that left before
    /// the end, only the last [`LEDGERS_MAX`]. A client's own counts are current if it has left by
    /// the time of this call.
    pub fn clients(&self) -> Vec<Ledger> {
        let of = |(ledger, presence): &(Ledger, Option<Arc<CachePadded<Presence>>>)| {
            let counts = presence.as_ref().map_or(ledger.counts, |it| it.counts());
            Ledger { counts, ..*ledger }
        };
        self.clients.iter().map(of).collect()
    }

    /// Returns the sum of all ledgers.
    pub fn sum(&self) -> Ledger {
        let mut sum = self.earlier;
        self.clients().iter().for_each(|ledger| sum.add(ledger));
        sum
    }
}

impl<S> fmt::Debug for Closed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Closed({:?})", self.sum())
    }
}
