//! Virtual time: bytes per unit of weight, in fixed point.
//!
//! A moment is a `u64` of 40 binary places that wraps around; what is compared lies less than 2^63 apart:
//! a flow's packet takes at most 2^20 bytes at weight 1, 2^60. The increments of the flows are rounded up
//! and the pace of the whole is rounded down, so that virtual time never outruns the flows: if it did,
//! every flow would count as behind, and the bound on how far one can be ahead would be gone.

use super::config::{WEIGHT_MAX, WEIGHT_SUM_MAX};
use super::{FlowError, FlowSpec};

const PLACES: u32 = 40;
/// The sum of what was served is exact to so many more places.
const MORE_PLACES: u32 = 23;
/// An epoch is 2^62 of a moment's units.
const EPOCH_SHIFT: u32 = MORE_PLACES + 62;

/// Whether `a` is later than `b`.
#[inline(always)]
pub(crate) fn is_later(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) > 0
}

/// What a byte takes of a flow of this weight.
#[inline(always)]
pub(crate) fn byte_cost(weight: u64) -> u64 {
    (1_u64 << PLACES).div_ceil(weight)
}

const _: () = assert!(WEIGHT_MAX <= 1 << 20 && WEIGHT_SUM_MAX <= 1 << PLACES);

/// The system's virtual time: it advances with every byte served by one over the sum of the weights.
#[derive(Debug)]
pub(crate) struct VirtualTime {
    exact: u128,
    byte_cost: u64,
    weight_sum: u64,
}

impl VirtualTime {
    pub(crate) fn new() -> Self {
        Self { exact: 0, byte_cost: 0, weight_sum: 0 }
    }

    /// One flow more: the weights are the actual ones, not the most that there could be.
    pub(crate) fn admit(&mut self, spec: &FlowSpec) -> Result<(), FlowError> {
        self.set_weight_sum(self.weight_sum.saturating_add(spec.weight))
    }

    /// The weights' sum is another.
    pub(crate) fn set_weight_sum(&mut self, sum: u64) -> Result<(), FlowError> {
        if sum > WEIGHT_SUM_MAX {
            return Err(FlowError::WeightSum { sum, sum_max: WEIGHT_SUM_MAX });
        }
        self.weight_sum = sum;
        self.byte_cost = (1 << (PLACES + MORE_PLACES)) / sum.max(1);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        (self.exact >> MORE_PLACES) as u64
    }

    #[inline(always)]
    pub(crate) fn advance(&mut self, bytes: u32) {
        let took = u128::from(bytes) * u128::from(self.byte_cost);
        self.exact = self.exact.wrapping_add(took);
    }

    /// It is not before `moment`.
    #[inline(always)]
    pub(crate) fn raise(&mut self, moment: u64) {
        let ahead = moment.wrapping_sub(self.now());
        if (ahead as i64) > 0 {
            let whole = (self.exact >> MORE_PLACES).wrapping_add(u128::from(ahead));
            self.exact = whole << MORE_PLACES;
        }
    }

    /// To be noted beside a moment that may be looked at much later: as moments wrap around, one of long
    /// ago would seem to lie ahead.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u64 {
        (self.exact >> EPOCH_SHIFT) as u64
    }

    /// Whether a moment noted in `epoch` can be compared with now; those before it lie behind.
    #[inline(always)]
    pub(crate) fn is_recent(&self, epoch: u64) -> bool {
        self.epoch().wrapping_sub(epoch) <= 1
    }

    /// A new busy period: what was served in an earlier one counts no more.
    pub(crate) fn begin_anew(&mut self) {
        self.exact = self.exact.wrapping_add(2 << EPOCH_SHIFT);
    }
}
