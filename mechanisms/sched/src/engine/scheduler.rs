//! Trait of all algorithms.

use super::{EnqueueError, EnqueueOutcome, FlowError, FlowSpec, Packet, Refusal, Totals};

/// Result of [`Scheduler::enqueue`].
pub type EnqueueResult<T> = Result<EnqueueOutcome<T>, EnqueueError<T>>;

/// Scheduling algorithm: it queues packets of many flows and chooses the next one to send.
///
/// Packets of one flow leave in the order in which they came. `now_ns` must not decrease from one
/// call to the next.
pub trait Scheduler<T: Copy + core::fmt::Debug> {
    /// Adds a flow and returns its number: the smallest unused one, from 0 on.
    ///
    /// # Errors
    /// [`FlowError`] if the algorithm cannot hold the flow; then nothing has changed.
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError>;

    /// Returns the number of flows.
    fn flows_count(&self) -> u32;

    /// Removes a flow, and returns its queued packets, oldest first; [`Totals::dropped`] counts
    /// them. The flow's weight leaves the sum, and a flow that is added later may get its number.
    ///
    /// If [`Config::template`](super::Config::template) is set, a later packet of this number
    /// creates a new flow; otherwise it is refused.
    ///
    /// # Errors
    /// [`FlowError::Unknown`] if there is no such flow; [`FlowError::Fixed`], always, unless the
    /// scheduler implements this method, as all of this crate do.
    ///
    /// # Cost
    /// An access to each packet of the flow. If it has any, `rr`, `rr1` and `wf2q+` search the
    /// flows with packets, and `prio`, `qfq` and `pacing` those near the flow in their order;
    /// `fifo` moves all packets.
    fn remove_flow(&mut self, flow: u32) -> Result<Vec<Packet<T>>, FlowError> {
        let _ = flow;
        Err(FlowError::Fixed)
    }

    /// Changes the weight of a flow, which may have queued packets. For `prio` this is its
    /// priority, and for `pacing` its rate.
    ///
    /// The flow stays ahead of its share, or behind it, by the same number of bytes, so that it
    /// gains nothing by a change. The bounds on the lag hold again, with the new weights, once each
    /// flow has been served. In `rr`, the present turn of the flow still has its old length. In
    /// `prio`, the flow goes behind the others of its new priority. In `pacing`, the bytes for
    /// which the flow still has to wait go at the new rate.
    ///
    /// # Errors
    /// [`FlowError::NoWeights`] if the algorithm is `fifo` or `rr1`; otherwise as
    /// [`remove_flow`](Self::remove_flow) and [`add_flow`](Self::add_flow). Then nothing has
    /// changed.
    ///
    /// # Cost
    /// As [`remove_flow`](Self::remove_flow), without the accesses to packets.
    fn set_weight(&mut self, now_ns: u64, flow: u32, weight: u64) -> Result<(), FlowError> {
        let _ = (now_ns, flow, weight);
        Err(FlowError::Fixed)
    }

    /// Queues a packet; returns the packet that was dropped for it, if any.
    ///
    /// # Errors
    /// [`EnqueueError`] returns the packet with the reason.
    fn enqueue(&mut self, now_ns: u64, packet: Packet<T>) -> EnqueueResult<T>;

    /// Dequeues the next packet; `None` if no packet may leave at `now_ns`.
    fn dequeue(&mut self, now_ns: u64) -> Option<Packet<T>>;

    /// Returns the earliest time at which [`Scheduler::dequeue`] returns a packet, `None` while no
    /// packet is queued. The time is 0 for algorithms that never hold a packet back; a packet that
    /// is queued later may make it earlier.
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

    fn remove_flow(&mut self, flow: u32) -> Result<Vec<Packet<T>>, FlowError> {
        (**self).remove_flow(flow)
    }

    fn set_weight(&mut self, now_ns: u64, flow: u32, weight: u64) -> Result<(), FlowError> {
        (**self).set_weight(now_ns, flow, weight)
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

/// Creates flows from the template until flow `flow` exists. Creates none if its number is not
/// below `flows_max`.
#[cold]
pub(super) fn make_flows<T: Copy + core::fmt::Debug>(
    scheduler: &mut impl Scheduler<T>,
    template: Option<FlowSpec>,
    flows_max: u32,
    flow: u32,
) -> Result<(), Refusal> {
    let spec = template.ok_or(Refusal::UnknownFlow)?;
    if flow >= flows_max {
        return Err(Refusal::NoMoreFlows);
    }
    // The smallest number that is free comes first.
    while scheduler.add_flow(spec).map_err(|_| Refusal::NoMoreFlows)? < flow {}
    Ok(())
}
