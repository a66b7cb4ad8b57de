//! Calls of libhandover's C functions through pointers, as a C program calls a shared library that
//! was compiled with `-fno-plt`.

use handover::handover_status::{self, HANDOVER_OK};
use handover::ring::{
    handover_ring_consumer, handover_ring_create, handover_ring_kind, handover_ring_pop,
    handover_ring_producer, handover_ring_push,
};
use handover_harness::Fault;
use std::ffi::c_void;
use std::hint::black_box;
use std::mem::MaybeUninit;

type PushFunction =
    unsafe extern "C" fn(Option<&handover_ring_producer>, *const c_void) -> handover_status;
type PopFunction =
    unsafe extern "C" fn(Option<&mut handover_ring_consumer>, *mut c_void) -> handover_status;

/// Producer of an SPSC ring of 8-byte elements of the C interface.
pub(crate) struct RingProducer(Box<handover_ring_producer>, PushFunction);

/// Consumer of an SPSC ring of 8-byte elements of the C interface.
pub(crate) struct RingConsumer(Box<handover_ring_consumer>, PopFunction);

// SAFETY: the header allows the ends of an SPSC ring on any thread, one at a time for each;
// `&mut self` ensures that.
unsafe impl Send for RingProducer {}
// SAFETY: as for the producer.
unsafe impl Send for RingConsumer {}

/// Creates an SPSC ring by `handover_ring_create`; returns its producer and its consumer.
pub(crate) fn create_ring(slots_count: u32) -> Result<(RingProducer, RingConsumer), Fault> {
    let kind = handover_ring_kind::HANDOVER_RING_SPSC as u32;
    let (mut producer, mut consumer) = (MaybeUninit::new(None), MaybeUninit::new(None));
    let ends = (Some(&mut producer), Some(&mut consumer));
    let status = handover_ring_create(kind, size_of::<u64>(), slots_count, ends.0, ends.1);
    // SAFETY: the place was initialised when it was made.
    let producer = unsafe { producer.assume_init() };
    // SAFETY: as for the producer.
    let consumer = unsafe { consumer.assume_init() };
    match (producer, consumer) {
        (Some(producer), Some(consumer)) => Ok((
            RingProducer(producer, black_box(handover_ring_push as PushFunction)),
            RingConsumer(consumer, black_box(handover_ring_pop as PopFunction)),
        )),
        _ => Err(Fault::new(format!("handover_ring_create returned {status:?}"))),
    }
}

impl RingProducer {
    /// Pushes an item; returns `false` if the ring is full.
    #[inline(always)]
    pub(crate) fn push(&mut self, item: u64) -> bool {
        // SAFETY: the item has the size of the ring's elements, and `&mut self` admits one thread
        // at a time.
        unsafe { (self.1)(Some(&self.0), (&raw const item).cast()) == HANDOVER_OK }
    }
}

impl RingConsumer {
    /// Pops an item; `None` if the ring is empty.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<u64> {
        let mut item = 0u64;
        // SAFETY: the item has the size of the ring's elements, and `&mut self` admits one thread
        // at a time.
        let status = unsafe { (self.1)(Some(&mut self.0), (&raw mut item).cast()) };
        (status == HANDOVER_OK).then_some(item)
    }
}
