//! First in, first out.

use super::config::{Config, ConfigError, check_spec};
use super::scheduler::make_flows;
use super::{
    DropPolicy, EnqueueError, EnqueueOutcome, EnqueueResult, FlowError, FlowSpec, Packet, Refusal,
    Scheduler, Totals,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Debug;

/// First-in, first-out scheduler of all flows' packets; each flow has its own limits. Weights have
/// no effect.
///
/// Packets are kept in one ring in the order in which they came. A packet that is dropped for a
/// newer one of its flow leaves an empty slot; there are as many spare slots as packets, and the
/// ring is compacted when they are used up.
///
/// Cost: O(1); amortised if flows drop their oldest packet.
#[derive(Debug)]
pub struct Fifo<T> {
    /// Circular buffer of packets, in which a length of 0 marks an empty slot. Its capacity is a
    /// power of two, to which it grows in the first lap.
    ring: Vec<Packet<T>>,
    /// Number of slots minus one.
    mask: u64,
    /// Position of the next packet's slot.
    tail: u64,
    /// The position that `tail` reaches when the ring is full: `packets_max` beyond the oldest
    /// packet's slot.
    full_at: u64,
    flows: Vec<FifoFlow>,
    /// Numbers of removed flows, the smallest first.
    removed: BinaryHeap<Reverse<u32>>,
    /// For each slot: the slot of the flow's next packet. The vector is empty if no flow has had
    /// the policy [`DropPolicy::Head`]; no slot from `head()` to `tail` is then empty.
    next_in_flow: Vec<u32>,
    /// Slots of each flow's oldest and newest packets. The vector is empty if no flow has had the
    /// policy [`DropPolicy::Head`].
    ends_of_flows: Vec<FlowEnds>,
    /// Totals, of which `enqueued` has the difference to `tail` and `dequeued` the difference to
    /// `head()`, modulo 2^64: a packet then changes a position and no total.
    totals: Totals,
    packets_max: u32,
    flows_max: u32,
    template: Option<FlowSpec>,
}

/// Minimum number of slots before an empty queue starts again at the first one, instead of growing.
/// It also does so when `dequeue` finds it empty. A queue that is often empty therefore stays in
/// the cache.
const RESTART_SLOTS: u64 = 64;

/// Limits and packet count of a flow. They take 16 bytes, so that four flows share a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct FifoFlow {
    /// Number of queued packets of the flow.
    count: u32,
    packets_max: u32,
    /// Maximum length of a packet. It is 0 if the flow was removed, so that the check of the length
    /// refuses its packets.
    length_max_bytes: u32,
    /// Like `packets_max`, or 0 if the flow drops its oldest packet when it is full.
    refused_at: u32,
}

impl FifoFlow {
    fn drops_head(&self) -> bool {
        self.refused_at == 0
    }
}

/// Slots of a flow's oldest and newest packets. Only flows that drop the oldest packet when they
/// are full have these.
#[derive(Clone, Copy, Debug)]
struct FlowEnds {
    /// Slot of the oldest packet.
    first: u32,
    /// Slot of the newest packet.
    last: u32,
}

