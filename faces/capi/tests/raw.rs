//! Rust code calls the exported functions, as the suite does to measure what the interface costs.

use handover::handover_status::{self, HANDOVER_CLOSED, HANDOVER_EMPTY, HANDOVER_OK};
use handover::ring::{
    handover_ring_consumer_destroy, handover_ring_create, handover_ring_kind, handover_ring_pop,
    handover_ring_producer_destroy, handover_ring_push,
};
use std::mem::MaybeUninit;

#[test]
fn ring_passes_elements_of_rust() {
    let kind = handover_ring_kind::HANDOVER_RING_SPSC as u32;
    let (mut producer, mut consumer) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let status =
        handover_ring_create(kind, size_of::<u64>(), 2, Some(&mut producer), Some(&mut consumer));
    assert_eq!(status, HANDOVER_OK);
    // SAFETY: handover_ring_create has written it, as it returned HANDOVER_OK.
    let producer = unsafe { producer.assume_init() };
    // SAFETY: as for the producer.
    let mut consumer = unsafe { consumer.assume_init() }.expect("a ring has two ends");
    let mut popped = 0_u64;
    let mut pop = || -> (handover_status, u64) {
        // SAFETY: the element is a u64, for which the ring was created, and no other thread uses this end.
        (unsafe { handover_ring_pop(Some(&mut consumer), (&raw mut popped).cast()) }, popped)
    };
    assert_eq!(pop().0, HANDOVER_EMPTY);
    for element in [5_u64, 6] {
        // SAFETY: as for the pop.
        let status =
            unsafe { handover_ring_push(producer.as_deref(), (&raw const element).cast()) };
        assert_eq!(status, HANDOVER_OK);
    }
    handover_ring_producer_destroy(producer);
    assert_eq!([pop(), pop()], [(HANDOVER_OK, 5), (HANDOVER_OK, 6)]);
    assert_eq!(pop().0, HANDOVER_CLOSED);
    handover_ring_consumer_destroy(Some(consumer));
}
