//! Remains of an arbiter that has ended.

use super::ledger::Ledger;
use super::presence::ClientState;
use handover_base::sync::{Arc, CachePadded};
use std::fmt;

/// Final state of an arbiter that has finished.
#[derive(Clone)]
pub struct Closed<S> {
    /// The scheduler, with the packets queued in it.
    pub scheduler: S,
    /// Sum of the counters of clients that left too early to be listed; without a client number.
    pub earlier: Ledger,
    /// Number of sweeps over the mailboxes.
    pub sweeps: u64,
    /// Number of sweeps over the mailboxes that found no packet to read or to mark as eligible.
    pub sweeps_empty: u64,
    /// Time from the arbiter's start to its end.
    pub elapsed_ns: u64,
    /// Counters of each client in the order of joining; with its state if it has not left.
    pub(super) clients: Vec<(Ledger, Option<Arc<CachePadded<ClientState>>>)>,
}

/// Maximum number of clients that have left whose counters are kept for [`Closed`].
pub const LEDGERS_MAX: usize = 4096;

impl<S> Closed<S> {
    /// Returns the counters of each client, in the order of joining; of the clients that left
    /// before the end, only the last [`LEDGERS_MAX`]. The counters that a client keeps itself are
    /// current if it has left by the time of this call.
    pub fn clients(&self) -> Vec<Ledger> {
        let of = |(ledger, presence): &(Ledger, Option<Arc<CachePadded<ClientState>>>)| {
            let counts = presence.as_ref().map_or(ledger.counts, |it| it.counts());
            Ledger { counts, ..*ledger }
        };
        self.clients.iter().map(of).collect()
    }

    /// Returns the sum of the counters of all clients.
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
