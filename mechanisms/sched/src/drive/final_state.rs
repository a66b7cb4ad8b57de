//! Remains of an arbiter that has ended.

use super::ledger::Ledger;
use super::presence::ClientState;
use handover_base::sync::{Arc, CachePadded};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

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
    /// Duration for which the arbiter ran.
    pub elapsed: Duration,
    /// Counters of each client that is not part of `earlier`.
    pub(super) clients: ClientLedgers,
}

/// Maximum number of departed clients whose counters [`FinalState`] contains separately. They are
/// the clients that left last.
pub const LEDGERS_MAX: usize = 4096;

impl<S> FinalState<S> {
    /// Returns the counters of each client in the order of joining. Of the clients that left before
    /// the arbiter finished, only the last [`LEDGERS_MAX`] are listed. The counters in
    /// [`Ledger::counts`] are final for clients that have left by the time of this call.
    pub fn client_ledgers(&self) -> Vec<Ledger> {
        self.clients.ledgers()
    }

    /// Returns the sum of the counters of all clients.
    pub fn total_ledger(&self) -> Ledger {
        self.clients.total_ledger(self.earlier)
    }
}

impl<S> fmt::Debug for FinalState<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FinalState({:?})", self.total_ledger())
    }
}

/// Counters of each client in the order of joining. A client that has not left also has its state.
///
/// A type of its own, so that its functions are compiled once and not for each type of scheduler.
#[derive(Clone)]
pub(super) struct ClientLedgers(Vec<(Ledger, Option<Arc<CachePadded<ClientState>>>)>);

impl ClientLedgers {
    /// Creates the list from the counters of the clients that have left.
    pub(super) fn from_departed(ledgers: VecDeque<Ledger>) -> Self {
        Self(ledgers.into_iter().map(|ledger| (ledger, None)).collect())
    }

    /// Adds a client that the arbiter has not seen leave.
    pub(super) fn push(&mut self, ledger: Ledger, state: Arc<CachePadded<ClientState>>) {
        self.0.push((ledger, Some(state)));
    }

    /// Sorts the clients by the order of joining.
    pub(super) fn sort(&mut self) {
        self.0.sort_by_key(|(ledger, _)| ledger.client);
    }

    /// Returns the counters of each client.
    fn ledgers(&self) -> Vec<Ledger> {
        let of = |(ledger, client_state): &(Ledger, Option<Arc<CachePadded<ClientState>>>)| {
            let mut counts = client_state.as_ref().map_or(ledger.counts, |it| it.counts());
            // The client may have sent packets since it published its counters.
            counts.sent = counts.sent.max(ledger.read);
            Ledger { counts, ..*ledger }
        };
        self.0.iter().map(of).collect()
    }

    /// Returns `earlier` plus the counters of each client.
    fn total_ledger(&self, earlier: Ledger) -> Ledger {
        let mut sum = earlier;
        self.ledgers().iter().for_each(|ledger| sum.add(ledger));
        sum
    }
}
