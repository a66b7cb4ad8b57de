//! Values posted to many subscribers on the same thread.

use super::own::{CountingPolicy, Payload32, new_payload32};
use crate::common::check_counts;
use crate::event::drive::{Reaction, ReplyPolicy as _};
use handover_event::{
    Address, Config, Context, Group, GroupMember, Handler, PoolArc, Publisher, ThreadConfig, Topic,
};
use handover_harness::{Fault, Samples, Setup, Workload};
use handover_record::{Spec, args};
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;

args! {
    /// Arguments of the benchmark of a topic.
    pub struct TopicArgs {
        /// Subscribers of the topic.
        subscribers_count: u32 = 10 (smoke 3, range 1..=1000)
    }
}

/// Declaration of the benchmark of values that many subscribers read.
const POST_SPEC: Spec = Spec::new(
    "event/post",
    "32-byte message published to subscribers_count subscribers on one thread: created, read by each, released \
     (the floor: one number, read once)",
)
.floor("event/array");

/// Check that a subscriber reads each value once, and in order.
#[derive(Clone, Copy, Default)]
struct ReadCheck {
    /// Number of the last value read.
    last: u64,
    /// Number of values out of order.
    wrong: u64,
}

impl ReadCheck {
    /// Checks a value; returns its number.
    #[inline]
    fn read(&mut self, payload: &Payload32) -> u64 {
        let number = payload[0];
        self.wrong += u64::from(number != self.last + 1);
        self.last = number;
        number
    }
}

/// Fails unless every reader has read all values without an error.
fn check_all_read<'a>(
    readers: impl Iterator<Item = &'a ReadCheck>,
    readers_count: usize,
    posted_count: u64,
) -> Result<(), Fault> {
    let complete = readers.filter(|it| it.last == posted_count && it.wrong == 0).count();
    check_counts("subscribers that have read all", [complete as u64], [readers_count as u64])
}

/// Maximum number of values that are in use at a time.
const VALUES_MAX: u32 = 4;
/// Capacity of an inbox or a queue, in messages.
const INBOX_MESSAGES: u32 = 4;

/// Message that makes the posting machine post its next value. Its other messages are numbers of
/// values.
const START: u64 = u64::MAX;

/// Handler of the posting machine. It posts a value when the last subscriber has read the previous
/// one, or to start.
pub(super) struct Poster {
    publisher: Publisher<Payload32>,
    policy: CountingPolicy,
}

impl Handler for Poster {
    type Message = u64;

    #[inline]
    fn handle(&mut self, number: u64, cx: &mut Context<'_, u64>) {
        // A refused message leaves work undone, which the self-test finds.
        let is_last = number != START && self.policy.received(number) == Reaction::Stop;
        let next = new_payload32(self.policy.last + 1);
        if is_last || !cx.post(&mut self.publisher, next).is_ok_and(|it| it.refused_count == 0) {
            cx.stop();
        }
    }
}

/// Handler of a subscriber, which checks the values.
pub(super) struct Subscriber {
    read: ReadCheck,
    /// Address of the posting machine; `Some` only for the last subscriber, which notifies it.
    poster: Option<Address<u64>>,
}

impl Handler for Subscriber {
    type Message = PoolArc<Payload32>;

    #[inline]
    fn handle(&mut self, payload: PoolArc<Payload32>, cx: &mut Context<'_, PoolArc<Payload32>>) {
        let number = self.read.read(&payload);
        drop(payload);
        let sent = self.poster.as_ref().map(|poster| cx.send_to(poster, number));
        if matches!(sent, Some(Err(_))) {
            cx.stop(); // the self-test finds the missing messages
        }
    }
}

/// Workload: a group of a posting machine and its subscribers.
pub(super) struct TopicGroup {
    group: Group,
    poster: GroupMember<Poster>,
    subscribers: Vec<GroupMember<Subscriber>>,
}

