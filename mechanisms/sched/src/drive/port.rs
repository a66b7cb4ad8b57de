//! The arbiter's side of a client.

use super::lane::{LaneError, LaneReceiver, LaneSender, lane};
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
pub(super) struct Port<const IN: usize, const OUT: usize> {
    pub(super) inbox: LaneReceiver<IN>,
    outbox: LaneSender<OUT>,
    /// Marks for which the lane back had no free slot. While there are any, no packets are taken
    /// from the client, so there are never more of them than its packets in the scheduler.
    spill: VecDeque<[u64; OUT]>,
    pub(super) presence: Arc<CachePadded<Presence>>,
    pub(super) ledger: Ledger,
}

/// The arbiter's port of a client, and the client's two ends.
type PortAndClientLanes<const IN: usize, const OUT: usize> =
    (Port<IN, OUT>, LaneSender<IN>, LaneReceiver<OUT>);

impl<const IN: usize, const OUT: usize> Port<IN, OUT> {
    /// Makes both lanes. `mailbox_slots_count` was validated.
    pub(super) fn pair(
        client: usize,
        mailbox_slots_count: u32,
        presence: Arc<CachePadded<Presence>>,
    ) -> PortAndClientLanes<IN, OUT> {
        let lanes = || -> Result<_, LaneError> {
            let to_arbiter = lane::<IN>(mailbox_slots_count)?;
            Ok((to_arbiter, lane::<OUT>(marks_slots_count(mailbox_slots_count))?))
        };
        let ((to_arbiter, inbox), (outbox, from_arbiter)) = match lanes() {
            Ok(lanes) => lanes,
            Err(error) => {
                unreachable!("ArbiterConfig::validate() has checked the number of slots: {error}")
            }
        };
        let ledger = Ledger { client, ..Ledger::default() };
        let spill = VecDeque::new();
        let port = Self { inbox, outbox, spill, presence, ledger };
        (port, to_arbiter, from_arbiter)
    }

    /// Sends a mark to the client.
    #[inline(always)]
    pub(super) fn mark(&mut self, words: [u64; OUT]) {
        if !self.spill.is_empty() || !self.outbox.push(words) {
            self.spill_one(words);
        }
    }

    /// Sends marks to the client.
    #[inline(always)]
    pub(super) fn mark_all(&mut self, slots: &[[u64; OUT]]) {
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
        self.spill.is_empty()
    }
}
