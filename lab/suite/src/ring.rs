//! Queues between polling threads: round trips, streams, use by one thread, and many producers.

mod line;

#[cfg(all(feature = "peers", any(handover_boost_lockfree, handover_moodycamel)))]
use crate::channels::Foreign;
#[cfg(feature = "peers")]
use crate::channels::{ArrayQueue, Crossbeam, Disruptor, Flume, Kanal, Rtrb};
use crate::channels::{Batched, Channel, Mpsc, Pause, Spsc, Std};
use crate::floor::relay::{Medium, Relay};
#[cfg(all(feature = "peers", any(handover_boost_lockfree, handover_moodycamel)))]
use crate::raw::peers::queues;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Bench, Fault, Handover, Party, Region, Rig, Role, Samples, Workload};
use handover_record::{Contender, Spec, Wait, args};
use handover_ring::mailbox;
use line::LineStream;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use zerocopy::FromZeros;

args! {
    /// Capacity of a queue.
    pub struct Slots {
        /// Slots in the queue.
        slots_count: u32 = 1024 (smoke 16, range 1..=65536)
    }
}

/// Value in place of an item: the round is over.
const END: u64 = u64::MAX / 2;

/// Something that a participant takes out when its round begins.
struct Taken<T>(Mutex<Option<T>>);

impl<T> Taken<T> {
    fn new(thing: T) -> Taken<T> {
        Taken(Mutex::new(Some(thing)))
    }

    fn take(&self) -> Result<T, Fault> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| Fault::new("the party plays twice"))
    }
}

/// Medium: two queues between two threads, one in each direction.
struct ThereAndBack<C: Channel> {
    near: Taken<(C::Sender, C::Receiver)>,
    far: Taken<(C::Sender, C::Receiver)>,
    pause: Pause,
}

/// State of the pinging side.
struct Near<C: Channel> {
    ends: Option<(C::Sender, C::Receiver)>,
    turn: u64,
}

impl<C: Channel> Medium for ThereAndBack<C> {
    type Args = Slots;
    const PROCESSES: bool = false;
    const SPEC: Spec = Spec {
        id: "ring/round-trip",
        what: "an item through a queue to a thread that polls, and one back through another queue",
        floor: Some("floor/cache-line-2"),
        ladder: true,
        hands_over: true,
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    type Ping = Near<C>;

    fn rig(args: &Slots, rig: &mut Rig) -> Result<Self, Fault> {
        let there = C::pair(args.slots_count)?;
        let back = C::pair(args.slots_count)?;
        Ok(ThereAndBack {
            near: Taken::new((there.0, back.1)),
            far: Taken::new((back.0, there.1)),
            pause: Pause::of(rig),
        })
    }

    fn ping(&self) -> Near<C> {
        Near { ends: self.near.take().ok(), turn: 0 }
    }

    #[inline(always)]
    fn round_trip(&self, near: &mut Near<C>) -> Result<(), Fault> {
        let Some((sender, receiver)) = &mut near.ends else {
            return Err(Fault::new("the party plays twice"));
        };
        near.turn += 1;
        self.pause.until_done(|| C::push(sender, near.turn));
        let back = self.pause.until(|| C::pop(receiver));
        if back != near.turn {
            return Err(Fault::new(format!("{back} came back instead of {}", near.turn)));
        }
        Ok(())
    }

    fn end(&self, near: &mut Near<C>) -> Result<(), Fault> {
        if let Some((sender, _)) = &mut near.ends {
            self.pause.until_done(|| C::push(sender, END));
        }
        Ok(())
    }

    fn echo(&self) -> Result<u64, Fault> {
        let (mut sender, mut receiver) = self.far.take()?;
        let mut turns = 0;
        loop {
            let turn = self.pause.until(|| C::pop(&mut receiver));
            if turn == END {
                return Ok(turns);
            }
            turns += 1;
            self.pause.until_done(|| C::push(&mut sender, turn));
        }
    }
}

/// Medium: our mailbox of one cache line.
struct OneLine {
    caller: Taken<mailbox::Caller<u64, u64>>,
    server: Taken<mailbox::Server<u64, u64>>,
    pause: Pause,
}

impl Medium for OneLine {
    type Args = ();
    const PROCESSES: bool = false;
    const SPEC: Spec = Spec {
        id: "ring/mailbox",
        what: "a request to a thread that polls, and its reply, through one cache line",
        floor: Some("floor/cache-line"),
        hands_over: true,
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    type Ping = (Option<mailbox::Caller<u64, u64>>, u64);

    fn rig((): &(), rig: &mut Rig) -> Result<Self, Fault> {
        let (caller, server) = mailbox::pair();
        Ok(OneLine {
            caller: Taken::new(caller),
            server: Taken::new(server),
            pause: Pause::of(rig),
        })
    }

    fn ping(&self) -> Self::Ping {
        (self.caller.take().ok(), 0)
    }

    #[inline(always)]
    fn round_trip(&self, (caller, turn): &mut Self::Ping) -> Result<(), Fault> {
        let Some(caller) = caller else {
            return Err(Fault::new("the party plays twice"));
        };
        *turn += 1;
        caller.send(*turn).map_err(|refused| Fault::new(refused.to_string()))?;
        loop {
            match caller.receive() {
                Ok(Some(back)) if back == *turn => return Ok(()),
                Ok(Some(back)) => {
                    return Err(Fault::new(format!("{back} came back instead of {turn}")));
                }
                Ok(None) => self.pause.once(),
                Err(gone) => return Err(Fault::new(gone.to_string())),
            }
        }
    }

    fn end(&self, (caller, _): &mut Self::Ping) -> Result<(), Fault> {
        match caller {
            Some(caller) => caller.send(END).map_err(|refused| Fault::new(refused.to_string())),
            None => Ok(()),
        }
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut server = self.server.take()?;
        let mut turns = 0;
        loop {
            let turn = self.pause.until(|| server.receive());
            if turn == END {
                return Ok(turns);
            }
            turns += 1;
            server.reply(turn).map_err(|refused| Fault::new(refused.to_string()))?;
        }
    }
}

/// Counts of the two ends of a stream.
#[derive(FromZeros)]
#[repr(C)]
struct Counts {
    sent: AtomicU64,
    arrived: AtomicU64,
    /// Number of items out of order.
    wrong: AtomicU64,
}

impl Counts {
    /// Relaxed throughout: each participant writes at its end, and collecting their results orders
    /// the accesses.
    fn sent(&self, sent: u64) {
        self.sent.store(sent, Ordering::Relaxed);
    }

