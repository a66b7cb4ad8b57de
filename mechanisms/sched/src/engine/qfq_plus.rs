//! Quick fair queueing of aggregates.

use super::config::{Config, WEIGHT_MAX};
use super::groups::{Groups, IntervalTable, VirtualInterval};
use super::table::{FlowStates, Line, NO_FLOW};
use super::virtual_time::{byte_cost, is_later};
use super::{Discipline, FlowError, FlowSpec};
use std::collections::HashMap;

/// Maximum number of flows in an aggregate.
const MEMBERS_MAX: u32 = 8;

/// QFQ+: orders aggregates of up to 8 flows of the same weight and longest packet, by QFQ. Within
/// an aggregate the flows take turns by deficit round robin. A chosen aggregate is served while its
/// packets fit into the bytes of one longest packet: a longer service would be cheaper, but other
/// flows would lag by more than twice the longest packet.
///
/// A flow whose weight changes moves to another aggregate. The flows of an aggregate have its lag
/// in equal parts, so that the aggregate's start time stays when one leaves.
///
/// Source: P. Valente, Reducing the Execution Time of Fair-Queueing Packet Schedulers, Computer
/// Communications 47, 2014.
///
/// Cost: O(1), in bit scans.
#[derive(Debug)]
pub struct QfqPlus {
    groups: Groups,
    aggregates: Vec<Aggregate>,
    /// For each weight and longest packet: the aggregate that a new flow joins.
    open_aggregates: HashMap<(u32, u32), u32>,
    /// Aggregates without flows.
    free_aggregates: Vec<u32>,
    /// Index of the aggregate being served, or [`NO_FLOW`].
    served_aggregate: u32,
    /// Virtual time at which the aggregate being served was chosen.
    served_since: u64,
}

/// State that QFQ+ keeps for each flow.
#[derive(Clone, Copy, Debug)]
pub struct QfqPlusState {
    /// Index of the flow's aggregate.
    aggregate: u32,
    /// Next flow in the aggregate's list of flows with packets, or [`NO_FLOW`].
    next: u32,
    /// Bytes that the flow may send before the aggregate serves its next flow.
    left_bytes: u32,
    /// Length of the flow's oldest packet.
    oldest_bytes: u32,
}

/// Aggregate of flows of the same weight and maximum packet length.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Aggregate {
    /// Virtual time that a byte of the aggregate takes.
    byte_cost: u64,
    interval: VirtualInterval,
    /// First of the aggregate's flows with packets.
    first: u32,
    /// Last of the aggregate's flows with packets.
    last: u32,
    /// Bytes sent since the aggregate was chosen.
    spent_bytes: u32,
    /// Maximum packet length of the aggregate's flows.
    longest_bytes: u32,
    members_count: u32,
    /// Weight of each of the aggregate's flows.
    weight: u32,
}

impl IntervalTable for Vec<Aggregate> {
    #[inline(always)]
    fn interval(&mut self, id: u32) -> &mut VirtualInterval {
        &mut self[id as usize].interval
    }
}

impl Aggregate {
    /// Sets the number of the aggregate's flows, and the virtual times that depend on it. The
    /// aggregate must not be in a group.
    fn set_members_count(&mut self, count: u32) {
        self.members_count = count;
        self.byte_cost = byte_cost(u64::from(self.weight) * u64::from(count));
        self.interval.set_longest(self.byte_cost * u64::from(self.longest_bytes));
    }

    /// Returns the virtual start time, advanced by the bytes sent since the aggregate was chosen.
    #[inline(always)]
    fn reached(&self) -> u64 {
        self.interval.start.wrapping_add(self.byte_cost * u64::from(self.spent_bytes))
    }

    /// Sets the virtual start and finish times of the aggregate's next service.
    #[inline(always)]
    fn set_service_times(&mut self, start: u64) {
        let stay = self.byte_cost * u64::from(self.longest_bytes);
        self.interval.start = start;
        self.interval.finish = start.wrapping_add(stay);
    }

