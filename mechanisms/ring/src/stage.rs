//! The stages of a hand-over, by name: where the probe sites stand.
//!
//! Values are a position and which ring: what was published up to a position is popped up to the
//! same; in a mailbox, a request is 1 and a reply 2. Without the feature `probes`, in a model and under
//! Miri each is nothing. Where there is one producer, a site would make a loop of 1 to 3 ns longer by more
//! than what can be measured: there it has the feature `probes-hot`.

use handover_base::stage::{address, stage};

/// The consumer can see what lies below `position`.
#[inline(always)]
pub(crate) fn published<R>(position: u64, ring: &R) {
    stage!("probes", "ring.published", position, address(ring));
}

/// What lies below `position` has been popped.
#[inline(always)]
pub(crate) fn popped<R>(position: u64, ring: &R) {
    stage!("probes", "ring.popped", position, address(ring));
}

/// As [`published`], where there is one producer.
#[inline(always)]
pub(crate) fn published_by_one<R>(position: u64, ring: &R) {
    stage!("probes-hot", "ring.published", position, address(ring));
}

/// As [`popped`], where there is one producer.
#[inline(always)]
pub(crate) fn popped_of_one<R>(position: u64, ring: &R) {
    stage!("probes-hot", "ring.popped", position, address(ring));
}

/// A producer was refused: full, or closed.
#[inline(always)]
pub(crate) fn refused<R>(position: u64, ring: &R) {
    stage!("probes", "ring.refused", position, address(ring));
}
