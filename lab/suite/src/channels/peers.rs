//! Queues of other libraries.

use super::{BatchChannel, Channel, Queue, as_in_std, run_at_once};
use disruptor::{
    BusySpin, EventPoller, MissingFreeSlots, MultiProducer, MultiProducerBarrier, Producer,
    SingleConsumerBarrier, SingleProducer, SingleProducerBarrier,
};
use handover_harness::Fault;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

as_in_std! {
    Crossbeam: crossbeam_channel::Sender<T>, crossbeam_channel::Receiver<T>,
    crossbeam_channel::bounded, Ok(()), Some
}

as_in_std! {
    Kanal: kanal::Sender<T>, kanal::Receiver<T>, kanal::bounded, Ok(true), |found| found
}

as_in_std! {
    Flume: flume::Sender<T>, flume::Receiver<T>, flume::bounded, Ok(()), Some
}

/// Ring of the crate `rtrb`.
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

impl BatchChannel for Rtrb {
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
    fn pop_some(receiver: &mut Self::Receiver, items_max: usize, each: impl FnMut(u64)) -> usize {
        let chunk = match receiver.read_chunk(items_max) {
            Ok(chunk) => chunk,
            Err(rtrb::chunks::ChunkError::TooFewSlots(0)) => return 0,
            Err(rtrb::chunks::ChunkError::TooFewSlots(ready)) => match receiver.read_chunk(ready) {
                Ok(chunk) => chunk,
                Err(_) => return 0,
            },
        };
        let count = chunk.len();
        chunk.into_iter().for_each(each);
        count
    }
}

/// `ArrayQueue` of the crate `crossbeam_queue`.
pub(crate) enum ArrayQueue {}

impl BatchChannel for ArrayQueue {}

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

/// Queue of the crate `disruptor`, with several producers if `MANY`, otherwise with one.
pub(crate) enum Disruptor<const MANY: bool> {}

/// Implements [`Channel`] for `disruptor` with one kind of producer.
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

impl BatchChannel for Disruptor<false> {
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
    fn pop_some(receiver: &mut Self::Receiver, items_max: usize, each: impl FnMut(u64)) -> usize {
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

/// Implements [`Queue`] for `tokio::sync::mpsc`, awaited by threads in a tokio runtime of one kind.
macro_rules! tokio_in {
    ($(#[$doc:meta])* $name:ident, $runtime:ty, $made:expr) => {
        $(#[$doc])*
        pub(crate) enum $name {}

        impl Queue for $name {
            type Sender<T: Send + 'static> = mpsc::Sender<T>;
            type Receiver<T: Send + 'static> = mpsc::Receiver<T>;
            type Runtime = $runtime;

            fn runtime() -> Result<$runtime, Fault> {
                $made.map_err(|error: io::Error| Fault::new(format!("cannot create a tokio runtime: {error}")))
            }
            fn pair<T: Send + 'static>(slots_count: u32) -> (Self::Sender<T>, Self::Receiver<T>) {
                mpsc::channel(slots_count as usize)
            }
            #[inline(always)]
            async fn send<T: Send + 'static>(sender: &Self::Sender<T>, item: T) -> bool {
                sender.send(item).await.is_ok()
            }
            #[inline(always)]
            async fn receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> Option<T> {
                receiver.recv().await
            }
            #[inline(always)]
            fn try_receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> Option<T> {
                receiver.try_recv().ok()
            }
            #[inline(always)]
            fn run<R>(runtime: &$runtime, work: impl Future<Output = R>) -> R {
                runtime.block_on(work)
            }
        }
    };
}

tokio_in! {
    /// `tokio::sync::mpsc`, with a single-threaded runtime for each thread.
    Tokio, Runtime, Builder::new_current_thread().build()
}

tokio_in! {
    /// `tokio::sync::mpsc`, with one multi-threaded runtime for all threads; its worker has nothing
    /// to do.
    TokioMulti, Arc<Runtime>, shared_runtime()
}

/// Returns the multi-threaded runtime that all current users share; creates it if there is none.
fn shared_runtime() -> io::Result<Arc<Runtime>> {
    static SHARED_RUNTIME: Mutex<Weak<Runtime>> = Mutex::new(Weak::new());
    let mut shared = SHARED_RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = shared.upgrade() {
        return Ok(runtime);
    }
    let runtime = Arc::new(Builder::new_multi_thread().worker_threads(1).build()?);
    *shared = Arc::downgrade(&runtime);
    Ok(runtime)
}
