//! Two threads: round trips, and messages one way.

use super::drive::{MachineMessage, PairHandler, Reaction, ReplyPolicy, new_pair};
use crate::channels::Queue;
use crate::common::{TakeCell, Tally};
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_event::{Config, Context, Handler, Machine, ParkOn, ThreadConfig, WhenFull};
use handover_harness::{Fault, Handover, Participant, Role, Samples, Setup};
use handover_notify::{Mechanism, Notify, Wait};
use handover_record::{Spec, args};
use std::marker::PhantomData;
use std::time::Duration;

/// Way in which two threads wait for each other: the benchmark's declaration, and the threads'
/// configuration.
pub(super) trait WaitPolicy: Send + Sync + 'static {
    const SPEC: Spec;
    /// `true` if both threads poll and never sleep, `false` if they may sleep.
    const POLLED: bool = false;

    fn thread_config() -> ThreadConfig {
        ThreadConfig::default()
    }
}

/// Wait policy: both threads poll for a while, then sleep.
pub(super) enum DefaultWait {}

impl WaitPolicy for DefaultWait {
    const SPEC: Spec = Spec::new(
        "event/round-trip",
        "round trip of a message between machines on two threads that wait in the default way",
    )
    .floor("floor/adaptive")
    .floors(&["floor/sleeping"])
    .classic("hello3 -l")
    .ladder()
    .hands_over()
    .batched();
}

/// Wait policy: both threads poll without end.
pub(super) enum PollingWait {}

impl WaitPolicy for PollingWait {
    const SPEC: Spec = Spec::new(
        "event/polled",
        "round trip of a message between machines on two threads that poll",
    )
    .floor("floor/cache-line")
    .hands_over()
    .batched();
    const POLLED: bool = true;
}

/// Declaration of the benchmark of threads that sleep at once.
const PARKED_SPEC: Spec = Spec::new(
    "event/parked",
    "round trip of a message between machines on two threads that sleep at once",
)
.floor("floor/sleeping")
.hands_over()
.batched();

/// Wait policy: both threads sleep at once, on a futex.
pub(super) enum ParkingWait {}

impl WaitPolicy for ParkingWait {
    const SPEC: Spec = PARKED_SPEC;

    fn thread_config() -> ThreadConfig {
        ThreadConfig::default().spin(handover_notify::Config::never_spin())
    }
}

/// Wait policy: both threads sleep at once in epoll, and are woken through an eventfd.
pub(super) enum DescriptorWait {}

impl WaitPolicy for DescriptorWait {
    const SPEC: Spec = PARKED_SPEC;

    fn thread_config() -> ThreadConfig {
        ParkingWait::thread_config().park_on(ParkOn::Descriptor)
    }
}

/// Capacity of an inbox or a queue, in messages.
const SLOTS: u32 = 64;

/// Policy of both machines of a pair: answers every hello. The measured machine stops after `left`
/// answers.
#[derive(Default)]
pub(super) struct RoundTripPolicy {
    /// Number of answers that are still to be received.
    left: u64,
    /// Number of the last message sent.
    last: u64,
    /// Number of messages received out of order.
    wrong: u64,
    /// `true` for the measured machine, which stops after `left` answers; `false` for the echoing
    /// one.
    is_measured: bool,
}

impl ReplyPolicy for RoundTripPolicy {
    #[inline]
    fn received(&mut self, number: u64) -> Reaction {
        self.wrong += u64::from(number != self.last + 1);
        self.last = number + 1; // its answer
        if !self.is_measured {
            return Reaction::Answer;
        }
        self.left -= 1;
        if self.left == 0 { Reaction::Stop } else { Reaction::Answer }
    }
}

const ROUND_TRIP_ROLES: &[Role] = &[Role::measured("ping"), Role::serving("echo")];

/// Workload: round trips between two machines, each on its own thread.
pub(super) struct MachinePair<M> {
    /// Machine of the measured thread.
    near: TakeCell<Machine<PairHandler<RoundTripPolicy>>>,
    /// Machine of the echoing thread.
    far: TakeCell<Machine<PairHandler<RoundTripPolicy>>>,
    tally: Tally,
    /// `true` if both threads share a CPU, so that each yields it when no message has arrived.
    should_yield: bool,
    policy: PhantomData<M>,
}

