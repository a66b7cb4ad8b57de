//! Load programs: what a client sends, and when. Pure: time is an argument.

use super::clock::PacketClock;
use super::wait::saturating_ns;
use std::collections::VecDeque;
use std::time::Duration;

/// Section of a load program: sends packets of one length at one rate for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSection {
    /// Duration of the section.
    pub duration: Duration,
    /// Rate in bit/s at which packets are sent.
    pub bandwidth_bps: u64,
    /// Length of each packet.
    pub length_bytes: u32,
    /// Number of packets that are sent together, as one burst.
    pub burst_packets: u32,
}

/// Next action of a load program: send packets, wait, or finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadAction {
    /// Packets are due now: the unsent part of a burst. Pass the number of packets sent to
    /// [`Load::record_sent`].
    Packets {
        /// Number of packets due.
        count: u32,
        /// Length of each packet.
        length_bytes: u32,
    },
    /// No packet is due before this time.
    Wait {
        /// Time at which packets are due, on the clock of `now_ns`.
        until_ns: u64,
    },
    /// The program is finished.
    Finished,
}

/// Load program in execution, which computes the packets that a client has to send at any time.
///
/// Each section lasts exactly its duration, beginning at the end of the one before. Within it
/// a burst is due every `burst × length / bandwidth`; a burst that could not be sent in time is
/// sent as soon as possible, while the section lasts.
///
/// A load does not check its lengths: [`run_client`](super::run_client) fails at the first packet
/// that is out of range.
///
/// ```
/// use handover_sched::drive::{LoadAction, Load, LoadSection};
/// use std::time::Duration;
/// let spec = LoadSection {
///     duration: Duration::from_micros(30),
///     bandwidth_bps: 1_000_000_000,
///     length_bytes: 1250,
///     burst_packets: 2,
/// };
/// let mut load = Load::from_sections(&[spec]); // 2 × 1250 bytes every 20 µs
/// assert_eq!(load.next_action(100), LoadAction::Packets { count: 2, length_bytes: 1250 });
/// load.record_sent(2);
/// assert_eq!(load.next_action(200), LoadAction::Wait { until_ns: 20_100 });
/// assert_eq!(load.next_action(20_100), LoadAction::Packets { count: 2, length_bytes: 1250 });
/// assert_eq!(load.next_action(30_100), LoadAction::Finished);
/// ```
#[derive(Clone, Debug)]
pub struct Load {
    pending_sections: VecDeque<LoadSection>,
    current: LoadState,
}

/// State of the execution of a load program.
#[derive(Clone, Debug)]
enum LoadState {
    /// State before the first call of [`Load::next_action`].
    NotStarted,
    /// Execution of a section at a limited rate, until `end_ns`.
    Paced { spec: LoadSection, end_ns: u64, clock: PacketClock, burst_left: u32 },
    /// Execution of a section that has neither a rate limit nor an end.
    Endless { length_bytes: u32, burst_packets: u32, burst_left: u32 },
    /// State after the last section.
    Finished,
}

impl Load {
    /// Creates a load that executes these sections one after another. A rate that [`PacketClock`]
    /// cannot represent counts as unlimited.
    pub fn from_sections(specs: &[LoadSection]) -> Self {
        Self { pending_sections: specs.iter().copied().collect(), current: LoadState::NotStarted }
    }

    /// Creates a load that sends bursts of packets forever, as fast as possible.
    pub fn endless(length_bytes: u32, burst_packets: u32) -> Self {
        let burst_packets = burst_packets.max(1);
        let current = LoadState::Endless { length_bytes, burst_packets, burst_left: burst_packets };
        Self { pending_sections: VecDeque::new(), current }
    }

    /// Returns the action at `now_ns`: send packets, wait, or finish. The time of the first call is
    /// the start of the load's first section.
    pub fn next_action(&mut self, now_ns: u64) -> LoadAction {
        loop {
            let begin_ns = match &mut self.current {
                LoadState::Endless { length_bytes, burst_left, .. } => {
                    return LoadAction::Packets { count: *burst_left, length_bytes: *length_bytes };
                }
                LoadState::Paced { spec, end_ns, clock, burst_left } if now_ns < *end_ns => {
                    if clock.next_ns() <= now_ns {
                        return LoadAction::Packets {
                            count: *burst_left,
                            length_bytes: spec.length_bytes,
                        };
                    }
                    return LoadAction::Wait { until_ns: clock.next_ns().min(*end_ns) };
                }
                LoadState::Paced { end_ns, .. } => *end_ns,
                LoadState::NotStarted => now_ns,
                LoadState::Finished => return LoadAction::Finished,
            };
            self.current = self.start_next_section(begin_ns);
        }
    }

