//! This project's rings and the compared ones, behind one trait: bounded queues that are polled at
//! both ends.
//!
//! A [`Channel`] is called without blocking, so that all wait in the same way: with [`PollPause`].
//! A [`Queue`] waits in its own way. Sending to it and receiving are asynchronous, since one of the
//! peers is; with the others the futures are ready at once, after the thread has waited, and
//! compile to plain calls.

#[cfg(feature = "peers")]
mod peers;

use crate::raw::clock::load_fence;
use handover_base::clock;
use handover_harness::{Fault, Setup};
use handover_ring::queue::{self as rings, Pop, Push};
use handover_ring::spsc;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A bounded queue whose operations never wait; the caller polls until they succeed.
pub(crate) trait Channel<T = u64>: 'static {
    type Sender: Send + 'static;
    type Receiver: Send + 'static;

    /// Creates a queue with `slots_count` slots; returns its sender and its receiver.
    fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault>;
    /// Pushes an item; returns `false` if the queue is full.
    fn push(sender: &mut Self::Sender, item: T) -> bool;
    /// Pops the next item; `None` if the queue is empty.
    fn pop(receiver: &mut Self::Receiver) -> Option<T>;
    /// Makes all pushed items visible to the receiver, for a queue that delays this.
    fn flush(_: &mut Self::Sender) {}
}

/// A queue to which several items are pushed together, and from which they are popped together: in
/// one operation if the queue has such operations, otherwise one by one.
pub(crate) trait BatchChannel: Channel {
    /// Pushes the first of `items` that fit, and removes them from the range; returns their number.
    #[inline(always)]
    fn push_some(sender: &mut Self::Sender, items: &mut std::ops::Range<u64>) -> usize {
        let first = items.start;
        while items.start < items.end && Self::push(sender, items.start) {
            items.start += 1;
        }
        Self::flush(sender);
        (items.start - first) as usize
    }
    /// Pops at most `items_max` items, and calls `each` with each of them; returns their number.
    #[inline(always)]
    fn pop_some(
        receiver: &mut Self::Receiver,
        items_max: usize,
        mut each: impl FnMut(u64),
    ) -> usize {
        let mut count = 0;
        while count < items_max
            && let Some(item) = Self::pop(receiver)
        {
            each(item);
            count += 1;
        }
        count
    }
}

/// Number of polls after which a waiting participant sleeps. They take about a millisecond, so that
/// the other participant probably does not run.
const POLLS_PER_SLEEP: u32 = 1 << 17;
/// Mask of the duration of such a sleep, in ns: up to 2 ms, at random. On a busy machine, threads
/// that wait without sleeping, or always for the same time, can get their CPUs in turn for seconds,
/// and make one step in each time slice. A random sleep lets them run at the same time soon.
const SLEEP_NS_MASK: u64 = (1 << 21) - 1;

/// Sleeps for a random time. Not inlined, so that the loops that wait stay small.
#[cold]
#[inline(never)]
fn sleep_at_random() {
    // The low bits of the clock are as good as random here.
    std::thread::sleep(Duration::from_nanos(clock::ticks() & SLEEP_NS_MASK));
}

/// Pause between two polls of a queue. It is a load fence or, if participants share a CPU, a yield
/// of the CPU. The same for every contender and floor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollPause {
    /// `true` to yield the CPU, `false` to execute a load fence.
    pub(crate) should_yield: bool,
}

impl PollPause {
    /// Creates the pause for a round with this setup.
    pub(crate) fn new(setup: &Setup) -> PollPause {
        PollPause { should_yield: setup.is_crowded() }
    }

    /// Returns the time in ns for which a participant polls before it sleeps: `spin_ns`, or 0 if
    /// participants share a CPU. Polls would keep the other participant from running.
    pub(crate) fn ns_before_sleep(self, spin_ns: u64) -> u64 {
        if self.should_yield { 0 } else { spin_ns }
    }

    /// Executes the load fence, or yields the CPU.
    #[inline(always)]
    pub(crate) fn pause_once(self) {
        if self.should_yield {
            rustix::thread::sched_yield();
        } else {
            load_fence();
        }
    }