    /// Returns `true` if the aggregate's service is over. It has no packets, or its next packet is
    /// longer than the rest of its service.
    #[inline(always)]
    fn is_service_over<S: FlowStates<QfqPlusState>>(&self, states: &mut S) -> bool {
        self.first == NO_FLOW || {
            let oldest_bytes = states.state(self.first).oldest_bytes;
            self.spent_bytes.saturating_add(oldest_bytes) > self.longest_bytes
        }
    }

    /// Appends a flow to the list of flows with packets.
    #[inline(always)]
    fn append<S: FlowStates<QfqPlusState>>(&mut self, states: &mut S, id: u32) {
        states.state(id).next = NO_FLOW;
        let before = std::mem::replace(&mut self.last, id);
        if self.first == NO_FLOW {
            self.first = id;
        } else {
            states.state(before).next = id;
        }
    }
}

impl QfqPlus {
    /// Returns the index of an aggregate for a new flow of this weight and length. It is a new
    /// aggregate, or one without queued packets that has fewer than [`MEMBERS_MAX`] flows.
    fn aggregate_for(&mut self, spec: &FlowSpec) -> u32 {
        let weight = spec.weight as u32; // at most WEIGHT_MAX
        let key = (weight, spec.length_max_bytes);
        if let Some(&open) = self.open_aggregates.get(&key) {
            let aggregate = &self.aggregates[open as usize];
            if aggregate.members_count < MEMBERS_MAX && aggregate.first == NO_FLOW {
                return open;
            }
        }
        let aggregate = Aggregate {
            byte_cost: 0,
            interval: VirtualInterval::new(1, &self.groups.time),
            first: NO_FLOW,
            last: NO_FLOW,
            spent_bytes: 0,
            longest_bytes: spec.length_max_bytes,
            members_count: 0,
            weight,
        };
        let open = self.free_aggregates.pop().unwrap_or(self.aggregates.len() as u32);
        match self.aggregates.get_mut(open as usize) {
            Some(free) => *free = aggregate,
            None => self.aggregates.push(aggregate),
        }
        self.open_aggregates.insert(key, open);
        open
    }

    /// Adds a flow to an aggregate that has no queued packets; returns the flow's state.
    fn join(&mut self, spec: &FlowSpec) -> QfqPlusState {
        let index = self.aggregate_for(spec);
        let aggregate = &mut self.aggregates[index as usize];
        aggregate.set_members_count(aggregate.members_count + 1);
        QfqPlusState { aggregate: index, next: NO_FLOW, left_bytes: 0, oldest_bytes: 0 }
    }

    /// Removes a flow without packets from aggregate `index`. The lag of the other flows stays.
    fn leave(&mut self, index: u32) {
        let aggregate = &self.aggregates[index as usize];
        let key = (aggregate.weight, aggregate.longest_bytes);
        let remaining_count = aggregate.members_count - 1;
        if remaining_count == 0 {
            if self.open_aggregates.get(&key) == Some(&index) {
                self.open_aggregates.remove(&key);
            }
            return self.free_aggregates.push(index);
        }
        let is_in_group = aggregate.first != NO_FLOW && self.served_aggregate != index;
        if is_in_group {
            self.groups.take_out(&mut self.aggregates, index);
        }
        let aggregate = &mut self.aggregates[index as usize];
        let reached = aggregate.reached();
        aggregate.set_members_count(remaining_count);
        // The bytes sent since the aggregate was chosen are charged at the end of its service, at
        // the new cost.
        let spent = aggregate.byte_cost * u64::from(aggregate.spent_bytes);
        aggregate.set_service_times(reached.wrapping_sub(spent));
        if is_in_group {
            self.groups.insert_entity(&mut self.aggregates, index);
            self.groups.end_change();
        }
        let open = *self.open_aggregates.entry(key).or_insert(index);
        if self.aggregates[open as usize].members_count == MEMBERS_MAX {
            self.open_aggregates.insert(key, index);
        }
    }

