//! Probe sites at the stages of a hand-over.
//!
//! Their values are a position and the ring's address: values published up to a position are popped
//! up to the same; in a mailbox, a request is 1 and a reply 2. Without the feature `probes`, in a
//! model and under Miri, each function is empty. In the ring with one producer, whose loops take 1
//! to 3 ns, a site would add a measurable time: its sites have the feature `probes-hot`.

use handover_base::stage::{address, stage};

/// Records that the values below `position` were published.
#[inline(always)]
pub(crate) fn record_published<R>(position: u64, ring: &R) {
    stage!("probes", "ring.published", position, address(ring));
}

/// Records that the values below `position` were popped.
#[inline(always)]
pub(crate) fn record_popped<R>(position: u64, ring: &R) {
    stage!("probes", "ring.popped", position, address(ring));
}

/// Records that the values below `position` were published in a ring with one producer.
#[inline(always)]
pub(crate) fn record_published_by_one<R>(position: u64, ring: &R) {
    stage!("probes-hot", "ring.published", position, address(ring));
}

/// Records that the values below `position` were popped from a ring with one producer.
#[inline(always)]
pub(crate) fn record_popped_by_one<R>(position: u64, ring: &R) {
    stage!("probes-hot", "ring.popped", position, address(ring));
}

/// Records that a push failed because the ring is full or closed.
#[inline(always)]
pub(crate) fn record_refused<R>(position: u64, ring: &R) {
    stage!("probes", "ring.refused", position, address(ring));
}
