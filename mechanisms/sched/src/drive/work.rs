//! Complete run of a client: sends its load program, and transmits marked packets.

use super::client::{Client, Counts};
use super::lane::Lane;
use super::load::{Due, Flows, Load};
use super::sink::{Sink, SinkError};
use super::stamps::Trace;
use super::wait::{Idle, Patience, nanoseconds};
use super::word::Offer;
use handover_base::clock;
use handover_base::sync::shared::{AtomicBool, Ordering};
use std::time::Duration;

/// Parameters of a client's run.
#[derive(Clone, Debug)]
pub struct Work<'a> {
    /// Load program.
    pub load: Load,
    /// Flows of the packets, in turn.
    pub flows: Flows,
    /// Packet lengths by flow, which override the load's; flows beyond the slice use the load's.
    pub lengths_bytes: &'a [u32],
    /// Maximum number of packets sent and neither transmitted nor dropped. This is the
    /// back-pressure from the link to the client; without it (`u64::MAX`) a client sends as fast as
    /// the arbiter takes packets, and those for which the scheduler has no room are dropped.
    pub in_flight_max: u64,
    /// Interval between two polls for marks; zero: a poll before each send.
    pub poll_interval: Duration,
    /// Behaviour of the idle client.
    pub patience: Patience,
    /// Ends the run when set, by any thread or signal handler.
    pub stop: &'a AtomicBool,
    /// Ends the run at this time, on the time line of [`clock::now_ns`].
    pub until_ns: Option<u64>,
    /// Longest wait, at the end, for packets sent that have not come back.
    pub linger: Duration,
}

/// Packets between two clock reads, where only the end depends on the time.
const PACKETS_PER_LOOK: u32 = 64;

/// Maximum number of marks handled in one poll, before packets are sent again.
const POLL_MAX: usize = 1024;

/// Runs a client on the calling thread until its program has ended and its packets have come back
/// (or [`Work::linger`] has passed), its time is up, it is stopped, or the arbiter has ended.
/// Packets that have come back by then were transmitted.
///
/// All tags are zero.
///
/// # Errors
/// An error of the sink. [`Client::counts`] is right all the same.
pub fn work<L: Lane, K: Sink, T: Trace>(
    client: &mut Client<L>,
    work: Work<'_>,
    sink: &mut K,
    trace: &mut T,
) -> Result<Counts, SinkError> {
    let Work { mut load, mut flows, lengths_bytes, in_flight_max, .. } = work;
    let Work { poll_interval, patience, stop, until_ns, linger, .. } = work;
    let until_ns = until_ns.unwrap_or(u64::MAX);
    let poll_interval_ns = nanoseconds(poll_interval);
    // More packets on their way back might not find room in the lane.
    let unseen_max = client.marks_slots_count() / 2;
    let mut idle = Idle::new(patience);
    let (mut poll_ns, mut unseen) = (0, 0);
    // Relaxed, here and below: only the end depends on it.
    let stopped = || stop.load(Ordering::Relaxed);
    while !flows.is_empty() && !client.is_closed() && !stopped() {
        let now_ns = clock::now_ns();
        if now_ns >= until_ns {
            break;
        }
        if now_ns >= poll_ns || unseen >= unseen_max {
            poll_ns = now_ns.saturating_add(poll_interval_ns);
            unseen = 0;
            if client.poll(POLL_MAX, sink, trace)? > 0 {
                idle.reset();
            }
        }
        let room = in_flight_max.saturating_sub(client.in_flight());
        let sent = send_due(client, &mut load, &mut flows, lengths_bytes, room, now_ns);
        unseen += sent;
        if sent > 0 {
            idle.reset();
            continue;
        }
        match load.due(now_ns) {
            Due::Wait { until_ns: due_ns } => {
                let look_ns = if client.in_flight() > 0 { poll_ns } else { u64::MAX };
                let due_ns = due_ns.min(until_ns);
                let look_ns = look_ns.min(due_ns);
                if look_ns > now_ns {
                    idle.wait_until(look_ns, due_ns, stopped);
                } else {
                    idle.wait();
                }
            }
            // The mailbox is full, or `in_flight_max` packets are on their way.
            Due::Packets { .. } => idle.wait(),
            Due::Over => break,
        }
    }
    let end_ns = clock::now_ns().saturating_add(nanoseconds(linger));
    loop {
        // Read before the last poll: marks made before the end are visible to that poll.
        let ended = client.is_ended() || stopped() || clock::now_ns() >= end_ns;
        while client.poll(POLL_MAX, sink, trace)? > 0 {
            idle.reset();
        }
        if ended || client.in_flight() == 0 {
            return Ok(client.counts());
        }
        idle.wait();
    }
}

/// Sends packets that are due; returns their number.
#[inline(always)]
fn send_due<L: Lane>(
    client: &mut Client<L>,
    load: &mut Load,
    flows: &mut Flows,
    lengths_bytes: &[u32],
    room: u64,
    now_ns: u64,
) -> u32 {
    let mut sent = 0;
    while let Due::Packets { count, length_bytes } = load.due(now_ns) {
        let left = u64::from(count).min(room - u64::from(sent)) as u32; // at most count
        if left == 0 {
            break;
        }
        let mut burst = Burst { flows, lengths_bytes, length_bytes, left };
        let went = client.send_batch(&mut burst).sent as u32;
        load.sent(went);
        sent += went;
        if went < count || sent >= PACKETS_PER_LOOK {
            break;
        }
    }
    sent
}

/// Iterator over the packets of a burst.
struct Burst<'a> {
    flows: &'a mut Flows,
    lengths_bytes: &'a [u32],
    length_bytes: u32,
    left: u32,
}

impl Iterator for Burst<'_> {
    type Item = Offer;

    #[inline(always)]
    fn next(&mut self) -> Option<Offer> {
        self.left = self.left.checked_sub(1)?;
        let flow = self.flows.next()?;
        let length_bytes = self.lengths_bytes.get(flow as usize).copied();
        let length_bytes = length_bytes.unwrap_or(self.length_bytes);
        Some(Offer { flow, length_bytes, tag: 0 })
    }
}
