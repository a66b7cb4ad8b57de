//! Queues between polling threads: round trips, streams, use by one thread, many producers, and
//! many consumers.

mod line;

#[cfg(all(feature = "peers", any(handover_boost_lockfree, handover_moodycamel)))]
use crate::channels::CppQueue;
#[cfg(feature = "peers")]
use crate::channels::{ArrayQueue, Crossbeam, Disruptor, Flume, Kanal, Rtrb};
use crate::channels::{BatchChannel, Channel, Mpmc, Mpsc, PollPause, Spsc, Std};
use crate::common::{TakeCell, Tally, ensure};
use crate::floor::relay::{Relay, RelayMedium};
#[cfg(all(feature = "peers", any(handover_boost_lockfree, handover_moodycamel)))]
use crate::raw::peers::queues;
use handover_harness::{
    Bench, Fault, Handover, Participant, Region, Role, Samples, Setup, Workload, benches,
};
use handover_record::{Spec, args};
use handover_ring::mailbox;
use line::LineStream;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

args! {
    /// Arguments of the queue benchmarks with one producer and one consumer.
    pub struct QueueArgs {
        /// Slots in the queue.
        slots_count: u32 = 1024 (smoke 16, range 1..=65536)
    }
}

/// Value sent instead of an item, to end the round.
const END: u64 = u64::MAX / 2;

/// Medium of round trips: a queue in each direction between two threads.
struct QueueRoundTrip<C: Channel> {
    measured_ends: TakeCell<(C::Sender, C::Receiver)>,
    echo_ends: TakeCell<(C::Sender, C::Receiver)>,
    pause: PollPause,
}

/// Sender and receiver of the pinging participant, and the number of the last item.
type PingEnds<C> = (<C as Channel>::Sender, <C as Channel>::Receiver, u64);

impl<C: Channel> RelayMedium for QueueRoundTrip<C> {
    type Args = QueueArgs;
    const PROCESSES: bool = false;
    const SPEC: Spec = Spec::new(
        "ring/round-trip",
        "round trip of an item through two queues between two threads that poll",
    )
    .floor("floor/cache-line")
    .ladder()
    .hands_over()
    .batched();
    type PingState = PingEnds<C>;

    fn setup(args: &QueueArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let there = C::pair(args.slots_count)?;
        let back = C::pair(args.slots_count)?;
        Ok(QueueRoundTrip {
            measured_ends: TakeCell::new((there.0, back.1)),
            echo_ends: TakeCell::new((back.0, there.1)),
            pause: PollPause::new(setup),
        })
    }

    fn new_ping_state(&self) -> Result<PingEnds<C>, Fault> {
        let (sender, receiver) = self.measured_ends.take()?;
        Ok((sender, receiver, 0))
    }

    #[inline(always)]
    fn round_trip(&self, (sender, receiver, turn): &mut PingEnds<C>) -> Result<(), Fault> {
        *turn += 1;
        self.pause.poll_until_true(|| C::push(sender, *turn));
        let back = self.pause.poll_until_some(|| C::pop(receiver));
        if back != *turn {
            return Err(Fault::new(format!("received item {back}, expected {turn}")));
        }
        Ok(())
    }

    fn end(&self, (sender, ..): &mut PingEnds<C>) -> Result<(), Fault> {
        self.pause.poll_until_true(|| C::push(sender, END));
        Ok(())
    }

    fn echo(&self) -> Result<u64, Fault> {
        let (mut sender, mut receiver) = self.echo_ends.take()?;
        let mut turns = 0;
        loop {
            let turn = self.pause.poll_until_some(|| C::pop(&mut receiver));
            if turn == END {
                return Ok(turns);
            }
            turns += 1;
            self.pause.poll_until_true(|| C::push(&mut sender, turn));
        }
    }
}

/// Medium of round trips: this project's mailbox, of one cache line.
struct MailboxRoundTrip {
    caller: TakeCell<mailbox::Caller<u64, u64>>,
    server: TakeCell<mailbox::Server<u64, u64>>,
    pause: PollPause,
}

