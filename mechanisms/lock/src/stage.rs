//! Probe sites at the stages of a hand-over.
//!
//! A failed try has none: it is two instructions, and a third would make it half as long again.
//! Without the feature `probes`, in a model and under Miri, each function is empty.

use handover_base::stage::{address, stage};

/// Records that the caller has acquired the lock.
#[inline(always)]
pub(crate) fn record_taken<W>(word: &W) {
    stage!("probes", "lock.taken", address(word));
}

/// Records a failed attempt: the lock was read as free, but another thread then acquired it.
#[inline(always)]
pub(crate) fn record_lost<W>(word: &W) {
    stage!("probes", "lock.lost", address(word));
}

/// Records that the holder is about to free the lock.
#[inline(always)]
pub(crate) fn record_released<W>(word: &W) {
    stage!("probes", "lock.released", address(word));
}

/// Records a wait between two attempts: a number of spin hints, or a yield if the number is 0.
#[inline(always)]
pub(crate) fn record_waited(hints_count: u32) {
    stage!("probes", "lock.waited", hints_count);
}
