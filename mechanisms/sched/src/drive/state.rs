//! State shared by the arbiter, its clients and hubs.

use super::config::ArbiterConfig;
use super::port::Port;
use super::stamps::Stamping;
use handover_base::sync::CachePadded;
use handover_base::sync::shared::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// State of an arbiter that schedules packets, and whose clients may send.
pub(super) const RUNNING: u8 = 0;
/// State of an arbiter that empties its queues; clients cannot send any more.
pub(super) const DRAINING: u8 = 1;
/// State of an arbiter that finishes without emptying its queues.
pub(super) const STOPPING: u8 = 2;
/// State of an arbiter that has finished and releases no more packets.
pub(super) const FINISHED: u8 = 3;

/// State and event count of an arbiter: words that threads read often and write rarely.
pub(super) struct ControlWords {
    /// Number of events so far: clients that joined or left, and calls of
    /// [`stop`](super::Hub::stop). The arbiter acts when the number changes.
    pub(super) events: AtomicU64,
    /// State of the arbiter, which never decreases: [`RUNNING`], [`DRAINING`], [`STOPPING`] or
    /// [`FINISHED`].
    pub(super) state: AtomicU8,
}

/// Clients that have joined but that the arbiter has not added yet. They are grouped by the slot
/// size of their mailboxes.
pub(super) struct NewClients {
    pub(super) unstamped: Vec<Port<1, 1>>,
    pub(super) stamped: Vec<Port<2, 4>>,
    /// Number of clients that have joined and were not removed.
    pub(super) clients_count: usize,
    /// Number of clients that have joined since the start.
    pub(super) joined_count: usize,
}

/// Function that selects the list of new clients whose lanes have this slot size.
pub(super) type SelectNewClients<const IN_WORDS: usize, const OUT_WORDS: usize> =
    fn(&mut NewClients) -> &mut Vec<Port<IN_WORDS, OUT_WORDS>>;

/// State that an arbiter shares with its hubs and clients.
pub(super) struct ArbiterState {
    pub(super) control: CachePadded<ControlWords>,
    new_clients: Mutex<NewClients>,
    pub(super) mailbox_slots_count: u32,
    pub(super) stamping: Stamping,
}

impl ArbiterState {
    pub(super) fn new(config: &ArbiterConfig) -> Self {
        let control = ControlWords { events: AtomicU64::new(0), state: AtomicU8::new(RUNNING) };
        let new_clients = NewClients {
            unstamped: Vec::new(),
            stamped: Vec::new(),
            clients_count: 0,
            joined_count: 0,
        };
        Self {
            control: CachePadded::new(control),
            new_clients: Mutex::new(new_clients),
            mailbox_slots_count: config.mailbox_slots_count,
            stamping: config.stamping,
        }
    }

    /// Locks the list of new clients.
    pub(super) fn new_clients(&self) -> MutexGuard<'_, NewClients> {
        // A list of ports is never left half written, so a poisoned lock can be used.
        self.new_clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies the arbiter that a client has joined or left, or of a stop.
    pub(super) fn notify_arbiter(&self) {
        // Release: pairs with the Acquire in the arbiter's sweep.
        self.control.events.fetch_add(1, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn state(&self) -> u8 {
        // Acquire: pairs with the Release in raise_state(); at FINISHED, all packets have been
        // released.
        self.control.state.load(Ordering::Acquire)
    }

    /// Changes the state to `state`, unless it is already the same or a later one.
    pub(super) fn raise_state(&self, state: u8) {
        // Release: pairs with the Acquire in state().
        self.control.state.fetch_max(state, Ordering::Release);
        self.notify_arbiter();
    }
}
