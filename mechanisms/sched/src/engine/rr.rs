//! Round robin: by deficit, and by packets.

use super::config::{Config, LENGTH_LIMIT_BYTES, WEIGHT_MAX};
use super::ring::FlowRing;
use super::table::{FlowStates, HalfLine};
use super::{Discipline, FlowError, FlowSpec};

/// Weighted deficit round robin, as dummynet's `rr`. In each cycle over the flows a flow may send a
/// number of bytes proportional to its weight; bytes that it does not use are added in the next
/// cycle.
///
/// Source: M. Shreedhar, G. Varghese, Efficient Fair Queuing Using Deficit Round-Robin, IEEE/ACM
/// Transactions on Networking 4(3), 1996 (SIGCOMM 1995).
///
/// A change of a flow's weight takes effect with the flow's next turn. The quantum grows if the new
/// weight requires it, and does not shrink.
///
/// Cost: O(1), as each turn is worth at least its flow's longest packet.
#[derive(Debug)]
pub struct DeficitRoundRobin {
    /// Flows with packets, in the order of their turns.
    turns: FlowRing,
    /// Quantum: bytes per unit of weight that a flow may send in a cycle.
    quantum_bytes: u32,
    /// Largest weight of any flow so far.
    weight_max: u32,
}

/// State that deficit round robin keeps for each flow.
#[derive(Clone, Copy, Debug)]
pub struct DeficitState {
    /// Bytes that the flow may send in its current turn, or else in its next. While the flow has
    /// packets, this is never less than its oldest packet when the flow is served.
    left_bytes: u32,
    weight: u32,
}

/// Maximum number of bytes that a flow may send in a cycle. The sum with the remainder of earlier
/// cycles stays below 2^32.
const TURN_MAX_BYTES: u64 = 1 << 31;

impl DeficitRoundRobin {
    /// Raises the quantum so that a turn of the flow suffices for its longest packet. Returns the
    /// flow's weight.
    fn fit_quantum(&mut self, spec: &FlowSpec) -> Result<u32, FlowError> {
        let weight = u32::try_from(spec.weight).unwrap_or(u32::MAX);
        let quantum_bytes = self.quantum_bytes.max(spec.length_max_bytes.div_ceil(weight));
        let heaviest = self.weight_max.max(weight);
        if u64::from(heaviest) * u64::from(quantum_bytes) > TURN_MAX_BYTES {
            // Either the weight is too great for the bytes per unit, or the packets would make the
            // heaviest flow's turns too long.
            let weight_max = TURN_MAX_BYTES / u64::from(self.quantum_bytes);
            if u64::from(weight) > weight_max {
                return Err(FlowError::Weight { weight: spec.weight, weight_max });
            }
            let unit_max_bytes = TURN_MAX_BYTES / u64::from(heaviest);
            let limit_bytes = (unit_max_bytes * u64::from(weight)).min(LENGTH_LIMIT_BYTES.into());
            return Err(FlowError::Length {
                length_max_bytes: spec.length_max_bytes,
                limit_bytes: limit_bytes as u32,
            });
        }
        self.quantum_bytes = quantum_bytes;
        self.weight_max = heaviest;
        Ok(weight)
    }
}

impl Discipline for DeficitRoundRobin {
    type State = DeficitState;
    type Align = HalfLine;
    const WEIGHT_MAX: u64 = WEIGHT_MAX;

    fn new(config: &Config) -> Self {
        Self { turns: FlowRing::default(), quantum_bytes: config.quantum_bytes, weight_max: 0 }
    }

    fn admit_flow(&mut self, spec: &FlowSpec) -> Result<DeficitState, FlowError> {
        let weight = self.fit_quantum(spec)?;
        self.turns.reserve();
        Ok(DeficitState { left_bytes: 0, weight })
    }

    #[inline(always)]
    fn activate_flow<S: FlowStates<DeficitState>>(
        &mut self,
        states: &mut S,
        id: u32,
        _: u32,
        _: u64,
    ) {
        let flow = states.state(id);
        flow.left_bytes = flow.weight * self.quantum_bytes;
        self.turns.push(id);
    }

