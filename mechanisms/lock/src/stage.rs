//! The stages of a hand-over, by name: where the probe sites stand.
//!
//! A busy try has none: it is two instructions, and a third would be half of it more.
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

use crate::RawTryLock;

/// The caller holds the lock now.
#[inline(always)]
pub(crate) fn taken(word: &RawTryLock) {
    site!("lock.taken", address(word));
}

/// It looked free, and somebody was quicker.
#[inline(always)]
pub(crate) fn lost(word: &RawTryLock) {
    site!("lock.lost", address(word));
}

/// The holder is about to free it.
#[inline(always)]
pub(crate) fn released(word: &RawTryLock) {
    site!("lock.released", address(word));
}

/// Somebody waits between two tries: so many pauses, or none and the CPU is yielded.
#[inline(always)]
pub(crate) fn waited(pauses_count: u32) {
    site!("lock.waited", pauses_count);
}