impl TopicGroup {
    /// Posts `count` values, each after the last subscriber has read the previous one.
    fn post_values(&mut self, count: u64) -> Result<(), Fault> {
        let gone = || {
            Fault::new("the publishing machine is no longer in the group (removed during the run?)")
        };
        let poster = self.group.handler_mut(&self.poster).ok_or_else(gone)?;
        poster.policy.left = count;
        // The machine itself posts, so that values to many subscribers, of which few are posted at
        // a time, take the same path as values to few.
        let mut poster = self.group.context(&self.poster).ok_or_else(gone)?;
        poster.send_quiet(START).map_err(Fault::from_error)?;
        self.group.run().map_err(Fault::from_error)?;
        match self.group.handler(&self.poster).ok_or_else(gone)?.policy.left {
            0 => Ok(()),
            left => Err(Fault::new(format!("{left} of {count} values were not posted"))),
        }
    }
}

impl Workload for TopicGroup {
    type Args = TopicArgs;
    const SPEC: Spec = POST_SPEC;

    fn setup(args: &TopicArgs, _: &mut Setup) -> Result<Self, Fault> {
        let machines_max = args.subscribers_count + 1;
        let thread = ThreadConfig::default().machines_max(machines_max);
        let config = Config::default().inbox_messages_max(INBOX_MESSAGES);
        let mut group = Group::new(thread).map_err(Fault::from_error)?;
        let topic = Topic::new();
        let publisher = topic.publisher(VALUES_MAX);
        let poster = Poster { publisher, policy: CountingPolicy::default() };
        let poster = group.add(poster, config).map_err(Fault::from_error)?;
        let mut subscribers = Vec::new();
        for left in (0..args.subscribers_count).rev() {
            let poster = (left == 0).then(|| poster.address().clone());
            let subscriber = Subscriber { read: ReadCheck::default(), poster };
            let subscriber = group.add(subscriber, config).map_err(Fault::from_error)?;
            topic.subscribe(subscriber.address(), |payload| payload);
            subscribers.push(subscriber);
        }
        Ok(TopicGroup { group, poster, subscribers })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        self.post_values(10)?;
        self.post_values(100)?;
        let readers = self.subscribers.iter().filter_map(|it| self.group.handler(it));
        check_all_read(readers.map(|it| &it.read), self.subscribers.len(), 110)
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| self.post_values(n).expect("cannot publish the values"));
    }
}

/// Function that checks a subscriber's value. A pointer, so that the calls are not inlined.
type ReadPayload = fn(&mut ReadCheck, Arc<Payload32>);

fn read_payload(read: &mut ReadCheck, payload: Arc<Payload32>) {
    read.read(&payload);
}

/// Compared implementation: a `VecDeque` for each subscriber, with an `Arc` of each value.
pub(super) struct TopicDeques {
    queues: Vec<(VecDeque<Arc<Payload32>>, ReadCheck)>,
    /// Function that checks a value that a subscriber has read.
    read_payload: ReadPayload,
    /// Number of values posted so far.
    posted: u64,
}

impl TopicDeques {
    /// Posts `count` values; each subscriber reads a value before the next one is posted.
    fn post_values(&mut self, count: u64) {
        for _ in 0..count {
            self.posted += 1;
            let payload = Arc::new(new_payload32(self.posted));
            for (queue, _) in &mut self.queues {
                queue.push_back(Arc::clone(&payload));
            }
            drop(payload);
            for (queue, read) in &mut self.queues {
                while let Some(payload) = queue.pop_front() {
                    (self.read_payload)(read, payload);
                }
            }
        }
    }
}

impl Workload for TopicDeques {
    type Args = TopicArgs;
    const SPEC: Spec = POST_SPEC;