impl<M: WaitPolicy> MachinePair<M> {
    /// Runs a machine until it stops, and waits as the benchmark declares.
    #[inline]
    fn run(&self, machine: &mut Machine<PairHandler<RoundTripPolicy>>) -> Result<(), Fault> {
        if !M::POLLED {
            machine.run().map_err(Fault::from_error)?;
            return Ok(());
        }
        loop {
            let round = machine.poll().map_err(Fault::from_error)?;
            if round.end_reason.is_some() {
                return Ok(());
            }
            if round.handled == 0 && self.should_yield {
                rustix::thread::sched_yield();
            }
        }
    }
}

impl<M: WaitPolicy> Handover for MachinePair<M> {
    type Args = ();
    const SPEC: Spec = M::SPEC;

    const ROLES: &'static [Role] = ROUND_TRIP_ROLES;

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let config = Config::default().inbox_messages_max(SLOTS).thread(M::thread_config());
        let near = RoundTripPolicy { last: 1, is_measured: true, ..RoundTripPolicy::default() };
        let [near, far] =
            new_pair([near, RoundTripPolicy::default()], config).map_err(Fault::from_error)?;
        Ok(MachinePair {
            near: TakeCell::new(near),
            far: TakeCell::new(far),
            tally: Tally::default(),
            should_yield: setup.is_crowded(),
            policy: PhantomData,
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            let mut machine = self.far.take()?;
            self.run(&mut machine)?;
            let echoed = machine.stats().handled - 1; // the last message only ends the round
            self.tally.add_received(echoed);
            self.tally.add_wrong(machine.handler().policy.wrong);
            return Ok(());
        }
        let mut machine = self.near.take()?;
        let Some(far) = machine.handler().other.clone() else {
            return Err(Fault::new("the measured machine has no address of its partner"));
        };
        let (mut sent, mut fault) = (0, None);
        out.time_batches(|n| {
            let turns = &mut machine.handler_mut().policy;
            turns.left = n;
            let hello = MachineMessage::Hello { from: 0, number: turns.last };
            let done =
                far.send(hello).map_err(Fault::from_error).and_then(|()| self.run(&mut machine));
            if let Err(refused) = done {
                fault.get_or_insert(refused);
            }
            sent += n;
        });
        far.send(MachineMessage::Quit).map_err(Fault::from_error)?;
        self.tally.add_sent(sent);
        self.tally.add_wrong(machine.handler().policy.wrong);
        fault.map_or(Ok(()), Err)
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify()
    }
}

/// Value sent instead of a number, to end the round.
const END: u64 = u64::MAX;

/// Compared implementation: round trips through a queue in each direction.
pub(super) struct QueuePair<Q: Queue, M> {
    /// Ends of the measured thread.
    near: TakeCell<QueueEnds<Q>>,
    /// Ends of the echoing thread.
    far: TakeCell<QueueEnds<Q>>,
    tally: Tally,
    /// `true` if both threads share a CPU, so that each yields it when no number has arrived.
    should_yield: bool,
    policy: PhantomData<M>,
}

type QueueEnds<Q> = (<Q as Queue>::Sender<u64>, <Q as Queue>::Receiver<u64>, <Q as Queue>::Runtime);

impl<Q: Queue, M: WaitPolicy> QueuePair<Q, M> {
    /// Receives the next number; [`END`] if the sender is disconnected.
    #[inline(always)]
    async fn receive(&self, receiver: &mut Q::Receiver<u64>) -> u64 {
        if !M::POLLED {
            return Q::receive(receiver).await.unwrap_or(END);
        }
        loop {
            if let Some(number) = Q::try_receive(receiver) {
                return number;
            }
            if self.should_yield {
                rustix::thread::sched_yield();
            }
        }
    }
}

