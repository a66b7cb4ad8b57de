//! Pacing: each flow at its own rate.

use super::config::Config;
use super::table::{FlowStates, Line, NO_FLOW};
use super::{Discipline, FlowError, FlowSpec};

/// Maximum rate of a flow: 1 Pbit/s.
const RATE_MAX_BITS_PER_S: u64 = 1_000_000_000_000_000;
const NS_PER_S: u64 = 1_000_000_000;
/// Number of bits of a digit of a departure time.
const DIGIT_BITS: u32 = 6;
/// Number of slots of a level, one for each value of its digit.
const SLOTS: usize = 1 << DIGIT_BITS;
/// Number of levels, one for each digit of a departure time.
const LEVELS: usize = 64_usize.div_ceil(DIGIT_BITS as usize);

/// Pacing by earliest departure time. A flow's weight is its rate in bits per second, and each of
/// its packets may leave when the transmission of the one before at that rate would have ended. Of
/// the packets that may leave, the one with the earliest departure time leaves first. Departure
/// times are exact: whole nanoseconds and a remainder, so that no error accumulates; a packet
/// leaves in the first nanosecond at which it may.
///
/// A flow gathers no credit while it has no packets; a flow whose packets are dequeued late catches
/// up. When a flow's rate changes, the bytes that it has still to wait for, or to catch up, go at
/// the new rate: its bytes stay bounded by the rate of each moment.
///
/// Source: A. Saeed, N. Dukkipati, V. Valancius, V. The Lam, C. Contavalli, A. Vahdat, Carousel:
/// Scalable Traffic Shaping at End Hosts, SIGCOMM 2017 (departure times in one wheel); A. Saeed et
/// al., Eiffel: Efficient and Flexible Software Packet Scheduling, NSDI 2019 (buckets found by
/// their first set bit). Here the buckets are digits of the departure time, so that no horizon and
/// no granularity has to be chosen.
///
/// Cost: O(1) to find the next departure time; a flow moves to a smaller bucket at most 10 times
/// for each of its packets, rarely more than twice.
#[derive(Debug)]
pub struct Pacing {
    /// Lower bound of all flows' departure times. A flow's level is the highest digit in which its
    /// departure time differs from this time, and its slot the value of this digit.
    base_ns: u64,
    /// Bitmap of the levels that contain flows.
    non_empty_levels: u64,
    /// For each level: bitmap of the slots that contain flows.
    non_empty_slots: [u64; LEVELS],
    slots: Box<[[Slot; SLOTS]; LEVELS]>,
}

/// List of flows whose departure times have the same digits at the slot's level and above.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// First flow of the slot's list.
    first: u32,
    /// Earliest departure time of the flows in the slot. At level 0, all flows of a slot have the
    /// same time and leave one by one; above, a slot's flows move to lower levels together.
    earliest_ns: u64,
}

/// State that the pacing algorithm keeps for each flow.
#[derive(Clone, Copy, Debug)]
pub struct PacingState {
    /// Departure time of the flow's next packet, rounded down.
    next_ns: u64,
    /// Part of the departure time below 1 ns, in units of 1/`rate_bits_per_s` ns.
    remainder: u64,
    rate_bits_per_s: u64,
    /// Next flow in the list of the slot, or [`NO_FLOW`].
    next_in_slot: u32,
}

impl PacingState {
    /// Returns the first whole nanosecond at which the flow's next packet may leave.
    #[inline(always)]
    fn due_ns(&self) -> u64 {
        self.next_ns.saturating_add(u64::from(self.remainder > 0))
    }
}

impl Pacing {
    /// Returns the level and slot of a departure time. They stay the same while a flow with this
    /// time has packets.
    #[inline(always)]
    fn position(&self, due_ns: u64) -> (usize, usize) {
        let differing = due_ns ^ self.base_ns;
        let level = ((u64::BITS - 1 - (differing | 1).leading_zeros()) / DIGIT_BITS) as usize;
        (level, (due_ns >> (level as u32 * DIGIT_BITS)) as usize % SLOTS)
    }

    /// Adds a flow to the slot of its departure time.
    #[inline(always)]
    fn insert<S: FlowStates<PacingState>>(&mut self, states: &mut S, id: u32) {
        let flow = states.state(id);
        let due_ns = flow.due_ns().max(self.base_ns);
        let (level, slot_index) = self.position(due_ns);
        let slot = &mut self.slots[level][slot_index];
        slot.earliest_ns = slot.earliest_ns.min(due_ns);
        flow.next_in_slot = std::mem::replace(&mut slot.first, id);
        self.non_empty_slots[level] |= 1 << slot_index;
        self.non_empty_levels |= 1 << level;
    }

    /// Returns the level and slot with the earliest departure times; `None` if no flow has packets.
    #[inline(always)]
    fn first(&self) -> Option<(usize, usize)> {
        if self.non_empty_levels == 0 {
            return None;
        }
        let level = self.non_empty_levels.trailing_zeros() as usize % LEVELS;
        Some((level, self.non_empty_slots[level].trailing_zeros() as usize % SLOTS))
    }

