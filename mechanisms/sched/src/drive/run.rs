//! Complete run of a client: sends its load program, and transmits released packets.

use super::client::{Client, SendError};
use super::ledger::Counts;
use super::load::{ClientFlows, Load, LoadAction};
use super::sink::{Sink, SinkError};
use super::stamps::Trace;
use super::wait::{IdlePolicy, IdleState, saturating_ns};
use super::word::Offer;
use handover_base::clock;
use handover_base::sync::shared::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::time::Duration;

/// Parameters of [`run_client`].
#[derive(Clone, Debug)]
pub struct ClientRun<'a> {
    /// Load program that determines the packets to send.
    pub load: Load,
    /// Flows to which the packets are assigned, round robin.
    pub flows: ClientFlows,
    /// `true` if each flow has its own limit of packets in flight. The limit is its equal share of
    /// [`in_flight_max`](Self::in_flight_max): a flow sends its next packet when one of its packets
    /// was transmitted or dropped, and the flows' shares of the link follow their weights. If
    /// `false`, the flows take turns packet by packet: they get equal shares whatever their weights
    /// are, at a few ns less per packet.
    pub has_window_per_flow: bool,
    /// Packet length of each flow, by flow number, instead of the load's length. Flows beyond the
    /// end of the slice use the load's length.
    pub flow_lengths_bytes: &'a [u32],
    /// Maximum number of packets in flight: sent, and neither transmitted nor dropped. This is the
    /// back-pressure from the link to the client; without it (`u64::MAX`) a client sends as fast as
    /// the arbiter reads packets, and the scheduler drops those that exceed its limits.
    pub in_flight_max: u64,
    /// Interval between two polls for released packets; zero for a poll before each send.
    pub poll_interval: Duration,
    /// Waiting strategy of the client while it has no work.
    pub idle_policy: IdlePolicy,
    /// Flag that stops the run when set, by any thread or signal handler.
    pub stop: &'a AtomicBool,
    /// Maximum duration of the run, not counting [`linger`](Self::linger); `None` for no limit.
    pub duration_max: Option<Duration>,
    /// Maximum time to wait for packets in flight after the last packet was sent.
    pub linger: Duration,
}

/// Error of [`run_client`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The sink transmits no more packets.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// A packet of the load program has a flow number or a length that no packet can have. The
    /// length may come from [`ClientRun::flow_lengths_bytes`].
    #[error("cannot send the load: {}", SendError::OutOfRange(*.0))]
    OutOfRange(Offer),
}

/// Number of packets that a client sends, if they are due, before it reads the clock again.
const PACKETS_PER_CLOCK_READ: u32 = 64;

/// Maximum number of released packets handled in one poll, before packets are sent again.
const POLL_MAX: usize = 1024;

