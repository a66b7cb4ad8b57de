//! The stages of a hand-over, by name: where the probe sites stand.
//!
//! Without the feature `probes`, in a model and under Miri each is nothing.

use handover_base::stage::{address, stage};

/// A notification is pending at this core.
#[inline(always)]
pub(crate) fn notified<C>(core: &C) {
    stage!("probes", "notify.notified", address(core));
}

/// Its sender has found a sleeper, and is about to wake it.
#[inline(always)]
pub(crate) fn waking<C>(core: &C) {
    stage!("probes", "notify.waking", address(core));
}

/// The receiver is about to sleep.
#[inline(always)]
pub(crate) fn parked<C>(core: &C) {
    stage!("probes", "notify.parked", address(core));
}

/// It runs again, whatever ended its sleep.
#[inline(always)]
pub(crate) fn woken<C>(core: &C) {
    stage!("probes", "notify.woken", address(core));
}

/// A wait found something pending without a spin.
#[inline(always)]
pub(crate) fn found<C>(core: &C) {
    stage!("probes", "notify.found", address(core));
}

/// A spin found something after so many looks.
#[inline(always)]
pub(crate) fn spun(looks_count: u32) {
    stage!("probes", "notify.spun", looks_count);
}

/// A sleep was ended by its sender, and what it sent is taken.
#[inline(always)]
pub(crate) fn slept(asleep_since_ns: u64) {
    stage!("probes", "notify.slept", asleep_since_ns);
}

/// What was waited for came while others ran, after so many yields.
#[inline(always)]
pub(crate) fn yielded(yields_count: u32) {
    stage!("probes", "notify.yielded", yields_count);
}
