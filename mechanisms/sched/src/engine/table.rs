//! Storage of every algorithm that queues by flow: the flows, each with a list of packets, and the
//! pool of packets.

use super::config::{Config, check_spec};
use super::{
    Discipline, DropPolicy, EnqueueError, EnqueueOutcome, EnqueueResult, FlowError, FlowSpec,
    Packet, Refusal, Totals,
};
use handover_base::prefetch;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Debug;

/// Index that stands for no packet, no flow or no entity.
pub(crate) const NO_FLOW: u32 = u32::MAX;

/// Flag in [`Flow::length_max_bytes`] of flows with [`DropPolicy::Head`]; the length needs 21 bits.
const HEAD_BIT: u32 = 1 << 31;

/// Access to the algorithm's state of each flow.
pub trait FlowStates<H> {
    /// Returns the algorithm's state of flow `id`.
    fn state(&mut self, id: u32) -> &mut H;

    /// Prefetches the algorithm's state of flow `id`.
    fn prefetch(&self, id: u32);
}

/// Packet in the list of its flow; takes 16 bytes if the token takes 8.
///
/// A packet's length is stored with the packet before it, or with the flow if it is the oldest:
/// removing a packet needs the next one's length, and need not read the next one's cache line for
/// it.
#[derive(Clone, Copy, Debug)]
struct Node<T> {
    /// Index of the flow's next packet; if this node is free, of the next free node.
    next: u32,
    /// Length of the flow's next packet.
    next_bytes: u32,
    token: T,
}

/// Flow: its list of packets, its limits and the algorithm's state. `A` aligns the struct so that
/// it lies in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Flow<H, A> {
    /// Index of the node of the flow's oldest packet.
    head: u32,
    /// Index of the node of the flow's newest packet.
    tail: u32,
    /// Number of queued packets of the flow.
    count: u32,
    packets_max: u32,
    /// Maximum length of a packet, with the drop policy in the highest bit. It is 0 if the flow was
    /// removed, so that the check of the length refuses its packets.
    length_max_bytes: u32,
    /// Length of the flow's oldest packet.
    head_bytes: u32,
    state: H,
    /// Empty array that gives the struct the alignment of `A`.
    align: [A; 0],
}

/// Alignment of a flow to half a cache line: two flows share a line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct HalfLine;

/// Alignment of a flow to a full cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Line;

impl<H, A> Flow<H, A> {
    /// Returns the result for a packet whose length is not within the flow's range.
    #[cold]
    fn bad_length(&self) -> PushResult {
        if self.length_max_bytes == 0 { PushResult::NoFlow } else { PushResult::BadLength }
    }
}

/// Result of [`FlowTable::push`].
pub(crate) enum PushResult {
    /// The packet was queued as the flow's only packet.
    First,
    /// The packet was queued behind other packets of the flow.
    Behind,
    /// The flow was not added, or it was removed.
    NoFlow,
    /// The packet's length is zero or above the flow's limit.
    BadLength,
    /// The flow has its maximum number of packets; `drops_head` is `true` if its policy is
    /// [`DropPolicy::Head`].
    FlowFull { drops_head: bool },
    /// The scheduler has reached its maximum number of packets.
    Full,
}

impl PushResult {
    /// Returns the reason for refusing a packet of this length. The packet was not queued, although
    /// its flow exists.
    pub(crate) fn refusal(&self, length_bytes: u32) -> Refusal {
        match self {
            PushResult::BadLength if length_bytes == 0 => Refusal::Empty,
            PushResult::BadLength => Refusal::TooLong,
            PushResult::FlowFull { .. } => Refusal::FlowFull,
            _ => Refusal::Full,
        }
    }
}

/// Packet that was removed, and the length of the flow's next packet.
pub(crate) struct PoppedPacket<T> {
    pub(crate) packet: Packet<T>,
    /// Length of the flow's next packet; `None` if the removed one was the last.
    pub(crate) next_bytes: Option<u32>,
}

/// Flows and their queued packets, for the algorithms that queue by flow.
#[derive(Debug)]
pub(crate) struct FlowTable<T, H, A> {
    flows: Vec<Flow<H, A>>,
    /// Numbers of removed flows, the smallest first.
    removed: BinaryHeap<Reverse<u32>>,
    nodes: Vec<Node<T>>,
    /// Index of the first free node, or [`NO_FLOW`].
    first_free: u32,
    pub(crate) totals: Totals,
    packets_max: u32,
    pub(crate) flows_max: u32,
}

