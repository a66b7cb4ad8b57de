//! Scheduling algorithms as pure state machines: time and length are arguments; there is no clock,
//! no thread and no system call.

mod algorithm;
mod config;
mod fifo;
mod groups;
mod heap;
mod hierarchy;
mod pacing;
mod prio;
mod qfq;
mod qfq_plus;
mod queued;
mod ring;
mod rr;
mod table;
mod virtual_time;
mod wf2q;

pub use crate::error::{FlowError, Refusal, Refused};
pub use algorithm::{Algorithm, AnyScheduler, UnknownAlgorithm, Visitor};
pub use config::{
    Config, ConfigError, FLOWS_LIMIT, LENGTH_LIMIT_BYTES, PACKETS_LIMIT, WEIGHT_MAX, WEIGHT_SUM_MAX,
};
pub use fifo::Fifo;
pub use hierarchy::{Hierarchy, Tenants};
pub use pacing::{Pacing, PacingState};
pub use prio::{Priority, PriorityState};
pub use qfq::{Qfq, QfqState};
pub use qfq_plus::{QfqPlus, QfqPlusState};
pub use queued::{Discipline, Queued};
pub use rr::{DeficitRoundRobin, DeficitState, RoundRobin};
pub use table::{FlowStates, HalfLine, Line};
pub use wf2q::{Wf2qPlus, Wf2qState};

/// Packet as a scheduler sees it: its flow, its length, and a token of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T = ()> {
    /// The flow's number, dense from 0.
    pub flow: u32,
    /// Length in bytes. Shares are shares of bytes.
    pub length_bytes: u32,
    /// Value by which the caller finds the packet.
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
    /// Maximum number of queued packets.
    pub packets_max: u32,
    /// Policy for a packet beyond `packets_max`.
    pub drop: DropPolicy,
}

/// Packet to drop when a flow's queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DropPolicy {
    /// The newest: it is refused and returned.
    #[default]
    Tail,
    /// The oldest: it is returned, and the newest is queued.
    Head,
}

/// Result of an accepted packet.
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
    /// Packets accepted.
    pub enqueued: u64,
    /// Packets dequeued.
    pub dequeued: u64,
    /// Packets accepted, and later dropped for newer ones.
    pub dropped: u64,
    /// Packets refused.
    pub refused: u64,
}

/// Scheduling algorithm: it queues packets of many flows and chooses the next one to send.
///
/// Packets of one flow leave in the order in which they came. `now_ns` must not decrease from one
/// call to the next.
pub trait Scheduler<T: Copy + core::fmt::Debug> {
    /// Adds a flow and returns its number: 0 for the first, then one more each time.
    ///
    /// # Errors
    /// [`FlowError`] if the algorithm cannot hold the flow; then nothing has changed.
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError>;

    /// Returns the number of flows.
    fn flows_count(&self) -> u32;

    /// Queues a packet.
    ///
    /// # Errors
    /// [`Refused`] returns the packet with the reason.
    fn enqueue(&mut self, now_ns: u64, packet: Packet<T>) -> Result<Accepted<T>, Refused<T>>;

    /// Dequeues the next packet; `None` if no packet may leave at `now_ns`.
    fn dequeue(&mut self, now_ns: u64) -> Option<Packet<T>>;

    /// Returns the earliest time at which [`Scheduler::dequeue`] would return a packet if no other
    /// one came; `None` while no packet is queued, 0 for algorithms that never hold a packet back.
    fn ready_ns(&self) -> Option<u64>;

    /// Returns the number of queued packets.
    fn len(&self) -> usize;

    /// Returns `true` if no packet is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counters since the scheduler was made.
    fn totals(&self) -> Totals;
}

impl<T: Copy + core::fmt::Debug, S: Scheduler<T> + ?Sized> Scheduler<T> for Box<S> {
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError> {
        (**self).add_flow(spec)
    }

    fn flows_count(&self) -> u32 {
        (**self).flows_count()
    }

    #[inline]
    fn enqueue(&mut self, now_ns: u64, packet: Packet<T>) -> Result<Accepted<T>, Refused<T>> {
        (**self).enqueue(now_ns, packet)
    }

    #[inline]
    fn dequeue(&mut self, now_ns: u64) -> Option<Packet<T>> {
        (**self).dequeue(now_ns)
    }

    fn ready_ns(&self) -> Option<u64> {
        (**self).ready_ns()
    }

    fn len(&self) -> usize {
        (**self).len()
    }

    fn totals(&self) -> Totals {
        (**self).totals()
    }
}
