//! Generator: chooses the flow that gets the next packet, or that packets are taken out.

use super::TesterOptions;

/// Flow number that stands for no flow.
const NONE: u32 = u32::MAX;
/// Number of lists of flows. There is one for each number of queued packets from 0 to 29, and one
/// for 30 or more.
const LISTS_COUNT: usize = 31;

/// Generator of packets for the flow with the fewest queued packets. It generates until `qmax` are
/// queued in total, and then again when only `qmin` are left.
#[derive(Debug)]
pub(super) struct Generator {
    /// Length of each flow's packets, in bytes.
    flow_lengths_bytes: Vec<u32>,
    /// Number of queued packets of each flow. Stored apart from `before` and `behind`, because
    /// adjacent fields that are written one by one and read as a pair would make the processor wait
    /// for the writes.
    counts: Vec<u32>,
    /// Previous flow in the list of each flow; `NONE` for the first one.
    before: Vec<u32>,
    /// Next flow in the list of each flow; `NONE` for the last one.
    behind: Vec<u32>,
    /// First and last flow of each list; `NONE` if the list is empty.
    ends: [(u32, u32); LISTS_COUNT],
    /// Bitmap of the non-empty lists.
    non_empty_lists: u32,
    /// Number of queued packets of all flows.
    queued_count: u64,
    /// Number of queued packets at which the generator starts again.
    qmin: u64,
    /// Number of queued packets at which the generator stops.
    qmax: u64,
    /// `true` until `qmax` packets are queued, then `false` until `qmin` are left.
    is_filling: bool,
    /// Number of packets in a burst, all for one flow.
    burst: u32,
    /// Number of packets left in the current burst.
    burst_left: u32,
    /// Flow that gets the packets of the current burst.
    burst_flow: u32,
}

/// Returns the index of the list of flows with this number of queued packets.
#[inline(always)]
fn list_index(queued_count: u32) -> usize {
    (queued_count as usize).min(LISTS_COUNT - 1)
}

impl Generator {
    pub(super) fn new(options: &TesterOptions) -> Self {
        let (qmin, qmax) = options.qmin_and_qmax_packets();
        let flow_lengths_bytes: Vec<u32> = options.flows.flows().map(|(_, bytes)| bytes).collect();
        let flows_count = flow_lengths_bytes.len();
        let mut generator = Self {
            flow_lengths_bytes,
            counts: vec![0; flows_count],
            before: vec![NONE; flows_count],
            behind: vec![NONE; flows_count],
            ends: [(NONE, NONE); LISTS_COUNT],
            non_empty_lists: 0,
            queued_count: 0,
            qmin,
            qmax,
            is_filling: true,
            burst: options.burst,
            burst_left: 0,
            burst_flow: 0,
        };
        for id in 0..flows_count as u32 {
            generator.append(id, 0);
        }
        generator
    }

    pub(super) fn flow_lengths_bytes(&self) -> &[u32] {
        &self.flow_lengths_bytes
    }

    /// Returns the flow and the length in bytes of the next packet to enqueue. Returns `None` if a
    /// packet must be dequeued.
    #[inline(always)]
    pub(super) fn next_packet(&mut self) -> Option<(u32, u32)> {
        if self.is_filling {
            self.is_filling = self.queued_count < self.qmax;
        } else {
            self.is_filling = self.queued_count <= self.qmin;
        }
        if !self.is_filling {
            return None;
        }
        if self.burst_left == 0 {
            self.burst_left = self.burst;
            self.burst_flow =
                self.ends[self.non_empty_lists.trailing_zeros() as usize % LISTS_COUNT].0;
        }
        self.burst_left -= 1;
        let id = self.burst_flow;
        self.queued_count += 1;
        let count = self.counts[id as usize];
        self.set_queued_count(id, count, count + 1);
        Some((id, self.flow_lengths_bytes[id as usize]))
    }

    /// Records that a packet of this flow is no longer queued.
    #[inline(always)]
    pub(super) fn record_departure(&mut self, id: u32) {
        self.queued_count -= 1;
        let count = self.counts[id as usize];
        self.set_queued_count(id, count, count - 1);
    }

    /// Sets a flow's number of queued packets, and moves the flow to the list of that number.
    #[inline(always)]
    fn set_queued_count(&mut self, id: u32, before: u32, now: u32) {
        self.counts[id as usize] = now;
        if list_index(before) != list_index(now) {
            self.remove(id, list_index(before));
            self.append(id, list_index(now));
        }
    }

    /// Appends a flow to a list.
    #[inline(always)]
    fn append(&mut self, id: u32, list_index: usize) {
        let last = std::mem::replace(&mut self.ends[list_index].1, id);
        if last == NONE {
            self.ends[list_index].0 = id;
            self.non_empty_lists |= 1 << list_index;
        } else {
            self.behind[last as usize] = id;
        }
        self.before[id as usize] = last;
        self.behind[id as usize] = NONE;
    }

    /// Removes a flow from its list.
    #[inline(always)]
    fn remove(&mut self, id: u32, list_index: usize) {
        let (before, behind) = (self.before[id as usize], self.behind[id as usize]);
        match before {
            NONE => self.ends[list_index].0 = behind,
            before => self.behind[before as usize] = behind,
        }
        match behind {
            NONE => self.ends[list_index].1 = before,
            behind => self.before[behind as usize] = before,
        }
        if self.ends[list_index].0 == NONE {
            self.non_empty_lists &= !(1 << list_index);
        }
    }
}
