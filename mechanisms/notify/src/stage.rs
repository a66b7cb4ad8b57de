//! Probe sites at the stages of a hand-over.
//!
//! Without the feature `probes`, in a model and under Miri, each function is empty.

use handover_base::stage::{address, stage};

/// A notification is pending at this core.
#[inline(always)]
pub(crate) fn notified<C>(core: &C) {
    stage!("probes", "notify.notified", address(core));
}

/// The sender of a notification has found the receiver asleep, and is about to wake it.
#[inline(always)]
pub(crate) fn waking<C>(core: &C) {
    stage!("probes", "notify.waking", address(core));
}

/// The receiver is about to sleep.
#[inline(always)]
pub(crate) fn parked<C>(core: &C) {
    stage!("probes", "notify.parked", address(core));
}

/// The receiver runs again, whatever ended its sleep.
#[inline(always)]
pub(crate) fn woken<C>(core: &C) {
    stage!("probes", "notify.woken", address(core));
}

/// A wait found a notification pending without a spin.
#[inline(always)]
pub(crate) fn found<C>(core: &C) {
    stage!("probes", "notify.found", address(core));
}

/// A spin ended successfully after `polls_count` looks.
#[inline(always)]
pub(crate) fn spun(polls_count: u32) {
    stage!("probes", "notify.spun", polls_count);
}

/// A sender ended a sleep, and the receiver has consumed the notification.
#[inline(always)]
pub(crate) fn slept(sleep_start_ns: u64) {
    stage!("probes", "notify.slept", sleep_start_ns);
}

/// A wait ended while other threads ran, after `yields_count` yields.
#[inline(always)]
pub(crate) fn yielded(yields_count: u32) {
    stage!("probes", "notify.yielded", yields_count);
}
