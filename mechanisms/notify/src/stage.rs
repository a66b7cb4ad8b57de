//! Probe sites at the stages of a hand-over.
//!
//! Without the feature `probes`, in a model and under Miri, each function is empty.

use handover_base::stage::{address, stage};

/// Records that a sender has made a notification pending in `core`.
#[inline(always)]
pub(crate) fn record_notified<C>(core: &C) {
    stage!("probes", "notify.notified", address(core));
}

/// Records that a sender has found the receiver asleep, and is about to wake it.
#[inline(always)]
pub(crate) fn record_waking<C>(core: &C) {
    stage!("probes", "notify.waking", address(core));
}

/// Records that the receiver is about to sleep.
#[inline(always)]
pub(crate) fn record_parked<C>(core: &C) {
    stage!("probes", "notify.parked", address(core));
}

/// Records that the receiver has woken, for whatever reason.
#[inline(always)]
pub(crate) fn record_woken<C>(core: &C) {
    stage!("probes", "notify.woken", address(core));
}

/// Records a wait that found a notification already pending.
#[inline(always)]
pub(crate) fn record_found<C>(core: &C) {
    stage!("probes", "notify.found", address(core));
}

/// Records a spin that found a notification after `polls_count` polls.
#[inline(always)]
pub(crate) fn record_spun(polls_count: u32) {
    stage!("probes", "notify.spun", polls_count);
}

/// Records that a sender has ended a sleep that began at `sleep_start_ns`. The receiver has
/// consumed the notification.
#[inline(always)]
pub(crate) fn record_slept(sleep_start_ns: u64) {
    stage!("probes", "notify.slept", sleep_start_ns);
}

/// Records a wait that completed after `yields_count` yields to other threads.
#[inline(always)]
pub(crate) fn record_yielded(yields_count: u32) {
    stage!("probes", "notify.yielded", yields_count);
}
