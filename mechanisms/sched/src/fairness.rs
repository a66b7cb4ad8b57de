//! Worst-case fair index: the maximum number of bytes by which flows fall behind their share.
//!
//! ```
//! use handover_sched::fairness::FairnessIndex;
//!
//! let mut watch = FairnessIndex::new([3, 1]);
//! (0..4).for_each(|_| watch.record_queued(0));
//! watch.record_queued(1);
//! (0..4).for_each(|_| watch.record_served(0, 1500));
//! watch.record_served(1, 1500);
//! // Of 7500 bytes a quarter was due to the second flow by the time at which it got its 1500.
//! assert_eq!(watch.flows_backlogged_bytes().collect::<Vec<_>>(), [0.0, 375.0]);
//! assert!(watch.flows_emptied_counts().eq([1, 1]));
//! ```
//!
//! Source: J. C. R. Bennett, H. Zhang, "WF2Q: Worst-case Fair Weighted Fair Queueing", INFOCOM
//! 1996; the index at the end of each queue is that of dummynet's tester (L. Rizzo, 2010).

/// Service that one flow has received, and its lag behind its fair share.
#[derive(Clone, Copy, Debug, Default)]
struct FlowService {
    /// Fair share of the flow: its weight over the sum of all weights.
    share: f64,
    /// Bytes served to the flow since it last became backlogged.
    flow_bytes: u64,
    /// Bytes served to all flows before the flow became backlogged.
    backlog_start_bytes: u64,
    /// Number of queued packets of the flow.
    queued_count: u32,
    /// Minimum lag (bytes due minus bytes served) since the flow last became backlogged.
    lag_min_bytes: f64,
    /// Largest increase of the lag while the flow stayed backlogged, measured at its departures.
    lag_increase_max_bytes: f64,
    /// Number of times that a departure emptied the flow's queue.
    emptied_count: u64,
}

/// Worst-case fair index of every flow, computed from the queued and served packets.
///
/// # Cost
/// Some ns a packet: about as much as a scheduler.
#[derive(Clone, Debug)]
pub struct FairnessIndex {
    flows: Vec<FlowService>,
    /// Bytes served to all flows so far.
    served_bytes: u64,
    /// Maximum lag of any flow at a departure that emptied its queue.
    when_empty_bytes: f64,
}

impl FairnessIndex {
    /// Creates the index for flows with these weights, before any packet.
    pub fn new(weights: impl IntoIterator<Item = u64>) -> Self {
        let service = |weight| FlowService { share: weight as f64, ..FlowService::default() };
        let mut flows: Vec<FlowService> = weights.into_iter().map(service).collect();
        let sum: f64 = flows.iter().map(|flow| flow.share).sum();
        flows.iter_mut().for_each(|flow| flow.share /= sum);
        Self { flows, served_bytes: 0, when_empty_bytes: 0.0 }
    }

    /// Records that a packet of the flow was queued.
    ///
    /// # Panics
    /// Panics, as the methods below do, if there is no such flow.
    #[inline]
    pub fn record_queued(&mut self, flow: u32) {
        let service = &mut self.flows[flow as usize];
        service.queued_count += 1;
        if service.queued_count == 1 {
            service.flow_bytes = 0;
            service.backlog_start_bytes = self.served_bytes;
            service.lag_min_bytes = 0.0;
        }
    }

    /// Records that a queued packet of the flow was dropped.
    #[inline]
    pub fn record_dropped(&mut self, flow: u32) {
        self.flows[flow as usize].queued_count -= 1;
    }

    /// Records that a queued packet of the flow was sent.
    #[inline]
    pub fn record_served(&mut self, flow: u32, bytes: u32) {
        let service = &mut self.flows[flow as usize];
        self.served_bytes += u64::from(bytes);
        service.flow_bytes += u64::from(bytes);
        let due_bytes = (self.served_bytes - service.backlog_start_bytes) as f64 * service.share;
        let lag_bytes = due_bytes - service.flow_bytes as f64;
        // The lag has a local minimum right after the flow was served.
        let increase_bytes = lag_bytes - service.lag_min_bytes;
        service.lag_increase_max_bytes = service.lag_increase_max_bytes.max(increase_bytes);
        service.lag_min_bytes = service.lag_min_bytes.min(lag_bytes);
        service.queued_count -= 1;
        if service.queued_count == 0 {
            service.emptied_count += 1;
            self.when_empty_bytes = self.when_empty_bytes.max(lag_bytes);
        }
    }

    /// Returns the maximum lag, in bytes, of any flow at a departure that emptied its queue. The
    /// lag counts from the moment when the flow became backlogged; this is the index of dummynet's
    /// tester.
    pub fn when_empty_bytes(&self) -> f64 {
        self.when_empty_bytes
    }

    /// Returns the largest increase, in bytes, of a flow's lag while the flow stayed backlogged.
    /// The increase counts from any moment to a later departure.
    pub fn backlogged_bytes(&self) -> f64 {
        self.flows_backlogged_bytes().fold(0.0, f64::max)
    }

    /// Returns the value of [`backlogged_bytes`](Self::backlogged_bytes) for each flow separately.
    pub fn flows_backlogged_bytes(&self) -> impl Iterator<Item = f64> {
        self.flows.iter().map(|flow| flow.lag_increase_max_bytes)
    }

    /// Returns for each flow the number of times that a departure emptied its queue.
    pub fn flows_emptied_counts(&self) -> impl Iterator<Item = u64> {
        self.flows.iter().map(|flow| flow.emptied_count)
    }
}