    /// Removes the next section, and returns the state of its execution. Returns `Finished` if no
    /// section is left.
    fn start_next_section(&mut self, begin_ns: u64) -> LoadState {
        let Some(spec) = self.pending_sections.pop_front() else {
            return LoadState::Finished;
        };
        let Ok(mut clock) = PacketClock::new(spec.bandwidth_bps) else {
            return Load::endless(spec.length_bytes, spec.burst_packets).current;
        };
        clock.idle_until(begin_ns);
        let end_ns = begin_ns.saturating_add(saturating_ns(spec.duration));
        LoadState::Paced { spec, end_ns, clock, burst_left: spec.burst_packets.max(1) }
    }

    /// Records that `packets` of the packets due were sent.
    #[inline]
    pub fn record_sent(&mut self, packets: u32) {
        match &mut self.current {
            LoadState::Paced { spec, clock, burst_left, .. } => {
                *burst_left -= packets.min(*burst_left);
                if *burst_left == 0 {
                    *burst_left = spec.burst_packets.max(1);
                    clock.charge(u64::from(spec.length_bytes) * u64::from(*burst_left));
                }
            }
            LoadState::Endless { burst_packets, burst_left, .. } => {
                *burst_left -= packets.min(*burst_left);
                if *burst_left == 0 {
                    *burst_left = *burst_packets;
                }
            }
            LoadState::NotStarted | LoadState::Finished => {}
        }
    }
}

/// Maximum number of packets in flight that a client divides among its flows.
const WINDOW_MAX_PACKETS: u64 = 1 << 20;

/// Endless round-robin iterator over the numbers of a client's flows.
///
/// Flow `f` belongs to client `f` modulo the number of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientFlows {
    first_flow: u32,
    clients_count: u32,
    /// Number of flows of all clients.
    total_flows_count: u32,
    next_flow: u32,
}

impl ClientFlows {
    /// Returns the flows of client `client` when `flows_count` flows are divided among
    /// `clients_count` clients.
    ///
    /// # Panics
    /// Panics if `clients_count` is 0.
    pub fn new(client: u32, clients_count: u32, flows_count: u32) -> Self {
        assert!(clients_count > 0, "clients_count=0: must be at least 1");
        Self {
            first_flow: client,
            clients_count,
            total_flows_count: flows_count,
            next_flow: client,
        }
    }

    /// Returns `true` if this client has no flow. This is possible if there are fewer flows than
    /// clients.
    pub fn is_empty(&self) -> bool {
        self.first_flow >= self.total_flows_count
    }

    /// Returns the number of flows of this client.
    pub fn flows_count(&self) -> u32 {
        self.total_flows_count.saturating_sub(self.first_flow).div_ceil(self.clients_count)
    }

    /// Returns a queue that contains each of this client's flow numbers equally often. It has
    /// `packets_max` numbers or slightly more. The total is limited to about
    /// [`WINDOW_MAX_PACKETS`].
    pub(super) fn windows(self, packets_max: u64) -> VecDeque<u32> {
        let flows_count = self.flows_count() as usize;
        let packets_max = packets_max.min(WINDOW_MAX_PACKETS) as usize;
        let rounds = packets_max.div_ceil(flows_count.max(1)).max(1);
        self.take(rounds * flows_count).collect()
    }
}

