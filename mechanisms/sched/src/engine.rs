//! The algorithms: pure transitions. Time and length are arguments; there is no clock, no thread
//! and no system call.

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
pub use pacing::{Departure, Pacing};
pub use prio::{Place, Priority};
pub use qfq::{Qfq, Rounded};
pub use qfq_plus::{Member, QfqPlus};
pub use queued::{Discipline, Queued};
pub use rr::{Deficit, DeficitRoundRobin, RoundRobin};
pub use table::{HalfLine, Line, Slots};
pub use wf2q::{Stamp, Wf2qPlus};

/// One packet as a scheduler sees it: whose it is, how long, and the caller's own mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T = ()> {
    /// The flow's number, dense from 0.
    pub flow: u32,
    /// Its length. The shares are shares of bytes.
    pub length_bytes: u32,
    /// Whatever the caller needs to find the packet again.
    pub token: T,
}

/// What a flow is entitled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Its share is its weight over the sum of all weights. For strict priority the smaller
    /// number goes first; for pacing it is the flow's rate in bits per second.
    pub weight: u64,
    /// The longest packet it may send: the fairness bounds are in units of it.
    pub length_max_bytes: u32,
    /// Packets it may have queued at once.
    pub packets_max: u32,
    /// What to do with a packet beyond that.
    pub drop: DropPolicy,
}

/// Which packet goes when a flow's queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DropPolicy {
    /// The newest: it is refused and given back.
    #[default]
    Tail,
    /// The oldest: it is given back in the newest one's stead, which is queued.
    Head,
}

/// What became of a packet that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a packet dropped in this one's stead is given back here"]
pub enum Accepted<T> {
    /// It is queued.
    Queued,
    /// It is queued; the oldest of its flow was dropped for it ([`DropPolicy::Head`]).
    InsteadOf(Packet<T>),
}

/// Counts since the scheduler was made: `enqueued == dequeued + dropped + queued` at every moment,
/// where `dropped` are packets that were queued once and gave way to newer ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets taken.
    pub enqueued: u64,
    /// Packets handed out.
    pub dequeued: u64,
    /// Packets taken and dropped for newer ones.
    pub dropped: u64,
    /// Packets refused: never taken.
    pub refused: u64,
}

/// A scheduling algorithm: it takes packets of many flows and says which goes next.
///
/// Packets of one flow leave in the order in which they came. `now_ns` never decreases from one
/// call to the next.
pub trait Scheduler<T: Copy + core::fmt::Debug> {
    /// Adds a flow and gives its number: the first is 0, then one more each time.
    ///
    /// # Errors
    /// [`FlowError`] where the algorithm cannot hold what is asked; nothing is changed then.
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError>;

    /// How many flows there are.
    fn flows_count(&self) -> u32;

    /// Takes a packet.
    ///
    /// # Errors
    /// [`Refused`] gives it back and says why.
    fn enqueue(&mut self, now_ns: u64, packet: Packet<T>) -> Result<Accepted<T>, Refused<T>>;

    /// Hands out the next packet, or `None` when there is none that may go by now.
    fn dequeue(&mut self, now_ns: u64) -> Option<Packet<T>>;

    /// The earliest moment at which [`Scheduler::dequeue`] would give a packet, if none comes
    /// before; `None` while nothing is queued. 0 for those that never hold a packet back.
    fn ready_ns(&self) -> Option<u64>;

    /// Packets queued.
    fn len(&self) -> usize;

    /// Whether nothing is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was taken, handed out, dropped and refused since the beginning.
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
