//! Trait of all algorithms.

use super::{Accepted, FlowError, FlowSpec, Packet, Refused, Totals};

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