impl RelayMedium for MailboxRoundTrip {
    type Args = ();
    const PROCESSES: bool = false;
    const SPEC: Spec = Spec::new(
        "ring/mailbox",
        "round trip of a request and its reply through one cache line, both sides polling",
    )
    .floor("floor/cache-line")
    .hands_over()
    .batched();
    type PingState = (mailbox::Caller<u64, u64>, u64);

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let (caller, server) = mailbox::pair();
        Ok(MailboxRoundTrip {
            caller: TakeCell::new(caller),
            server: TakeCell::new(server),
            pause: PollPause::new(setup),
        })
    }

    fn new_ping_state(&self) -> Result<Self::PingState, Fault> {
        Ok((self.caller.take()?, 0))
    }

    #[inline(always)]
    fn round_trip(&self, (caller, turn): &mut Self::PingState) -> Result<(), Fault> {
        *turn += 1;
        caller.send(*turn).map_err(Fault::from_error)?;
        loop {
            match caller.receive() {
                Ok(Some(back)) if back == *turn => return Ok(()),
                Ok(Some(back)) => {
                    return Err(Fault::new(format!("received item {back}, expected {turn}")));
                }
                Ok(None) => self.pause.pause_once(),
                Err(closed) => return Err(Fault::from_error(closed)),
            }
        }
    }

    fn end(&self, (caller, _): &mut Self::PingState) -> Result<(), Fault> {
        caller.send(END).map_err(Fault::from_error)
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut server = self.server.take()?;
        let mut turns = 0;
        loop {
            let turn = self.pause.poll_until_some(|| server.receive());
            if turn == END {
                return Ok(turns);
            }
            turns += 1;
            server.reply(turn).map_err(Fault::from_error)?;
        }
    }
}

/// Workload: a stream of single items from one thread to another.
struct QueueStream<C: Channel> {
    sender: TakeCell<C::Sender>,
    receiver: TakeCell<C::Receiver>,
    tally: Region<Tally>,
    pause: PollPause,
}

impl<C: Channel> Handover for QueueStream<C> {
    type Args = QueueArgs;
    const SPEC: Spec = Spec::new(
        "ring/stream",
        "one item of a stream of 8-byte items, pushed and popped one by one",
    )
    .floor("ring/line-stream")
    .ladder()
    .hands_over()
    .pipelined();

    const ROLES: &'static [Role] = &[Role::measured("producer"), Role::serving("consumer")];