impl<T: Copy + Debug, H: Copy, A: Copy> FlowStates<H> for FlowTable<T, H, A> {
    #[inline(always)]
    fn state(&mut self, id: u32) -> &mut H {
        &mut self.flows[id as usize].state
    }

    #[inline(always)]
    fn prefetch(&self, id: u32) {
        prefetch::for_read(&self.flows[id as usize]);
    }
}

impl<T: Copy + Debug, H: Copy, A: Copy> FlowTable<T, H, A> {
    /// Creates a table without flows from a valid configuration.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            flows: Vec::with_capacity(config.flows_max as usize),
            removed: BinaryHeap::new(),
            nodes: Vec::with_capacity(config.packets_max as usize),
            first_free: NO_FLOW,
            totals: Totals::default(),
            packets_max: config.packets_max,
            flows_max: config.flows_max,
        }
    }

    pub(crate) fn flows_count(&self) -> u32 {
        (self.flows.len() - self.removed.len()) as u32
    }

    /// Returns the number of flows for which there is memory. It counts existing and removed flows.
    #[inline(always)]
    pub(crate) fn slots_count(&self) -> usize {
        self.flows.len()
    }

    /// Returns the number of queued packets.
    pub(crate) fn len(&self) -> usize {
        (self.totals.enqueued - self.totals.dequeued - self.totals.dropped) as usize
    }

    /// Returns an error if the table already has its maximum number of flows.
    pub(crate) fn check_space(&self) -> Result<(), FlowError> {
        if self.flows_count() >= self.flows_max {
            return Err(FlowError::Flows { flows_max: self.flows_max });
        }
        Ok(())
    }

    /// Returns the properties of a flow, with `weight` as its weight. Only the algorithm knows the
    /// actual weight.
    pub(crate) fn spec(&self, id: u32, weight: u64) -> Result<FlowSpec, FlowError> {
        let flow = self.flows.get(id as usize).filter(|flow| flow.length_max_bytes != 0);
        let flow = flow.ok_or(FlowError::Unknown { flow: id })?;
        let drops_head = flow.length_max_bytes & HEAD_BIT != 0;
        Ok(FlowSpec {
            weight,
            length_max_bytes: flow.length_max_bytes & !HEAD_BIT,
            packets_max: flow.packets_max,
            drop: if drops_head { DropPolicy::Head } else { DropPolicy::Tail },
        })
    }

    /// Returns the length of a flow's oldest packet; `None` if the flow has no packets.
    pub(crate) fn oldest_bytes(&self, id: u32) -> Option<u32> {
        let flow = &self.flows[id as usize];
        (flow.count > 0).then_some(flow.head_bytes)
    }

    /// Adds a flow with the algorithm's initial state `state`; returns the flow's number.
    pub(crate) fn add(&mut self, spec: &FlowSpec, state: H) -> u32 {
        debug_assert!(check_spec(spec, u64::MAX).is_ok());
        let drops_head = spec.drop == DropPolicy::Head;
        let flow = Flow {
            head: NO_FLOW,
            tail: NO_FLOW,
            count: 0,
            packets_max: spec.packets_max,
            length_max_bytes: spec.length_max_bytes | if drops_head { HEAD_BIT } else { 0 },
            head_bytes: 0,
            state,
            align: [],
        };
        let Some(Reverse(id)) = self.removed.pop() else {
            self.flows.push(flow);
            return self.flows.len() as u32 - 1;
        };
        self.flows[id as usize] = flow;
        id
    }

    /// Removes a flow; returns its packets, oldest first.
    pub(crate) fn remove(&mut self, id: u32) -> Vec<Packet<T>> {
        let packets: Vec<_> =
            (0..self.flows[id as usize].count).map(|_| self.pop(id).packet).collect();
        self.totals.dropped += packets.len() as u64;
        self.flows[id as usize].length_max_bytes = 0;
        self.removed.push(Reverse(id));
        packets
    }

    /// Appends a packet to its flow's queue, if the limits allow.
    #[inline(always)]
    pub(crate) fn push(&mut self, packet: &Packet<T>) -> PushResult {
        let Some(flow) = self.flows.get_mut(packet.flow as usize) else {
            return PushResult::NoFlow;
        };
        // One comparison: a length of 0 wraps around to the greatest value.
        if packet.length_bytes.wrapping_sub(1) >= flow.length_max_bytes & !HEAD_BIT {
            return flow.bad_length();
        }
        if flow.count >= flow.packets_max {
            return PushResult::FlowFull { drops_head: flow.length_max_bytes & HEAD_BIT != 0 };
        }
        let at = self.first_free;
        let Some(node) = self.nodes.get_mut(at as usize) else { return self.push_new(packet) };
        self.first_free = node.next;
        // Field by field: a whole struct would be assembled elsewhere first and read back at once.
        node.next = NO_FLOW;
        node.token = packet.token;
        self.totals.enqueued += 1;
        flow.count += 1;
        if flow.count == 1 {
            flow.head = at;
            flow.tail = at;
            flow.head_bytes = packet.length_bytes;
            return PushResult::First;
        }
        let tail = std::mem::replace(&mut flow.tail, at);
        let before = &mut self.nodes[tail as usize];
        before.next = at;
        before.next_bytes = packet.length_bytes;
        PushResult::Behind
    }

    /// Appends a packet as [`push`](Self::push) does, in a newly allocated node.
    #[cold]
    #[inline(never)]
    fn push_new(&mut self, packet: &Packet<T>) -> PushResult {
        if self.nodes.len() >= self.packets_max as usize {
            return PushResult::Full;
        }
        let at = self.nodes.len() as u32;
        let Packet { flow, length_bytes, token } = *packet;
        self.nodes.push(Node { next: NO_FLOW, next_bytes: 0, token });
        self.totals.enqueued += 1;
        let flow = &mut self.flows[flow as usize];
        flow.count += 1;
        let tail = std::mem::replace(&mut flow.tail, at);
        if flow.count == 1 {
            flow.head = at;
            flow.head_bytes = length_bytes;
            return PushResult::First;
        }
        let before = &mut self.nodes[tail as usize];
        before.next = at;
        before.next_bytes = length_bytes;
        PushResult::Behind
    }

    /// Removes and returns the oldest packet of a flow; the flow must have one.
    #[inline(always)]
    pub(crate) fn pop(&mut self, id: u32) -> PoppedPacket<T> {
        let flow = &mut self.flows[id as usize];
        debug_assert!(flow.count > 0);
        let at = flow.head;
        let node = &mut self.nodes[at as usize];
        let packet = Packet { flow: id, length_bytes: flow.head_bytes, token: node.token };
        flow.head = std::mem::replace(&mut node.next, self.first_free);
        flow.head_bytes = node.next_bytes;
        self.first_free = at;
        flow.count -= 1;
        PoppedPacket { packet, next_bytes: (flow.count > 0).then_some(flow.head_bytes) }
    }

    /// Drops the oldest packet of a full flow, which `order` orders, and queues `packet`.
    pub(crate) fn replace_oldest(
        &mut self,
        order: &mut impl Discipline<State = H>,
        packet: &Packet<T>,
    ) -> EnqueueResult<T> {
        let PoppedPacket { packet: dropped, next_bytes } = self.pop(packet.flow);
        self.totals.dropped += 1;
        // Cannot fail: a node was freed, and the flow has room for one packet.
        let pushed = self.push(packet);
        debug_assert!(matches!(pushed, PushResult::First | PushResult::Behind));
        let oldest_bytes = next_bytes.unwrap_or(packet.length_bytes);
        order.record_oldest_dropped(self, packet.flow, dropped.length_bytes, oldest_bytes);
        Ok(EnqueueOutcome::Replaced(dropped))
    }

    /// Adds 1 to the number of refused packets, and returns the error with the packet and the
    /// reason.
    pub(crate) fn refuse(&mut self, packet: Packet<T>, reason: Refusal) -> EnqueueResult<T> {
        self.totals.refused += 1;
        Err(EnqueueError { packet, reason })
    }

    /// Prefetches the flow's oldest packet; the flow itself should be in the cache already.
    #[inline(always)]
    pub(crate) fn prefetch_head(&self, id: u32) {
        if let Some(node) = self.nodes.get(self.flows[id as usize].head as usize) {
            prefetch::for_read(node);
        }
    }
}