    fn setup(args: &TopicArgs, _: &mut Setup) -> Result<Self, Fault> {
        let queue = || (VecDeque::with_capacity(INBOX_MESSAGES as usize), ReadCheck::default());
        let queues = std::iter::repeat_with(queue).take(args.subscribers_count as usize).collect();
        Ok(TopicDeques { queues, read_payload: black_box(read_payload), posted: 0 })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        self.post_values(110);
        check_all_read(self.queues.iter().map(|(_, read)| read), self.queues.len(), 110)
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| self.post_values(n));
    }
}

#[cfg(feature = "peers")]
mod broadcast {
    use super::*;
    use crate::channels::{Queue, Tokio};
    use std::sync::{Mutex, PoisonError};
    use tokio::runtime::Runtime;
    use tokio::sync::{broadcast, mpsc};

    /// Compared implementation: `tokio::sync::broadcast` to tasks on one thread, the last of which
    /// notifies the poster.
    pub(crate) struct BroadcastGroup {
        runtime: Runtime,
        sender: broadcast::Sender<Arc<Payload32>>,
        /// Receiver of the number of each value that the last subscriber has read.
        last_read: mpsc::Receiver<u64>,
        reads: Vec<Arc<Mutex<ReadCheck>>>,
        /// Number of values posted so far.
        posted: u64,
    }

    impl BroadcastGroup {
        /// Posts `count` values, each after the last subscriber has read the previous one.
        fn post_values(&mut self, count: u64) {
            let Self { runtime, sender, last_read, posted, .. } = self;
            runtime.block_on(async {
                for _ in 0..count {
                    *posted += 1;
                    // Never fails: the subscribers live as long as the runtime.
                    let _ = sender.send(Arc::new(new_payload32(*posted)));
                    let _ = last_read.recv().await;
                }
            });
        }
    }

    impl Workload for BroadcastGroup {
        type Args = TopicArgs;
        const SPEC: Spec = POST_SPEC;

        fn setup(args: &TopicArgs, _: &mut Setup) -> Result<Self, Fault> {
            let runtime = Tokio::runtime()?;
            let (sender, _) = broadcast::channel::<Arc<Payload32>>(VALUES_MAX as usize);
            let (tell, last_read) = mpsc::channel(1);
            let mut reads = Vec::new();
            for left in (0..args.subscribers_count).rev() {
                let mut receiver = sender.subscribe();
                let tell = (left == 0).then(|| tell.clone());
                let read = Arc::<Mutex<ReadCheck>>::default();
                reads.push(Arc::clone(&read));
                runtime.spawn(async move {
                    let mut mine = ReadCheck::default();
                    while let Ok(payload) = receiver.recv().await {
                        let number = mine.read(&payload);
                        drop(payload);
                        if let Some(tell) = &tell {
                            let _ = tell.send(number).await; // fails only at the end of the round
                        }
                        if number == CHECKED_VALUES_COUNT {
                            *read.lock().unwrap_or_else(PoisonError::into_inner) = mine;
                        }
                    }
                });
            }
            Ok(BroadcastGroup { runtime, sender, last_read, reads, posted: 0 })
        }

        fn self_test(&mut self) -> Result<(), Fault> {
            self.post_values(CHECKED_VALUES_COUNT);
            // Lets the remaining subscribers read.
            self.runtime.block_on(tokio::task::yield_now());
            let read =
                |it: &Arc<Mutex<ReadCheck>>| *it.lock().unwrap_or_else(PoisonError::into_inner);
            let reads: Vec<ReadCheck> = self.reads.iter().map(read).collect();
            check_all_read(reads.iter(), self.reads.len(), CHECKED_VALUES_COUNT)
        }

        fn sample(&mut self, out: &mut Samples) {
            out.time_batches(|n| self.post_values(n));
        }
    }

    /// Number of values that the self-test posts. After the last of them, each subscriber publishes
    /// its [`ReadCheck`].
    const CHECKED_VALUES_COUNT: u64 = 110;
}

#[cfg(feature = "peers")]
pub(super) use broadcast::BroadcastGroup;
