//! Our rings and their peers, behind one trait: bounded queues that are polled at both ends.
//!
//! Every queue is called without blocking, so that all wait in the same way: with [`Pause`].

use handover_harness::{Fault, Rig};
use handover_ring::{mpsc, spsc};
use std::{fmt, sync::mpsc as std_mpsc};

/// A bounded queue that is polled at both ends.
pub(crate) trait Channel<T = u64>: 'static {
    /// The pushing end.
    type Sender: Send + 'static;
    /// The popping end.
    type Receiver: Send + 'static;

    fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault>;
    /// Pushes an item; returns `false` if the queue is full.
    fn push(sender: &mut Self::Sender, item: T) -> bool;
    fn pop(receiver: &mut Self::Receiver) -> Option<T>;
    /// Publishes pushed items, as no further item follows soon.
    fn flush(_: &mut Self::Sender) {}
}

/// A queue that pushes and pops several items at once.
pub(crate) trait Batched: Channel {
    /// Pushes as many of these items as there is room for; returns their number.
    fn push_some(sender: &mut Self::Sender, items: &mut std::ops::Range<u64>) -> usize;
    /// Pops at most `items_max` items; returns their number.
    fn pop_some(receiver: &mut Self::Receiver, items_max: usize, each: impl FnMut(u64)) -> usize;
}

/// Wait between two polls: none if each participant has a CPU, otherwise a yield.
#[derive(Clone, Copy)]
pub(crate) struct Pause {
    yields: bool,
}

impl Pause {
    pub(crate) fn of(rig: &Rig) -> Pause {
        let mut cpus = rig.cpus().to_vec();
        cpus.sort_unstable();
        cpus.dedup();
        Pause { yields: cpus.len() < rig.cpus().len() }
    }

    #[inline(always)]
    pub(crate) fn once(self) {
        if self.yields {
            rustix::thread::sched_yield();
        }
    }

    /// Polls until `look` returns a value.
    #[inline(always)]
    pub(crate) fn until<T>(self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = look() {
                return found;
            }
            self.once();
        }
    }

    /// Polls until `attempt` succeeds.
    #[inline(always)]
    pub(crate) fn until_done(self, mut attempt: impl FnMut() -> bool) {
        while !attempt() {
            self.once();
        }
    }
}

fn refused(error: impl fmt::Display) -> Fault {
    Fault::new(error.to_string())
}

/// Our ring with one producer; if `LATER`, published as cache lines fill.
pub(crate) enum Spsc<const LATER: bool = false> {}

impl<const LATER: bool> Channel for Spsc<LATER> {
    type Sender = spsc::Producer<u64>;
    type Receiver = spsc::Consumer<u64>;

    fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
        spsc::ring(slots_count).map_err(refused)
    }
    #[inline(always)]
    fn push(sender: &mut Self::Sender, item: u64) -> bool {
        if LATER { sender.push_later(item).is_ok() } else { sender.push(item).is_ok() }
    }
    #[inline(always)]
    fn pop(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.pop()
    }
    #[inline(always)]
    fn flush(sender: &mut Self::Sender) {
        if LATER {
            sender.flush();
        }
    }
}

impl Batched for Spsc {
    #[inline(always)]
    fn push_some(sender: &mut Self::Sender, items: &mut std::ops::Range<u64>) -> usize {
        sender.push_batch(items)
    }
    #[inline(always)]
    fn pop_some(receiver: &mut Self::Receiver, items_max: usize, each: impl FnMut(u64)) -> usize {
        receiver.pop_batch(items_max, each)
    }
}

/// Our ring with many producers.
pub(crate) enum Mpsc {}

impl Channel for Mpsc {
    type Sender = mpsc::Producer<u64>;
    type Receiver = mpsc::Consumer<u64>;

    fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
        mpsc::ring(slots_count).map_err(refused)
    }
    #[inline(always)]
    fn push(sender: &mut Self::Sender, item: u64) -> bool {
        sender.push(item).is_ok()
    }
    #[inline(always)]
    fn pop(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.pop()
    }
}

impl Batched for Mpsc {
    #[inline(always)]
    fn push_some(sender: &mut Self::Sender, items: &mut std::ops::Range<u64>) -> usize {
        // A `Range<u64>` is no `ExactSizeIterator`, as its length may exceed a usize; that of these
        // items does not.
        let first = items.start;
        let mut exact = (0..(items.end - first) as usize).map(|it| first + it as u64);
        let pushed = sender.push_batch(&mut exact);
        items.start += pushed as u64;
        pushed
    }
    #[inline(always)]
    fn pop_some(receiver: &mut Self::Receiver, items_max: usize, each: impl FnMut(u64)) -> usize {
        receiver.pop_batch(items_max, each)
    }
}