/// Runs a client on the calling thread until its load program ends. Returns earlier if the client
/// is stopped, its time is up, or the arbiter has finished. Unless it was stopped, it then waits
/// until all its packets are transmitted or dropped, for at most [`ClientRun::linger`]. Packets
/// that the arbiter has released by then are transmitted.
///
/// All tags are zero.
///
/// # Errors
/// An error of the sink, or a packet that is out of range. The run ends at once, without waiting
/// for packets in flight. [`Client::counts`] is right all the same.
pub fn run_client<K: Sink, T: Trace>(
    client: &mut Client,
    run: ClientRun<'_>,
    sink: &mut K,
    trace: &mut T,
) -> Result<Counts, RunError> {
    let ClientRun {
        mut load, flows, has_window_per_flow, flow_lengths_bytes, in_flight_max, ..
    } = run;
    let ClientRun { poll_interval, idle_policy, stop, duration_max, linger, .. } = run;
    let has_flows = !flows.is_empty();
    let mut flow_order = match has_window_per_flow && flows.flows_count() > 1 {
        true => FlowOrder::Windows(flows.windows(in_flight_max)),
        false => FlowOrder::RoundRobin(flows),
    };
    let until_ns =
        duration_max.map_or(u64::MAX, |it| clock::now_ns().saturating_add(saturating_ns(it)));
    let poll_interval_ns = saturating_ns(poll_interval);
    // More packets on their way back might not find room in the lane.
    let unseen_max = client.return_slots_count() / 2;
    let mut idle = IdleState::new(idle_policy);
    let (mut poll_ns, mut unseen) = (0, 0);
    // Relaxed, here and below: only the end depends on it.
    let is_stopped = || stop.load(Ordering::Relaxed);
    while has_flows && !client.is_closed() && !is_stopped() {
        let now_ns = clock::now_ns();
        if now_ns >= until_ns {
            break;
        }
        if now_ns >= poll_ns || unseen >= unseen_max {
            poll_ns = now_ns.saturating_add(poll_interval_ns);
            unseen = 0;
            if client.poll_each(POLL_MAX, sink, trace, |flow| flow_order.record_returned(flow))? > 0
            {
                idle.reset();
            }
        }
        let free_count = in_flight_max.saturating_sub(client.in_flight_count());
        let sent =
            send_due(client, &mut load, &mut flow_order, flow_lengths_bytes, free_count, now_ns)?;
        unseen += sent;
        if sent > 0 {
            idle.reset();
            continue;
        }
        match load.next_action(now_ns) {
            LoadAction::Wait { until_ns: due_ns } => {
                let wake_ns = if client.in_flight_count() > 0 { poll_ns } else { u64::MAX };
                let due_ns = due_ns.min(until_ns);
                let wake_ns = wake_ns.min(due_ns);
                if wake_ns > now_ns {
                    idle.wait_until(wake_ns, due_ns, is_stopped);
                } else {
                    idle.wait();
                }
            }
            // The mailbox is full, or `in_flight_max` packets are on their way.
            LoadAction::Packets { .. } => idle.wait(),
            LoadAction::Finished => break,
        }
    }
    let end_ns = clock::now_ns().saturating_add(saturating_ns(linger));
    loop {
        // Read before the last poll: packets released before the end are visible to that poll.
        let is_arbiter_finished =
            client.is_arbiter_finished() || is_stopped() || clock::now_ns() >= end_ns;
        while client.poll(POLL_MAX, sink, trace)? > 0 {
            idle.reset();
        }
        if is_arbiter_finished || client.in_flight_count() == 0 {
            return Ok(client.counts());
        }
        idle.wait();
    }
}

/// Sends the packets that are due; returns the number of packets sent, or the first packet that is
/// out of range.
#[inline(always)]
fn send_due(
    client: &mut Client,
    load: &mut Load,
    flow_order: &mut FlowOrder,
    flow_lengths_bytes: &[u32],
    free_count: u64,
    now_ns: u64,
) -> Result<u32, RunError> {
    let mut sent = 0;
    while let LoadAction::Packets { count, length_bytes } = load.next_action(now_ns) {
        let left = u64::from(count).min(free_count - u64::from(sent)) as u32; // at most count
        if left == 0 {
            break;
        }
        let mut burst = Burst { flow_order, flow_lengths_bytes, length_bytes, left };
        let batch = client.send_batch(&mut burst);
        if let Some(offer) = batch.out_of_range {
            return Err(RunError::OutOfRange(offer));
        }
        let sent_now = batch.sent as u32;
        load.record_sent(sent_now);
        sent += sent_now;
        if sent_now < count || sent >= PACKETS_PER_CLOCK_READ {
            break;
        }
    }
    Ok(sent)
}

/// Order in which the flows of a client send their packets.
enum FlowOrder {
    /// One packet per flow, round robin.
    RoundRobin(ClientFlows),
    /// Flows that may send a packet, in this order. A flow occurs once for each further packet that
    /// it may have in flight.
    Windows(VecDeque<u32>),
}

