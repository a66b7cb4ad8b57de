//! The arbiter's side of a client.

use super::client::Counts;
use super::hub::Presence;
use super::lane::{Collect, Lane, LaneError, Post};
use handover_base::sync::{Arc, CachePadded};
use std::collections::VecDeque;

/// What the arbiter did for one client, and what that client said of itself.
///
/// `taken == marked + dropped + discarded + scheduled()` at every moment. Of a client that has gone,
/// `counts.sent == taken + unread`. And always
/// `counts.sent == counts.transmitted + counts.dropped + queued() + abandoned()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Which client: the order of joining, from 0.
    pub client: usize,
    /// Packets taken out of its mailbox and given to the scheduler, which may have refused them.
    pub taken: u64,
    /// Packets that lay in its mailbox when it had gone.
    pub unread: u64,
    /// Packets marked eligible.
    pub marked: u64,
    /// Their bytes.
    pub marked_bytes: u64,
    /// Packets that the scheduler refused or dropped.
    pub dropped: u64,
    /// Packets that the scheduler handed out when the client had gone.
    pub discarded: u64,
    /// Packets marked or dropped of which it was not told before the arbiter ended: it had not fetched
    /// those before, and there was no room for more.
    pub unfetched: u64,
    /// Whether it has left, or died.
    pub gone: bool,
    /// What it said of itself last: at its end, if it has gone.
    pub counts: Counts,
}

impl Ledger {
    /// Packets that are in the scheduler.
    pub fn scheduled(&self) -> u64 {
        self.taken - self.marked - self.dropped - self.discarded
    }

    /// Packets on their way: in the mailbox, in the scheduler, or marked and not yet transmitted. Zero
    /// for one that has gone.
    pub fn queued(&self) -> u64 {
        if self.gone { 0 } else { self.counts.queued() }
    }

    /// Packets that were on their way when the client left. Zero for one that is there.
    pub fn abandoned(&self) -> u64 {
        if self.gone { self.counts.queued() } else { 0 }
    }

    /// With another's added.
    pub(super) fn add(&mut self, other: &Ledger) {
        self.taken += other.taken;
        self.unread += other.unread;
        self.marked += other.marked;
        self.marked_bytes += other.marked_bytes;
        self.dropped += other.dropped;
        self.discarded += other.discarded;
        self.unfetched += other.unfetched;
        self.gone |= other.gone;
        self.counts.add(&other.counts);
    }
}

/// Marks find room for at least so many on their way back, so that a client that looks seldom does not
/// make the arbiter keep them.
const MARKS_SLOTS_MIN: u32 = 512;

/// How many marks may be on their way to a client with a mailbox of so many slots.
pub(super) fn marks_slots_count(mailbox_slots_count: u32) -> u32 {
    mailbox_slots_count.max(MARKS_SLOTS_MIN)
}

/// The two lanes, and what did not fit into the one back.
pub(super) struct Port<L: Lane, const IN: usize, const OUT: usize> {
    pub(super) inbox: L::Receiver<IN>,
    outbox: L::Sender<OUT>,
    /// Marks for which the client had no room. While there are any, nothing is taken from it: so
    /// there are never more than it had in the scheduler.
    spill: VecDeque<[u64; OUT]>,
    /// Marks were made that have not been published.
    unpublished: bool,
    pub(super) presence: Arc<CachePadded<Presence>>,
    pub(super) ledger: Ledger,
}

/// The arbiter's end of a client's lanes, and the client's two.
type PortAndEnds<L, const IN: usize, const OUT: usize> =
    (Port<L, IN, OUT>, <L as Lane>::Sender<IN>, <L as Lane>::Receiver<OUT>);

impl<L: Lane, const IN: usize, const OUT: usize> Port<L, IN, OUT> {
    /// `mailbox_slots_count` has been found to be in range.
    pub(super) fn pair(
        client: usize,
        mailbox_slots_count: u32,
        presence: Arc<CachePadded<Presence>>,
    ) -> PortAndEnds<L, IN, OUT> {
        let lanes = || -> Result<_, LaneError> {
            let there = L::pair::<IN>(mailbox_slots_count)?;
            Ok((there, L::pair::<OUT>(marks_slots_count(mailbox_slots_count))?))
        };
        let ((there, inbox), (outbox, back)) = match lanes() {
            Ok(lanes) => lanes,
            Err(refused) => unreachable!("Config::validate() lets no such mailbox pass: {refused}"),
        };
        let ledger = Ledger { client, ..Ledger::default() };
        let spill = VecDeque::new();
        let port = Self { inbox, outbox, spill, unpublished: false, presence, ledger };
        (port, there, back)
    }

    /// Sends a mark back.
    #[inline(always)]
    pub(super) fn mark(&mut self, words: [u64; OUT]) {
        self.unpublished = true;
        if !self.spill.is_empty() || !self.outbox.push(words) {
            self.keep(words);
        }
    }

    /// Sends marks back.
    #[inline(always)]
    pub(super) fn mark_all(&mut self, slots: &[[u64; OUT]]) {
        self.unpublished = true;
        let sent = if self.spill.is_empty() { self.outbox.push_all(slots) } else { 0 };
        if sent < slots.len() {
            self.keep_all(&slots[sent..]);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_all(&mut self, slots: &[[u64; OUT]]) {
        self.spill.extend(slots);
    }

    #[cold]
    #[inline(never)]
    fn keep(&mut self, words: [u64; OUT]) {
        self.spill.push_back(words);
    }

    /// The client has gone: what it had sent, and what it was to be told, is thrown away.
    pub(super) fn part(&mut self) {
        while self.inbox.pop().is_some() {
            self.ledger.unread += 1;
        }
        self.spill = VecDeque::new();
        self.ledger.gone = true;
        self.ledger.counts = self.presence.counts();
    }

    #[inline(always)]
    pub(super) fn publish(&mut self) {
        if L::Sender::<OUT>::LAZY && self.unpublished {
            self.unpublished = false;
            self.outbox.publish();
        }
    }

    /// How many marks wait until the client has room.
    pub(super) fn kept_count(&self) -> usize {
        self.spill.len()
    }

    /// Sends what could not be sent before; whether there is nothing of that any more.
    #[inline(always)]
    pub(super) fn is_clear(&mut self) -> bool {
        self.spill.is_empty() || self.send_kept()
    }

    #[cold]
    #[inline(never)]
    fn send_kept(&mut self) -> bool {
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
