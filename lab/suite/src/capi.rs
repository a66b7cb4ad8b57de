//! `capi/*`: the cost of a call through the C interface, libhandover, beside the same call in Rust.

use crate::channels::{Channel, Spsc};
use crate::common::ensure;
use crate::raw::capi;
use crate::ring::QueueArgs;
use handover_base::clock;
use handover_harness::{Bench, Fault, Samples, Setup, Workload, benches};
use handover_record::Spec;
use std::hint::black_box;

/// All benchmarks of the C interface.
pub const BENCHES: &[Bench] = benches! {
    one floor "rust": RingPush<Spsc>;
    one ours "handover": RingPush<CSpsc>;
};

/// SPSC ring of the C interface, as a [`Channel`].
enum CSpsc {}

impl Channel for CSpsc {
    type Sender = capi::RingProducer;
    type Receiver = capi::RingConsumer;

    fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
        capi::create_ring(slots_count)
    }
    #[inline(always)]
    fn push(sender: &mut Self::Sender, item: u64) -> bool {
        sender.push(item)
    }
    #[inline(always)]
    fn pop(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.pop()
    }
}

/// Workload: pushes that fill an empty ring. The pops that empty it again are not timed.
struct RingPush<C: Channel> {
    sender: C::Sender,
    receiver: C::Receiver,
    slots_count: u64,
}

impl<C: Channel> RingPush<C> {
    /// Pops all items; fails unless they are the numbers from 0, in order.
    fn pop_all(&mut self) -> Result<(), Fault> {
        for expected in (0..self.slots_count).map(Some).chain([None]) {
            let popped = C::pop(&mut self.receiver);
            ensure(popped == expected, || {
                format!("popped item {popped:?}, expected {expected:?}")
            })?;
        }
        Ok(())
    }

    /// Pushes the numbers from 0 until the ring is full.
    #[inline(never)]
    fn fill(&mut self) {
        for item in 0..self.slots_count {
            C::push(&mut self.sender, black_box(item));
        }
    }
}

impl<C: Channel> Workload for RingPush<C> {
    type Args = QueueArgs;
    const SPEC: Spec = Spec::new(
        "capi/ring-push",
        "push of an 8-byte item into an SPSC ring through the C interface",
    )
    .ladder();

    fn setup(args: &QueueArgs, _: &mut Setup) -> Result<Self, Fault> {
        let (sender, receiver) = C::pair(args.slots_count)?;
        Ok(RingPush { sender, receiver, slots_count: u64::from(args.slots_count) })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        self.fill();
        ensure(!C::push(&mut self.sender, 0), || "an item was pushed to the full ring")?;
        self.pop_all()
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.is_running() {
            let began = clock::ticks();
            self.fill();
            out.record_batch(0, clock::ticks().saturating_sub(began), self.slots_count);
            while C::pop(&mut self.receiver).is_some() {}
        }
    }
}
