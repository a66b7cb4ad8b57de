//! Trait of all algorithms.

use super::{EnqueueError, EnqueueOutcome, FlowError, FlowSpec, Packet, Refusal, Totals};

/// Result of [`Scheduler::enqueue`].
pub type EnqueueResult<T> = Result<EnqueueOutcome<T>, EnqueueError<T>>;

/// Scheduling algorithm: it queues packets of many flows and chooses the next one to send.
///
/// Packets of one flow leave in the order in which they came. `now_ns` must not decrease from one call to the next.
pub trait Scheduler<T: Copy + core::fmt::Debug> {
    /// Adds a flow and returns its number; flows are numbered from 0.
    ///
    /// # Errors
    /// [`FlowError`] if the algorithm cannot hold the flow; then nothing has changed.
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError>;

    /// Returns the number of flows.
    fn flows_count(&self) -> u32;

    /// Queues a packet; returns the packet that was dropped for it, if any.
    ///
    /// # Errors
    /// [`EnqueueError`] returns the packet with the reason.
    fn enqueue(&mut self, now_ns: u64, packet: Packet<T>) -> EnqueueResult<T>;

    /// Dequeues the next packet; `None` if no packet may leave at `now_ns`.
    fn dequeue(&mut self, now_ns: u64) -> Option<Packet<T>>;

    /// Returns the earliest time at which [`Scheduler::dequeue`] returns a packet, `None` while no packet is queued.
    /// The time is 0 for algorithms that never hold a packet back; a packet that is queued later may make it earlier.
    fn ready_ns(&self) -> Option<u64>;

    /// Returns the number of queued packets.
    fn len(&self) -> usize;

    /// Returns `true` if no packet is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the packet counters since the scheduler was created.
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
    fn enqueue(&mut self, now_ns: u64, packet: Packet<T>) -> EnqueueResult<T> {
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

/// Creates flows from the template, up to flow number `flow`.
#[cold]
pub(super) fn make_flows<T: Copy + core::fmt::Debug>(
    scheduler: &mut impl Scheduler<T>,
    template: Option<FlowSpec>,
    flow: u32,
) -> Result<(), Refusal> {
    let spec = template.ok_or(Refusal::UnknownFlow)?;
    while scheduler.flows_count() <= flow {
        scheduler.add_flow(spec).map_err(|_| Refusal::NoMoreFlows)?;
    }
    Ok(())
}
