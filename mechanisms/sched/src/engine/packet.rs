//! Packets, flows and counters: the data that every algorithm takes and returns.

/// Packet as a scheduler processes it: its flow, its length, and a token of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T = ()> {
    /// The flow's number, dense from 0.
    pub flow: u32,
    /// Length in bytes. The flows' shares are shares of bytes.
    pub length_bytes: u32,
    /// Value by which the caller identifies the packet.
    pub token: T,
}

/// Properties of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Weight: the flow's share is its weight over the sum of all weights. For strict priority it
    /// is the priority, smaller numbers first; for pacing it is the flow's rate in bits per second.
    pub weight: u64,
    /// Longest packet that the flow may send; the fairness bounds are multiples of it.
    pub length_max_bytes: u32,
    /// Maximum number of queued packets of the flow.
    pub packets_max: u32,
    /// Policy for a packet that exceeds `packets_max`.
    pub drop: DropPolicy,
}

/// Packet to drop when a flow's queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DropPolicy {
    /// Drops the newest packet: it is refused and returned.
    #[default]
    Tail,
    /// Drops the oldest packet: it is returned, and the newest is queued.
    Head,
}

/// Result of queueing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a packet dropped in this one's stead is given back here"]
pub enum Accepted<T> {
    /// The packet is queued.
    Queued,
    /// The packet is queued; the oldest packet of its flow was dropped for it
    /// ([`DropPolicy::Head`]).
    InsteadOf(Packet<T>),
}

/// Counters since the scheduler was made: `enqueued == dequeued + dropped + queued` at every
/// moment; `dropped` counts packets that were queued and later dropped for newer ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets accepted by `enqueue`.
    pub enqueued: u64,
    /// Packets dequeued.
    pub dequeued: u64,
    /// Packets accepted, and later dropped to queue newer ones.
    pub dropped: u64,
    /// Packets refused by `enqueue`.
    pub refused: u64,
}
