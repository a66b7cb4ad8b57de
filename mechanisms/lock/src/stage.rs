//! The stages of a hand-over, by name: where the probe sites stand.
//!
//! A busy try has none: it is two instructions, and a third would be half of it more.
//! Without the feature `probes`, in a model and under Miri each is nothing.

use crate::RawTryLock;
use handover_base::stage::{address, stage};

/// The caller holds the lock now.
#[inline(always)]
pub(crate) fn taken(word: &RawTryLock) {
    stage!("probes", "lock.taken", address(word));
}

/// It looked free, and somebody was quicker.
#[inline(always)]
pub(crate) fn lost(word: &RawTryLock) {
    stage!("probes", "lock.lost", address(word));
}

/// The holder is about to free it.
#[inline(always)]
pub(crate) fn released(word: &RawTryLock) {
    stage!("probes", "lock.released", address(word));
}

/// Somebody waits between two tries: so many pauses, or none and the CPU is yielded.
#[inline(always)]
pub(crate) fn waited(pauses_count: u32) {
    stage!("probes", "lock.waited", pauses_count);
}
