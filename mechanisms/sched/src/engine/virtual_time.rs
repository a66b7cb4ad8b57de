//! Virtual time: bytes per unit of weight, in fixed point.
//!
//! A virtual time is a `u64` with 40 fraction bits that wraps around; compared values are less than
//! 2^63 apart: a packet takes at most 2^20 bytes at weight 1, which is 2^60. The flows' increments
//! are rounded up and the system's rate is rounded down, so that virtual time never outruns the
//! flows: otherwise every flow would count as behind, and the bound on how far a flow can be ahead
//! would be lost.
//!
//! The *lag* of a flow is its share of the service so far, less what it got: its weight times the
//! virtual time less its start time. When a weight changes, the flow's start time moves so that the
//! lag stays. When a flow is removed that is ahead (its lag is negative), the others have got too
//! little, and the virtual time goes back by that lag over the sum of their weights; otherwise it
//! would outrun them a little with each such flow. A flow that is behind needs no correction: the
//! virtual time is never earlier than all start times.
//!
//! Source of these rules: I. Stoica, H. Abdel-Wahab, K. Jeffay, S. K. Baruah, J. E. Gehrke, C. G.
//! Plaxton, A Proportional Share Resource Allocation Algorithm for Real-Time, Time-Shared Systems,
//! RTSS 1996 (clients that join, leave and change their weight).

use super::config::{WEIGHT_MAX, WEIGHT_SUM_MAX};
use super::{FlowError, FlowSpec};

/// Number of fraction bits of the virtual times that flows store.
const FRACTION_BITS: u32 = 40;
/// Number of fraction bits that [`VirtualTime`] has in addition to [`FRACTION_BITS`].
const EXTRA_FRACTION_BITS: u32 = 23;
/// Base-2 logarithm of an epoch's length, in units of the exact virtual time. An epoch is 2^62
/// units of the flows' times.
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

/// Returns the weight of a flow whose bytes take this virtual time: the inverse of [`byte_cost`].
/// It is exact, since the costs of two weights up to [`WEIGHT_MAX`] differ by at least 1.
pub(crate) fn weight_of(byte_cost: u64) -> u64 {
    (1_u64 << FRACTION_BITS).div_ceil(byte_cost)
}

/// Maximum distance of a start time from the virtual time after a change of weight.
const DISTANCE_MAX: i128 = 1 << 61;

const _: () = assert!(WEIGHT_MAX <= 1 << 20 && WEIGHT_SUM_MAX <= 1 << FRACTION_BITS);

/// Virtual time of the system. Each byte served advances it by one over the sum of the weights.
#[derive(Debug)]
pub(crate) struct VirtualTime {
    /// Virtual time, with [`EXTRA_FRACTION_BITS`] more fraction bits than the flows' times.
    exact: u128,
    /// Advance of the virtual time for each byte served, with [`EXTRA_FRACTION_BITS`] more fraction
    /// bits than the flows' times.
    byte_cost: u64,
    weight_sum: u64,
}

impl VirtualTime {
    pub(crate) fn new() -> Self {
        // In the middle of an epoch, so that `release_flow` can take it back.
        Self { exact: 1 << (EPOCH_SHIFT - 1), byte_cost: 0, weight_sum: 0 }
    }

    /// Adds a new flow's weight to the sum of the weights of all flows.
    pub(crate) fn admit_flow(&mut self, spec: &FlowSpec) -> Result<(), FlowError> {
        self.set_weight_sum(self.weight_sum.saturating_add(spec.weight))
    }

    /// Replaces a flow's weight `old` by `new` in the sum of the weights.
    pub(crate) fn change_weight(&mut self, old: u64, new: u64) -> Result<(), FlowError> {
        self.set_weight_sum(self.weight_sum - old + new)
    }

    /// Returns the start time that keeps a flow's lag when its weight changes from `old` to `new`.
    pub(crate) fn keep_lag(&self, start: u64, old: u64, new: u64) -> u64 {
        let now = self.now();
        let ahead = i128::from(start.wrapping_sub(now) as i64) * i128::from(old) / i128::from(new);
        now.wrapping_add(ahead.clamp(-DISTANCE_MAX, DISTANCE_MAX) as u64)
    }

