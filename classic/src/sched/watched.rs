//! A scheduler wrapper that measures by how much each flow falls behind.

use handover_sched::drive::Token;
use handover_sched::fairness::FairnessIndex;
use handover_sched::{
    EnqueueOutcome, EnqueueResult, FlowError, FlowSpec, Packet, Scheduler, Totals,
};

/// Scheduler that forwards all operations to `inner`, and reports them to a fairness index.
#[derive(Debug)]
pub struct WatchedScheduler<S> {
    inner: S,
    fairness: FairnessIndex,
}

impl<S: Scheduler<Token>> WatchedScheduler<S> {
    /// Wraps a scheduler whose flows have the weights `weights`. The flows may be added later.
    pub fn new(inner: S, weights: impl IntoIterator<Item = u64>) -> WatchedScheduler<S> {
        WatchedScheduler { inner, fairness: FairnessIndex::new(weights) }
    }

    /// Returns the fairness index with everything that was reported to it.
    pub fn into_fairness_index(self) -> FairnessIndex {
        self.fairness
    }
}

impl<S: Scheduler<Token>> Scheduler<Token> for WatchedScheduler<S> {
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError> {
        self.inner.add_flow(spec)
    }

    fn flows_count(&self) -> u32 {
        self.inner.flows_count()
    }

    #[inline]
    fn enqueue(&mut self, now_ns: u64, packet: Packet<Token>) -> EnqueueResult<Token> {
        let accepted = self.inner.enqueue(now_ns, packet)?;
        self.fairness.record_queued(packet.flow);
        if let EnqueueOutcome::Replaced(oldest) = &accepted {
            self.fairness.record_dropped(oldest.flow);
        }
        Ok(accepted)
    }

    #[inline]
    fn dequeue(&mut self, now_ns: u64) -> Option<Packet<Token>> {
        let packet = self.inner.dequeue(now_ns)?;
        self.fairness.record_served(packet.flow, packet.length_bytes);
        Some(packet)
    }

    fn ready_ns(&self) -> Option<u64> {
        self.inner.ready_ns()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn totals(&self) -> Totals {
        self.inner.totals()
    }
}