    fn setup(args: &QueueArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let (sender, receiver) = C::pair(args.slots_count)?;
        Ok(QueueStream {
            sender: TakeCell::new(sender),
            receiver: TakeCell::new(receiver),
            tally: setup.shared_region()?,
            pause: PollPause::new(setup),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index == 0 {
            let mut sender = self.sender.take()?;
            let mut sent = 0;
            out.time_batches(|n| {
                for item in sent..sent + n {
                    self.pause.poll_until_true(|| C::push(&mut sender, item));
                }
                C::flush(&mut sender);
                sent += n;
            });
            self.pause.poll_until_true(|| C::push(&mut sender, END));
            C::flush(&mut sender);
            self.tally.add_sent(sent);
            return Ok(());
        }
        let mut receiver = self.receiver.take()?;
        let (mut arrived, mut wrong) = (0, 0);
        loop {
            let item = self.pause.poll_until_some(|| C::pop(&mut receiver));
            if item == END {
                break;
            }
            wrong += u64::from(item != arrived);
            arrived += 1;
        }
        self.tally.add_received(arrived);
        self.tally.add_wrong(wrong);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify()
    }
}

/// Number of items pushed and popped together.
const BATCH_ITEMS: u64 = 64;

/// Workload: a stream of batches of items from one thread to another.
struct BatchedStream<C: BatchChannel>(QueueStream<C>);

impl<C: BatchChannel> Handover for BatchedStream<C> {
    type Args = QueueArgs;
    const SPEC: Spec = Spec::new(
        "ring/stream-batched",
        "one item of a stream of 8-byte items, pushed and popped in batches of 64",
    )
    .floor("ring/line-stream")
    .hands_over()
    .pipelined();

    const ROLES: &'static [Role] = QueueStream::<C>::ROLES;

    fn setup(args: &QueueArgs, setup: &mut Setup) -> Result<Self, Fault> {
        QueueStream::setup(args, setup).map(BatchedStream)
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        let pause = self.0.pause;
        if participant.index == 0 {
            let mut sender = self.0.sender.take()?;
            let mut sent = 0;
            let mut push = |mut items: std::ops::Range<u64>| {
                while !items.is_empty() {
                    let mut batch = items.start..items.end.min(items.start + BATCH_ITEMS);
                    items.start = batch.end;
                    while C::push_some(&mut sender, &mut batch) == 0 || !batch.is_empty() {
                        pause.pause_once();
                    }
                }
            };
            out.time_batches(|n| {
                push(sent..sent + n);
                sent += n;
            });
            push(END..END + 1);
            self.0.tally.add_sent(sent);
            return Ok(());
        }
        let mut receiver = self.0.receiver.take()?;
        let (mut arrived, mut wrong, mut over) = (0, 0, false);
        while !over {
            let popped = C::pop_some(&mut receiver, BATCH_ITEMS as usize, |item| {
                over |= item == END;
                wrong += u64::from(item != arrived);
                arrived += 1;
            });
            if popped == 0 {
                pause.pause_once();
            }
        }
        // The last item only says that the round is over.
        self.0.tally.add_received(arrived - 1);
        self.0.tally.add_wrong(wrong - 1);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.0.check_round()
    }
}

/// Workload: an item pushed to a queue and popped from it, by one thread.
struct PushPop<C: Channel>(C::Sender, C::Receiver);

impl<C: Channel> Workload for PushPop<C> {
    type Args = QueueArgs;
    const SPEC: Spec =
        Spec::new("ring/push-pop", "push and pop of an item by one thread").floor("ring/array");

    fn setup(args: &QueueArgs, _: &mut Setup) -> Result<Self, Fault> {
        let (sender, receiver) = C::pair(args.slots_count)?;
        Ok(PushPop(sender, receiver))
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let empty = C::pop(&mut self.1).is_none();
        // A queue with one slot refuses the second item.
        let pushed = [1, 2].map(|item| C::push(&mut self.0, item).then_some(item));
        C::flush(&mut self.0);
        let popped = [(); 3].map(|()| C::pop(&mut self.1));
        ensure(empty && pushed[0].is_some() && popped == [pushed[0], pushed[1], None], || {
            format!("pops after the pushes of {pushed:?} returned {popped:?}")
        })
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for item in 0..n {
                C::push(&mut self.0, black_box(item));
                black_box(C::pop(&mut self.1));
            }
        });
    }
}

/// Compared implementation: a `VecDeque`, the usual queue within one thread.
struct DequePushPop(VecDeque<u64>);

impl Workload for DequePushPop {
    type Args = QueueArgs;
    const SPEC: Spec = PushPop::<Spsc>::SPEC;

    fn setup(args: &QueueArgs, _: &mut Setup) -> Result<Self, Fault> {
        Ok(DequePushPop(VecDeque::with_capacity(args.slots_count as usize)))
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for item in 0..n {
                self.0.push_back(black_box(item));
                black_box(self.0.pop_front());
            }
        });
    }
}

/// Floor: an array and two indices used by one thread, with checks for full and empty only.
struct ArrayPushPop {
    slots: Box<[u64]>,
    head: u64,
    tail: u64,
}

impl Workload for ArrayPushPop {
    type Args = QueueArgs;
    const SPEC: Spec = Spec::new(
        "ring/array",
        "store of an item into an array and load of the same item, by one thread, with two indices",
    )
    .floor("floor/empty");

    fn setup(args: &QueueArgs, _: &mut Setup) -> Result<Self, Fault> {
        let slots_count = args.slots_count.next_power_of_two() as usize;
        Ok(ArrayPushPop { slots: vec![0; slots_count].into(), head: 0, tail: 0 })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let popped = [self.pop(), { self.push(7) }.then(|| self.pop()).flatten(), self.pop()];
        ensure(popped == [None, Some(7), None], || {
            format!("pops before and after the push of 7 returned {popped:?}")
        })
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for item in 0..n {
                self.push(black_box(item));
                black_box(self.pop());
            }
        });
    }
}

