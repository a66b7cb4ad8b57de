//! Worst-case fair weighted fair queueing.

use super::config::{Config, WEIGHT_MAX};
use super::heap::FlowHeap;
use super::table::{FlowStates, Line};
use super::virtual_time::{VirtualTime, byte_cost, is_later, weight_of};
use super::{Discipline, FlowError, FlowSpec};

/// WF2Q+: follows a fluid server, an ideal one that serves all flows at once by their shares. Of
/// the flows whose oldest packet the fluid server would have started by now, serves the one whose
/// packet it would finish first. No flow with packets is ever behind or ahead of its share by more
/// than a longest packet.
///
/// If a flow drops its oldest packet, the next packet takes over its start and finish times; the
/// actual length is charged when it leaves: the shares stay exact, and the order is off by one
/// packet of that flow.
///
/// Source: J. C. R. Bennett, H. Zhang, WF2Q: Worst-case Fair Weighted Fair Queueing, INFOCOM 1996,
/// and Hierarchical Packet Fair Queueing Algorithms, IEEE/ACM Transactions on Networking 5(5),
/// 1997.
///
/// Cost: O(log n) for n flows with packets: two heaps, one of the eligible flows by finish time,
/// and one of the waiting flows by start time. A flow that starts to wait replaces the flow that
/// has waited longest in the waiting heap, which replaces it in the eligible heap: two walks down
/// in most steps, and none up.
#[derive(Debug)]
pub struct Wf2qPlus {
    time: VirtualTime,
    /// Eligible flows, by the finish time of their oldest packet.
    eligible: FlowHeap,
    /// Waiting flows, by the start time of their oldest packet.
    waiting: FlowHeap,
    flows_count: usize,
}

/// State that WF2Q+ keeps for each flow.
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
    /// Adds flow `id` to the heap of the eligible flows or, if `is_ahead`, of the waiting flows.
    /// The flow's oldest packet has `bytes` bytes.
    #[inline(always)]
    fn insert(&mut self, state: &mut Wf2qState, id: u32, bytes: u32, is_ahead: bool) {
        state.finish = state.start.wrapping_add(state.byte_cost * u64::from(bytes));
        match is_ahead {
            true => self.waiting.push((state.start, id)),
            false => self.eligible.push((state.finish, id)),
        }
    }
}

impl Discipline for Wf2qPlus {
    type State = Wf2qState;
    type Align = Line;
    const WEIGHT_MAX: u64 = WEIGHT_MAX;
    // A skipped packet leaves no time in its flow, and all times of the last busy period have
    // passed: only the virtual time has to advance.
    const CAN_SKIP_LONE_PACKETS: bool = true;

    fn new(_: &Config) -> Self {
        Self {
            time: VirtualTime::new(),
            eligible: FlowHeap::default(),
            waiting: FlowHeap::default(),
            flows_count: 0,
        }
    }

    fn admit_flow(&mut self, spec: &FlowSpec) -> Result<Wf2qState, FlowError> {
        self.time.admit_flow(spec)?;
        self.flows_count += 1;
        self.eligible.reserve(self.flows_count);
        self.waiting.reserve(self.flows_count);
        // An epoch long ago, so that the start time is ignored.
        let epoch = self.time.epoch().wrapping_sub(2);
        Ok(Wf2qState { start: 0, finish: 0, byte_cost: byte_cost(spec.weight), epoch })
    }

    #[inline]
    fn activate_flow<S: FlowStates<Wf2qState>>(
        &mut self,
        states: &mut S,
        id: u32,
        bytes: u32,
        _: u64,
    ) {
        let state = states.state(id);
        let is_ahead = self.time.is_ahead(state.start, state.epoch);
        if !is_ahead {
            state.start = self.time.now();
        }
        self.insert(state, id, bytes, is_ahead);
    }

    #[inline(always)]
    fn choose_flow<S: FlowStates<Wf2qState>>(&mut self, states: &mut S, _: u64) -> Option<u32> {
        if self.eligible.first().is_none() {
            self.time.raise_to(self.waiting.first()?.0);
        }
        let now = self.time.now();
        while let Some((start, id)) = self.waiting.first()
            && !is_later(start, now)
        {
            self.waiting.pop();
            self.eligible.push((states.state(id).finish, id));
        }
        self.eligible.first().map(|(_, id)| id)
    }

    #[inline(always)]
    fn record_served<S: FlowStates<Wf2qState>>(
        &mut self,
        states: &mut S,
        id: u32,
        bytes: u32,
        next: Option<u32>,
    ) {
        self.time.advance(bytes);
        let state = states.state(id);
        state.start = state.start.wrapping_add(state.byte_cost * u64::from(bytes));
        let Some(next_bytes) = next else {
            state.epoch = self.time.epoch();
            return self.eligible.pop();
        };
        state.finish = state.start.wrapping_add(state.byte_cost * u64::from(next_bytes));
        let (start, finish, now) = (state.start, state.finish, self.time.now());
        if !is_later(start, now) {
            return self.eligible.replace_first((finish, id));
        }
        match self.waiting.first() {
            Some((other_start, other)) if !is_later(other_start, now) => {
                self.waiting.replace_first((start, id));
                self.eligible.replace_first((states.state(other).finish, other));
            }
            _ => {
                self.eligible.pop();
                self.waiting.push((start, id));
            }
        }
    }

    fn record_oldest_dropped<S: FlowStates<Wf2qState>>(
        &mut self,
        states: &mut S,
        id: u32,
        _: u32,
        bytes: u32,
    ) {
        // Takes effect for a waiting flow; an eligible flow keeps its position in the heap.
        let state = states.state(id);
        state.finish = state.start.wrapping_add(state.byte_cost * u64::from(bytes));
    }

    fn deactivate_flow<S: FlowStates<Wf2qState>>(&mut self, states: &mut S, id: u32) {
        self.eligible.remove(id);
        self.waiting.remove(id);
        states.state(id).epoch = self.time.epoch();
    }

    fn release_flow<S: FlowStates<Wf2qState>>(&mut self, states: &mut S, id: u32) {
        let Wf2qState { start, byte_cost, epoch, .. } = *states.state(id);
        self.time.release_flow(start, epoch, weight_of(byte_cost));
        self.flows_count -= 1;
    }

    fn set_weight<S: FlowStates<Wf2qState>>(
        &mut self,
        states: &mut S,
        id: u32,
        spec: &FlowSpec,
        oldest_bytes: Option<u32>,
        _: u64,
    ) -> Result<(), FlowError> {
        let state = states.state(id);
        let (old, new) = (weight_of(state.byte_cost), spec.weight);
        self.time.change_weight(old, new)?;
        state.byte_cost = byte_cost(new);
        state.start = self.time.keep_lag(state.start, old, new);
        if let Some(bytes) = oldest_bytes {
            self.eligible.remove(id);
            self.waiting.remove(id);
            self.insert(state, id, bytes, is_later(state.start, self.time.now()));
        }
        Ok(())
    }

    fn record_idle(&mut self) {
        self.time.end_busy_period();
    }

    #[inline(always)]
    fn record_lone_packet(&mut self, bytes: u32) {
        self.time.advance(bytes);
    }
}
