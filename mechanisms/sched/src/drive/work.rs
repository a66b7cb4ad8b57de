//! A client's whole life: sends what its program says, transmits what is marked.

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

/// What a client does and for how long.
#[derive(Clone, Debug)]
pub struct Work<'a> {
    /// What it sends when.
    pub load: Load,
    /// Through which flows, packet by packet.
    pub flows: Flows,
    /// How long a flow's packets are, by flow, whatever the load says; of a flow that is not there, as
    /// the load says.
    pub lengths_bytes: &'a [u32],
    /// Packets that may be on their way at once: sent, and neither transmitted nor dropped. This is the
    /// back-pressure that reaches from the link to the client; without (`u64::MAX`) a client sends as
    /// fast as the arbiter takes, and what the scheduler has no room for is dropped.
    pub in_flight_max: u64,
    /// It looks for marks once in so long; zero: whenever it has sent something.
    pub poll_interval: Duration,
    /// How it waits.
    pub patience: Patience,
    /// Ends it early when set, from whichever thread or signal handler.
    pub stop: &'a AtomicBool,
    /// Ends it at this time, on the time line of [`clock::now_ns`].
    pub until_ns: Option<u64>,
    /// How long it waits in the end for what it has sent.
    pub linger: Duration,
}

/// Packets between two looks at the time, where nothing but the end depends on it.
const PACKETS_PER_LOOK: u32 = 64;

/// Marks taken in one go, before it is looked whether there is something to send.
const POLL_MAX: usize = 1024;

/// Runs a client on the calling thread until its program has ended and what it sent has come back (or
/// [`Work::linger`] has passed), its time is up, it is stopped, or the arbiter has ended. What has come
/// back by then has been transmitted.
///
/// Tags are zero.
///
/// # Errors
/// What the sink says. [`Client::counts`] is right all the same.
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
    // More than that on their way back might not find room.
    let unseen_max = client.marks_slots_count() / 2;
    let mut idle = Idle::new(patience);
    let (mut poll_ns, mut unseen) = (0, 0);
    // Relaxed, here and below: nothing but the end depends on it.
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
            // The mailbox is full, or as much is on its way as may be.
            Due::Packets { .. } => idle.wait(),
            Due::Over => break,
        }
    }
    let end_ns = clock::now_ns().saturating_add(nanoseconds(linger));
    loop {
        // Before the last look: what has been marked when it says so is there.
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

/// Sends what is due, or some of it; how many packets.
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
        let left = u64::from(count).min(room - u64::from(sent)) as u32; // not above count
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

/// The packets of a burst.
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
