//! State shared by the arbiter, its clients and hubs.

use super::arbiter::Config;
use super::client::{Client, ClientLanes, Counts, LanePair};
use super::lane::{Lane, Laps};
use super::port::Port;
use super::stamps::Stamping;
use handover_base::sync::shared::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use handover_base::sync::{Arc, CachePadded};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of clients at a time, including clients that have left but still have packets in
/// the scheduler.
pub const CLIENTS_MAX: usize = 65_536;

/// Error of joining.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The arbiter was stopped.
    #[error("the arbiter was stopped: no client can join")]
    Stopped,
    /// There are already [`CLIENTS_MAX`] clients.
    #[error("{CLIENTS_MAX} clients have joined: drop a client first")]
    Full,
}

/// Way in which the arbiter ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At once: queued packets stay in the scheduler, and are counted as scheduled.
    Now,
    /// Once all packets sent were marked and the clients were notified; clients cannot send any
    /// more. A client that does not fetch its marks is waited for as long as
    /// [`DRAIN_MAX`](super::DRAIN_MAX) says.
    Drain,
}

/// State: the arbiter works.
pub(super) const RUNNING: u8 = 0;
/// State: clients cannot send any more.
pub(super) const DRAINING: u8 = 1;
/// State: the arbiter ends at once.
pub(super) const ENDING: u8 = 2;
/// State: the arbiter has ended and marks no more packets.
pub(super) const ENDED: u8 = 3;

/// State that every thread reads all the time, and that is written a few times.
pub(super) struct Control {
    /// Incremented when a client joins or leaves, and at each stop.
    pub(super) events: AtomicU64,
    /// [`RUNNING`] or one of the states after it; it only grows.
    pub(super) state: AtomicU8,
}

/// Clients that have joined and that the arbiter has not seen yet, by the width of their lanes.
pub(super) struct NewClients<L: Lane> {
    pub(super) bare: Vec<Port<L, 1, 1>>,
    pub(super) stamped: Vec<Port<L, 2, 4>>,
    clients_count: usize,
    joined_count: usize,
}

pub(super) struct ArbiterState<L: Lane> {
    pub(super) control: CachePadded<Control>,
    new_clients: Mutex<NewClients<L>>,
    mailbox_slots_count: u32,
    stamping: Stamping,
}

/// State of a client that the arbiter reads besides the mailboxes. Only the client writes it.
#[derive(Default)]
pub(super) struct Presence {
    has_left: AtomicBool,
    counts: [AtomicU64; 6],
}

impl Presence {
    /// Stores the client's counters; called by the client after polls and when it leaves.
    pub(super) fn store_counts(&self, counts: &Counts) {
        for (word, count) in self.counts.iter().zip(counts.to_array()) {
            // Relaxed: statistics; the final values are published by leave().
            word.store(count, Ordering::Relaxed);
        }
    }

    pub(super) fn counts(&self) -> Counts {
        // Relaxed: as in store_counts().
        Counts::from_array(self.counts.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    pub(super) fn leave(&self) {
        // Release: publishes the last counts, and the last push, to the Acquire in has_left().
        self.has_left.store(true, Ordering::Release);
    }

    pub(super) fn has_left(&self) -> bool {
        // Acquire: pairs with the Release in leave().
        self.has_left.load(Ordering::Acquire)
    }
}

impl<L: Lane> ArbiterState<L> {
    pub(super) fn new(config: &Config) -> Self {
        let control = Control { events: AtomicU64::new(0), state: AtomicU8::new(RUNNING) };
        let new_clients =
            NewClients { bare: Vec::new(), stamped: Vec::new(), clients_count: 0, joined_count: 0 };
        Self {
            control: CachePadded::new(control),
            new_clients: Mutex::new(new_clients),
            mailbox_slots_count: config.mailbox_slots_count,
            stamping: config.stamping,
        }
    }

    pub(super) fn new_clients(&self) -> MutexGuard<'_, NewClients<L>> {
        // A list of ports is never left half written, so a poisoned lock can be used.
        self.new_clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies the arbiter of an event.
    pub(super) fn notify_arbiter(&self) {
        // Release: pairs with the Acquire in the arbiter's sweep.
        self.control.events.fetch_add(1, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn state(&self) -> u8 {
        // Acquire: pairs with the Release in raise(); at ENDED, all marks have been made.
        self.control.state.load(Ordering::Acquire)
    }

    pub(super) fn raise(&self, state: u8) {
        // Release: pairs with the Acquire in state().
        self.control.state.fetch_max(state, Ordering::Release);
        self.notify_arbiter();
    }

    fn join(shared: &Arc<Self>) -> Result<Client<L>, JoinError> {
        let mut new_clients = shared.new_clients();
        if shared.state() != RUNNING {
            return Err(JoinError::Stopped);
        }
        if new_clients.clients_count == CLIENTS_MAX {
            return Err(JoinError::Full);
        }
        let number = new_clients.joined_count;
        let presence = Arc::new(CachePadded::new(Presence::default()));
        let slots_count = shared.mailbox_slots_count;
        let lanes = match shared.stamping {
            Stamping::None => {
                let (port, to_arbiter, from_arbiter) =
                    Port::pair(number, slots_count, Arc::clone(&presence));
                new_clients.bare.push(port);
                ClientLanes::Bare(LanePair::new(to_arbiter, from_arbiter))
            }
            Stamping::Batch | Stamping::Packet => {
                let (port, to_arbiter, from_arbiter) =
                    Port::pair(number, slots_count, Arc::clone(&presence));
                new_clients.stamped.push(port);
                ClientLanes::Stamped(LanePair::new(to_arbiter, from_arbiter))
            }
        };
        new_clients.clients_count += 1;
        new_clients.joined_count += 1;
        drop(new_clients);
        shared.notify_arbiter();
        Ok(Client::new(number, lanes, presence, Arc::clone(shared)))
    }

    /// Records that a client was removed.
    pub(super) fn remove_client(&self) {
        self.new_clients().clients_count -= 1;
    }

    pub(super) fn stamping(&self) -> Stamping {
        self.stamping
    }

    pub(super) fn mailbox_slots_count(&self) -> u32 {
        self.mailbox_slots_count
    }
}

/// Access to an arbiter from any thread: clients join through it, and it stops the arbiter.
pub struct Hub<L: Lane = Laps> {
    pub(super) shared: Arc<ArbiterState<L>>,
}

impl<L: Lane> Hub<L> {
    /// Adds a client, which stays until it is dropped; at any time, even before the arbiter runs.
    ///
    /// # Errors
    /// [`JoinError`].
    ///
    /// # Cost
    /// Allocates two mailboxes, which the arbiter notices at its next sweep.
    pub fn join(&self) -> Result<Client<L>, JoinError> {
        ArbiterState::join(&self.shared)
    }

    /// Stops the arbiter. [`Stop::Now`] may follow [`Stop::Drain`].
    pub fn stop(&self, stop: Stop) {
        self.shared.raise(match stop {
            Stop::Drain => DRAINING,
            Stop::Now => ENDING,
        });
    }

    /// Returns `true` if the arbiter was stopped, or has ended.
    pub fn is_stopping(&self) -> bool {
        self.shared.state() != RUNNING
    }
}

impl<L: Lane> Clone for Hub<L> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<L: Lane> fmt::Debug for Hub<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({} clients)", self.shared.new_clients().clients_count)
    }
}