    /// Removes a flow from its aggregate's list of flows with packets. The caller then calls
    /// [`end_removal`](Self::end_removal).
    fn unlink<S: FlowStates<QfqPlusState>>(&mut self, states: &mut S, id: u32) {
        let QfqPlusState { aggregate, next, .. } = *states.state(id);
        let aggregate = &mut self.aggregates[aggregate as usize];
        let (mut before, mut at) = (NO_FLOW, aggregate.first);
        while at != id {
            before = at;
            at = states.state(at).next;
        }
        if aggregate.last == id {
            aggregate.last = before;
        }
        match before {
            NO_FLOW => aggregate.first = next,
            before => states.state(before).next = next,
        }
    }

    /// Updates an aggregate after [`unlink`](Self::unlink) has removed a flow from its list. Ends
    /// its service, or takes it out of its group, if it has no more packets.
    fn end_removal<S: FlowStates<QfqPlusState>>(&mut self, states: &mut S, index: u32) {
        let aggregate = &self.aggregates[index as usize];
        if self.served_aggregate == index {
            if aggregate.is_service_over(states) {
                self.end_service();
            }
        } else if aggregate.first == NO_FLOW {
            self.groups.take_out(&mut self.aggregates, index);
            self.aggregates[index as usize].interval.epoch = self.groups.time.epoch();
            self.groups.end_change();
        }
    }

    /// Appends a flow to its aggregate's list of flows with packets. Returns `true` if no other
    /// flow of the aggregate has packets.
    #[inline(always)]
    fn append<S: FlowStates<QfqPlusState>>(
        &mut self,
        states: &mut S,
        id: u32,
        oldest_bytes: u32,
    ) -> bool {
        let member = states.state(id);
        member.oldest_bytes = oldest_bytes;
        let aggregate = &mut self.aggregates[member.aggregate as usize];
        member.left_bytes = aggregate.longest_bytes;
        let was_idle = aggregate.first == NO_FLOW;
        aggregate.append(states, id);
        was_idle
    }

    /// Ends the service of the aggregate that was chosen.
    #[inline(always)]
    fn end_service(&mut self) {
        let index = std::mem::replace(&mut self.served_aggregate, NO_FLOW);
        let aggregate = &mut self.aggregates[index as usize];
        let start = aggregate.reached();
        aggregate.spent_bytes = 0;
        aggregate.set_service_times(start);
        aggregate.interval.epoch = self.groups.time.epoch();
        if aggregate.first != NO_FLOW {
            self.groups.insert_entity(&mut self.aggregates, index);
        }
        self.groups.end_service(self.served_since);
    }
}

impl Discipline for QfqPlus {
    type State = QfqPlusState;
    type Align = Line;
    const WEIGHT_MAX: u64 = WEIGHT_MAX;
    // A skipped packet leaves no time in its flow, and all times of the last busy period have
    // passed: only the virtual time has to advance.
    const CAN_SKIP_LONE_PACKETS: bool = true;

    fn new(_: &Config) -> Self {
        Self {
            groups: Groups::new(),
            aggregates: Vec::new(),
            open_aggregates: HashMap::new(),
            free_aggregates: Vec::new(),
            served_aggregate: NO_FLOW,
            served_since: 0,
        }
    }

    fn admit_flow(&mut self, spec: &FlowSpec) -> Result<QfqPlusState, FlowError> {
        self.groups.time.admit_flow(spec)?;
        Ok(self.join(spec))
    }

    #[inline]
    fn activate_flow<S: FlowStates<QfqPlusState>>(
        &mut self,
        states: &mut S,
        id: u32,
        bytes: u32,
        _: u64,
    ) {
        if self.append(states, id, bytes) {
            let index = states.state(id).aggregate;
            let start = self.groups.start_time(&self.aggregates[index as usize].interval);
            self.aggregates[index as usize].set_service_times(start);
            self.groups.insert_entity(&mut self.aggregates, index);
        }
    }

