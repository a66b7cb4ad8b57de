//! The arbiter's ends of a client's mailboxes.

use super::lane::{LaneError, LaneReceiver, LaneSender, lane};
use super::ledger::Ledger;
use super::presence::ClientState;
use handover_base::sync::{Arc, CachePadded};
use std::collections::VecDeque;

/// Minimum capacity of the mailbox from the arbiter to a client. With less, the arbiter would have
/// to buffer released packets for a client that polls seldom.
const RETURN_SLOTS_MIN: u32 = 512;

/// Returns the capacity of the mailbox from the arbiter to a client. `mailbox_slots_count` is the
/// capacity of the client's mailbox to the arbiter.
pub(super) fn return_slots_count(mailbox_slots_count: u32) -> u32 {
    mailbox_slots_count.max(RETURN_SLOTS_MIN)
}

/// The arbiter's ends of a client's mailboxes. Packets that do not fit into the mailbox to the
/// client are queued here.
pub(super) struct Port<const IN_WORDS: usize, const OUT_WORDS: usize> {
    pub(super) inbox: LaneReceiver<IN_WORDS>,
    outbox: LaneSender<OUT_WORDS>,
    /// Packets that wait for a free slot in the mailbox to the client. While there are any, no
    /// packets are read from the client, so they never outnumber its packets in the scheduler.
    spill: VecDeque<[u64; OUT_WORDS]>,
    pub(super) client_state: Arc<CachePadded<ClientState>>,
    pub(super) ledger: Ledger,
}

/// Ends of a client's two mailboxes: the arbiter's [`Port`], and the client's sender and receiver.
type PortAndClientLanes<const IN_WORDS: usize, const OUT_WORDS: usize> =
    (Port<IN_WORDS, OUT_WORDS>, LaneSender<IN_WORDS>, LaneReceiver<OUT_WORDS>);

impl<const IN_WORDS: usize, const OUT_WORDS: usize> Port<IN_WORDS, OUT_WORDS> {
    /// Creates both mailboxes of a client, whose number the ledger does not contain yet.
    /// `mailbox_slots_count` was validated.
    pub(super) fn pair(
        mailbox_slots_count: u32,
        client_state: Arc<CachePadded<ClientState>>,
    ) -> PortAndClientLanes<IN_WORDS, OUT_WORDS> {
        let lanes = || -> Result<_, LaneError> {
            let to_arbiter = lane::<IN_WORDS>(mailbox_slots_count)?;
            Ok((to_arbiter, lane::<OUT_WORDS>(return_slots_count(mailbox_slots_count))?))
        };
        let ((to_arbiter, inbox), (outbox, from_arbiter)) = match lanes() {
            Ok(lanes) => lanes,
            Err(error) => {
                unreachable!("ArbiterConfig::validate() has checked the number of slots: {error}")
            }
        };
        let (spill, ledger) = (VecDeque::new(), Ledger::default());
        let port = Self { inbox, outbox, spill, client_state, ledger };
        (port, to_arbiter, from_arbiter)
    }

    /// Returns a released or dropped packet to the client.
    #[inline(always)]
    pub(super) fn return_packet(&mut self, words: [u64; OUT_WORDS]) {
        if !self.spill.is_empty() || !self.outbox.push(words) {
            self.spill_one(words);
        }
    }

    /// Returns several released or dropped packets to the client.
    #[inline(always)]
    pub(super) fn return_packets(&mut self, slots: &[[u64; OUT_WORDS]]) {
        let sent = if self.spill.is_empty() { self.outbox.push_all(slots) } else { 0 };
        if sent < slots.len() {
            self.spill_all(&slots[sent..]);
        }
    }

    /// Appends packets to `spill`, from where they move to the mailbox to the client later.
    #[cold]
    #[inline(never)]
    fn spill_all(&mut self, slots: &[[u64; OUT_WORDS]]) {
        self.spill.extend(slots);
    }

    /// Appends a packet to `spill`, from where it moves to the mailbox to the client later.
    #[cold]
    #[inline(never)]
    fn spill_one(&mut self, words: [u64; OUT_WORDS]) {
        self.spill.push_back(words);
    }

    /// Closes the port of a client that has left. Discards the packets in its mailbox, and those
    /// not yet returned to it.
    pub(super) fn close(&mut self) {
        while self.inbox.pop().is_some() {
            self.ledger.unread += 1;
        }
        self.spill = VecDeque::new();
        self.ledger.has_left = true;
        self.ledger.counts = self.client_state.counts();
        self.ledger.abandoned = self.ledger.counts.queued_count();
    }

    /// Returns the number of packets that wait for a free slot in the mailbox to the client.
    pub(super) fn spilled_count(&self) -> usize {
        self.spill.len()
    }

    /// Pushes packets from `spill` into the mailbox to the client; returns `true` if none is left.
    #[inline(always)]
    pub(super) fn flush_spill(&mut self) -> bool {
        self.spill.is_empty() || self.send_spilled()
    }

    /// Does the work of [`flush_spill`](Self::flush_spill); called only while packets wait in
    /// `spill`.
    #[cold]
    #[inline(never)]
    fn send_spilled(&mut self) -> bool {
        while let Some(&words) = self.spill.front() {
            if !self.outbox.push(words) {
                break;
            }
            self.spill.pop_front();
        }
        self.spill.is_empty()
    }
}