impl FlowOrder {
    /// Records that a packet of `flow` was transmitted or dropped.
    #[inline(always)]
    fn record_returned(&mut self, flow: u32) {
        if let FlowOrder::Windows(flows) = self {
            flows.push_back(flow);
        }
    }
}

impl Iterator for FlowOrder {
    type Item = u32;

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        match self {
            FlowOrder::RoundRobin(flows) => flows.next(),
            FlowOrder::Windows(flows) => flows.pop_front(),
        }
    }
}

/// Iterator over the unsent packets of a burst.
struct Burst<'a> {
    flow_order: &'a mut FlowOrder,
    /// Packet length of each flow, by flow number.
    flow_lengths_bytes: &'a [u32],
    /// Packet length of flows that `flow_lengths_bytes` does not contain.
    length_bytes: u32,
    /// Number of packets of the burst that are not sent yet.
    left: u32,
}

impl Iterator for Burst<'_> {
    type Item = Offer;

    #[inline(always)]
    fn next(&mut self) -> Option<Offer> {
        self.left = self.left.checked_sub(1)?;
        let flow = self.flow_order.next()?;
        let length_bytes = self.flow_lengths_bytes.get(flow as usize).copied();
        let length_bytes = length_bytes.unwrap_or(self.length_bytes);
        Some(Offer { flow, length_bytes, tag: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Token;
    use crate::{Algorithm, DropPolicy, FlowSpec, Packet, Scheduler, engine};

    /// Bytes of each of four clients with 100 packets on their way at a time, after so many
    /// packets.
    fn shares(order_of: impl Fn(ClientFlows) -> FlowOrder) -> [f64; 4] {
        let mut scheduler = Algorithm::Rr.build::<Token>(&engine::Config::default()).unwrap();
        for weight in std::iter::once(100).chain(std::iter::repeat_n(1, 16)) {
            let (length_max_bytes, packets_max) = (1500, u32::MAX);
            let drop = DropPolicy::Tail;
            let spec = FlowSpec { weight, length_max_bytes, packets_max, drop };
            assert!(scheduler.add_flow(spec).is_ok());
        }
        let mut clients: Vec<(FlowOrder, u64)> =
            (0..4).map(|client| (order_of(ClientFlows::new(client, 4, 17)), 0)).collect();
        let send =
            |scheduler: &mut engine::AnyScheduler<Token>, flow_order: &mut FlowOrder, client| {
                let packet = Packet {
                    flow: flow_order.next().unwrap(),
                    length_bytes: 1500,
                    token: Token::new(client, 0),
                };
                assert!(scheduler.enqueue(0, packet).is_ok());
            };
        for (client, (flow_order, _)) in (0..).zip(&mut clients) {
            (0..100).for_each(|_| send(&mut scheduler, flow_order, client));
        }
        const PACKETS: u64 = 100_000;
        for _ in 0..PACKETS {
            let packet = scheduler.dequeue(0).unwrap();
            let client = packet.token.client();
            let (flow_order, packets) = &mut clients[client as usize];
            *packets += 1;
            flow_order.record_returned(packet.flow);
            send(&mut scheduler, flow_order, client);
        }
        std::array::from_fn(|client| clients[client].1 as f64 / PACKETS as f64)
    }

    #[test]
    fn shares_follow_weights_only_if_flows_are_kept_queued() {
        let kept = shares(|flows| FlowOrder::Windows(flows.windows(100)));
        for (got, weight) in kept.iter().zip([104.0, 4.0, 4.0, 4.0]) {
            assert!((got - weight / 116.0).abs() < 0.002, "{kept:?}");
        }
        let round_robin = shares(FlowOrder::RoundRobin);
        for (got, flows_count) in round_robin.iter().zip([5.0, 4.0, 4.0, 4.0]) {
            assert!((got - flows_count / 17.0).abs() < 0.02, "{round_robin:?}");
        }
    }
}
