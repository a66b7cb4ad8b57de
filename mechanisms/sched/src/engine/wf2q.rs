//! Worst-case fair weighted fair queueing.

use super::config::{Config, WEIGHT_MAX};
use super::heap::FlowHeap;
use super::table::{FlowStates, Line};
use super::virtual_time::{VirtualTime, byte_cost, is_later, weight_of};
use super::{Discipline, FlowError, FlowSpec};

/// WF2Q+: compares with a fluid server, which serves all flows at once, each at its share. Of the flows whose oldest
/// packet the fluid server would have started by now, serves the one whose packet it would finish first. No flow with
/// packets is ever behind or ahead of its share by more than a longest packet.
///
/// If a flow drops its oldest packet, the next packet takes over its start and finish times; the actual length is
/// charged when it leaves: the shares stay exact, and the order is off by one packet of that flow.
///
/// Source: J. C. R. Bennett, H. Zhang, WF2Q: Worst-case Fair Weighted Fair Queueing, INFOCOM 1996,
/// and Hierarchical Packet Fair Queueing Algorithms, IEEE/ACM Transactions on Networking 5(5),
/// 1997.
///
/// Cost: O(log n) for n flows with packets: two heaps, one of the eligible flows by finish time, and one of the
/// waiting flows by start time. A flow that starts to wait replaces the flow that has waited longest in the waiting
/// heap, which replaces it in the eligible heap: two walks down in most steps, and none up.
#[derive(Debug)]
pub struct Wf2qPlus {
    time: VirtualTime,
    /// Eligible flows, by the finish time of their oldest packet.
    eligible: FlowHeap,
    /// Waiting flows, by the start time of their oldest packet.
    waiting: FlowHeap,
    flows_count: usize,
}

/// State of a flow in WF2Q+.
#[derive(Clone, Copy, Debug)]
pub struct Wf2qState {
    /// Virtual start time of the flow's oldest packet. If there is none, virtual finish time of its
    /// last packet.
    start: u64,
    /// Virtual finish time of the flow's oldest packet.
    finish: u64,
    /// Virtual time that a byte of the flow takes.
    byte_cost: u64,
    /// Epoch of the virtual time in which the flow last became idle.
    epoch: u64,
}

impl Wf2qPlus {
    /// Adds flow `id`, whose oldest packet has `bytes` bytes, to the heap that its start time requires.
    #[inline(always)]
    fn insert(&mut self, stamp: &mut Wf2qState, id: u32, bytes: u32, is_ahead: bool) {
        stamp.finish = stamp.start.wrapping_add(stamp.byte_cost * u64::from(bytes));
        match is_ahead {
            true => self.waiting.push((stamp.start, id)),
            false => self.eligible.push((stamp.finish, id)),
        }
    }
}

impl Discipline for Wf2qPlus {
    type State = Wf2qState;
    type Align = Line;
    const WEIGHT_MAX: u64 = WEIGHT_MAX;

    fn new(_: &Config) -> Self {
        Self {
            time: VirtualTime::new(),
            eligible: FlowHeap::default(),
            waiting: FlowHeap::default(),
            flows_count: 0,
        }
    }

    fn admit(&mut self, spec: &FlowSpec) -> Result<Wf2qState, FlowError> {
        self.time.admit_flow(spec)?;
        self.flows_count += 1;
        self.eligible.reserve(self.flows_count);
        self.waiting.reserve(self.flows_count);
        // An epoch long ago, so that the start time is ignored.
        let epoch = self.time.epoch().wrapping_sub(2);
        Ok(Wf2qState { start: 0, finish: 0, byte_cost: byte_cost(spec.weight), epoch })
    }

    #[inline]
    fn activate<S: FlowStates<Wf2qState>>(&mut self, slots: &mut S, id: u32, bytes: u32, _: u64) {
        let stamp = slots.state(id);
        let is_ahead = self.time.is_ahead(stamp.start, stamp.epoch);
        if !is_ahead {
            stamp.start = self.time.now();
        }
        self.insert(stamp, id, bytes, is_ahead);
    }

    #[inline(always)]
    fn choose<S: FlowStates<Wf2qState>>(&mut self, slots: &mut S, _: u64) -> Option<u32> {
        if self.eligible.first().is_none() {
            self.time.raise_to(self.waiting.first()?.0);
        }
        let now = self.time.now();
        while let Some((start, id)) = self.waiting.first()
            && !is_later(start, now)
        {
            self.waiting.pop();
            self.eligible.push((slots.state(id).finish, id));
        }
        self.eligible.first().map(|(_, id)| id)
    }

    #[inline(always)]
    fn served<S: FlowStates<Wf2qState>>(
        &mut self,
        slots: &mut S,
        id: u32,
        bytes: u32,
        next: Option<u32>,
    ) {
        self.time.advance(bytes);
        let stamp = slots.state(id);
        stamp.start = stamp.start.wrapping_add(stamp.byte_cost * u64::from(bytes));
        let Some(next_bytes) = next else {
            stamp.epoch = self.time.epoch();
            return self.eligible.pop();
        };
        stamp.finish = stamp.start.wrapping_add(stamp.byte_cost * u64::from(next_bytes));
        let (start, finish, now) = (stamp.start, stamp.finish, self.time.now());
        if !is_later(start, now) {
            return self.eligible.replace_first((finish, id));
        }
        match self.waiting.first() {
            Some((other_start, other)) if !is_later(other_start, now) => {
                self.waiting.replace_first((start, id));
                self.eligible.replace_first((slots.state(other).finish, other));
            }
            _ => {
                self.eligible.pop();
                self.waiting.push((start, id));
            }
        }
    }

    fn changed<S: FlowStates<Wf2qState>>(&mut self, slots: &mut S, id: u32, _: u32, bytes: u32) {
        // Takes effect for a waiting flow; an eligible flow keeps its position in the heap.
        let stamp = slots.state(id);
        stamp.finish = stamp.start.wrapping_add(stamp.byte_cost * u64::from(bytes));
    }

    fn deactivate<S: FlowStates<Wf2qState>>(&mut self, slots: &mut S, id: u32) {
        self.eligible.remove(id);
        self.waiting.remove(id);
        slots.state(id).epoch = self.time.epoch();
    }

    fn release<S: FlowStates<Wf2qState>>(&mut self, slots: &mut S, id: u32) {
        let Wf2qState { start, byte_cost, epoch, .. } = *slots.state(id);
        self.time.release_flow(start, epoch, weight_of(byte_cost));
        self.flows_count -= 1;
    }

    fn set_weight<S: FlowStates<Wf2qState>>(
        &mut self,
        slots: &mut S,
        id: u32,
        spec: &FlowSpec,
        oldest_bytes: Option<u32>,
        _: u64,
    ) -> Result<(), FlowError> {
        let stamp = slots.state(id);
        let (old, new) = (weight_of(stamp.byte_cost), spec.weight);
        self.time.change_weight(old, new)?;
        stamp.byte_cost = byte_cost(new);
        stamp.start = self.time.keep_lag(stamp.start, old, new);
        if let Some(bytes) = oldest_bytes {
            self.eligible.remove(id);
            self.waiting.remove(id);
            self.insert(stamp, id, bytes, is_later(stamp.start, self.time.now()));
        }
        Ok(())
    }

    fn idle(&mut self) {
        self.time.begin_busy_period();
    }
}