/// Never ends, unless the client has no flows.
impl Iterator for ClientFlows {
    type Item = u32;

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        let flow = self.next_flow;
        if flow >= self.total_flows_count {
            return None;
        }
        self.next_flow = match flow.checked_add(self.clients_count) {
            Some(next) if next < self.total_flows_count => next,
            _ => self.first_flow,
        };
        Some(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: u64 = 1_000_000;

    fn spec(
        duration_ns: u64,
        bandwidth_bps: u64,
        length_bytes: u32,
        burst_packets: u32,
    ) -> LoadSection {
        let duration = Duration::from_nanos(duration_ns);
        LoadSection { duration, bandwidth_bps, length_bytes, burst_packets }
    }

    /// Returns the packets and bytes that a program sends, and its end, if the sender sends all
    /// that is due and polls every `step_ns`.
    fn run(specs: &[LoadSection], step_ns: u64) -> (u64, u64, u64) {
        let mut load = Load::from_sections(specs);
        let (mut now_ns, mut packets, mut bytes) = (0, 0, 0);
        loop {
            match load.next_action(now_ns) {
                LoadAction::Packets { count, length_bytes } => {
                    load.record_sent(count);
                    packets += u64::from(count);
                    bytes += u64::from(count) * u64::from(length_bytes);
                }
                LoadAction::Wait { until_ns } => {
                    assert!(until_ns > now_ns);
                    now_ns += step_ns;
                }
                LoadAction::Finished => return (packets, bytes, now_ns),
            }
        }
    }

    #[test]
    fn specification_sends_its_bandwidth_for_its_duration() {
        let (packets, bytes, end_ns) = run(&[spec(1_000_000_000, 100 * MBIT, 64, 1)], 1_000);
        // 195,312.5 of them: the last one begins in time.
        assert_eq!(packets, 100 * MBIT / 8 / 64 + 1);
        assert_eq!(bytes, packets * 64);
        assert_eq!(end_ns, 1_000_000_000);
    }

    #[test]
    fn next_specification_begins_at_the_end_of_the_previous_even_if_polled_late() {
        let specs = [spec(1_000_000, 8 * MBIT, 100, 1), spec(2_000_000, 80 * MBIT, 100, 2)];
        let (exact, ..) = run(&specs, 1_000);
        let (late, _, end_ns) = run(&specs, 70_000);
        assert_eq!(exact, 10 + 200);
        assert!(late <= exact && late + 10 >= exact, "{late} of {exact}");
        assert!((3_000_000..3_070_000).contains(&end_ns));
    }

    #[test]
    fn burst_sent_in_parts_counts_as_one() {
        let mut load = Load::from_sections(&[spec(1_000_000, 80 * MBIT, 100, 4)]);
        assert_eq!(load.next_action(0), LoadAction::Packets { count: 4, length_bytes: 100 });
        load.record_sent(3);
        load.next_action(30_000);
        assert_eq!(load.next_action(30_000), LoadAction::Packets { count: 1, length_bytes: 100 });
        load.record_sent(1);
        assert_eq!(load.next_action(30_001), LoadAction::Wait { until_ns: 40_000 });
    }

    #[test]
    fn window_contains_each_flow_equally_often_and_at_least_the_maximum() {
        let windows =
            |client, packets_max| Vec::from(ClientFlows::new(client, 4, 17).windows(packets_max));
        assert_eq!(windows(0, 7), [0, 4, 8, 12, 16, 0, 4, 8, 12, 16]);
        assert_eq!(windows(1, 8), [1, 5, 9, 13, 1, 5, 9, 13]);
        assert_eq!(windows(0, 2), [0, 4, 8, 12, 16]);
        assert_eq!(ClientFlows::new(5, 22, 5).windows(u64::MAX).len(), 0);
        assert!(windows(1, u64::MAX).len() >= WINDOW_MAX_PACKETS as usize);
    }

    #[test]
    fn empty_program_is_over_and_endless_load_never_is() {
        assert_eq!(Load::from_sections(&[]).next_action(5), LoadAction::Finished);
        let mut load = Load::endless(1500, 50);
        assert_eq!(load.next_action(5), LoadAction::Packets { count: 50, length_bytes: 1500 });
        load.record_sent(20);
        assert_eq!(
            load.next_action(u64::MAX),
            LoadAction::Packets { count: 30, length_bytes: 1500 }
        );
    }

    #[test]
    fn each_flow_belongs_to_one_client_and_is_repeated_in_turn() {
        let mut owners = [0; 17];
        for client in 0..4 {
            let flows = ClientFlows::new(client, 4, 17);
            let own = 17 / 4 + usize::from(client == 0);
            for flow in flows.take(own) {
                assert_eq!(flow % 4, client);
                owners[flow as usize] += 1;
            }
            assert!(flows.take(own).eq(flows.skip(own).take(own)));
        }
        assert_eq!(owners, [1; 17]);
        assert!(
            ClientFlows::new(5, 22, 5).is_empty() && ClientFlows::new(5, 22, 5).next().is_none()
        );
        assert_eq!(
            [0, 1, 2, 3].map(|client| ClientFlows::new(client, 4, 17).flows_count()),
            [5, 4, 4, 4]
        );
        assert_eq!(ClientFlows::new(5, 22, 5).flows_count(), 0);
        assert!(!ClientFlows::new(4, 22, 5).is_empty());
    }
}