    #[inline(always)]
    fn choose_flow<S: FlowStates<DeficitState>>(&mut self, _: &mut S, _: u64) -> Option<u32> {
        self.turns.get(0)
    }

    #[inline(always)]
    fn record_served<S: FlowStates<DeficitState>>(
        &mut self,
        states: &mut S,
        id: u32,
        bytes: u32,
        next: Option<u32>,
    ) {
        let Some(next_bytes) = next else { return self.turns.pop() };
        let flow = states.state(id);
        flow.left_bytes -= bytes;
        if next_bytes > flow.left_bytes {
            // Credited in advance, so that the first flow can always send without a check.
            flow.left_bytes += flow.weight * self.quantum_bytes;
            self.turns.rotate(id);
        }
    }

    fn record_oldest_dropped<S: FlowStates<DeficitState>>(
        &mut self,
        states: &mut S,
        id: u32,
        _: u32,
        bytes: u32,
    ) {
        let flow = states.state(id);
        if bytes > flow.left_bytes {
            // Only the first flow has spent a part of its turn; the others have room for any
            // packet.
            flow.left_bytes += flow.weight * self.quantum_bytes;
            self.turns.rotate(id);
        }
    }

    fn deactivate_flow<S: FlowStates<DeficitState>>(&mut self, _: &mut S, id: u32) {
        self.turns.remove(id);
    }

    fn release_flow<S: FlowStates<DeficitState>>(&mut self, _: &mut S, _: u32) {
        self.turns.release();
    }

    fn set_weight<S: FlowStates<DeficitState>>(
        &mut self,
        states: &mut S,
        id: u32,
        spec: &FlowSpec,
        _: Option<u32>,
        _: u64,
    ) -> Result<(), FlowError> {
        states.state(id).weight = self.fit_quantum(spec)?;
        Ok(())
    }

    #[inline(always)]
    fn flow_ahead(&self, positions: usize) -> Option<u32> {
        self.turns.get(positions as u32)
    }
}

/// Round robin by packets: one packet per flow and cycle, whatever its length and its flow's
/// weight. Nagle's round robin, the cheapest order without starvation.
///
/// Source: J. Nagle, On Packet Switches with Infinite Storage, RFC 970, 1985.
///
/// Cost: O(1).
#[derive(Debug)]
pub struct RoundRobin {
    /// Flows with packets, in the order of their turns.
    turns: FlowRing,
}

impl Discipline for RoundRobin {
    type State = ();
    type Align = HalfLine;
    const WEIGHT_MAX: u64 = u64::MAX;

    fn new(_: &Config) -> Self {
        Self { turns: FlowRing::default() }
    }

    fn admit_flow(&mut self, _: &FlowSpec) -> Result<(), FlowError> {
        self.turns.reserve();
        Ok(())
    }

    #[inline(always)]
    fn activate_flow<S: FlowStates<()>>(&mut self, _: &mut S, id: u32, _: u32, _: u64) {
        self.turns.push(id);
    }

    #[inline(always)]
    fn choose_flow<S: FlowStates<()>>(&mut self, _: &mut S, _: u64) -> Option<u32> {
        self.turns.get(0)
    }

    #[inline(always)]
    fn record_served<S: FlowStates<()>>(&mut self, _: &mut S, id: u32, _: u32, next: Option<u32>) {
        match next {
            Some(_) => self.turns.rotate(id),
            None => self.turns.pop(),
        }
    }

    fn deactivate_flow<S: FlowStates<()>>(&mut self, _: &mut S, id: u32) {
        self.turns.remove(id);
    }

    fn release_flow<S: FlowStates<()>>(&mut self, _: &mut S, _: u32) {
        self.turns.release();
    }

    fn set_weight<S: FlowStates<()>>(
        &mut self,
        _: &mut S,
        _: u32,
        _: &FlowSpec,
        _: Option<u32>,
        _: u64,
    ) -> Result<(), FlowError> {
        Err(FlowError::NoWeights)
    }

    #[inline(always)]
    fn flow_ahead(&self, positions: usize) -> Option<u32> {
        self.turns.get(positions as u32)
    }
}
