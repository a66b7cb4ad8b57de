//! Packets, flows and counters: the data that every algorithm takes and returns.

/// Packet as a scheduler sees it: its flow, its length, and a token chosen by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T = ()> {
    /// Number of the packet's flow; a scheduler numbers its flows from 0.
    pub flow: u32,
    /// Length of the packet in bytes.
    pub length_bytes: u32,
    /// Value by which the caller identifies the packet.
    pub token: T,
}

/// Properties of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowSpec {
    /// Weight of the flow: its share is its weight over the sum of all weights. For strict priority
    /// it is the priority, smaller numbers first; for pacing it is the flow's rate in bits per
    /// second. Default 1.
    pub weight: u64,
    /// Maximum packet length of the flow; the fairness bounds are multiples of it. Default 1500.
    pub length_max_bytes: u32,
    /// Maximum number of queued packets of the flow. Default 100.
    pub packets_max: u32,
    /// Policy for a packet that exceeds `packets_max`. Default [`DropPolicy::Tail`].
    pub drop: DropPolicy,
}

handover_base::setters!(FlowSpec {
    weight: u64,
    length_max_bytes: u32,
    packets_max: u32,
    drop: DropPolicy,
});

impl Default for FlowSpec {
    /// Returns a weight of 1, packets of at most 1500 bytes, a queue of 100 packets, and drops of
    /// arriving packets.
    fn default() -> Self {
        Self { weight: 1, length_max_bytes: 1500, packets_max: 100, drop: DropPolicy::Tail }
    }
}

/// Policy for a packet that arrives while its flow's queue is full: this packet or the oldest is
/// dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DropPolicy {
    /// Drops the arriving packet, which [`Scheduler::enqueue`](super::Scheduler::enqueue) returns
    /// in an error.
    #[default]
    Tail,
    /// Drops the flow's oldest packet, which `enqueue` returns, and queues the arriving one.
    Head,
}

/// Result of [`Scheduler::enqueue`](super::Scheduler::enqueue) for a packet that was queued. The
/// flow's oldest packet may have been dropped in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "contains the packet that was dropped to queue this one"]
pub enum EnqueueOutcome<T> {
    /// The packet was queued, and no packet was dropped.
    Queued,
    /// The packet was queued; this oldest packet of the flow was dropped ([`DropPolicy::Head`]).
    Replaced(Packet<T>),
}

/// Packet counters of a scheduler since its creation. `enqueued == dequeued + dropped + queued` at
/// every moment. `dropped` counts packets that were queued, and later dropped for newer ones or
/// with their flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets queued by `enqueue`.
    pub enqueued: u64,
    /// Packets dequeued.
    pub dequeued: u64,
    /// Queued packets that were dropped to queue newer ones, or because their flow was removed.
    pub dropped: u64,
    /// Packets refused by `enqueue`.
    pub refused: u64,
}