impl<T: Copy + Debug> Fifo<T> {
    /// Creates a scheduler without flows.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid field.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.validate()?;
        let slots_count = u64::from(config.packets_max).next_power_of_two();
        Ok(Self {
            ring: Vec::with_capacity(slots_count as usize),
            mask: slots_count - 1,
            tail: 0,
            full_at: config.packets_max.into(),
            flows: Vec::with_capacity(config.flows_max as usize),
            removed: BinaryHeap::new(),
            next_in_flow: Vec::new(),
            ends_of_flows: Vec::new(),
            totals: Totals::default(),
            packets_max: config.packets_max,
            flows_max: config.flows_max,
            template: config.template,
        })
    }

    /// Position of the oldest packet's slot.
    fn head(&self) -> u64 {
        self.full_at - u64::from(self.packets_max)
    }

    fn slot_index(&self, at: u64) -> usize {
        (at & self.mask) as usize
    }

    /// Adds 1 to the number of refused packets, and returns the error.
    #[cold]
    fn refuse(&mut self, packet: Packet<T>, reason: Refusal) -> EnqueueResult<T> {
        self.totals.refused += 1;
        Err(EnqueueError { packet, reason })
    }

    /// Handles a packet whose flow does not exist, or whose length is out of range. Creates the
    /// flow from the template and queues the packet, or refuses the packet.
    #[cold]
    #[inline(never)]
    fn enqueue_irregular(&mut self, now_ns: u64, packet: Packet<T>) -> EnqueueResult<T> {
        if self.flows.get(packet.flow as usize).is_some_and(|flow| flow.length_max_bytes != 0) {
            let reason = if packet.length_bytes == 0 { Refusal::Empty } else { Refusal::TooLong };
            return self.refuse(packet, reason);
        }
        match make_flows(self, self.template, self.flows_max, packet.flow) {
            Ok(()) => self.enqueue(now_ns, packet),
            Err(reason) => self.refuse(packet, reason),
        }
    }

    /// Enlarges the circular buffer, because dropped packets leave empty slots in it.
    fn enlarge(&mut self) {
        let slots_count = (2 * u64::from(self.packets_max)).next_power_of_two();
        let mut ring = Vec::with_capacity(slots_count as usize);
        ring.extend((self.head()..self.tail).map(|at| self.ring[self.slot_index(at)]));
        self.ring = ring;
        self.mask = slots_count - 1;
        self.set_positions(0, self.tail - self.head());
        self.next_in_flow = vec![0; slots_count as usize];
    }

    /// Sets `head()` and `tail`, and keeps the totals.
    #[inline(always)]
    fn set_positions(&mut self, head: u64, tail: u64) {
        let (head_before, tail_before) = (self.head(), self.tail);
        let Totals { enqueued, dequeued, .. } = &mut self.totals;
        *enqueued = enqueued.wrapping_add(tail_before.wrapping_sub(tail));
        *dequeued = dequeued.wrapping_add(head_before.wrapping_sub(head));
        (self.full_at, self.tail) = (head + u64::from(self.packets_max), tail);
    }

    /// Moves the packets together, towards the head of the circular buffer, over the empty slots.
    #[cold]
    #[inline(never)]
    fn compact(&mut self) {
        for at in self.head()..self.tail {
            let flow = self.ring[self.slot_index(at)].flow;
            if let Some(ends) = self.ends_of_flows.get_mut(flow as usize) {
                ends.first = u32::MAX;
            }
        }
        let mut to = self.head();
        for at in self.head()..self.tail {
            let packet = self.ring[self.slot_index(at)];
            if packet.length_bytes > 0 {
                let slot = self.slot_index(to);
                self.ring[slot] = packet;
                self.link(packet.flow, slot as u32);
                to += 1;
            }
        }
        self.set_positions(self.head(), to);
    }

    /// Appends a slot to the list of its flow's packets. Only flows that drop their oldest packet
    /// when full have such a list.
    fn link(&mut self, flow: u32, slot: u32) {
        if self.flows[flow as usize].drops_head() {
            let span = &mut self.ends_of_flows[flow as usize];
            if span.first == u32::MAX {
                span.first = slot;
            } else {
                self.next_in_flow[span.last as usize] = slot;
            }
            span.last = slot;
        }
    }

    /// Drops the flow's oldest packet, and leaves its slot empty.
    #[cold]
    #[inline(never)]
    fn drop_oldest(&mut self, id: u32) -> Packet<T> {
        let flow = &mut self.flows[id as usize];
        let span = &mut self.ends_of_flows[id as usize];
        let slot = span.first as usize;
        flow.count -= 1;
        span.first = if flow.count > 0 { self.next_in_flow[slot] } else { u32::MAX };
        let packet = self.ring[slot];
        self.ring[slot].length_bytes = 0;
        self.totals.dropped += 1;
        packet
    }

    /// Enqueues a packet of any flow: of one that drops its oldest packet, that is full or does not
    /// exist, into a ring that is full or grows. The fields of the packet are passed in registers,
    /// a packet would be passed in memory.
    #[inline(never)]
    fn enqueue_checked(
        &mut self,
        now_ns: u64,
        flow: u32,
        length_bytes: u32,
        token: T,
    ) -> EnqueueResult<T> {
        let packet = Packet { flow, length_bytes, token };
        let flow = self.flows.get(packet.flow as usize);
        let flow = flow.filter(|flow| packet.length_bytes.wrapping_sub(1) < flow.length_max_bytes);
        let Some(flow) = flow else { return self.enqueue_irregular(now_ns, packet) };
        let mut accepted = EnqueueOutcome::Queued;
        if flow.count >= flow.packets_max {
            if !flow.drops_head() {
                return self.refuse(packet, Refusal::FlowFull);
            }
            accepted = EnqueueOutcome::Replaced(self.drop_oldest(packet.flow));
        }
        // While fewer slots than `packets_max` are in use, one is certainly free.
        if self.tail >= self.full_at {
            if self.len() >= self.packets_max as usize {
                return self.refuse(packet, Refusal::Full);
            }
            if self.tail - self.head() > self.mask {
                self.compact();
            }
        }
        if self.head() == self.tail && self.tail >= RESTART_SLOTS {
            self.set_positions(0, 0);
        }
        self.append(packet);
        Ok(accepted)
    }

    /// Writes a packet into the next slot.
    fn append(&mut self, packet: Packet<T>) {
        let slot = self.slot_index(self.tail);
        match self.ring.get_mut(slot) {
            Some(free) => *free = packet,
            None => self.ring.push(packet),
        }
        self.tail += 1;
        let flow = &mut self.flows[packet.flow as usize];
        flow.count += 1;
        if flow.drops_head() {
            self.link(packet.flow, slot as u32);
        }
    }
}

