//! The stages of a hand-over, by name: where the probe sites stand.
//!
//! Values are a position and which ring: what was published up to a position is popped up to the
//! same; in a mailbox, a request is 1 and a reply 2. Without the feature `probes`, in a model and under Miri each is nothing.

/// A probe site, where there are any. Values are looked at only while it is on.
macro_rules! site {
    ($name:literal $(, $value:expr)*) => {
        #[cfg(all(feature = "probes", not(any(miri, handover_loom))))]
        handover_probe::probe!($name $(, $value)*);
        #[cfg(not(all(feature = "probes", not(any(miri, handover_loom)))))]
        let _ = || ($($value,)*);
    };
}

/// A site in a loop of 1 to 3 ns, which it would make longer by more than what can be measured.
macro_rules! hot_site {
    ($name:literal $(, $value:expr)*) => {
        #[cfg(all(feature = "probes-hot", not(any(miri, handover_loom))))]
        handover_probe::probe!($name $(, $value)*);
        #[cfg(not(all(feature = "probes-hot", not(any(miri, handover_loom)))))]
        let _ = || ($($value,)*);
    };
}

/// By what events at one and the same thing are known as such.
#[inline(always)]
fn address<T>(thing: &T) -> usize {
    core::ptr::from_ref(thing).addr()
}

/// The consumer can see what lies below `position`.
#[inline(always)]
pub(crate) fn published<R>(position: u64, ring: &R) {
    site!("ring.published", position, address(ring));
}

/// What lies below `position` has been popped.
#[inline(always)]
pub(crate) fn popped<R>(position: u64, ring: &R) {
    site!("ring.popped", position, address(ring));
}

/// As [`published`], where there is one producer.
#[inline(always)]
pub(crate) fn published_by_one<R>(position: u64, ring: &R) {
    hot_site!("ring.published", position, address(ring));
}

/// As [`popped`], where there is one producer.
#[inline(always)]
pub(crate) fn popped_of_one<R>(position: u64, ring: &R) {
    hot_site!("ring.popped", position, address(ring));
}

/// A producer was refused: full, or closed.
#[inline(always)]
pub(crate) fn refused<R>(position: u64, ring: &R) {
    site!("ring.refused", position, address(ring));
}
