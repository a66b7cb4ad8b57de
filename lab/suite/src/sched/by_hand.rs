//! Hand-written schedulers over the collections of the standard library, as alternatives to this
//! project's.

use super::engine::{Engine, PacketToken, QuickFairPlus, Rr};
use handover_sched::engine::{
    EnqueueOutcome, EnqueueResult, FlowError, FlowSpec, Packet, Scheduler, Totals,
};
use handover_sched::{Config, ConfigError};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// Compared implementation of `sched/rr`: weighted deficit round robin, with a `VecDeque` of
/// packets for each flow and one of the flows that have packets.
pub(super) struct Deques;

impl Engine for Deques {
    const ID: &'static str = Rr::ID;
    const DESCRIPTION: &'static str = Rr::DESCRIPTION;
    type Scheduler<T: PacketToken> = DequeRoundRobin<T>;

    fn new<T: PacketToken>(_: &Config) -> Result<DequeRoundRobin<T>, ConfigError> {
        Ok(DequeRoundRobin {
            flows: Vec::new(),
            active: VecDeque::new(),
            totals: Totals::default(),
        })
    }
}

pub(super) struct DequeRoundRobin<T> {
    flows: Vec<DequeFlow<T>>,
    /// Numbers of the flows with packets, in the order of their turns.
    active: VecDeque<u32>,
    totals: Totals,
}

struct DequeFlow<T> {
    packets: VecDeque<Packet<T>>,
    quantum_bytes: u64,
    /// Number of bytes that the flow may still send in its turn.
    deficit_bytes: u64,
}

impl<T: PacketToken> Scheduler<T> for DequeRoundRobin<T> {
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError> {
        let quantum_bytes = spec.weight * u64::from(spec.length_max_bytes);
        self.flows.push(DequeFlow { packets: VecDeque::new(), quantum_bytes, deficit_bytes: 0 });
        Ok(self.flows.len() as u32 - 1)
    }

    fn flows_count(&self) -> u32 {
        self.flows.len() as u32
    }

    #[inline]
    fn enqueue(&mut self, _: u64, packet: Packet<T>) -> EnqueueResult<T> {
        let flow = &mut self.flows[packet.flow as usize];
        if flow.packets.is_empty() {
            self.active.push_back(packet.flow);
            flow.deficit_bytes = flow.quantum_bytes;
        }
        flow.packets.push_back(packet);
        self.totals.enqueued += 1;
        Ok(EnqueueOutcome::Queued)
    }

    #[inline]
    fn dequeue(&mut self, _: u64) -> Option<Packet<T>> {
        loop {
            let number = *self.active.front()?;
            let flow = &mut self.flows[number as usize];
            let length_bytes = u64::from(flow.packets.front()?.length_bytes);
            if length_bytes <= flow.deficit_bytes {
                flow.deficit_bytes -= length_bytes;
                let packet = flow.packets.pop_front();
                if flow.packets.is_empty() {
                    self.active.pop_front();
                }
                self.totals.dequeued += 1;
                return packet;
            }
            flow.deficit_bytes += flow.quantum_bytes;
            self.active.rotate_left(1);
        }
    }

    fn ready_ns(&self) -> Option<u64> {
        (!self.active.is_empty()).then_some(0)
    }

    fn len(&self) -> usize {
        (self.totals.enqueued - self.totals.dequeued) as usize
    }

    fn totals(&self) -> Totals {
        self.totals
    }
}

/// Compared implementation of `sched/qfqp`: fair queueing by finish times in a `BinaryHeap` of
/// packets.
///
/// Source: self-clocked fair queueing, S. J. Golestani, INFOCOM 1994.
pub(super) struct Heap;

impl Engine for Heap {
    const ID: &'static str = QuickFairPlus::ID;
    const DESCRIPTION: &'static str = QuickFairPlus::DESCRIPTION;
    type Scheduler<T: PacketToken> = HeapFairQueue<T>;

    fn new<T: PacketToken>(_: &Config) -> Result<HeapFairQueue<T>, ConfigError> {
        let (flows, packets, totals) = Default::default();
        Ok(HeapFairQueue { flows, packets, time: 0, totals })
    }
}

pub(super) struct HeapFairQueue<T> {
    /// Virtual time that a byte of the flow takes, and virtual time at which its last packet is
    /// finished.
    flows: Vec<(u64, u64)>,
    packets: BinaryHeap<Reverse<Finish<T>>>,
    /// Virtual time: the finish time of the last packet that was dequeued.
    time: u64,
    totals: Totals,
}

/// Packet with its finish time, and its number, which orders packets with equal times.
struct Finish<T> {
    key: (u64, u64),
    packet: Packet<T>,
}

impl<T> PartialEq for Finish<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for Finish<T> {}

impl<T> PartialOrd for Finish<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Finish<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl<T: PacketToken> Scheduler<T> for HeapFairQueue<T> {
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError> {
        self.flows.push(((1 << 20) / spec.weight.max(1), 0));
        Ok(self.flows.len() as u32 - 1)
    }

    fn flows_count(&self) -> u32 {
        self.flows.len() as u32
    }

    #[inline]
    fn enqueue(&mut self, _: u64, packet: Packet<T>) -> EnqueueResult<T> {
        let (time_per_byte, finish) = &mut self.flows[packet.flow as usize];
        *finish = (*finish).max(self.time) + *time_per_byte * u64::from(packet.length_bytes);
        self.packets.push(Reverse(Finish { key: (*finish, self.totals.enqueued), packet }));
        self.totals.enqueued += 1;
        Ok(EnqueueOutcome::Queued)
    }

    #[inline]
    fn dequeue(&mut self, _: u64) -> Option<Packet<T>> {
        let Reverse(first) = self.packets.pop()?;
        self.time = first.key.0;
        self.totals.dequeued += 1;
        Some(first.packet)
    }

    fn ready_ns(&self) -> Option<u64> {
        (!self.packets.is_empty()).then_some(0)
    }

    fn len(&self) -> usize {
        self.packets.len()
    }

    fn totals(&self) -> Totals {
        self.totals
    }
}
