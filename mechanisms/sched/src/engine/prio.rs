//! Strict priority.

use super::config::Config;
use super::table::{FlowStates, HalfLine, NO_FLOW};
use super::{Discipline, FlowError, FlowSpec};

/// Number of priorities: two levels of bitmaps with 64 bits each.
const LEVELS_COUNT: u64 = 64 * 64;

/// Strict priority. While a flow with a smaller number has packets, flows with greater numbers wait. Flows with the
/// same number take turns, one packet each.
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
    /// First and last of each priority's flows with packets.
    ends: Box<[(u32, u32)]>,
}

/// State of a flow in strict priority.
#[derive(Clone, Copy, Debug)]
pub struct PriorityState {
    /// Priority of the flow; 0 is served first.
    level: u32,
    /// Next flow with packets of the same priority.
    next: u32,
}

impl Priority {
    #[inline(always)]
    fn append<S: FlowStates<PriorityState>>(&mut self, slots: &mut S, id: u32) {
        let place = slots.state(id);
        place.next = NO_FLOW;
        let level = place.level as usize;
        self.words |= 1 << (level / 64);
        self.levels[level / 64] |= 1 << (level % 64);
        let (first, last) = &mut self.ends[level];
        let before = std::mem::replace(last, id);
        if *first == NO_FLOW {
            *first = id;
        } else {
            slots.state(before).next = id;
        }
    }

    #[inline(always)]
    fn remove_first<S: FlowStates<PriorityState>>(&mut self, slots: &mut S, id: u32) {
        let PriorityState { level, next } = *slots.state(id);
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

    fn admit(&mut self, spec: &FlowSpec) -> Result<PriorityState, FlowError> {
        Ok(PriorityState { level: (spec.weight - 1) as u32, next: NO_FLOW })
    }

    #[inline(always)]
    fn activate<S: FlowStates<PriorityState>>(&mut self, slots: &mut S, id: u32, _: u32, _: u64) {
        self.append(slots, id);
    }

    #[inline(always)]
    fn choose<S: FlowStates<PriorityState>>(&mut self, _: &mut S, _: u64) -> Option<u32> {
        if self.words == 0 {
            return None;
        }
        let word = self.words.trailing_zeros() as usize % 64;
        let level = word * 64 + self.levels[word].trailing_zeros() as usize;
        Some(self.ends[level].0)
    }

    #[inline(always)]
    fn served<S: FlowStates<PriorityState>>(
        &mut self,
        slots: &mut S,
        id: u32,
        _: u32,
        next: Option<u32>,
    ) {
        match next {
            // Alone on its level: it stays.
            Some(_) if slots.state(id).next == NO_FLOW => {}
            Some(_) => {
                self.remove_first(slots, id);
                self.append(slots, id);
            }
            None => self.remove_first(slots, id),
        }
    }

    fn changed<S: FlowStates<PriorityState>>(&mut self, _: &mut S, _: u32, _: u32, _: u32) {}

    fn deactivate<S: FlowStates<PriorityState>>(&mut self, slots: &mut S, id: u32) {
        let PriorityState { level, next } = *slots.state(id);
        let mut before = self.ends[level as usize].0;
        if before == id {
            return self.remove_first(slots, id);
        }
        while slots.state(before).next != id {
            before = slots.state(before).next;
        }
        slots.state(before).next = next;
        if next == NO_FLOW {
            self.ends[level as usize].1 = before;
        }
    }

    fn release<S: FlowStates<PriorityState>>(&mut self, _: &mut S, _: u32) {}

    fn set_weight<S: FlowStates<PriorityState>>(
        &mut self,
        slots: &mut S,
        id: u32,
        spec: &FlowSpec,
        oldest_bytes: Option<u32>,
        _: u64,
    ) -> Result<(), FlowError> {
        let has_packets = oldest_bytes.is_some();
        if has_packets {
            self.deactivate(slots, id);
        }
        slots.state(id).level = (spec.weight - 1) as u32;
        if has_packets {
            self.append(slots, id);
        }
        Ok(())
    }
}
