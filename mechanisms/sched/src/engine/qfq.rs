//! Quick fair queueing.

use super::config::{Config, WEIGHT_MAX};
use super::groups::{Groups, IntervalTable, VirtualInterval};
use super::table::{FlowStates, Line};
use super::virtual_time::{byte_cost, weight_of};
use super::{Discipline, FlowError, FlowSpec};
use std::marker::PhantomData;

/// QFQ (quick fair queueing): the order of WF2Q+ with rounded start times, in constant time. No
/// flow with packets lags behind its share by more than about two longest packets.
///
/// If a flow drops its oldest packet, the next packet takes over its start and finish times; the
/// actual length is charged when it leaves.
///
/// Source: F. Checconi, L. Rizzo, P. Valente, QFQ: Efficient Packet Scheduling with Tight
/// Guarantees, IEEE/ACM Transactions on Networking 21(3), 2013. As in the paper, virtual time
/// advances by the actual sum of the weights, not by the greatest possible sum; unlike in the
/// paper, start times are rounded less and finish times are compared.
///
/// Cost: O(1): bit scans, and a comparison for each group of eligible flows (one to fifteen).
#[derive(Debug)]
pub struct Qfq {
    groups: Groups,
}

/// State that QFQ keeps for each flow.
#[derive(Clone, Copy, Debug)]
pub struct QfqState {
    /// Virtual time that a byte of the flow takes.
    byte_cost: u64,
    interval: VirtualInterval,
}

/// Adapter that gives [`Groups`] access to the flows' [`VirtualInterval`]s.
struct FlowIntervals<'a, S>(&'a mut S, PhantomData<QfqState>);

impl<S: FlowStates<QfqState>> IntervalTable for FlowIntervals<'_, S> {
    #[inline(always)]
    fn interval(&mut self, id: u32) -> &mut VirtualInterval {
        &mut self.0.state(id).interval
    }
}

fn flow_intervals<S: FlowStates<QfqState>>(states: &mut S) -> FlowIntervals<'_, S> {
    FlowIntervals(states, PhantomData)
}

impl Discipline for Qfq {
    type State = QfqState;
    type Align = Line;
    const WEIGHT_MAX: u64 = WEIGHT_MAX;
    // A skipped packet leaves no time in its flow, and all times of the last busy period have
    // passed: only the virtual time has to advance.
    const CAN_SKIP_LONE_PACKETS: bool = true;

    fn new(_: &Config) -> Self {
        Self { groups: Groups::new() }
    }

    fn admit_flow(&mut self, spec: &FlowSpec) -> Result<QfqState, FlowError> {
        self.groups.time.admit_flow(spec)?;
        let byte_cost = byte_cost(spec.weight);
        let longest = byte_cost * u64::from(spec.length_max_bytes);
        Ok(QfqState { byte_cost, interval: VirtualInterval::new(longest, &self.groups.time) })
    }

    #[inline]
    fn activate_flow<S: FlowStates<QfqState>>(
        &mut self,
        states: &mut S,
        id: u32,
        bytes: u32,
        _: u64,
    ) {
        let QfqState { byte_cost, interval } = states.state(id);
        interval.start = self.groups.start_time(interval);
        interval.finish = interval.start.wrapping_add(*byte_cost * u64::from(bytes));
        self.groups.insert_entity(&mut flow_intervals(states), id);
    }

    #[inline(always)]
    fn choose_flow<S: FlowStates<QfqState>>(&mut self, _: &mut S, _: u64) -> Option<u32> {
        self.groups.first_entity()
    }

    #[inline(always)]
    fn record_served<S: FlowStates<QfqState>>(
        &mut self,
        states: &mut S,
        id: u32,
        bytes: u32,
        next: Option<u32>,
    ) {
        let QfqState { byte_cost, interval } = states.state(id);
        interval.start = interval.start.wrapping_add(*byte_cost * u64::from(bytes));
        let next_bytes = u64::from(next.unwrap_or(0));
        interval.finish = interval.start.wrapping_add(*byte_cost * next_bytes);
        self.groups.record_service(&mut flow_intervals(states), id, bytes, next.is_some());
    }

    fn deactivate_flow<S: FlowStates<QfqState>>(&mut self, states: &mut S, id: u32) {
        self.groups.take_out(&mut flow_intervals(states), id);
        states.state(id).interval.epoch = self.groups.time.epoch();
        self.groups.end_change();
    }

    fn release_flow<S: FlowStates<QfqState>>(&mut self, states: &mut S, id: u32) {
        let QfqState { byte_cost, interval } = states.state(id);
        self.groups.time.release_flow(interval.start, interval.epoch, weight_of(*byte_cost));
    }

    fn set_weight<S: FlowStates<QfqState>>(
        &mut self,
        states: &mut S,
        id: u32,
        spec: &FlowSpec,
        oldest_bytes: Option<u32>,
        _: u64,
    ) -> Result<(), FlowError> {
        let (old, new) = (weight_of(states.state(id).byte_cost), spec.weight);
        self.groups.time.change_weight(old, new)?;
        if oldest_bytes.is_some() {
            self.groups.take_out(&mut flow_intervals(states), id);
        }
        let QfqState { byte_cost: cost, interval } = states.state(id);
        *cost = byte_cost(new);
        interval.start = self.groups.time.keep_lag(interval.start, old, new);
        interval.set_longest(*cost * u64::from(spec.length_max_bytes));
        if let Some(bytes) = oldest_bytes {
            interval.finish = interval.start.wrapping_add(*cost * u64::from(bytes));
            self.groups.insert_entity(&mut flow_intervals(states), id);
            self.groups.end_change();
        }
        Ok(())
    }

    fn record_idle(&mut self) {
        self.groups.end_busy_period();
    }

    #[inline(always)]
    fn record_lone_packet(&mut self, bytes: u32) {
        self.groups.time.advance(bytes);
    }
}