    fn arrived(&self, arrived: u64, wrong: u64) {
        // Relaxed: written at the participant's end, as in sent().
        self.arrived.store(arrived, Ordering::Relaxed);
        self.wrong.store(wrong, Ordering::Relaxed);
    }

    fn verify(&self) -> Result<(), Fault> {
        // Relaxed: both participants have ended.
        let [sent, arrived, wrong] =
            [&self.sent, &self.arrived, &self.wrong].map(|it| it.load(Ordering::Relaxed));
        if sent == 0 || sent != arrived || wrong > 0 {
            return Err(Fault::new(format!(
                "{sent} items were sent, {arrived} arrived, {wrong} of them out of order"
            )));
        }
        Ok(())
    }
}

/// Workload: single items from one thread to another, which keeps up or holds the sender back.
struct Stream<C: Channel> {
    sender: Taken<C::Sender>,
    receiver: Taken<C::Receiver>,
    counts: Region<Counts>,
    pause: Pause,
}

impl<C: Channel> Handover for Stream<C> {
    type Args = Slots;
    const SPEC: Spec = Spec {
        id: "ring/stream",
        pipelined: true,
        what: "one item of a stream of 8-byte items, pushed one by one and popped one by one",
        floor: Some("ring/line-stream"),
        ladder: true,
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn roles(_: &Slots) -> Vec<Role> {
        vec![Role::measured("producer"), Role::serving("consumer")]
    }

    fn rig(args: &Slots, rig: &mut Rig) -> Result<Self, Fault> {
        let (sender, receiver) = C::pair(args.slots_count)?;
        Ok(Stream {
            sender: Taken::new(sender),
            receiver: Taken::new(receiver),
            counts: rig.region()?,
            pause: Pause::of(rig),
        })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index == 0 {
            let mut sender = self.sender.take()?;
            let mut sent = 0;
            out.batches(|n| {
                for item in sent..sent + n {
                    self.pause.until_done(|| C::push(&mut sender, item));
                }
                C::flush(&mut sender);
                sent += n;
            });
            self.pause.until_done(|| C::push(&mut sender, END));
            C::flush(&mut sender);
            self.counts.sent(sent);
            return Ok(());
        }
        let mut receiver = self.receiver.take()?;
        let (mut arrived, mut wrong) = (0, 0);
        loop {
            let item = self.pause.until(|| C::pop(&mut receiver));
            if item == END {
                break;
            }
            wrong += u64::from(item != arrived);
            arrived += 1;
        }
        self.counts.arrived(arrived, wrong);
        Ok(())
    }

    fn verify(&self) -> Result<(), Fault> {
        self.counts.verify()
    }
}

/// Number of items pushed and popped together.
const BATCH: u64 = 64;

/// Workload: batches of items from one thread to another.
struct BatchedStream<C: Batched>(Stream<C>);

impl<C: Batched> Handover for BatchedStream<C> {
    type Args = Slots;
    const SPEC: Spec = Spec {
        id: "ring/stream-batched",
        pipelined: true,
        what: "one item of a stream of 8-byte items, pushed and popped in batches of 64",
        floor: Some("ring/line-stream"),
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn roles(args: &Slots) -> Vec<Role> {
        Stream::<C>::roles(args)
    }

    fn rig(args: &Slots, rig: &mut Rig) -> Result<Self, Fault> {
        Stream::rig(args, rig).map(BatchedStream)
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        let pause = self.0.pause;
        if party.index == 0 {
            let mut sender = self.0.sender.take()?;
            let mut sent = 0;
            let mut push = |mut items: std::ops::Range<u64>| {
                while !items.is_empty() {
                    let mut batch = items.start..items.end.min(items.start + BATCH);
                    items.start = batch.end;
                    while C::push_some(&mut sender, &mut batch) == 0 || !batch.is_empty() {
                        pause.once();
                    }
                }
            };
            out.batches(|n| {
                push(sent..sent + n);
                sent += n;
            });
            push(END..END + 1);
            self.0.counts.sent(sent);
            return Ok(());
        }
        let mut receiver = self.0.receiver.take()?;
        let (mut arrived, mut wrong, mut over) = (0, 0, false);
        while !over {
            let popped = C::pop_some(&mut receiver, BATCH as usize, |item| {
                over |= item == END;
                wrong += u64::from(item != arrived);
                arrived += 1;
            });
            if popped == 0 {
                pause.once();
            }
        }
        // The last item only says that the round is over.
        self.0.counts.arrived(arrived - 1, wrong - 1);
        Ok(())
    }

    fn verify(&self) -> Result<(), Fault> {
        self.0.verify()
    }
}

/// Workload: an item in and out of a queue, on one thread.
struct PushPop<C: Channel>(C::Sender, C::Receiver);

impl<C: Channel> Workload for PushPop<C> {
    type Args = Slots;
    const SPEC: Spec = Spec {
        id: "ring/push-pop",
        what: "an item pushed and popped by one thread",
        floor: Some("ring/array"),
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig(args: &Slots, _: &mut Rig) -> Result<Self, Fault> {
        let (sender, receiver) = C::pair(args.slots_count)?;
        Ok(PushPop(sender, receiver))
    }

    fn check(&mut self) -> Result<(), Fault> {
        let empty = C::pop(&mut self.1).is_none();
        let pushed = C::push(&mut self.0, 1) && C::push(&mut self.0, 2);
        C::flush(&mut self.0);
        let popped = [C::pop(&mut self.1), C::pop(&mut self.1), C::pop(&mut self.1)];
        match empty && pushed && popped == [Some(1), Some(2), None] {
            true => Ok(()),
            false => Err(Fault::new(format!("1 and 2 were pushed, {popped:?} were popped"))),
        }
    }

    fn sample(&mut self, out: &mut Samples) {
        out.batches(|n| {
            for item in 0..n {
                C::push(&mut self.0, black_box(item));
                black_box(C::pop(&mut self.1));
            }
        });
    }
}

/// Peer: a `VecDeque`, the usual queue of a single thread.
struct Deque(VecDeque<u64>);

impl Workload for Deque {
    type Args = Slots;
    const SPEC: Spec = PushPop::<Spsc>::SPEC;