    /// Empties a slot, and clears its bit. Clears the bit of its level too, if all slots of the
    /// level are empty.
    #[inline(always)]
    fn clear(&mut self, level: usize, slot_index: usize) {
        self.slots[level][slot_index] = EMPTY_SLOT;
        self.non_empty_slots[level] &= !(1 << slot_index);
        if self.non_empty_slots[level] == 0 {
            self.non_empty_levels &= !(1 << level);
        }
    }
}

const EMPTY_SLOT: Slot = Slot { first: NO_FLOW, earliest_ns: u64::MAX };

impl Discipline for Pacing {
    type State = PacingState;
    type Align = Line;
    const WEIGHT_MAX: u64 = RATE_MAX_BITS_PER_S;
    const CAN_HOLD_BACK: bool = true;

    fn new(_: &Config) -> Self {
        let slots = Box::new([[EMPTY_SLOT; SLOTS]; LEVELS]);
        Self { base_ns: 0, non_empty_levels: 0, non_empty_slots: [0; LEVELS], slots }
    }

    fn admit_flow(&mut self, spec: &FlowSpec) -> Result<PacingState, FlowError> {
        Ok(PacingState {
            next_ns: 0,
            remainder: 0,
            rate_bits_per_s: spec.weight,
            next_in_slot: NO_FLOW,
        })
    }

    #[inline]
    fn activate_flow<S: FlowStates<PacingState>>(
        &mut self,
        states: &mut S,
        id: u32,
        _: u32,
        now_ns: u64,
    ) {
        let flow = states.state(id);
        if flow.due_ns() <= now_ns {
            (flow.next_ns, flow.remainder) = (now_ns, 0);
        }
        if self.non_empty_levels == 0 {
            self.base_ns = self.base_ns.max(now_ns);
        }
        self.insert(states, id);
    }

    #[inline(always)]
    fn choose_flow<S: FlowStates<PacingState>>(
        &mut self,
        states: &mut S,
        now_ns: u64,
    ) -> Option<u32> {
        loop {
            let (level, slot_index) = self.first()?;
            let Slot { first, earliest_ns } = self.slots[level][slot_index];
            if earliest_ns > now_ns {
                return None;
            }
            if level == 0 {
                return Some(first);
            }
            // Time has reached this slot: from here on its flows differ in a lower digit.
            self.clear(level, slot_index);
            self.base_ns = earliest_ns;
            let mut id = first;
            while id != NO_FLOW {
                let next_in_slot = states.state(id).next_in_slot;
                self.insert(states, id);
                id = next_in_slot;
            }
        }
    }

    #[inline(always)]
    fn record_served<S: FlowStates<PacingState>>(
        &mut self,
        states: &mut S,
        id: u32,
        bytes: u32,
        next: Option<u32>,
    ) {
        let Some((level, slot_index)) = self.first() else { return };
        let flow = states.state(id);
        match flow.next_in_slot {
            NO_FLOW => self.clear(level, slot_index),
            next_in_slot => self.slots[level][slot_index].first = next_in_slot,
        }
        // The terms are below 2^53 and 2^50, so the sum fits.
        let took = u64::from(bytes) * 8 * NS_PER_S + flow.remainder;
        flow.next_ns = flow.next_ns.saturating_add(took / flow.rate_bits_per_s);
        flow.remainder = took % flow.rate_bits_per_s;
        if next.is_some() {
            self.insert(states, id);
        }
    }

    fn deactivate_flow<S: FlowStates<PacingState>>(&mut self, states: &mut S, id: u32) {
        let (level, slot_index) = self.position(states.state(id).due_ns().max(self.base_ns));
        let mut other = self.slots[level][slot_index].first;
        self.clear(level, slot_index);
        while other != NO_FLOW {
            let next_in_slot = states.state(other).next_in_slot;
            if other != id {
                self.insert(states, other);
            }
            other = next_in_slot;
        }
    }

    fn release_flow<S: FlowStates<PacingState>>(&mut self, _: &mut S, _: u32) {}

    fn set_weight<S: FlowStates<PacingState>>(
        &mut self,
        states: &mut S,
        id: u32,
        spec: &FlowSpec,
        oldest_bytes: Option<u32>,
        now_ns: u64,
    ) -> Result<(), FlowError> {
        if oldest_bytes.is_some() {
            self.deactivate_flow(states, id);
        }
        let flow = states.state(id);
        // The time to wait, in units of 1 ns divided by the old rate; negative if the departure is
        // late.
        let wait_ns = i128::from(flow.next_ns) - i128::from(now_ns);
        let wait = wait_ns * i128::from(flow.rate_bits_per_s) + i128::from(flow.remainder);
        let rate = i128::from(spec.weight);
        let next_ns = i128::from(now_ns) + wait.div_euclid(rate);
        flow.next_ns = u64::try_from(next_ns.max(0)).unwrap_or(u64::MAX);
        flow.remainder = wait.rem_euclid(rate) as u64;
        flow.rate_bits_per_s = spec.weight;
        if oldest_bytes.is_some() {
            self.insert(states, id);
        }
        Ok(())
    }

    fn ready_ns(&self) -> u64 {
        self.first().map_or(0, |(level, slot_index)| self.slots[level][slot_index].earliest_ns)
    }
}