impl<Q: Queue, M: WaitPolicy> Handover for QueuePair<Q, M> {
    type Args = ();
    const SPEC: Spec = M::SPEC;

    const ROLES: &'static [Role] = ROUND_TRIP_ROLES;

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let (there, back) = (Q::pair(SLOTS), Q::pair(SLOTS));
        Ok(QueuePair {
            near: TakeCell::new((there.0, back.1, Q::runtime()?)),
            far: TakeCell::new((back.0, there.1, Q::runtime()?)),
            tally: Tally::default(),
            should_yield: setup.is_crowded(),
            policy: PhantomData,
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            let (sender, mut receiver, runtime) = self.far.take()?;
            let echoed = Q::run(&runtime, async {
                let mut echoed = 0;
                loop {
                    let number = self.receive(&mut receiver).await;
                    if number == END || !Q::send(&sender, number).await {
                        return echoed;
                    }
                    echoed += 1;
                }
            });
            self.tally.add_received(echoed);
            return Ok(());
        }
        let (sender, mut receiver, runtime) = self.near.take()?;
        let (mut sent, mut wrong) = (0, 0);
        out.time_batches(|n| {
            Q::run(&runtime, async {
                for number in sent..sent + n {
                    Q::send(&sender, number).await;
                    wrong += u64::from(self.receive(&mut receiver).await != number);
                }
            });
            sent += n;
        });
        Q::run(&runtime, Q::send(&sender, END));
        self.tally.add_sent(sent);
        self.tally.add_wrong(wrong);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify()
    }
}

/// Compared implementation: a notification in each direction, without a message.
pub(super) struct NotificationPair<M: Mechanism> {
    /// Ends of the measured thread.
    near: TakeCell<(M::Sender, M::Receiver)>,
    /// Ends of the echoing thread.
    far: TakeCell<(M::Sender, M::Receiver)>,
    /// 1 when the round is over, 0 before.
    is_over: AtomicU64,
    tally: Tally,
}

impl<M: Mechanism + 'static> Handover for NotificationPair<M>
where
    M::Sender: Send + 'static,
    M::Receiver: Send + 'static,
{
    type Args = ();
    const SPEC: Spec = PARKED_SPEC;

    const ROLES: &'static [Role] = ROUND_TRIP_ROLES;

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        let (there, back) =
            (M::pair().map_err(Fault::from_error)?, M::pair().map_err(Fault::from_error)?);
        Ok(NotificationPair {
            near: TakeCell::new((there.0, back.1)),
            far: TakeCell::new((back.0, there.1)),
            is_over: AtomicU64::new(0),
            tally: Tally::default(),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            let (sender, mut receiver) = self.far.take()?;
            let mut echoed = 0;
            loop {
                receiver.wait();
                // Acquire: pairs with the Release below.
                if self.is_over.load(Ordering::Acquire) != 0 {
                    self.tally.add_received(echoed);
                    return Ok(());
                }
                echoed += 1;
                sender.notify();
            }
        }
        let (sender, mut receiver) = self.near.take()?;
        let mut sent = 0;
        out.time_batches(|n| {
            for _ in 0..n {
                sender.notify();
                receiver.wait();
            }
            sent += n;
        });
        // Release: pairs with the Acquire above.
        self.is_over.store(1, Ordering::Release);
        sender.notify();
        self.tally.add_sent(sent);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify()
    }
}

args! {
    /// Arguments of the benchmark of messages in one direction.
    pub struct InboxArgs {
        /// Messages that an inbox or a queue can hold.
        slots_count: u32 = 1024 (smoke 16, range 2..=65536)
    }
}

/// Declaration of the benchmark of messages in one direction.
const STREAM_SPEC: Spec = Spec::new(
    "event/stream",
    "one message of a stream to a machine on another thread; the sender waits while the inbox is full",
)
.floor("ring/line-stream-adaptive")
.hands_over()
.pipelined();

const STREAM_ROLES: &[Role] = &[Role::measured("sender"), Role::serving("receiver")];

