//! Counters of a client, its own and the arbiter's.

/// Counters of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets sent to the arbiter.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that came back marked and were transmitted.
    pub transmitted: u64,
    /// Their bytes.
    pub transmitted_bytes: u64,
    /// Packets that came back as dropped.
    pub dropped: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
}

impl Counts {
    /// Returns the number of packets sent that have not come back.
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

/// The arbiter's counters for one client, and the client's own.
///
/// `taken == marked + dropped + discarded + scheduled()` at every moment. For a client that has
/// left, `counts.sent == taken + unread`. Always, `counts.sent == counts.transmitted +
/// counts.dropped + queued() + abandoned()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The client's number in the order of joining, from 0.
    pub client: usize,
    /// Packets taken out of its mailbox and passed to the scheduler, which may have refused them.
    pub taken: u64,
    /// Packets that were in its mailbox when it had left.
    pub unread: u64,
    /// Packets marked eligible.
    pub marked: u64,
    /// Their bytes.
    pub marked_bytes: u64,
    /// Packets that the scheduler refused or dropped.
    pub dropped: u64,
    /// Packets that the scheduler returned after the client had left.
    pub discarded: u64,
    /// Packets whose mark or drop did not reach the client before the arbiter ended, because the lane to
    /// the client was full.
    pub unfetched: u64,
    /// `true` if the client was dropped, even by a panic.
    pub has_left: bool,
    /// The client's own counters as last stored; final if it has left.
    pub counts: Counts,
}

impl Ledger {
    /// Returns the number of its packets in the scheduler.
    pub fn scheduled(&self) -> u64 {
        self.taken - self.marked - self.dropped - self.discarded
    }

    /// Returns the number of its packets that are in the mailbox, in the scheduler, or marked and
    /// not yet transmitted. 0 for a client that has left.
    pub fn queued(&self) -> u64 {
        if self.has_left { 0 } else { self.counts.queued() }
    }

    /// Returns the number of packets that had not come back when the client left. 0 for a client
    /// that is there.
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
