//! Remains of an arbiter that has ended.

use super::ledger::Ledger;
use super::presence::ClientState;
use handover_base::sync::{Arc, CachePadded};
use std::fmt;

/// Final state of an arbiter that has finished: its scheduler, and its clients' counters.
#[derive(Clone)]
pub struct FinalState<S> {
    /// The scheduler, with the packets queued in it.
    pub scheduler: S,
    /// Sum of the counters of the clients that [`client_ledgers`](Self::client_ledgers) does not
    /// list. At least [`LEDGERS_MAX`] clients left after each of them.
    pub earlier: Ledger,
    /// Number of times that the arbiter read all clients' mailboxes (sweeps).
    pub sweeps: u64,
    /// Number of sweeps in which the arbiter found no packet to read or to release.
    pub sweeps_empty: u64,
    /// Duration, in ns, for which the arbiter ran.
    pub elapsed_ns: u64,
    /// Counters of each client in the order of joining. A client that has not left also has its
    /// state here.
    pub(super) clients: Vec<(Ledger, Option<Arc<CachePadded<ClientState>>>)>,
}

/// Maximum number of departed clients whose counters [`FinalState`] contains separately. They are
/// the clients that left last.
pub const LEDGERS_MAX: usize = 4096;

impl<S> FinalState<S> {
    /// Returns the counters of each client in the order of joining. Of the clients that left before
    /// the arbiter finished, only the last [`LEDGERS_MAX`] are listed. The counters in
    /// [`Ledger::counts`] are final for clients that have left by the time of this call.
    pub fn client_ledgers(&self) -> Vec<Ledger> {
        let of = |(ledger, client_state): &(Ledger, Option<Arc<CachePadded<ClientState>>>)| {
            let counts = client_state.as_ref().map_or(ledger.counts, |it| it.counts());
            Ledger { counts, ..*ledger }
        };
        self.clients.iter().map(of).collect()
    }

    /// Returns the sum of the counters of all clients.
    pub fn total_ledger(&self) -> Ledger {
        let mut sum = self.earlier;
        self.client_ledgers().iter().for_each(|ledger| sum.add(ledger));
        sum
    }
}

impl<S> fmt::Debug for FinalState<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FinalState({:?})", self.total_ledger())
    }
}