    /// Calls `poll` until it returns a value, with a pause between two calls; returns that value.
    /// Sleeps after every [`POLLS_PER_SLEEP`] polls.
    #[inline(always)]
    pub(crate) fn poll_until_some<T>(self, mut poll: impl FnMut() -> Option<T>) -> T {
        let mut polls_left = POLLS_PER_SLEEP;
        loop {
            if let Some(found) = poll() {
                return found;
            }
            polls_left -= 1;
            if polls_left == 0 {
                sleep_at_random();
                polls_left = POLLS_PER_SLEEP;
            }
            self.pause_once();
        }
    }

    /// Calls `attempt` until it returns `true`, with a pause between two calls.
    #[inline(always)]
    pub(crate) fn poll_until_true(self, mut attempt: impl FnMut() -> bool) {
        self.poll_until_some(|| attempt().then_some(()));
    }
}

/// This project's ring with one producer and one consumer. If `PUBLISHES_LINES`, pushed items
/// become visible only when a cache line is full.
pub(crate) enum Spsc<const PUBLISHES_LINES: bool = false> {}

impl<const PUBLISHES_LINES: bool> Channel for Spsc<PUBLISHES_LINES> {
    type Sender = spsc::Producer<u64>;
    type Receiver = spsc::Consumer<u64>;

    fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
        spsc::ring(slots_count).map_err(Fault::from_error)
    }
    #[inline(always)]
    fn push(sender: &mut Self::Sender, item: u64) -> bool {
        if PUBLISHES_LINES {
            sender.push_unpublished(item).is_ok()
        } else {
            sender.push(item).is_ok()
        }
    }
    #[inline(always)]
    fn pop(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.pop()
    }
    #[inline(always)]
    fn flush(sender: &mut Self::Sender) {
        if PUBLISHES_LINES {
            sender.flush();
        }
    }
}

impl BatchChannel for Spsc {
    #[inline(always)]
    fn push_some(sender: &mut Self::Sender, items: &mut std::ops::Range<u64>) -> usize {
        sender.push_batch(items)
    }
    #[inline(always)]
    fn pop_some(receiver: &mut Self::Receiver, items_max: usize, each: impl FnMut(u64)) -> usize {
        receiver.pop_batch(items_max, each)
    }
}

/// This project's ring with several producers, and with one consumer or several, by its type `Q`.
pub(crate) struct MultiProducer<Q>(PhantomData<Q>);

/// This project's ring with several producers and one consumer.
pub(crate) type Mpsc = MultiProducer<rings::Mpsc>;

/// This project's ring with several producers and several consumers.
pub(crate) type Mpmc = MultiProducer<rings::Mpmc>;

impl<Q: rings::Queue + 'static> Channel for MultiProducer<Q> {
    type Sender = Q::Producer<u64>;
    type Receiver = Q::Consumer<u64>;

    fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
        Q::ring(slots_count).map_err(Fault::from_error)
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

impl<Q: rings::Queue + 'static> BatchChannel for MultiProducer<Q> {
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

/// Bounded queue with many senders and one receiver. Senders can wait for a free slot, and the
/// receiver for an item.
pub(crate) trait Queue: 'static {
    type Sender<T: Send + 'static>: Clone + Send + Sync + 'static;
    type Receiver<T: Send + 'static>: Send + 'static;
    /// State that each thread needs to send and receive, such as an async runtime.
    type Runtime: Send + 'static;

    /// Creates the state that a thread needs to send and receive.
    fn runtime() -> Result<Self::Runtime, Fault>;
    /// Creates a queue with `slots_count` slots; returns its sender and its receiver.
    fn pair<T: Send + 'static>(slots_count: u32) -> (Self::Sender<T>, Self::Receiver<T>);
    /// Waits for a free slot and sends the item; returns `false` if the receiver is disconnected.
    fn send<T: Send + 'static>(
        sender: &Self::Sender<T>,
        item: T,
    ) -> impl Future<Output = bool> + Send;
    /// Waits for an item and returns it; `None` if all senders are disconnected.
    fn receive<T: Send + 'static>(
        receiver: &mut Self::Receiver<T>,
    ) -> impl Future<Output = Option<T>> + Send;
    /// Returns the next item without waiting; `None` if the queue is empty.
    fn try_receive<T: Send + 'static>(receiver: &mut Self::Receiver<T>) -> Option<T>;
    /// Runs a future to completion on this thread; returns its output.
    fn run<R>(runtime: &Self::Runtime, work: impl Future<Output = R>) -> R;
}