    /// Removes a flow's weight from the sum. If its start time is later than the virtual time, the
    /// virtual time goes back by what the flow is ahead, at most to the beginning of the epoch.
    pub(crate) fn release_flow(&mut self, start: u64, epoch: u64, weight: u64) {
        let ahead = self.is_ahead(start, epoch).then(|| start.wrapping_sub(self.now()));
        let sum = self.weight_sum - weight;
        // Cannot fail: the sum has become smaller.
        let changed = self.set_weight_sum(sum);
        debug_assert!(changed.is_ok());
        if let (Some(ahead), 1..) = (ahead, sum) {
            let back = u128::from(ahead) * u128::from(weight) / u128::from(sum);
            let begin = self.exact >> EPOCH_SHIFT << EPOCH_SHIFT;
            self.exact -= (back << EXTRA_FRACTION_BITS).min(self.exact - begin);
        }
    }

    fn set_weight_sum(&mut self, sum: u64) -> Result<(), FlowError> {
        if sum > WEIGHT_SUM_MAX {
            return Err(FlowError::WeightSum { sum, sum_max: WEIGHT_SUM_MAX });
        }
        self.weight_sum = sum;
        self.byte_cost = (1 << (FRACTION_BITS + EXTRA_FRACTION_BITS)) / sum.max(1);
        Ok(())
    }

    /// Returns the virtual time with [`FRACTION_BITS`] fraction bits, like the flows' times.
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

    /// Advances the time to `moment`, unless it is already later.
    #[inline(always)]
    pub(crate) fn raise_to(&mut self, moment: u64) {
        let ahead = moment.wrapping_sub(self.now());
        if (ahead as i64) > 0 {
            let integer = (self.exact >> EXTRA_FRACTION_BITS).wrapping_add(u128::from(ahead));
            self.exact = integer << EXTRA_FRACTION_BITS;
        }
    }

    /// Returns the number of the current epoch. It is stored with a virtual time that may be
    /// compared much later. Times wrap around, so without the epoch an old time would seem to lie
    /// in the future.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u64 {
        (self.exact >> EPOCH_SHIFT) as u64
    }

    /// Returns `true` if a virtual time stored with `epoch` can be compared with the current time.
    /// Times of older epochs have passed.
    #[inline(always)]
    fn is_recent(&self, epoch: u64) -> bool {
        self.epoch().wrapping_sub(epoch) <= 1
    }

    /// Returns `true` if `start` is later than the virtual time. `start` is the finish time of a
    /// flow's last packet, and `epoch` the epoch in which the flow became idle.
    #[inline(always)]
    pub(crate) fn is_ahead(&self, start: u64, epoch: u64) -> bool {
        self.is_recent(epoch) && is_later(start, self.now())
    }

    /// Ends the busy period: moves the virtual time ahead, so that all times of the period have
    /// passed. Called when the last packet has left or was dropped.
    pub(crate) fn end_busy_period(&mut self) {
        self.exact = self.exact.wrapping_add(2 << EPOCH_SHIFT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_of_a_byte_cost_is_exact() {
        let step = if cfg!(miri) { 4099 } else { 1 };
        for weight in (1..=WEIGHT_MAX).step_by(step) {
            assert_eq!(weight_of(byte_cost(weight)), weight);
        }
    }

    #[test]
    fn change_of_weight_keeps_the_lag() {
        let time = VirtualTime::new();
        for (old, new) in [(1, 1000), (1000, 1), (3, 7), (WEIGHT_MAX, 1)] {
            for lag_bytes in [-1500_i64, 0, 1500] {
                let distance = |weight| (lag_bytes << FRACTION_BITS) / weight as i64;
                let start = time.now().wrapping_sub(distance(old) as u64);
                let kept = time.now().wrapping_sub(time.keep_lag(start, old, new)) as i64;
                // Within a millionth of a byte.
                assert!((kept - distance(new)).abs() * new as i64 <= 1 << 20, "{old} {new}");
            }
        }
    }
}