/// Defines a queue with the interface of `std::sync::mpsc`.
macro_rules! as_in_std {
    ($(#[$doc:meta])* $name:ident: $queue:ident, $sender:ident, $bounded:ident) => {
        $(#[$doc])*
        pub(crate) enum $name {}

        impl<T: Send + 'static> Channel<T> for $name {
            type Sender = $queue::$sender<T>;
            type Receiver = $queue::Receiver<T>;

            fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
                Ok($queue::$bounded(slots_count as usize))
            }
            #[inline(always)]
            fn push(sender: &mut Self::Sender, item: T) -> bool {
                sender.try_send(item).is_ok()
            }
            #[inline(always)]
            fn pop(receiver: &mut Self::Receiver) -> Option<T> {
                receiver.try_recv().ok()
            }
        }
    };
}

as_in_std! {
    /// `std::sync::mpsc`.
    Std: std_mpsc, SyncSender, sync_channel
}

#[cfg(feature = "peers")]
mod peers {
    use super::*;
    use disruptor::{
        BusySpin, EventPoller, MissingFreeSlots, MultiProducer, MultiProducerBarrier, Producer,
        SingleConsumerBarrier, SingleProducer, SingleProducerBarrier,
    };
    use std::sync::Arc;

    /// `rtrb`.
    pub(crate) enum Rtrb {}

    impl<T: Send + 'static> Channel<T> for Rtrb {
        type Sender = rtrb::Producer<T>;
        type Receiver = rtrb::Consumer<T>;

        fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
            Ok(rtrb::RingBuffer::new(slots_count as usize))
        }
        #[inline(always)]
        fn push(sender: &mut Self::Sender, item: T) -> bool {
            sender.push(item).is_ok()
        }
        #[inline(always)]
        fn pop(receiver: &mut Self::Receiver) -> Option<T> {
            receiver.pop().ok()
        }
    }

    impl Batched for Rtrb {
        #[inline(always)]
        fn push_some(sender: &mut Self::Sender, items: &mut std::ops::Range<u64>) -> usize {
            let wanted = (items.end - items.start) as usize;
            let chunk = match sender.write_chunk_uninit(wanted) {
                Ok(chunk) => chunk,
                Err(rtrb::chunks::ChunkError::TooFewSlots(0)) => return 0,
                Err(rtrb::chunks::ChunkError::TooFewSlots(vacant)) => {
                    match sender.write_chunk_uninit(vacant) {
                        Ok(chunk) => chunk,
                        Err(_) => return 0,
                    }
                }
            };
            chunk.fill_from_iter(items)
        }
        #[inline(always)]
        fn pop_some(
            receiver: &mut Self::Receiver,
            items_max: usize,
            each: impl FnMut(u64),
        ) -> usize {
            let chunk = match receiver.read_chunk(items_max) {
                Ok(chunk) => chunk,
                Err(rtrb::chunks::ChunkError::TooFewSlots(0)) => return 0,
                Err(rtrb::chunks::ChunkError::TooFewSlots(ready)) => {
                    match receiver.read_chunk(ready) {
                        Ok(chunk) => chunk,
                        Err(_) => return 0,
                    }
                }
            };
            let count = chunk.len();
            chunk.into_iter().for_each(each);
            count
        }
    }

    as_in_std! {
        /// `crossbeam-channel`.
        Crossbeam: crossbeam_channel, Sender, bounded
    }

    /// `crossbeam-queue`'s `ArrayQueue`.
    pub(crate) enum ArrayQueue {}

    impl<T: Send + 'static> Channel<T> for ArrayQueue {
        type Sender = Arc<crossbeam_queue::ArrayQueue<T>>;
        type Receiver = Arc<crossbeam_queue::ArrayQueue<T>>;

        fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
            let queue = Arc::new(crossbeam_queue::ArrayQueue::new(slots_count as usize));
            Ok((Arc::clone(&queue), queue))
        }
        #[inline(always)]
        fn push(sender: &mut Self::Sender, item: T) -> bool {
            sender.push(item).is_ok()
        }
        #[inline(always)]
        fn pop(receiver: &mut Self::Receiver) -> Option<T> {
            receiver.pop()
        }
    }

    /// `disruptor`, polled; with one producer or, if `MANY`, with several.
    pub(crate) enum Disruptor<const MANY: bool> {}

    /// Implements the queue for one kind of producer.
    macro_rules! disruptor {
        ($many:literal, $build:ident, $producer:ident, $barrier:ident, $slots_min:literal) => {
            impl Channel for Disruptor<$many> {
                type Sender = $producer<u64, SingleConsumerBarrier>;
                type Receiver = EventPoller<u64, $barrier>;

                fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
                    let slots_count = slots_count.next_power_of_two().max($slots_min);
                    let builder = disruptor::$build(slots_count as usize, || 0, BusySpin);
                    let (receiver, builder) = builder.new_event_poller();
                    Ok((builder.build(), receiver))
                }
                #[inline(always)]
                fn push(sender: &mut Self::Sender, item: u64) -> bool {
                    sender.try_publish(|slot| *slot = item).is_ok()
                }
                #[inline(always)]
                fn pop(receiver: &mut Self::Receiver) -> Option<u64> {
                    // The item's slot is free when the guard is dropped.
                    let mut items = receiver.take(1).ok()?;
                    (&mut items).next().copied()
                }
            }
        };
    }

    disruptor!(false, build_single_producer, SingleProducer, SingleProducerBarrier, 1);
    // The crate refuses fewer slots.
    disruptor!(true, build_multi_producer, MultiProducer, MultiProducerBarrier, 64);

    impl Batched for Disruptor<false> {
        #[inline(always)]
        fn push_some(sender: &mut Self::Sender, items: &mut std::ops::Range<u64>) -> usize {
            let mut wanted = (items.end - items.start) as usize;
            loop {
                match sender.try_batch_publish(wanted, |slots| {
                    slots.zip(&mut *items).for_each(|(slot, item)| *slot = item);
                }) {
                    Ok(_) => return wanted,
                    Err(MissingFreeSlots(missing)) if (missing as usize) < wanted => {
                        wanted -= missing as usize;
                    }
                    Err(_) => return 0,
                }
            }
        }
        #[inline(always)]
        fn pop_some(
            receiver: &mut Self::Receiver,
            items_max: usize,
            each: impl FnMut(u64),
        ) -> usize {
            match receiver.take(items_max as u64) {
                Ok(mut items) => {
                    let items = &mut items;
                    let count = items.len();
                    items.copied().for_each(each);
                    count
                }
                Err(_) => 0,
            }
        }
    }

    /// `kanal`.
    pub(crate) enum Kanal {}

    impl<T: Send + 'static> Channel<T> for Kanal {
        type Sender = kanal::Sender<T>;
        type Receiver = kanal::Receiver<T>;

        fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
            Ok(kanal::bounded(slots_count as usize))
        }
        #[inline(always)]
        fn push(sender: &mut Self::Sender, item: T) -> bool {
            matches!(sender.try_send(item), Ok(true))
        }
        #[inline(always)]
        fn pop(receiver: &mut Self::Receiver) -> Option<T> {
            receiver.try_recv().ok().flatten()
        }
    }

    as_in_std! {
        /// `flume`.
        Flume: flume, Sender, bounded
    }
}

