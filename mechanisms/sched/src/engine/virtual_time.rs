//! Virtual time: bytes per unit of weight, in fixed point.
//!
//! A virtual time is a `u64` with 40 fraction bits that wraps around; compared values are less than 2^63 apart: a
//! packet takes at most 2^20 bytes at weight 1, which is 2^60. The flows' increments are rounded up and the system's
//! rate is rounded down, so that virtual time never outruns the flows: otherwise every flow would count as behind, and
//! the bound on how far a flow can be ahead would be lost.

use super::config::{WEIGHT_MAX, WEIGHT_SUM_MAX};
use super::{FlowError, FlowSpec};

/// Number of fraction bits of the virtual times that flows store.
const FRACTION_BITS: u32 = 40;
/// Number of additional fraction bits of the virtual time, below the unit in which flows store times.
const EXTRA_FRACTION_BITS: u32 = 23;
/// Base-2 logarithm of the length of an epoch, in units of the exact virtual time; 2^62 units of the flows' times.
const EPOCH_SHIFT: u32 = EXTRA_FRACTION_BITS + 62;

/// Returns `true` if virtual time `a` is later than `b`; both may have wrapped around.
#[inline(always)]
pub(crate) fn is_later(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) > 0
}

/// Returns the virtual time that a byte takes for a flow of this weight.
#[inline(always)]
pub(crate) fn byte_cost(weight: u64) -> u64 {
    (1_u64 << FRACTION_BITS).div_ceil(weight)
}

const _: () = assert!(WEIGHT_MAX <= 1 << 20 && WEIGHT_SUM_MAX <= 1 << FRACTION_BITS);

/// Virtual time of the system: each byte served advances it by one over the sum of the weights.
#[derive(Debug)]
pub(crate) struct VirtualTime {
    /// Virtual time, with the additional fraction bits.
    exact: u128,
    /// Virtual time that each byte served takes, with the additional fraction bits.
    byte_cost: u64,
    weight_sum: u64,
}

impl VirtualTime {
    pub(crate) fn new() -> Self {
        Self { exact: 0, byte_cost: 0, weight_sum: 0 }
    }

    /// Adds a new flow's weight to the sum of the weights of all flows.
    pub(crate) fn admit_flow(&mut self, spec: &FlowSpec) -> Result<(), FlowError> {
        self.set_weight_sum(self.weight_sum.saturating_add(spec.weight))
    }

    pub(crate) fn set_weight_sum(&mut self, sum: u64) -> Result<(), FlowError> {
        if sum > WEIGHT_SUM_MAX {
            return Err(FlowError::WeightSum { sum, sum_max: WEIGHT_SUM_MAX });
        }
        self.weight_sum = sum;
        self.byte_cost = (1 << (FRACTION_BITS + EXTRA_FRACTION_BITS)) / sum.max(1);
        Ok(())
    }

    /// Returns the virtual time, without the additional fraction bits.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        (self.exact >> EXTRA_FRACTION_BITS) as u64
    }

    /// Advances the virtual time by the service of `bytes` bytes.
    #[inline(always)]
    pub(crate) fn advance(&mut self, bytes: u32) {
        let took = u128::from(bytes) * u128::from(self.byte_cost);
        self.exact = self.exact.wrapping_add(took);
    }

    /// Advances the time to `moment`, if that is later.
    #[inline(always)]
    pub(crate) fn raise_to(&mut self, moment: u64) {
        let ahead = moment.wrapping_sub(self.now());
        if (ahead as i64) > 0 {
            let integer = (self.exact >> EXTRA_FRACTION_BITS).wrapping_add(u128::from(ahead));
            self.exact = integer << EXTRA_FRACTION_BITS;
        }
    }

    /// Returns the number of the current epoch, to be stored with a virtual time that may be compared much later. Times
    /// wrap around, so without the epoch an old time would seem to lie in the future.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u64 {
        (self.exact >> EPOCH_SHIFT) as u64
    }

    /// Returns `true` if a virtual time stored with `epoch` can be compared with the current time;
    /// times of older epochs have passed.
    #[inline(always)]
    pub(crate) fn is_recent(&self, epoch: u64) -> bool {
        self.epoch().wrapping_sub(epoch) <= 1
    }

    /// Starts a new busy period, so that virtual times of earlier busy periods have passed.
    pub(crate) fn begin_busy_period(&mut self) {
        self.exact = self.exact.wrapping_add(2 << EPOCH_SHIFT);
    }
}
