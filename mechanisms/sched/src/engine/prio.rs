//! Strict priority.

use super::config::Config;
use super::table::{FlowStates, HalfLine, NO_FLOW};
use super::{Discipline, FlowError, FlowSpec};

/// Number of priorities: 64 bitmaps of 64 bits.
const LEVELS_COUNT: u64 = 64 * 64;

/// Strict priority. While a flow with a smaller number has packets, flows with greater numbers
/// wait. Flows with the same number take turns, one packet each.
///
/// Source: a bitmap of the levels with packets, and a scan for its first bit, as real-time kernels
/// choose their tasks; Eiffel builds its queues on the same (A. Saeed et al., NSDI 2019).
///
/// Cost: O(1): two bit scans.
#[derive(Debug)]
pub struct Priority {
    /// Bitmap of the words of `levels` that are not zero.
    words: u64,
    /// Bitmaps of the priorities whose flows have packets.
    levels: [u64; 64],
    /// For each priority: the first and the last of its flows with packets.
    ends: Box<[(u32, u32)]>,
}

/// State that strict priority keeps for each flow.
#[derive(Clone, Copy, Debug)]
pub struct PriorityState {
    /// Priority of the flow; 0 is served first.
    level: u32,
    /// Next flow in the list of this priority's flows with packets, or [`NO_FLOW`].
    next: u32,
}

impl Priority {
    /// Appends a flow to its priority's list of flows with packets.
    #[inline(always)]
    fn append<S: FlowStates<PriorityState>>(&mut self, states: &mut S, id: u32) {
        let place = states.state(id);
        place.next = NO_FLOW;
        let level = place.level as usize;
        self.words |= 1 << (level / 64);
        self.levels[level / 64] |= 1 << (level % 64);
        let (first, last) = &mut self.ends[level];
        let before = std::mem::replace(last, id);
        if *first == NO_FLOW {
            *first = id;
        } else {
            states.state(before).next = id;
        }
    }

    /// Removes flow `id`, the first in its priority's list of flows with packets.
    #[inline(always)]
    fn remove_first<S: FlowStates<PriorityState>>(&mut self, states: &mut S, id: u32) {
        let PriorityState { level, next } = *states.state(id);
        let level = level as usize;
        self.ends[level].0 = next;
        if next == NO_FLOW {
            self.ends[level].1 = NO_FLOW;
            self.levels[level / 64] &= !(1 << (level % 64));
            if self.levels[level / 64] == 0 {
                self.words &= !(1 << (level / 64));
            }
        }
    }
}

impl Discipline for Priority {
    type State = PriorityState;
    type Align = HalfLine;
    const WEIGHT_MAX: u64 = LEVELS_COUNT;

    fn new(_: &Config) -> Self {
        let ends = vec![(NO_FLOW, NO_FLOW); LEVELS_COUNT as usize].into_boxed_slice();
        Self { words: 0, levels: [0; 64], ends }
    }

    fn admit_flow(&mut self, spec: &FlowSpec) -> Result<PriorityState, FlowError> {
        Ok(PriorityState { level: (spec.weight - 1) as u32, next: NO_FLOW })
    }

    #[inline(always)]
    fn activate_flow<S: FlowStates<PriorityState>>(
        &mut self,
        states: &mut S,
        id: u32,
        _: u32,
        _: u64,
    ) {
        self.append(states, id);
    }

    #[inline(always)]
    fn choose_flow<S: FlowStates<PriorityState>>(&mut self, _: &mut S, _: u64) -> Option<u32> {
        if self.words == 0 {
            return None;
        }
        let word = self.words.trailing_zeros() as usize % 64;
        let level = word * 64 + self.levels[word].trailing_zeros() as usize;
        Some(self.ends[level].0)
    }

    #[inline(always)]
    fn record_served<S: FlowStates<PriorityState>>(
        &mut self,
        states: &mut S,
        id: u32,
        _: u32,
        next: Option<u32>,
    ) {
        match next {
            // Alone on its level: it stays.
            Some(_) if states.state(id).next == NO_FLOW => {}
            Some(_) => {
                self.remove_first(states, id);
                self.append(states, id);
            }
            None => self.remove_first(states, id),
        }
    }

    fn deactivate_flow<S: FlowStates<PriorityState>>(&mut self, states: &mut S, id: u32) {
        let PriorityState { level, next } = *states.state(id);
        let mut before = self.ends[level as usize].0;
        if before == id {
            return self.remove_first(states, id);
        }
        while states.state(before).next != id {
            before = states.state(before).next;
        }
        states.state(before).next = next;
        if next == NO_FLOW {
            self.ends[level as usize].1 = before;
        }
    }

    fn release_flow<S: FlowStates<PriorityState>>(&mut self, _: &mut S, _: u32) {}

    fn set_weight<S: FlowStates<PriorityState>>(
        &mut self,
        states: &mut S,
        id: u32,
        spec: &FlowSpec,
        oldest_bytes: Option<u32>,
        _: u64,
    ) -> Result<(), FlowError> {
        let has_packets = oldest_bytes.is_some();
        if has_packets {
            self.deactivate_flow(states, id);
        }
        states.state(id).level = (spec.weight - 1) as u32;
        if has_packets {
            self.append(states, id);
        }
        Ok(())
    }
}
