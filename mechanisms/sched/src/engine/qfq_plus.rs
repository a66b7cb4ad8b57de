//! Quick fair queueing of aggregates.

use super::config::{Config, WEIGHT_MAX};
use super::groups::{Groups, IntervalTable, VirtualInterval};
use super::table::{FlowStates, Line, NO_FLOW};
use super::virtual_time::byte_cost;
use super::{Discipline, FlowError, FlowSpec};
use std::collections::HashMap;

/// Maximum number of flows in an aggregate.
const MEMBERS_MAX: u32 = 8;

/// QFQ+. Flows of the same weight and longest packet form aggregates of up to 8, which QFQ orders; within an aggregate
/// the flows take turns by deficit round robin. A chosen aggregate is served while its packets fit into the bytes of
/// one longest packet: a longer service would be cheaper, but other flows would lag by more than twice the longest
/// packet.
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
    open_aggregates: HashMap<(u64, u32), u32>,
    /// Index of the aggregate being served, which was chosen at the virtual time `served_since`.
    served_aggregate: u32,
    /// Virtual time at which the aggregate being served was chosen.
    served_since: u64,
}

/// State of a flow in QFQ+.
#[derive(Clone, Copy, Debug)]
pub struct QfqPlusState {
    aggregate: u32,
    /// Next flow in the list of the aggregate's flows with packets.
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
}

impl IntervalTable for Vec<Aggregate> {
    #[inline(always)]
    fn interval(&mut self, id: u32) -> &mut VirtualInterval {
        &mut self[id as usize].interval
    }
}

impl Aggregate {
    /// Sets the virtual start and finish times of the aggregate's next service.
    #[inline(always)]
    fn begin(&mut self, start: u64) {
        let stay = self.byte_cost * u64::from(self.longest_bytes);
        self.interval.start = start;
        self.interval.finish = start.wrapping_add(stay);
    }

    #[inline(always)]
    fn append<S: FlowStates<QfqPlusState>>(&mut self, slots: &mut S, id: u32) {
        slots.state(id).next = NO_FLOW;
        let before = std::mem::replace(&mut self.last, id);
        if self.first == NO_FLOW {
            self.first = id;
        } else {
            slots.state(before).next = id;
        }
    }
}

impl QfqPlus {
    /// Returns the index of an aggregate for a new flow of this weight and length, which is a new aggregate, or one
    /// without queued packets that has fewer than [`MEMBERS_MAX`] flows.
    fn aggregate_for(&mut self, spec: &FlowSpec) -> u32 {
        let key = (spec.weight, spec.length_max_bytes);
        if let Some(&open) = self.open_aggregates.get(&key) {
            let aggregate = &self.aggregates[open as usize];
            if aggregate.members_count < MEMBERS_MAX && aggregate.first == NO_FLOW {
                return open;
            }
        }
        let open = self.aggregates.len() as u32;
        self.open_aggregates.insert(key, open);
        self.aggregates.push(Aggregate {
            byte_cost: 0,
            interval: VirtualInterval::new(1, &self.groups.time),
            first: NO_FLOW,
            last: NO_FLOW,
            spent_bytes: 0,
            longest_bytes: spec.length_max_bytes,
            members_count: 0,
        });
        open
    }
}

impl Discipline for QfqPlus {
    type State = QfqPlusState;
    type Align = Line;
    const WEIGHT_MAX: u64 = WEIGHT_MAX;

    fn new(_: &Config) -> Self {
        Self {
            groups: Groups::new(),
            aggregates: Vec::new(),
            open_aggregates: HashMap::new(),
            served_aggregate: NO_FLOW,
            served_since: 0,
        }
    }

    fn admit(&mut self, spec: &FlowSpec) -> Result<QfqPlusState, FlowError> {
        self.groups.time.admit_flow(spec)?;
        let index = self.aggregate_for(spec);
        let aggregate = &mut self.aggregates[index as usize];
        aggregate.members_count += 1;
        aggregate.byte_cost = byte_cost(spec.weight * u64::from(aggregate.members_count));
        let stay = aggregate.byte_cost * u64::from(spec.length_max_bytes);
        aggregate.interval.set_longest(stay);
        Ok(QfqPlusState { aggregate: index, next: NO_FLOW, left_bytes: 0, oldest_bytes: 0 })
    }

    #[inline]
    fn activate<S: FlowStates<QfqPlusState>>(
        &mut self,
        slots: &mut S,
        id: u32,
        bytes: u32,
        _: u64,
    ) {
        let member = slots.state(id);
        member.oldest_bytes = bytes;
        let index = member.aggregate;
        let aggregate = &mut self.aggregates[index as usize];
        member.left_bytes = aggregate.longest_bytes;
        let was_idle = aggregate.first == NO_FLOW;
        aggregate.append(slots, id);
        if was_idle {
            let start = self.groups.start_time(&self.aggregates[index as usize].interval);
            self.aggregates[index as usize].begin(start);
            self.groups.insert_entity(&mut self.aggregates, index);
        }
    }

    #[inline(always)]
    fn choose<S: FlowStates<QfqPlusState>>(&mut self, _: &mut S, _: u64) -> Option<u32> {
        if self.served_aggregate == NO_FLOW {
            self.served_since = self.groups.time.now();
            self.served_aggregate = self.groups.take_first(&mut self.aggregates)?;
        }
        Some(self.aggregates[self.served_aggregate as usize].first)
    }

    #[inline(always)]
    fn served<S: FlowStates<QfqPlusState>>(
        &mut self,
        slots: &mut S,
        id: u32,
        bytes: u32,
        next: Option<u32>,
    ) {
        self.groups.time.advance(bytes);
        let index = self.served_aggregate;
        let aggregate = &mut self.aggregates[index as usize];
        aggregate.spent_bytes += bytes;
        let member = slots.state(id);
        member.left_bytes = member.left_bytes.saturating_sub(bytes);
        member.oldest_bytes = next.unwrap_or(0);
        let next_member = member.next;
        match next {
            None => aggregate.first = next_member,
            Some(next_bytes) if next_bytes > member.left_bytes => {
                member.left_bytes += aggregate.longest_bytes;
                if next_member != NO_FLOW {
                    aggregate.first = next_member;
                    aggregate.append(slots, id);
                }
            }
            Some(_) => {}
        }
        let is_over = aggregate.first == NO_FLOW || {
            let oldest_bytes = slots.state(aggregate.first).oldest_bytes;
            aggregate.spent_bytes.saturating_add(oldest_bytes) > aggregate.longest_bytes
        };
        if is_over {
            let spent = u64::from(std::mem::take(&mut aggregate.spent_bytes));
            let start = aggregate.interval.start.wrapping_add(aggregate.byte_cost * spent);
            aggregate.begin(start);
            aggregate.interval.epoch = self.groups.time.epoch();
            self.served_aggregate = NO_FLOW;
            if aggregate.first != NO_FLOW {
                self.groups.insert_entity(&mut self.aggregates, index);
            }
            self.groups.end_service(self.served_since);
        }
    }

    fn changed<S: FlowStates<QfqPlusState>>(&mut self, slots: &mut S, id: u32, _: u32, bytes: u32) {
        let member = slots.state(id);
        member.oldest_bytes = bytes;
        if bytes > member.left_bytes {
            member.left_bytes += self.aggregates[member.aggregate as usize].longest_bytes;
        }
    }

    fn idle(&mut self) {
        self.groups.begin_busy_period();
    }
}
