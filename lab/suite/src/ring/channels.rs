//! Our rings and their peers, behind one trait: bounded, polled, eight bytes per item.
//!
//! Every queue is called without blocking, so that all wait in the same way: with [`Pause`].

use handover_harness::{Fault, Rig};
use handover_ring::{mpsc, spsc};
use std::{fmt, sync::mpsc as std_mpsc};

/// A bounded queue that is polled at both ends.
pub(super) trait Channel: 'static {
    /// The pushing end.
    type Sender: Send + 'static;
    /// The popping end.
    type Receiver: Send + 'static;

    fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault>;
    /// Pushes an item; returns `false` if the queue is full.
    fn push(sender: &mut Self::Sender, item: u64) -> bool;
    fn pop(receiver: &mut Self::Receiver) -> Option<u64>;
    /// Publishes pushed items, as no further item follows soon.
    fn flush(_: &mut Self::Sender) {}
}

/// A queue that pushes and pops several items at once.
pub(super) trait Batched: Channel {
    /// Pushes as many of these items as there is room for; returns their number.
    fn push_some(sender: &mut Self::Sender, items: &mut std::ops::Range<u64>) -> usize;
    /// Pops at most `items_max` items; returns their number.
    fn pop_some(receiver: &mut Self::Receiver, items_max: usize, each: impl FnMut(u64)) -> usize;
}

/// Wait between two polls: none if each participant has a CPU, otherwise a yield.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    yields: bool,
}

impl Pause {
    pub(super) fn of(rig: &Rig) -> Pause {
        let mut cpus = rig.cpus().to_vec();
        cpus.sort_unstable();
        cpus.dedup();
        Pause { yields: cpus.len() < rig.cpus().len() }
    }

    #[inline(always)]
    pub(super) fn once(self) {
        if self.yields {
            rustix::thread::sched_yield();
        }
    }

    /// Polls until `look` returns a value.
    #[inline(always)]
    pub(super) fn until<T>(self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = look() {
                return found;
            }
            self.once();
        }
    }

    /// Polls until `attempt` succeeds.
    #[inline(always)]
    pub(super) fn until_done(self, mut attempt: impl FnMut() -> bool) {
        while !attempt() {
            self.once();
        }
    }
}

fn refused(error: impl fmt::Display) -> Fault {
    Fault::new(error.to_string())
}

/// Our ring with one producer; if `LATER`, published as cache lines fill.
pub(super) enum Spsc<const LATER: bool = false> {}

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
pub(super) enum Mpsc {}

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
        pub(in crate::ring) enum $name {}

        impl Channel for $name {
            type Sender = $queue::$sender<u64>;
            type Receiver = $queue::Receiver<u64>;

            fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
                Ok($queue::$bounded(slots_count as usize))
            }
            #[inline(always)]
            fn push(sender: &mut Self::Sender, item: u64) -> bool {
                sender.try_send(item).is_ok()
            }
            #[inline(always)]
            fn pop(receiver: &mut Self::Receiver) -> Option<u64> {
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
    use std::sync::Arc;

    /// `rtrb`.
    pub(in crate::ring) enum Rtrb {}

    impl Channel for Rtrb {
        type Sender = rtrb::Producer<u64>;
        type Receiver = rtrb::Consumer<u64>;

        fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
            Ok(rtrb::RingBuffer::new(slots_count as usize))
        }
        #[inline(always)]
        fn push(sender: &mut Self::Sender, item: u64) -> bool {
            sender.push(item).is_ok()
        }
        #[inline(always)]
        fn pop(receiver: &mut Self::Receiver) -> Option<u64> {
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
    pub(in crate::ring) enum ArrayQueue {}

    impl Channel for ArrayQueue {
        type Sender = Arc<crossbeam_queue::ArrayQueue<u64>>;
        type Receiver = Arc<crossbeam_queue::ArrayQueue<u64>>;

        fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
            let queue = Arc::new(crossbeam_queue::ArrayQueue::new(slots_count as usize));
            Ok((Arc::clone(&queue), queue))
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

    /// `kanal`.
    pub(in crate::ring) enum Kanal {}

    impl Channel for Kanal {
        type Sender = kanal::Sender<u64>;
        type Receiver = kanal::Receiver<u64>;

        fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
            Ok(kanal::bounded(slots_count as usize))
        }
        #[inline(always)]
        fn push(sender: &mut Self::Sender, item: u64) -> bool {
            sender.try_send(item) == Ok(true)
        }
        #[inline(always)]
        fn pop(receiver: &mut Self::Receiver) -> Option<u64> {
            receiver.try_recv().ok().flatten()
        }
    }

    as_in_std! {
        /// `flume`.
        Flume: flume, Sender, bounded
    }
}

#[cfg(feature = "peers")]
pub(super) use peers::{ArrayQueue, Crossbeam, Flume, Kanal, Rtrb};
