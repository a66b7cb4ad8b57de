//! The arbiter's side of a client.

use super::lane::{Lane, LaneError, LaneReceiver, LaneSender};
use super::ledger::Ledger;
use super::presence::Presence;
use handover_base::sync::{Arc, CachePadded};
use std::collections::VecDeque;

/// Minimum number of slots of the lane back, so that a client that polls seldom does not make the
/// arbiter buffer its marks.
const MARKS_SLOTS_MIN: u32 = 512;

/// Returns the number of slots of the lane back for a mailbox of `mailbox_slots_count` slots.
pub(super) fn marks_slots_count(mailbox_slots_count: u32) -> u32 {
    mailbox_slots_count.max(MARKS_SLOTS_MIN)
}

/// The two lanes, and the marks that did not fit into the lane back.
pub(super) struct Port<L: Lane, const IN: usize, const OUT: usize> {
    pub(super) inbox: L::Receiver<IN>,
    outbox: L::Sender<OUT>,
    /// Marks for which the lane back had no free slot. While there are any, no packets are taken
    /// from the client, so there are never more of them than its packets in the scheduler.
    spill: VecDeque<[u64; OUT]>,
    /// `true` if marks were pushed that have not been published.
    unpublished: bool,
    pub(super) presence: Arc<CachePadded<Presence>>,
    pub(super) ledger: Ledger,
}

/// The arbiter's port of a client, and the client's two ends.
type PortAndClientLanes<L, const IN: usize, const OUT: usize> =
    (Port<L, IN, OUT>, <L as Lane>::Sender<IN>, <L as Lane>::Receiver<OUT>);

impl<L: Lane, const IN: usize, const OUT: usize> Port<L, IN, OUT> {
    /// Makes both lanes. `mailbox_slots_count` was validated.
    pub(super) fn pair(
        client: usize,
        mailbox_slots_count: u32,
        presence: Arc<CachePadded<Presence>>,
    ) -> PortAndClientLanes<L, IN, OUT> {
        let lanes = || -> Result<_, LaneError> {
            let to_arbiter = L::pair::<IN>(mailbox_slots_count)?;
            Ok((to_arbiter, L::pair::<OUT>(marks_slots_count(mailbox_slots_count))?))
        };
        let ((to_arbiter, inbox), (outbox, from_arbiter)) = match lanes() {
            Ok(lanes) => lanes,
            Err(error) => {
                unreachable!("ArbiterConfig::validate() has checked the number of slots: {error}")
            }
        };
        let ledger = Ledger { client, ..Ledger::default() };
        let spill = VecDeque::new();
        let port = Self { inbox, outbox, spill, unpublished: false, presence, ledger };
        (port, to_arbiter, from_arbiter)
    }

    /// Sends a mark to the client.
    #[inline(always)]
    pub(super) fn mark(&mut self, words: [u64; OUT]) {
        self.unpublished = true;
        if !self.spill.is_empty() || !self.outbox.push(words) {
            self.spill_one(words);
        }
    }

    /// Sends marks to the client.
    #[inline(always)]
    pub(super) fn mark_all(&mut self, slots: &[[u64; OUT]]) {
        self.unpublished = true;
        let sent = if self.spill.is_empty() { self.outbox.push_all(slots) } else { 0 };
        if sent < slots.len() {
            self.spill_all(&slots[sent..]);
        }
    }

    #[cold]
    #[inline(never)]
    fn spill_all(&mut self, slots: &[[u64; OUT]]) {
        self.spill.extend(slots);
    }

    #[cold]
    #[inline(never)]
    fn spill_one(&mut self, words: [u64; OUT]) {
        self.spill.push_back(words);
    }

    /// Closes a port whose client has left: discards the packets in its mailbox and its unsent
    /// marks.
    pub(super) fn close(&mut self) {
        while self.inbox.pop().is_some() {
            self.ledger.unread += 1;
        }
        self.spill = VecDeque::new();
        self.ledger.has_left = true;
        self.ledger.counts = self.presence.counts();
    }

    #[inline(always)]
    pub(super) fn publish(&mut self) {
        if L::Sender::<OUT>::NEEDS_PUBLISH && self.unpublished {
            self.unpublished = false;
            self.outbox.publish();
        }
    }

    /// Returns the number of marks for which the lane had no free slot yet.
    pub(super) fn spilled_count(&self) -> usize {
        self.spill.len()
    }

    /// Sends the spilled marks; returns `true` if none is left.
    #[inline(always)]
    pub(super) fn flush_spill(&mut self) -> bool {
        self.spill.is_empty() || self.send_spilled()
    }

    #[cold]
    #[inline(never)]
    fn send_spilled(&mut self) -> bool {
        while let Some(&words) = self.spill.front() {
            if !self.outbox.push(words) {
                break;
            }
            self.spill.pop_front();
        }
        self.outbox.publish();
        self.spill.is_empty()
    }
}