    fn rig(args: &Slots, _: &mut Rig) -> Result<Self, Fault> {
        Ok(Deque(VecDeque::with_capacity(args.slots_count as usize)))
    }

    fn sample(&mut self, out: &mut Samples) {
        out.batches(|n| {
            for item in 0..n {
                self.0.push_back(black_box(item));
                black_box(self.0.pop_front());
            }
        });
    }
}

/// Floor: an array and two indices used by one thread, with checks for full and empty only.
struct Array {
    slots: Box<[u64]>,
    head: u64,
    tail: u64,
}

impl Workload for Array {
    type Args = Slots;
    const SPEC: Spec = Spec {
        id: "ring/array",
        what: "an item into an array at one index and out of it at another, by one thread",
        floor: Some("floor/empty"),
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig(args: &Slots, _: &mut Rig) -> Result<Self, Fault> {
        let slots_count = args.slots_count.next_power_of_two() as usize;
        Ok(Array { slots: vec![0; slots_count].into(), head: 0, tail: 0 })
    }

    fn check(&mut self) -> Result<(), Fault> {
        let popped = [self.pop(), { self.push(7) }.then(|| self.pop()).flatten(), self.pop()];
        match popped {
            [None, Some(7), None] => Ok(()),
            _ => Err(Fault::new(format!("7 was pushed, {popped:?} were popped"))),
        }
    }

    fn sample(&mut self, out: &mut Samples) {
        out.batches(|n| {
            for item in 0..n {
                self.push(black_box(item));
                black_box(self.pop());
            }
        });
    }
}

impl Array {
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
    /// Number of producers, and capacity of the queue.
    pub struct Many {
        /// Threads that push.
        producers_count: u32 = 10 (smoke 3, range 1..=1000),
        /// Slots in the queue.
        slots_count: u32 = 1024 (smoke 16, range 1..=65536)
    }
}

/// Workload: many threads that push, one that pops.
struct ManyToOne<C: Channel<Sender: Clone>> {
    sender: Mutex<C::Sender>,
    receiver: Taken<C::Receiver>,
    producers_count: usize,
    pause: Pause,
    wrong: AtomicU64,
}

/// Pushes between two checks for the end of the round.
const PUSHES_PER_LOOK: u32 = 64;

impl<C: Channel<Sender: Clone>> Handover for ManyToOne<C> {
    type Args = Many;
    const SPEC: Spec = Spec {
        id: "ring/many-to-one",
        pipelined: true,
        what: "one item at the thread that pops what many threads push without pause",
        floor: Some("ring/line-stream"),
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn roles(args: &Many) -> Vec<Role> {
        let mut roles = vec![Role::measured("consumer")];
        roles.resize(1 + args.producers_count as usize, Role::serving("producer"));
        roles
    }

    fn rig(args: &Many, rig: &mut Rig) -> Result<Self, Fault> {
        let (sender, receiver) = C::pair(args.slots_count)?;
        Ok(ManyToOne {
            sender: Mutex::new(sender),
            receiver: Taken::new(receiver),
            producers_count: args.producers_count as usize,
            pause: Pause::of(rig),
            wrong: AtomicU64::new(0),
        })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index > 0 {
            self.push(party, out);
            return Ok(());
        }
        let mut receiver = self.receiver.take()?;
        let mut next = vec![0u32; self.producers_count];
        let mut wrong = 0;
        out.batches(|n| {
            for _ in 0..n {
                let item = self.pause.until(|| C::pop(&mut receiver));
                let (producer, number) = ((item >> 32) as usize, item as u32);
                wrong += u64::from(next[producer] != number);
                next[producer] = number.wrapping_add(1);
            }
        });
        // Relaxed: read after the participants have ended; collecting their results orders the
        // accesses.
        self.wrong.store(wrong, Ordering::Relaxed);
        Ok(())
    }

    fn verify(&self) -> Result<(), Fault> {
        // Relaxed: all participants have ended.
        match self.wrong.load(Ordering::Relaxed) {
            0 => Ok(()),
            wrong => Err(Fault::new(format!("{wrong} items were out of their producer's order"))),
        }
    }
}

impl<C: Channel<Sender: Clone>> ManyToOne<C> {
    fn push(&self, party: Party, out: &Samples) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let producer = (party.index as u64 - 1) << 32;
        let mut number = 0u32;
        while !out.stopped() {
            for _ in 0..PUSHES_PER_LOOK {
                if C::push(&mut sender, producer | u64::from(number)) {
                    number = number.wrapping_add(1);
                } else {
                    self.pause.once();
                    break;
                }
            }
        }
    }
}

/// The benchmarks of queues.
pub const ALL: &[Bench] = &[
    Bench::many::<Relay<OneLine>>(Contender::ours("handover").waits(Wait::Spin)),
    Bench::many::<Relay<ThereAndBack<Spsc>>>(Contender::ours("handover").waits(Wait::Spin)),
    Bench::many::<Relay<ThereAndBack<Mpsc>>>(Contender::ours("handover-mpsc").waits(Wait::Spin)),
    Bench::many::<Relay<ThereAndBack<Std>>>(Contender::peer("std").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Relay<ThereAndBack<Rtrb>>>(Contender::peer("rtrb").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Relay<ThereAndBack<Disruptor<false>>>>(
        Contender::peer("disruptor").waits(Wait::Spin),
    ),
    #[cfg(feature = "peers")]
    Bench::many::<Relay<ThereAndBack<Crossbeam>>>(Contender::peer("crossbeam").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Relay<ThereAndBack<ArrayQueue>>>(
        Contender::peer("array-queue").waits(Wait::Spin),
    ),
    #[cfg(feature = "peers")]
    Bench::many::<Relay<ThereAndBack<Kanal>>>(Contender::peer("kanal").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Relay<ThereAndBack<Flume>>>(Contender::peer("flume").waits(Wait::Spin)),
    #[cfg(all(feature = "peers", handover_moodycamel))]
    Bench::many::<Relay<ThereAndBack<Foreign<queues::ReaderWriter>>>>(
        Contender::peer("moodycamel").waits(Wait::Spin),
    ),
    #[cfg(all(feature = "peers", handover_moodycamel))]
    Bench::many::<Relay<ThereAndBack<Foreign<queues::Concurrent>>>>(
        Contender::peer("moodycamel-mpmc").waits(Wait::Spin),
    ),
    #[cfg(all(feature = "peers", handover_boost_lockfree))]
    Bench::many::<Relay<ThereAndBack<Foreign<queues::BoostSpsc>>>>(
        Contender::peer("boost-spsc").waits(Wait::Spin),
    ),
    #[cfg(all(feature = "peers", handover_boost_lockfree))]
    Bench::many::<Relay<ThereAndBack<Foreign<queues::BoostMpmc>>>>(
        Contender::peer("boost-mpmc").waits(Wait::Spin),
    ),
    Bench::many::<LineStream<false>>(Contender::floor("hardware").waits(Wait::Spin)),
    Bench::many::<LineStream<true>>(Contender::floor("hardware").waits(Wait::SpinThenSleep)),
    Bench::many::<Stream<Spsc>>(Contender::ours("handover").waits(Wait::Spin)),
    Bench::many::<Stream<Spsc<true>>>(Contender::ours("handover-later").waits(Wait::Spin)),
    Bench::many::<Stream<Mpsc>>(Contender::ours("handover-mpsc").waits(Wait::Spin)),
    Bench::many::<Stream<Std>>(Contender::peer("std").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Stream<Rtrb>>(Contender::peer("rtrb").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Stream<Disruptor<false>>>(Contender::peer("disruptor").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Stream<Crossbeam>>(Contender::peer("crossbeam").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Stream<ArrayQueue>>(Contender::peer("array-queue").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Stream<Kanal>>(Contender::peer("kanal").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<Stream<Flume>>(Contender::peer("flume").waits(Wait::Spin)),
    #[cfg(all(feature = "peers", handover_moodycamel))]
    Bench::many::<Stream<Foreign<queues::ReaderWriter>>>(
        Contender::peer("moodycamel").waits(Wait::Spin),
    ),
    #[cfg(all(feature = "peers", handover_moodycamel))]
    Bench::many::<Stream<Foreign<queues::Concurrent>>>(
        Contender::peer("moodycamel-mpmc").waits(Wait::Spin),
    ),
    #[cfg(all(feature = "peers", handover_boost_lockfree))]
    Bench::many::<Stream<Foreign<queues::BoostSpsc>>>(
        Contender::peer("boost-spsc").waits(Wait::Spin),
    ),
    #[cfg(all(feature = "peers", handover_boost_lockfree))]
    Bench::many::<Stream<Foreign<queues::BoostMpmc>>>(
        Contender::peer("boost-mpmc").waits(Wait::Spin),
    ),
    Bench::many::<BatchedStream<Spsc>>(Contender::ours("handover").waits(Wait::Spin)),
    Bench::many::<BatchedStream<Mpsc>>(Contender::ours("handover-mpsc").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<BatchedStream<Rtrb>>(Contender::peer("rtrb").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<BatchedStream<Disruptor<false>>>(Contender::peer("disruptor").waits(Wait::Spin)),
    #[cfg(all(feature = "peers", handover_moodycamel))]
    Bench::many::<BatchedStream<Foreign<queues::Concurrent>>>(
        Contender::peer("moodycamel-mpmc").waits(Wait::Spin),
    ),
    #[cfg(all(feature = "peers", handover_boost_lockfree))]
    Bench::many::<BatchedStream<Foreign<queues::BoostSpsc>>>(
        Contender::peer("boost-spsc").waits(Wait::Spin),
    ),
    Bench::one::<Array>(Contender::floor("array")),
    Bench::one::<PushPop<Spsc>>(Contender::ours("handover")),
    Bench::one::<PushPop<Mpsc>>(Contender::ours("handover-mpsc")),
    Bench::one::<Deque>(Contender::peer("VecDeque")),
    Bench::one::<PushPop<Std>>(Contender::peer("std")),
    #[cfg(feature = "peers")]
    Bench::one::<PushPop<Rtrb>>(Contender::peer("rtrb")),
    #[cfg(feature = "peers")]
    Bench::one::<PushPop<Disruptor<false>>>(Contender::peer("disruptor")),
    #[cfg(feature = "peers")]
    Bench::one::<PushPop<Crossbeam>>(Contender::peer("crossbeam")),
    #[cfg(feature = "peers")]
    Bench::one::<PushPop<ArrayQueue>>(Contender::peer("array-queue")),
    #[cfg(feature = "peers")]
    Bench::one::<PushPop<Kanal>>(Contender::peer("kanal")),
    #[cfg(feature = "peers")]
    Bench::one::<PushPop<Flume>>(Contender::peer("flume")),
    #[cfg(all(feature = "peers", handover_moodycamel))]
    Bench::one::<PushPop<Foreign<queues::ReaderWriter>>>(Contender::peer("moodycamel")),
    #[cfg(all(feature = "peers", handover_moodycamel))]
    Bench::one::<PushPop<Foreign<queues::Concurrent>>>(Contender::peer("moodycamel-mpmc")),
    #[cfg(all(feature = "peers", handover_boost_lockfree))]
    Bench::one::<PushPop<Foreign<queues::BoostSpsc>>>(Contender::peer("boost-spsc")),
    #[cfg(all(feature = "peers", handover_boost_lockfree))]
    Bench::one::<PushPop<Foreign<queues::BoostMpmc>>>(Contender::peer("boost-mpmc")),
    Bench::many::<ManyToOne<Mpsc>>(Contender::ours("handover").waits(Wait::Spin)),
    Bench::many::<ManyToOne<Std>>(Contender::peer("std").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<ManyToOne<Crossbeam>>(Contender::peer("crossbeam").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<ManyToOne<ArrayQueue>>(Contender::peer("array-queue").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<ManyToOne<Disruptor<true>>>(Contender::peer("disruptor").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<ManyToOne<Kanal>>(Contender::peer("kanal").waits(Wait::Spin)),
    #[cfg(feature = "peers")]
    Bench::many::<ManyToOne<Flume>>(Contender::peer("flume").waits(Wait::Spin)),
    #[cfg(all(feature = "peers", handover_moodycamel))]
    Bench::many::<ManyToOne<Foreign<queues::Concurrent>>>(
        Contender::peer("moodycamel-mpmc").waits(Wait::Spin),
    ),
    #[cfg(all(feature = "peers", handover_boost_lockfree))]
    Bench::many::<ManyToOne<Foreign<queues::BoostMpmc>>>(
        Contender::peer("boost-mpmc").waits(Wait::Spin),
    ),
];