impl ArrayPushPop {
    #[inline(always)]
    fn push(&mut self, item: u64) -> bool {
        let has_room = self.tail - self.head < self.slots.len() as u64;
        if has_room {
            let mask = self.slots.len() - 1;
            self.slots[self.tail as usize & mask] = item;
            self.tail += 1;
        }
        has_room
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<u64> {
        (self.head < self.tail).then(|| {
            let mask = self.slots.len() - 1;
            self.head += 1;
            self.slots[(self.head - 1) as usize & mask]
        })
    }
}

args! {
    /// Arguments of the benchmark of a queue with many producers.
    pub struct ManyToOneArgs {
        /// Threads that push.
        producers_count: u32 = 10 (smoke 3, range 1..=1000),
        /// Slots in the queue.
        slots_count: u32 = 1024 (smoke 16, range 1..=65536)
    }
}

/// Workload: many threads push items, and one thread pops them.
struct ManyToOne<C: Channel<Sender: Clone>> {
    sender: Mutex<C::Sender>,
    receiver: TakeCell<C::Receiver>,
    producers_count: usize,
    pause: PollPause,
    tally: Tally,
}

/// Number of pushes between two checks for the end of the round.
const PUSHES_PER_CHECK: u32 = 64;

impl<C: Channel<Sender: Clone>> Handover for ManyToOne<C> {
    type Args = ManyToOneArgs;
    const SPEC: Spec = Spec::new(
        "ring/many-to-one",
        "one item at the consumer of a queue with many producers that never pause",
    )
    .floor("ring/line-stream")
    .hands_over()
    .pipelined();

    fn roles(args: &ManyToOneArgs) -> Vec<Role> {
        let mut roles = vec![Role::measured("consumer")];
        roles.resize(1 + args.producers_count as usize, Role::serving("producer"));
        roles
    }

    fn setup(args: &ManyToOneArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let (sender, receiver) = C::pair(args.slots_count)?;
        Ok(ManyToOne {
            sender: Mutex::new(sender),
            receiver: TakeCell::new(receiver),
            producers_count: args.producers_count as usize,
            pause: PollPause::new(setup),
            tally: Tally::default(),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            self.run_producer(participant, out);
            return Ok(());
        }
        let mut receiver = self.receiver.take()?;
        let mut next = vec![0u32; self.producers_count];
        let mut wrong = 0;
        out.time_batches(|n| {
            for _ in 0..n {
                let item = self.pause.poll_until_some(|| C::pop(&mut receiver));
                let (producer, number) = ((item >> 32) as usize, item as u32);
                wrong += u64::from(next[producer] != number);
                next[producer] = number.wrapping_add(1);
            }
        });
        self.tally.add_wrong(wrong);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify_order()
    }
}

impl<C: Channel<Sender: Clone>> ManyToOne<C> {
    /// Pushes numbered items as one of the producers, until the round ends.
    fn run_producer(&self, participant: Participant, out: &Samples) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let producer = (participant.index as u64 - 1) << 32;
        let mut number = 0u32;
        while !out.has_stopped() {
            for _ in 0..PUSHES_PER_CHECK {
                if C::push(&mut sender, producer | u64::from(number)) {
                    number = number.wrapping_add(1);
                } else {
                    self.pause.pause_once();
                    break;
                }
            }
        }
    }
}

args! {
    /// Arguments of the benchmark of many producers and consumers.
    pub struct ManyToManyArgs {
        /// Threads that push and pop.
        threads_count: u32 = 4 (smoke 3, range 1..=1000),
        /// Slots in the queue.
        slots_count: u32 = 1024 (smoke 16, range 1..=65536)
    }
}

/// Workload: each of many threads pushes an item, and then pops the oldest one.
struct ManyToMany<C: Channel<Sender: Clone, Receiver: Clone>> {
    ends: Mutex<(C::Sender, C::Receiver)>,
    pause: PollPause,
    tally: Tally,
}

impl<C: Channel<Sender: Clone, Receiver: Clone>> Handover for ManyToMany<C> {
    type Args = ManyToManyArgs;
    const SPEC: Spec = Spec::new(
        "ring/many-to-many",
        "push and pop of an item by one of many threads that do so all the time",
    )
    .floor("ring/line-stream")
    .hands_over();