    #[inline(always)]
    fn choose_flow<S: FlowStates<QfqPlusState>>(&mut self, _: &mut S, _: u64) -> Option<u32> {
        if self.served_aggregate == NO_FLOW {
            self.served_since = self.groups.time.now();
            self.served_aggregate = self.groups.take_first(&mut self.aggregates)?;
        }
        Some(self.aggregates[self.served_aggregate as usize].first)
    }

    #[inline(always)]
    fn record_served<S: FlowStates<QfqPlusState>>(
        &mut self,
        states: &mut S,
        id: u32,
        bytes: u32,
        next: Option<u32>,
    ) {
        self.groups.time.advance(bytes);
        let index = self.served_aggregate;
        let aggregate = &mut self.aggregates[index as usize];
        aggregate.spent_bytes += bytes;
        let member = states.state(id);
        member.left_bytes = member.left_bytes.saturating_sub(bytes);
        member.oldest_bytes = next.unwrap_or(0);
        let next_member = member.next;
        match next {
            None => aggregate.first = next_member,
            Some(next_bytes) if next_bytes > member.left_bytes => {
                member.left_bytes += aggregate.longest_bytes;
                if next_member != NO_FLOW {
                    aggregate.first = next_member;
                    aggregate.append(states, id);
                }
            }
            Some(_) => {}
        }
        if aggregate.is_service_over(states) {
            self.end_service();
        }
    }

    fn record_oldest_dropped<S: FlowStates<QfqPlusState>>(
        &mut self,
        states: &mut S,
        id: u32,
        _: u32,
        bytes: u32,
    ) {
        let member = states.state(id);
        member.oldest_bytes = bytes;
        if bytes > member.left_bytes {
            member.left_bytes += self.aggregates[member.aggregate as usize].longest_bytes;
        }
    }

    fn deactivate_flow<S: FlowStates<QfqPlusState>>(&mut self, states: &mut S, id: u32) {
        self.unlink(states, id);
        let index = states.state(id).aggregate;
        self.end_removal(states, index);
    }

    fn release_flow<S: FlowStates<QfqPlusState>>(&mut self, states: &mut S, id: u32) {
        let index = states.state(id).aggregate;
        let aggregate = self.aggregates[index as usize];
        self.leave(index);
        let (epoch, weight) = (aggregate.interval.epoch, aggregate.weight.into());
        self.groups.time.release_flow(aggregate.reached(), epoch, weight);
    }

    fn set_weight<S: FlowStates<QfqPlusState>>(
        &mut self,
        states: &mut S,
        id: u32,
        spec: &FlowSpec,
        oldest_bytes: Option<u32>,
        _: u64,
    ) -> Result<(), FlowError> {
        let old_index = states.state(id).aggregate;
        let before = self.aggregates[old_index as usize];
        let (old, new) = (u64::from(before.weight), spec.weight);
        if old == new {
            return Ok(());
        }
        self.groups.time.change_weight(old, new)?;
        if oldest_bytes.is_some() {
            self.unlink(states, id);
        }
        *states.state(id) = self.join(spec);
        let (time, index) = (&self.groups.time, states.state(id).aggregate);
        let interval = &mut self.aggregates[index as usize].interval;
        let is_idle_and_ahead =
            before.first == NO_FLOW && time.is_ahead(before.interval.start, before.interval.epoch);
        if oldest_bytes.is_some() || is_idle_and_ahead {
            let start = time.keep_lag(before.reached(), old, new);
            // An aggregate that is ahead stays so, and the flow with it.
            if !time.is_ahead(interval.start, interval.epoch) || is_later(start, interval.start) {
                interval.start = start;
            }
            interval.epoch = time.epoch();
        }
        if let Some(bytes) = oldest_bytes {
            let start = interval.start;
            self.append(states, id, bytes);
            self.aggregates[index as usize].set_service_times(start);
            self.groups.insert_entity(&mut self.aggregates, index);
            // After the insertion: without the flow, the virtual time might jump.
            self.end_removal(states, old_index);
            self.groups.end_change();
        }
        self.leave(old_index);
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
