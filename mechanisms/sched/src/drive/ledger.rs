//! Counters of a client, its own and the arbiter's.

/// Packet counters of a client, written by the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets sent to the arbiter.
    pub sent: u64,
    /// Bytes of the packets sent.
    pub sent_bytes: u64,
    /// Packets that the arbiter marked as eligible and the client transmitted.
    pub transmitted: u64,
    /// Bytes of the packets transmitted.
    pub transmitted_bytes: u64,
    /// Packets that the arbiter returned as dropped.
    pub dropped: u64,
    /// Bytes of the packets dropped.
    pub dropped_bytes: u64,
}

impl Counts {
    /// Returns the number of packets sent that are neither transmitted nor dropped yet.
    pub fn queued(&self) -> u64 {
        self.sent - self.transmitted - self.dropped
    }

    pub(super) fn to_array(self) -> [u64; 6] {
        let Self { sent, sent_bytes, transmitted, transmitted_bytes, dropped, dropped_bytes } =
            self;
        [sent, sent_bytes, transmitted, transmitted_bytes, dropped, dropped_bytes]
    }

    pub(super) fn from_array(array: [u64; 6]) -> Self {
        let [sent, sent_bytes, transmitted, transmitted_bytes, dropped, dropped_bytes] = array;
        Self { sent, sent_bytes, transmitted, transmitted_bytes, dropped, dropped_bytes }
    }

    /// Adds another client's counters.
    #[inline]
    pub fn add(&mut self, other: &Counts) {
        let (mut sum, other) = (self.to_array(), other.to_array());
        sum.iter_mut().zip(other).for_each(|(sum, count)| *sum += count);
        *self = Self::from_array(sum);
    }
}

/// Counters of one client: those of the arbiter, and those of the client itself.
///
/// `taken == marked + dropped + discarded + scheduled()` at every moment. For a client that has
/// left, `counts.sent == taken + unread`. Always, `counts.sent == counts.transmitted +
/// counts.dropped + queued() + abandoned()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The client's number in the order of joining, from 0.
    pub client: usize,
    /// Packets read from the client's mailbox and passed to the scheduler, accepted or not.
    pub taken: u64,
    /// Packets that were still in the client's mailbox when the client had left.
    pub unread: u64,
    /// Packets marked as eligible for transmission.
    pub marked: u64,
    /// Bytes of the packets marked as eligible.
    pub marked_bytes: u64,
    /// Packets that the scheduler refused or dropped.
    pub dropped: u64,
    /// Packets that the scheduler returned after the client had left; never transmitted.
    pub discarded: u64,
    /// Packets marked or dropped and not returned to the client, because the mailbox to the client
    /// was full when the arbiter finished.
    pub unfetched: u64,
    /// `true` if the client was dropped, even by a panic.
    pub has_left: bool,
    /// Counters kept by the client, as last stored; final if it has left.
    pub counts: Counts,
}

impl Ledger {
    /// Returns the number of the client's packets that are in the scheduler.
    pub fn scheduled(&self) -> u64 {
        self.taken - self.marked - self.dropped - self.discarded
    }

    /// Returns the number of the client's packets that are in the mailbox, in the scheduler, or
    /// marked and not yet transmitted. 0 for a client that has left.
    pub fn queued(&self) -> u64 {
        if self.has_left { 0 } else { self.counts.queued() }
    }

    /// Returns the number of packets sent that were neither transmitted nor dropped when the client
    /// left. 0 for a client that has not left.
    pub fn abandoned(&self) -> u64 {
        if self.has_left { self.counts.queued() } else { 0 }
    }

    /// Adds another ledger's counters.
    pub(super) fn add(&mut self, other: &Ledger) {
        self.taken += other.taken;
        self.unread += other.unread;
        self.marked += other.marked;
        self.marked_bytes += other.marked_bytes;
        self.dropped += other.dropped;
        self.discarded += other.discarded;
        self.unfetched += other.unfetched;
        self.has_left |= other.has_left;
        self.counts.add(&other.counts);
    }
}
