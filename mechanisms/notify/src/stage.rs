//! The stages of a hand-over, by name: where the probe sites stand.
//!
//! Without the feature `probes`, in a model and under Miri each is nothing.

/// A probe site, where there are any. Values are looked at only while it is on.
macro_rules! site {
    ($name:literal $(, $value:expr)*) => {
        #[cfg(all(feature = "probes", not(any(miri, handover_loom))))]
        handover_probe::probe!($name $(, $value)*);
        #[cfg(not(all(feature = "probes", not(any(miri, handover_loom)))))]
        let _ = || ($($value,)*);
    };
}

/// By what events at one and the same thing are known as such.
#[inline(always)]
fn address<T>(thing: &T) -> usize {
    core::ptr::from_ref(thing).addr()
}

/// A notification is pending at this core.
#[inline(always)]
pub(crate) fn notified<C>(core: &C) {
    site!("notify.notified", address(core));
}

/// Its sender has found a sleeper, and is about to wake it.
#[inline(always)]
pub(crate) fn waking<C>(core: &C) {
    site!("notify.waking", address(core));
}

/// The receiver is about to sleep.
#[inline(always)]
pub(crate) fn parked<C>(core: &C) {
    site!("notify.parked", address(core));
}

/// It runs again, whatever ended its sleep.
#[inline(always)]
pub(crate) fn woken<C>(core: &C) {
    site!("notify.woken", address(core));
}

/// A wait found something pending without a spin.
#[inline(always)]
pub(crate) fn found<C>(core: &C) {
    site!("notify.found", address(core));
}

/// A spin found something after so many looks.
#[inline(always)]
pub(crate) fn spun(looks_count: u32) {
    site!("notify.spun", looks_count);
}

/// A sleep was ended by its sender, and what it sent is taken.
#[inline(always)]
pub(crate) fn slept(asleep_since_ns: u64) {
    site!("notify.slept", asleep_since_ns);
}

/// What was waited for came while others ran, after so many yields.
#[inline(always)]
pub(crate) fn yielded(yields_count: u32) {
    site!("notify.yielded", yields_count);
}