impl<T: Copy + Debug> Scheduler<T> for Fifo<T> {
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError> {
        if self.flows_count() >= self.flows_max {
            return Err(FlowError::Flows { flows_max: self.flows_max });
        }
        check_spec(&spec, u64::MAX)?;
        let drops_head = spec.drop == DropPolicy::Head;
        if drops_head && self.next_in_flow.is_empty() {
            self.enlarge();
        }
        let flow = FifoFlow {
            count: 0,
            packets_max: spec.packets_max,
            length_max_bytes: spec.length_max_bytes,
            refused_at: if drops_head { 0 } else { spec.packets_max },
        };
        let id = self.removed.pop().map_or(self.flows.len() as u32, |Reverse(id)| id);
        match self.flows.get_mut(id as usize) {
            Some(free) => *free = flow,
            None => self.flows.push(flow),
        }
        if !self.next_in_flow.is_empty() {
            self.ends_of_flows
                .resize(self.flows.len(), FlowEnds { first: u32::MAX, last: u32::MAX });
        }
        Ok(id)
    }

    fn flows_count(&self) -> u32 {
        (self.flows.len() - self.removed.len()) as u32
    }

    fn remove_flow(&mut self, flow: u32) -> Result<Vec<Packet<T>>, FlowError> {
        let it = self.flows.get_mut(flow as usize).filter(|it| it.length_max_bytes != 0);
        let it = it.ok_or(FlowError::Unknown { flow })?;
        it.length_max_bytes = 0;
        let count = std::mem::take(&mut it.count);
        let mut packets = Vec::with_capacity(count as usize);
        if count > 0 {
            for at in self.head()..self.tail {
                let slot = self.slot_index(at);
                let packet = &mut self.ring[slot];
                if packet.flow == flow && packet.length_bytes > 0 {
                    packets.push(*packet);
                    packet.length_bytes = 0;
                }
            }
            self.totals.dropped += u64::from(count);
            self.compact();
        }
        self.removed.push(Reverse(flow));
        Ok(packets)
    }

    fn set_weight(&mut self, _: u64, _: u32, _: u64) -> Result<(), FlowError> {
        Err(FlowError::NoWeights)
    }

    #[inline(always)]
    fn enqueue(&mut self, now_ns: u64, packet: Packet<T>) -> EnqueueResult<T> {
        let slot = self.slot_index(self.tail);
        // The maximum length is 0 if the flow was removed.
        if let Some(flow) = self.flows.get_mut(packet.flow as usize)
            && packet.length_bytes.wrapping_sub(1) < flow.length_max_bytes
            && flow.count < flow.refused_at
            && self.tail < self.full_at
            && let Some(free) = self.ring.get_mut(slot)
        {
            flow.count += 1;
            // Field by field: a whole struct would be assembled elsewhere first and read back
            // at once, and the processor would wait for that.
            free.flow = packet.flow;
            free.length_bytes = packet.length_bytes;
            free.token = packet.token;
            self.tail += 1;
            return Ok(EnqueueOutcome::Queued);
        }
        self.enqueue_checked(now_ns, packet.flow, packet.length_bytes, packet.token)
    }

    #[inline(always)]
    fn dequeue(&mut self, _now_ns: u64) -> Option<Packet<T>> {
        loop {
            if self.head() == self.tail {
                self.set_positions(0, 0);
                return None;
            }
            let slot = self.slot_index(self.head());
            self.full_at += 1;
            let packet = self.ring[slot];
            if self.next_in_flow.is_empty() {
                self.flows[packet.flow as usize].count -= 1;
                return Some(packet);
            }
            if packet.length_bytes > 0 {
                let flow = &mut self.flows[packet.flow as usize];
                flow.count -= 1;
                if flow.drops_head() {
                    let next = if flow.count > 0 { self.next_in_flow[slot] } else { u32::MAX };
                    self.ends_of_flows[packet.flow as usize].first = next;
                }
                return Some(packet);
            }
            // `head()` has passed an empty slot.
            self.totals.dequeued = self.totals.dequeued.wrapping_sub(1);
        }
    }

    fn ready_ns(&self) -> Option<u64> {
        (self.len() > 0).then_some(0)
    }

    fn len(&self) -> usize {
        let Totals { enqueued, dequeued, dropped, .. } = self.totals();
        (enqueued - dequeued - dropped) as usize
    }

    fn totals(&self) -> Totals {
        let enqueued = self.totals.enqueued.wrapping_add(self.tail);
        let dequeued = self.totals.dequeued.wrapping_add(self.head());
        Totals { enqueued, dequeued, ..self.totals }
    }
}