/// Runs a future that is ready at its first poll, and returns its output. The future's operations
/// block the thread.
#[inline(always)]
fn run_at_once<R>(work: impl Future<Output = R>) -> R {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => {
            unreachable!("the future is pending, although its operations block the thread")
        }
    }
}

/// Implements [`Channel`] and [`Queue`] for a library with the interface of `std::sync::mpsc`.
macro_rules! as_in_std {
    ($(#[$doc:meta])* $name:ident: $sender:ty, $receiver:ty, $bounded:path, $sent:pat, $flat:expr) => {
        $(#[$doc])*
        pub(crate) enum $name {}

        impl<T: Send + 'static> Channel<T> for $name {
            type Sender = $sender;
            type Receiver = $receiver;

            fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
                Ok($bounded(slots_count as usize))
            }
            #[inline(always)]
            fn push(sender: &mut Self::Sender, item: T) -> bool {
                matches!(sender.try_send(item), $sent)
            }
            #[inline(always)]
            fn pop(receiver: &mut Self::Receiver) -> Option<T> {
                receiver.try_recv().ok().and_then($flat)
            }
        }

        impl Queue for $name {
            type Sender<T: Send + 'static> = $sender;
            type Receiver<T: Send + 'static> = $receiver;
            type Runtime = ();

            fn runtime() -> Result<(), Fault> {
                Ok(())
            }
            fn pair<T: Send + 'static>(slots_count: u32) -> ($sender, $receiver) {
                $bounded(slots_count as usize)
            }
            #[inline(always)]
            async fn send<T: Send + 'static>(sender: &$sender, item: T) -> bool {
                sender.send(item).is_ok()
            }
            #[inline(always)]
            async fn receive<T: Send + 'static>(receiver: &mut $receiver) -> Option<T> {
                receiver.recv().ok()
            }
            #[inline(always)]
            fn try_receive<T: Send + 'static>(receiver: &mut $receiver) -> Option<T> {
                receiver.try_recv().ok().and_then($flat)
            }
            #[inline(always)]
            fn run<R>((): &(), work: impl Future<Output = R>) -> R {
                run_at_once(work)
            }
        }
    };
}
#[cfg(feature = "peers")]
use as_in_std;

as_in_std! {
    /// The standard library's queue, `std::sync::mpsc`.
    Std: std::sync::mpsc::SyncSender<T>, std::sync::mpsc::Receiver<T>, std::sync::mpsc::sync_channel,
    Ok(()), Some
}

/// Adapters of the C++ libraries' queues.
#[cfg(all(feature = "peers", any(handover_boost_lockfree, handover_moodycamel)))]
mod foreign {
    use super::*;
    use crate::raw::peers::queues::{self, QueueFunctions, Receiver, Sender};

    /// Maximum number of items that one call passes to a library or takes from it.
    const ITEMS_MAX: usize = 64;

    /// A queue of a C++ library, called through C functions.
    pub(crate) struct CppQueue<F>(PhantomData<F>);

    impl<F: QueueFunctions> Channel for CppQueue<F> {
        type Sender = Sender<F>;
        type Receiver = Receiver<F>;

        fn pair(slots_count: u32) -> Result<(Self::Sender, Self::Receiver), Fault> {
            queues::pair(slots_count as usize)
                .ok_or_else(|| Fault::new("create a queue: out of memory"))
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

    impl<F: QueueFunctions> BatchChannel for CppQueue<F> {
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
pub(crate) use foreign::CppQueue;
#[cfg(feature = "peers")]
pub(crate) use peers::{ArrayQueue, Crossbeam, Disruptor, Flume, Kanal, Rtrb, Tokio, TokioMulti};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn participants_that_share_a_cpu_sleep_without_polls() {
        for (should_yield, ns) in [(true, 0), (false, 50_000)] {
            assert_eq!(PollPause { should_yield }.ns_before_sleep(50_000), ns);
        }
    }
}