/// Queues of C++ libraries.
#[cfg(all(feature = "peers", any(handover_boost_lockfree, handover_moodycamel)))]
mod foreign {
    use super::*;
    use crate::raw::peers::queues::{self, Functions, Receiver, Sender};

    /// Maximum number of items that are passed to a library together.
    const ITEMS_MAX: usize = 64;

    /// A queue of a C++ library, called through a function of C.
    pub(crate) struct Foreign<F>(std::marker::PhantomData<F>);

    impl<F: Functions> Channel for Foreign<F> {
        type Sender = Sender<F>;
        type Receiver = Receiver<F>;

        fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
            queues::pair(slots_count as usize).ok_or_else(|| Fault::new("no memory for the queue"))
        }
        #[inline(always)]
        fn push(sender: &mut Self::Sender, item: u64) -> bool {
            sender.push(&[item]) == 1
        }
        #[inline(always)]
        fn pop(receiver: &mut Self::Receiver) -> Option<u64> {
            let mut item = [0];
            (receiver.pop(&mut item) == 1).then_some(item[0])
        }
    }

    impl<F: Functions> Batched for Foreign<F> {
        #[inline(always)]
        fn push_some(sender: &mut Self::Sender, items: &mut std::ops::Range<u64>) -> usize {
            let mut batch = [0; ITEMS_MAX];
            let count = (items.end - items.start).min(ITEMS_MAX as u64) as usize;
            for (slot, item) in batch[..count].iter_mut().zip(items.start..) {
                *slot = item;
            }
            let pushed = sender.push(&batch[..count]);
            items.start += pushed as u64;
            pushed
        }
        #[inline(always)]
        fn pop_some(
            receiver: &mut Self::Receiver,
            items_max: usize,
            each: impl FnMut(u64),
        ) -> usize {
            let mut batch = [0; ITEMS_MAX];
            let popped = receiver.pop(&mut batch[..items_max.min(ITEMS_MAX)]);
            batch[..popped].iter().copied().for_each(each);
            popped
        }
    }
}

#[cfg(all(feature = "peers", any(handover_boost_lockfree, handover_moodycamel)))]
pub(crate) use foreign::Foreign;
#[cfg(feature = "peers")]
pub(crate) use peers::{ArrayQueue, Crossbeam, Disruptor, Flume, Kanal, Rtrb};
