//! Counters of a client, its own and the arbiter's.

/// Packet counters of a client, written by the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets sent to the arbiter.
    pub sent: u64,
    /// Bytes of the packets sent.
    pub sent_bytes: u64,
    /// Packets that the arbiter released for transmission and the client transmitted.
    pub transmitted: u64,
    /// Bytes of the packets transmitted.
    pub transmitted_bytes: u64,
    /// Packets that came back as dropped, because the scheduler refused or dropped them.
    pub dropped: u64,
    /// Bytes of the packets dropped.
    pub dropped_bytes: u64,
}

impl Counts {
    /// Returns the number of packets that were sent and are neither transmitted nor dropped yet.
    pub fn queued_count(&self) -> u64 {
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

    /// Adds the counters of `other`.
    #[inline]
    pub fn add(&mut self, other: &Counts) {
        let (mut sum, other) = (self.to_array(), other.to_array());
        sum.iter_mut().zip(other).for_each(|(sum, count)| *sum += count);
        *self = Self::from_array(sum);
    }
}

/// Packet counters of one client: the arbiter's, and in `counts` the client's own.
///
/// `read == released + dropped + discarded + scheduled_count()` at every moment. For a client that
/// has left, `counts.sent == read + unread`. Always, `counts.sent == counts.transmitted +
/// counts.dropped + queued_count() + abandoned_count()`. The first and the last hold for sums over
/// clients, too; the second only if all of them have left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Number of the client in the order of joining, from 0.
    pub client: usize,
    /// Packets read from the client's mailbox and passed to the scheduler, accepted or not.
    pub read: u64,
    /// Packets that the arbiter found in the client's mailbox after the client had left.
    pub unread: u64,
    /// Packets released for transmission.
    pub released: u64,
    /// Bytes of the packets released for transmission.
    pub released_bytes: u64,
    /// Packets that the scheduler refused or dropped.
    pub dropped: u64,
    /// Packets dequeued after the client had left; never transmitted.
    pub discarded: u64,
    /// Packets released or dropped that the arbiter could not return to the client. The mailbox to
    /// the client was full when the arbiter finished.
    pub unfetched: u64,
    /// Packets that were neither transmitted nor dropped when the client left.
    pub(super) abandoned: u64,
    /// `true` if the arbiter saw the client leave (by its drop, even in a panic), or in a sum, one
    /// of the clients. `false` for a client that was dropped after the arbiter had finished.
    pub has_left: bool,
    /// The client's own counters, as last published: by its last poll that returned packets, and
    /// when it was dropped. Packets that it has sent since are missing in `sent_bytes`, and in
    /// `sent` unless the arbiter has read them: `sent` is at least `read`.
    pub counts: Counts,
}

impl Ledger {
    /// Returns the number of the client's packets that are in the scheduler.
    pub fn scheduled_count(&self) -> u64 {
        self.read - self.released - self.dropped - self.discarded
    }

    /// Returns the number of the client's packets that are queued. They are in the mailbox, in the
    /// scheduler, or released but not transmitted. 0 for a client that the arbiter saw leave.
    pub fn queued_count(&self) -> u64 {
        self.counts.queued_count() - self.abandoned
    }

    /// Returns the number of packets sent that were neither transmitted nor dropped when the client
    /// left. 0 for a client that the arbiter did not see leave.
    pub fn abandoned_count(&self) -> u64 {
        self.abandoned
    }

    pub(super) fn add(&mut self, other: &Ledger) {
        self.read += other.read;
        self.unread += other.unread;
        self.released += other.released;
        self.released_bytes += other.released_bytes;
        self.dropped += other.dropped;
        self.discarded += other.discarded;
        self.unfetched += other.unfetched;
        self.abandoned += other.abandoned;
        self.has_left |= other.has_left;
        self.counts.add(&other.counts);
    }
}
