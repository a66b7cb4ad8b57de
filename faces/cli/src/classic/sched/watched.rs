//! A scheduler that is watched: which flow got how much, and how far each fell behind.

use handover_sched::drive::Token;
use handover_sched::{Accepted, FlowError, FlowSpec, Packet, Refused, Scheduler, Totals};

/// What one flow got.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    weight: u64,
    bytes: u64,
    /// Packets queued.
    queued: u32,
    /// The least lead of what was due over what was served, since it has had packets queued; in bytes
    /// times the sum of weights.
    least: i128,
    /// The most that this lead has grown since, at any time.
    worst: i128,
}

/// Counts what a scheduler does, and hands everything on.
///
/// The fair index is Bennett and Zhang's: while a flow has packets queued, by how many bytes what was
/// served to it may fall behind its weight's part of all that was served, in any stretch of time.
#[derive(Debug)]
pub struct Watched<S> {
    inner: S,
    flows: Vec<Flow>,
    weights_sum: u64,
    bytes: u64,
}

impl<S> Watched<S> {
    pub fn new(inner: S) -> Watched<S> {
        Watched { inner, flows: Vec::new(), weights_sum: 0, bytes: 0 }
    }

    /// By how many bytes each flow fell behind at worst; one that has packets queued, up to now.
    pub fn lags_bytes(&self) -> impl Iterator<Item = f64> {
        self.flows.iter().map(|flow| {
            let lag = match flow.queued {
                0 => flow.worst,
                _ => flow.worst.max(self.lead(flow) - flow.least),
            };
            lag as f64 / self.weights_sum.max(1) as f64
        })
    }

    fn lead(&self, flow: &Flow) -> i128 {
        i128::from(flow.weight) * i128::from(self.bytes)
            - i128::from(self.weights_sum) * i128::from(flow.bytes)
    }
}

impl<S: Scheduler<Token>> Scheduler<Token> for Watched<S> {
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError> {
        let id = self.inner.add_flow(spec)?;
        self.weights_sum += spec.weight;
        self.flows.push(Flow { weight: spec.weight, ..Flow::default() });
        Ok(id)
    }

    fn flows_count(&self) -> u32 {
        self.inner.flows_count()
    }

    #[inline]
    fn enqueue(
        &mut self,
        now_ns: u64,
        packet: Packet<Token>,
    ) -> Result<Accepted<Token>, Refused<Token>> {
        let accepted = self.inner.enqueue(now_ns, packet)?;
        // One that came instead of another leaves as many queued.
        if matches!(accepted, Accepted::Queued) {
            let lead = self.lead(&self.flows[packet.flow as usize]);
            let flow = &mut self.flows[packet.flow as usize];
            if flow.queued == 0 {
                flow.least = lead;
            }
            flow.queued += 1;
        }
        Ok(accepted)
    }

    #[inline]
    fn dequeue(&mut self, now_ns: u64) -> Option<Packet<Token>> {
        let packet = self.inner.dequeue(now_ns)?;
        let at = packet.flow as usize;
        let before = self.lead(&self.flows[at]);
        self.bytes += u64::from(packet.length_bytes);
        let flow = &mut self.flows[at];
        flow.worst = flow.worst.max(before - flow.least);
        flow.bytes += u64::from(packet.length_bytes);
        flow.queued -= 1;
        let after = self.lead(&self.flows[at]);
        let flow = &mut self.flows[at];
        flow.least = flow.least.min(after);
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