    fn roles(args: &ManyToManyArgs) -> Vec<Role> {
        let mut roles = vec![Role::measured("thread")];
        roles.resize(args.threads_count as usize, Role::serving("other thread"));
        roles
    }

    fn setup(args: &ManyToManyArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let ends = Mutex::new(C::pair(args.slots_count)?);
        Ok(ManyToMany { ends, pause: PollPause::new(setup), tally: Tally::default() })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        let (mut sender, mut receiver) =
            self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut pushed, mut popped) = (0, 0_u64);
        // A thread pops only after it has pushed, so that the queue has an item for it.
        let mut run = |n: u64| {
            for _ in 0..n {
                pushed += 1;
                self.pause.poll_until_true(|| C::push(&mut sender, pushed));
                popped += self.pause.poll_until_some(|| C::pop(&mut receiver));
            }
        };
        if participant.index == 0 {
            out.time_batches(run);
        } else {
            while !out.has_stopped() {
                run(PUSHES_PER_CHECK.into());
            }
        }
        // The sums of the items, which are 1 to `pushed` of each thread.
        self.tally.add_sent(pushed * (pushed + 1) / 2);
        self.tally.add_received(popped);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify()
    }
}

/// All benchmarks of queues.
pub const BENCHES: &[Bench] = benches! {
    many ours "handover" Spin: Relay<MailboxRoundTrip>;
    many ours "handover" Spin: Relay<QueueRoundTrip<Spsc>>;
    many ours "handover-mpsc" Spin: Relay<QueueRoundTrip<Mpsc>>;
    many peer "std" Spin: Relay<QueueRoundTrip<Std>>;
    many peer "rtrb" Spin: Relay<QueueRoundTrip<Rtrb>>, if feature = "peers";
    many peer "disruptor" Spin: Relay<QueueRoundTrip<Disruptor<false>>>, if feature = "peers";
    many peer "crossbeam" Spin: Relay<QueueRoundTrip<Crossbeam>>, if feature = "peers";
    many peer "array-queue" Spin: Relay<QueueRoundTrip<ArrayQueue>>, if feature = "peers";
    many peer "kanal" Spin: Relay<QueueRoundTrip<Kanal>>, if feature = "peers";
    many peer "flume" Spin: Relay<QueueRoundTrip<Flume>>, if feature = "peers";
    many peer "moodycamel" Spin: Relay<QueueRoundTrip<CppQueue<queues::ReaderWriter>>>,
        if handover_moodycamel;
    many peer "moodycamel-mpmc" Spin: Relay<QueueRoundTrip<CppQueue<queues::Concurrent>>>,
        if handover_moodycamel;
    many peer "boost-spsc" Spin: Relay<QueueRoundTrip<CppQueue<queues::BoostSpsc>>>,
        if handover_boost_lockfree;
    many peer "boost-mpmc" Spin: Relay<QueueRoundTrip<CppQueue<queues::BoostMpmc>>>,
        if handover_boost_lockfree;
    many floor "hardware" Spin: LineStream<false>;
    many floor "hardware" SpinThenSleep: LineStream<true>;
    many ours "handover" Spin: QueueStream<Spsc>;
    many ours "handover-later" Spin: QueueStream<Spsc<true>>;
    many ours "handover-mpsc" Spin: QueueStream<Mpsc>;
    many peer "std" Spin: QueueStream<Std>;
    many peer "rtrb" Spin: QueueStream<Rtrb>, if feature = "peers";
    many peer "disruptor" Spin: QueueStream<Disruptor<false>>, if feature = "peers";
    many peer "crossbeam" Spin: QueueStream<Crossbeam>, if feature = "peers";
    many peer "array-queue" Spin: QueueStream<ArrayQueue>, if feature = "peers";
    many peer "kanal" Spin: QueueStream<Kanal>, if feature = "peers";
    many peer "flume" Spin: QueueStream<Flume>, if feature = "peers";
    many peer "moodycamel" Spin: QueueStream<CppQueue<queues::ReaderWriter>>, if handover_moodycamel;
    many peer "moodycamel-mpmc" Spin: QueueStream<CppQueue<queues::Concurrent>>, if handover_moodycamel;
    many peer "boost-spsc" Spin: QueueStream<CppQueue<queues::BoostSpsc>>, if handover_boost_lockfree;
    many peer "boost-mpmc" Spin: QueueStream<CppQueue<queues::BoostMpmc>>, if handover_boost_lockfree;
    many ours "handover" Spin: BatchedStream<Spsc>;
    many ours "handover-mpsc" Spin: BatchedStream<Mpsc>;
    many peer "rtrb" Spin: BatchedStream<Rtrb>, if feature = "peers";
    many peer "disruptor" Spin: BatchedStream<Disruptor<false>>, if feature = "peers";
    many peer "moodycamel-mpmc" Spin: BatchedStream<CppQueue<queues::Concurrent>>,
        if handover_moodycamel;
    many peer "boost-spsc" Spin: BatchedStream<CppQueue<queues::BoostSpsc>>,
        if handover_boost_lockfree;
    one floor "array": ArrayPushPop;
    one ours "handover": PushPop<Spsc>;
    one ours "handover-mpsc": PushPop<Mpsc>;
    one peer "VecDeque": DequePushPop;
    one peer "std": PushPop<Std>;
    one peer "rtrb": PushPop<Rtrb>, if feature = "peers";
    one peer "disruptor": PushPop<Disruptor<false>>, if feature = "peers";
    one peer "crossbeam": PushPop<Crossbeam>, if feature = "peers";
    one peer "array-queue": PushPop<ArrayQueue>, if feature = "peers";
    one peer "kanal": PushPop<Kanal>, if feature = "peers";
    one peer "flume": PushPop<Flume>, if feature = "peers";
    one peer "moodycamel": PushPop<CppQueue<queues::ReaderWriter>>, if handover_moodycamel;
    one peer "moodycamel-mpmc": PushPop<CppQueue<queues::Concurrent>>, if handover_moodycamel;
    one peer "boost-spsc": PushPop<CppQueue<queues::BoostSpsc>>, if handover_boost_lockfree;
    one peer "boost-mpmc": PushPop<CppQueue<queues::BoostMpmc>>, if handover_boost_lockfree;
    many ours "handover" Spin: ManyToOne<Mpsc>;
    many ours "handover-mpmc" Spin: ManyToOne<Mpmc>;
    many peer "std" Spin: ManyToOne<Std>;
    many peer "crossbeam" Spin: ManyToOne<Crossbeam>, if feature = "peers";
    many peer "array-queue" Spin: ManyToOne<ArrayQueue>, if feature = "peers";
    many peer "disruptor" Spin: ManyToOne<Disruptor<true>>, if feature = "peers";
    many peer "kanal" Spin: ManyToOne<Kanal>, if feature = "peers";
    many peer "flume" Spin: ManyToOne<Flume>, if feature = "peers";
    many peer "moodycamel-mpmc" Spin: ManyToOne<CppQueue<queues::Concurrent>>,
        if handover_moodycamel;
    many peer "boost-mpmc" Spin: ManyToOne<CppQueue<queues::BoostMpmc>>, if handover_boost_lockfree;
    many ours "handover" Spin: ManyToMany<Mpmc>;
    many peer "crossbeam" Spin: ManyToMany<Crossbeam>, if feature = "peers";
    many peer "array-queue" Spin: ManyToMany<ArrayQueue>, if feature = "peers";
    many peer "kanal" Spin: ManyToMany<Kanal>, if feature = "peers";
    many peer "flume" Spin: ManyToMany<Flume>, if feature = "peers";
};
