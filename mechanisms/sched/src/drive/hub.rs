//! Hubs: joining an arbiter, and stopping it.

use super::client::{Client, ClientLanes, LanePair};
use super::port::Port;
use super::presence::ClientState;
use super::stamps::Stamping;
use super::state::{ArbiterState, DRAINING, NewClients, RUNNING, STOPPING, SelectNewClients};
use handover_base::sync::{Arc, CachePadded};
use std::fmt;
use std::sync::MutexGuard;

/// Maximum number of clients of an arbiter at a time. A client that has left counts while packets
/// of it are in the scheduler.
pub const CLIENTS_MAX: usize = 65_536;

/// Error of joining an arbiter as a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The client cannot join because the arbiter was stopped.
    #[error("the arbiter was stopped: no client can join")]
    Stopped,
    /// The client cannot join because the arbiter already has [`CLIENTS_MAX`] clients.
    #[error("the arbiter already has {CLIENTS_MAX} clients, the maximum: drop a client first")]
    Full,
}

/// Treatment of queued packets by [`Hub::stop`]: left in the scheduler, or released first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// The arbiter stops at once; queued packets stay in the scheduler, and are counted as
    /// scheduled.
    Now,
    /// The arbiter stops once it has released all packets and returned them to the clients. Clients
    /// cannot send any more. The arbiter waits for clients that do not fetch their packets, for at
    /// most [`DRAIN_MAX`](super::DRAIN_MAX).
    Drain,
}

/// Handle by which any thread can add clients to an arbiter or stop it.
pub struct Hub {
    pub(super) shared: Arc<ArbiterState>,
}

impl Hub {
    /// Adds a client to the arbiter. The arbiter removes the client once the [`Client`] is dropped.
    /// May be called before the arbiter runs.
    ///
    /// # Errors
    /// [`JoinError`].
    ///
    /// # Cost
    /// Allocates two mailboxes, which the arbiter notices at its next sweep.
    pub fn join(&self) -> Result<Client, JoinError> {
        let client_state = Arc::new(CachePadded::new(ClientState::default()));
        let (number, lanes) = match self.shared.stamping {
            Stamping::None => {
                let (number, lanes) = self.add_client(|it| &mut it.unstamped, &client_state)?;
                (number, ClientLanes::Unstamped(lanes))
            }
            Stamping::Batch | Stamping::Packet => {
                let (number, lanes) = self.add_client(|it| &mut it.stamped, &client_state)?;
                (number, ClientLanes::Stamped(lanes))
            }
        };
        self.shared.notify_arbiter();
        Ok(Client::new(number, lanes, client_state, Arc::clone(&self.shared)))
    }

    /// Creates the mailboxes of a client, and adds the client to the new ones. Returns its number
    /// and its ends of the mailboxes.
    fn add_client<const IN_WORDS: usize, const OUT_WORDS: usize>(
        &self,
        select_new_clients: SelectNewClients<IN_WORDS, OUT_WORDS>,
        client_state: &Arc<CachePadded<ClientState>>,
    ) -> Result<(usize, Box<LanePair<IN_WORDS, OUT_WORDS>>), JoinError> {
        // A client that cannot join gets no mailboxes. They are created without the lock, which
        // the arbiter takes too.
        drop(self.lock_to_join()?);
        let (mut port, to_arbiter, from_arbiter) =
            Port::pair(self.shared.mailbox_slots_count, Arc::clone(client_state));
        let lanes = LanePair::new(to_arbiter, from_arbiter);
        let mut new_clients = self.lock_to_join()?;
        let number = new_clients.joined_count;
        port.ledger.client = number;
        select_new_clients(&mut new_clients).push(port);
        new_clients.clients_count += 1;
        new_clients.joined_count += 1;
        Ok((number, lanes))
    }

    /// Locks the list of new clients if a client can join.
    fn lock_to_join(&self) -> Result<MutexGuard<'_, NewClients>, JoinError> {
        let new_clients = self.shared.new_clients();
        if self.shared.state() != RUNNING {
            return Err(JoinError::Stopped);
        }
        if new_clients.clients_count == CLIENTS_MAX {
            return Err(JoinError::Full);
        }
        Ok(new_clients)
    }

    /// Stops the arbiter, at once or after draining. [`StopMode::Now`] may follow
    /// [`StopMode::Drain`].
    pub fn stop(&self, stop: StopMode) {
        self.shared.raise_state(match stop {
            StopMode::Drain => DRAINING,
            StopMode::Now => STOPPING,
        });
    }

    /// Returns `true` if the arbiter was stopped or has finished.
    pub fn is_stopping(&self) -> bool {
        self.shared.state() != RUNNING
    }
}

impl Clone for Hub {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({} clients)", self.shared.new_clients().clients_count)
    }
}