/// Counter of received items, which checks their order until `END`.
#[derive(Default)]
pub(super) struct ArrivalCounter {
    /// Number of items received, which is also the next expected item.
    count: u64,
    /// Number of received items that were not the expected ones.
    wrong: u64,
}

impl ArrivalCounter {
    /// Counts and checks a received item; returns `false` if the item is `END`.
    #[inline]
    fn arrived(&mut self, number: u64) -> bool {
        if number == END {
            return false;
        }
        self.wrong += u64::from(number != self.count);
        self.count += 1;
        true
    }
}

impl Handler for ArrivalCounter {
    type Message = u64;

    #[inline]
    fn handle(&mut self, number: u64, cx: &mut Context<'_, u64>) {
        if !self.arrived(number) {
            cx.stop();
        }
    }
}

/// Workload: a thread sends a stream of messages to a machine on another thread.
pub(super) struct MessageStream {
    address: handover_event::Address<u64>,
    machine: TakeCell<Machine<ArrivalCounter>>,
    tally: Tally,
}

impl Handover for MessageStream {
    type Args = InboxArgs;
    const SPEC: Spec = STREAM_SPEC;

    const ROLES: &'static [Role] = STREAM_ROLES;

    fn setup(args: &InboxArgs, _: &mut Setup) -> Result<Self, Fault> {
        let config = Config::default()
            .inbox_messages_max(args.slots_count)
            .when_full(WhenFull::Block { wait_max: Duration::MAX });
        let machine = Machine::new(ArrivalCounter::default(), config).map_err(Fault::from_error)?;
        Ok(MessageStream {
            address: machine.address().clone(),
            machine: TakeCell::new(machine),
            tally: Tally::default(),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            let mut machine = self.machine.take()?;
            machine.run().map_err(Fault::from_error)?;
            let ArrivalCounter { count, wrong } = *machine.handler();
            self.tally.add_received(count);
            self.tally.add_wrong(wrong);
            return Ok(());
        }
        let (mut sent, mut refused_count) = (0, 0);
        out.time_batches(|n| {
            for number in sent..sent + n {
                refused_count += u64::from(self.address.send(number).is_err());
            }
            sent += n;
        });
        self.address.send(END).map_err(Fault::from_error)?;
        self.tally.add_sent(sent);
        self.tally.add_wrong(refused_count);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify()
    }
}

/// Compared implementation: a stream of messages through a queue from one thread to another.
pub(super) struct ThreadStream<Q: Queue> {
    sender: TakeCell<(Q::Sender<u64>, Q::Runtime)>,
    receiver: TakeCell<(Q::Receiver<u64>, Q::Runtime)>,
    tally: Tally,
}

impl<Q: Queue> Handover for ThreadStream<Q> {
    type Args = InboxArgs;
    const SPEC: Spec = STREAM_SPEC;

    const ROLES: &'static [Role] = STREAM_ROLES;

    fn setup(args: &InboxArgs, _: &mut Setup) -> Result<Self, Fault> {
        let (sender, receiver) = Q::pair(args.slots_count);
        Ok(ThreadStream {
            sender: TakeCell::new((sender, Q::runtime()?)),
            receiver: TakeCell::new((receiver, Q::runtime()?)),
            tally: Tally::default(),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            let (mut receiver, runtime) = self.receiver.take()?;
            let mut arrivals = ArrivalCounter::default();
            Q::run(&runtime, async {
                while let Some(number) = Q::receive(&mut receiver).await {
                    if !arrivals.arrived(number) {
                        break;
                    }
                }
            });
            self.tally.add_received(arrivals.count);
            self.tally.add_wrong(arrivals.wrong);
            return Ok(());
        }
        let (sender, runtime) = self.sender.take()?;
        let (mut sent, mut refused_count) = (0, 0);
        out.time_batches(|n| {
            Q::run(&runtime, async {
                for number in sent..sent + n {
                    refused_count += u64::from(!Q::send(&sender, number).await);
                }
            });
            sent += n;
        });
        Q::run(&runtime, Q::send(&sender, END));
        self.tally.add_sent(sent);
        self.tally.add_wrong(refused_count);
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.tally.verify()
    }
}
