//! Two threads: round trips, and messages one way.

use super::drive::{Beat, Next, Pace, Player, pair};
use super::queues::Queue;
use super::{Config, Seat, ThreadConfig, crowded, refused, same};
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_event::{Context, Handler, Machine, ParkOn, WhenFull};
use handover_harness::{Fault, Handover, Party, Rig, Role, Samples};
use handover_notify::{Mechanism, Notify, Wait};
use handover_record::{Spec, args};
use std::marker::PhantomData;

/// Way in which both sides wait for each other.
pub(super) trait Manner: Send + Sync + 'static {
    const SPEC: Spec;
    /// `true` if both sides poll and never sleep.
    const POLLED: bool = false;

    fn thread() -> ThreadConfig {
        ThreadConfig::default()
    }
}

/// Both sides poll for a while, and then sleep.
pub(super) enum Eager {}

impl Manner for Eager {
    const SPEC: Spec = Spec {
        id: "event/round-trip",
        what: "a message to a machine on another thread that waits as it does by default, and one back",
        floor: Some("floor/adaptive"),
        floors: &["floor/futex"],
        classic: Some("hello3 -l"),
        ladder: true,
        hands_over: true,
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
}

/// Both sides poll without end.
pub(super) enum Polled {}

impl Manner for Polled {
    const SPEC: Spec = Spec {
        id: "event/polled",
        what: "a message to a machine on another thread that polls without end, and one back",
        floor: Some("floor/cache-line-2"),
        hands_over: true,
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    const POLLED: bool = true;
}

/// Benchmark of sides that sleep.
const PARKED: Spec = Spec {
    id: "event/parked",
    what: "a message to a machine on another thread that sleeps at once, and one back",
    floor: Some("floor/futex"),
    hands_over: true,
    batched: true,
    file: file!(),
    line: line!(),
    ..Spec::DEFAULT
};

/// Both sides sleep at once, on a futex.
pub(super) enum Parked {}

impl Manner for Parked {
    const SPEC: Spec = PARKED;

    fn thread() -> ThreadConfig {
        let spin = handover_notify::Config::never_spin();
        ThreadConfig { spin, ..ThreadConfig::default() }
    }
}

/// Both sides sleep at once, in epoll, and are woken through an eventfd.
pub(super) enum OnDescriptor {}

impl Manner for OnDescriptor {
    const SPEC: Spec = PARKED;

    fn thread() -> ThreadConfig {
        ThreadConfig { park_on: ParkOn::Descriptor, ..Parked::thread() }
    }
}

const SLOTS: u32 = 64;

/// Pace of the near side: sends `left` more hellos, and stops with the last answer.
#[derive(Default)]
pub(super) struct Turns {
    left: u64,
    last: u64,
    wrong: u64,
    ends: bool,
}

impl Pace for Turns {
    #[inline]
    fn received(&mut self, number: u64) -> Next {
        self.wrong += u64::from(number != self.last + 1);
        self.last = number + 1; // its answer
        if !self.ends {
            return Next::Answer;
        }
        self.left -= 1;
        if self.left == 0 { Next::Stop } else { Next::Answer }
    }
}

/// Counts of both sides; each writes its own when it ends.
#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    echoed: AtomicU64,
    wrong: AtomicU64,
}

impl Counts {
    /// Relaxed: read after the participants have ended; collecting their results orders the
    /// accesses.
    fn sent(&self, sent: u64, wrong: u64) {
        self.sent.store(sent, Ordering::Relaxed);
        // Relaxed: read after the participants have ended.
        self.wrong.fetch_add(wrong, Ordering::Relaxed);
    }

    fn echoed(&self, echoed: u64, wrong: u64) {
        // Relaxed: as in sent().
        self.echoed.store(echoed, Ordering::Relaxed);
        self.wrong.fetch_add(wrong, Ordering::Relaxed);
    }

    fn verify(&self) -> Result<(), Fault> {
        // Relaxed: both participants have ended.
        let [sent, echoed, wrong] =
            [&self.sent, &self.echoed, &self.wrong].map(|it| it.load(Ordering::Relaxed));
        match sent {
            0 => Err(Fault::new("nothing was sent")),
            _ => {
                same("messages that came to the other side, wrong ones", [echoed, wrong], [sent, 0])
            }
        }
    }
}

fn there_and_back() -> Vec<Role> {
    vec![Role::measured("ping"), Role::serving("echo")]
}

/// Workload: two machines that exchange hellos.
pub(super) struct Beats<M> {
    near: Seat<Machine<Player<Turns>>>,
    far: Seat<Machine<Player<Turns>>>,
    counts: Counts,
    yields: bool,
    manner: PhantomData<M>,
}

impl<M: Manner> Beats<M> {
    /// Runs the machine until it stops.
    #[inline]
    fn run(&self, machine: &mut Machine<Player<Turns>>) -> Result<(), Fault> {
        if !M::POLLED {
            machine.run().map_err(refused)?;
            return Ok(());
        }
        loop {
            let round = machine.poll().map_err(refused)?;
            if round.ended.is_some() {
                return Ok(());
            }
            if round.handled == 0 && self.yields {
                rustix::thread::sched_yield();
            }
        }
    }
}

impl<M: Manner> Handover for Beats<M> {
    type Args = ();
    const SPEC: Spec = M::SPEC;

    fn roles((): &()) -> Vec<Role> {
        there_and_back()
    }

    fn rig((): &(), rig: &mut Rig) -> Result<Self, Fault> {
        let config = Config { inbox_messages_max: SLOTS, thread: M::thread(), ..Config::default() };
        let near = Turns { last: 1, ends: true, ..Turns::default() };
        let [near, far] = pair([near, Turns::default()], config).map_err(refused)?;
        Ok(Beats {
            near: Seat::of(near),
            far: Seat::of(far),
            counts: Counts::default(),
            yields: crowded(rig),
            manner: PhantomData,
        })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index > 0 {
            let mut machine = self.far.take()?;
            self.run(&mut machine)?;
            let echoed = machine.stats().handled - 1; // the last message only ends the round
            self.counts.echoed(echoed, machine.handler().pace.wrong);
            return Ok(());
        }
        let mut machine = self.near.take()?;
        let Some(far) = machine.handler().other.clone() else {
            return Err(Fault::new("nobody to talk to"));
        };
        let (mut sent, mut fault) = (0, None);
        out.batches(|n| {
            let turns = &mut machine.handler_mut().pace;
            turns.left = n;
            let hello = Beat::Hello { from: 0, number: turns.last };
            let done = far.pass(hello).map_err(refused).and_then(|()| self.run(&mut machine));
            if let Err(refused) = done {
                fault.get_or_insert(refused);
            }
            sent += n;
        });
        far.pass(Beat::Quit).map_err(refused)?;
        self.counts.sent(sent, machine.handler().pace.wrong);
        fault.map_or(Ok(()), Err)
    }

    fn verify(&self) -> Result<(), Fault> {
        self.counts.verify()
    }
}

/// Value in place of a number: the round is over.
const END: u64 = u64::MAX;

/// Peer: a queue in each direction.
pub(super) struct Numbers<Q: Queue, M> {
    near: Seat<Ends<Q>>,
    far: Seat<Ends<Q>>,
    counts: Counts,
    yields: bool,
    manner: PhantomData<M>,
}

/// Queue ends and runtime of one side.
type Ends<Q> = (<Q as Queue>::Sender<u64>, <Q as Queue>::Receiver<u64>, <Q as Queue>::Runtime);

impl<Q: Queue, M: Manner> Numbers<Q, M> {
    #[inline(always)]
    async fn receive(&self, receiver: &mut Q::Receiver<u64>) -> u64 {
        if !M::POLLED {
            return Q::receive(receiver).await.unwrap_or(END);
        }
        loop {
            if let Some(number) = Q::try_receive(receiver) {
                return number;
            }
            if self.yields {
                rustix::thread::sched_yield();
            }
        }
    }
}

impl<Q: Queue, M: Manner> Handover for Numbers<Q, M> {
    type Args = ();
    const SPEC: Spec = M::SPEC;

    fn roles((): &()) -> Vec<Role> {
        there_and_back()
    }

    fn rig((): &(), rig: &mut Rig) -> Result<Self, Fault> {
        let (there, back) = (Q::pair(SLOTS), Q::pair(SLOTS));
        Ok(Numbers {
            near: Seat::of((there.0, back.1, Q::runtime()?)),
            far: Seat::of((back.0, there.1, Q::runtime()?)),
            counts: Counts::default(),
            yields: crowded(rig),
            manner: PhantomData,
        })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index > 0 {
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
            self.counts.echoed(echoed, 0);
            return Ok(());
        }
        let (sender, mut receiver, runtime) = self.near.take()?;
        let (mut sent, mut wrong) = (0, 0);
        out.batches(|n| {
            Q::run(&runtime, async {
                for number in sent..sent + n {
                    Q::send(&sender, number).await;
                    wrong += u64::from(self.receive(&mut receiver).await != number);
                }
            });
            sent += n;
        });
        Q::run(&runtime, Q::send(&sender, END));
        self.counts.sent(sent, wrong);
        Ok(())
    }

    fn verify(&self) -> Result<(), Fault> {
        self.counts.verify()
    }
}

/// Peer: a notification in each direction without a message, for comparison with machines that
/// sleep.
pub(super) struct Bare<M: Mechanism> {
    near: Seat<(M::Sender, M::Receiver)>,
    far: Seat<(M::Sender, M::Receiver)>,
    over: AtomicU64,
    counts: Counts,
}

impl<M: Mechanism + 'static> Handover for Bare<M>
where
    M::Sender: Send + 'static,
    M::Receiver: Send + 'static,
{
    type Args = ();
    const SPEC: Spec = PARKED;

    fn roles((): &()) -> Vec<Role> {
        there_and_back()
    }

    fn rig((): &(), _: &mut Rig) -> Result<Self, Fault> {
        let (there, back) = (M::pair().map_err(refused)?, M::pair().map_err(refused)?);
        Ok(Bare {
            near: Seat::of((there.0, back.1)),
            far: Seat::of((back.0, there.1)),
            over: AtomicU64::new(0),
            counts: Counts::default(),
        })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index > 0 {
            let (sender, mut receiver) = self.far.take()?;
            let mut echoed = 0;
            loop {
                receiver.wait();
                // Acquire: pairs with the Release below.
                if self.over.load(Ordering::Acquire) != 0 {
                    self.counts.echoed(echoed, 0);
                    return Ok(());
                }
                echoed += 1;
                sender.notify();
            }
        }
        let (sender, mut receiver) = self.near.take()?;
        let mut sent = 0;
        out.batches(|n| {
            for _ in 0..n {
                sender.notify();
                receiver.wait();
            }
            sent += n;
        });
        // Release: pairs with the Acquire above.
        self.over.store(1, Ordering::Release);
        sender.notify();
        self.counts.sent(sent, 0);
        Ok(())
    }

    fn verify(&self) -> Result<(), Fault> {
        self.counts.verify()
    }
}

args! {
    /// Capacity.
    pub struct Slots {
        /// Messages that may wait.
        slots_count: u32 = 1024 (smoke 16, range 2..=65536)
    }
}

/// Benchmark of messages one way, for all contenders.
const STREAM: Spec = Spec {
    id: "event/stream",
    pipelined: true,
    what: "one message of a stream to a thread that handles them, the sender waiting where there is no room",
    floor: Some("ring/line-stream-adaptive"),
    hands_over: true,
    file: file!(),
    line: line!(),
    ..Spec::DEFAULT
};

fn one_way() -> Vec<Role> {
    vec![Role::measured("sender"), Role::serving("receiver")]
}

/// Counts arriving numbers and checks their order, until `END`.
#[derive(Default)]
pub(super) struct Arrivals {
    count: u64,
    wrong: u64,
}

impl Arrivals {
    /// Returns `true` until the end has arrived.
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

impl Handler for Arrivals {
    type Message = u64;

    #[inline]
    fn handle(&mut self, number: u64, cx: &mut Context<'_, u64>) {
        if !self.arrived(number) {
            cx.stop();
        }
    }
}

/// Workload: a machine that receives from another thread.
pub(super) struct Streamed {
    address: handover_event::Address<u64>,
    machine: Seat<Machine<Arrivals>>,
    counts: Counts,
}

impl Handover for Streamed {
    type Args = Slots;
    const SPEC: Spec = STREAM;

    fn roles(_: &Slots) -> Vec<Role> {
        one_way()
    }

    fn rig(args: &Slots, _: &mut Rig) -> Result<Self, Fault> {
        let config = Config {
            inbox_messages_max: args.slots_count,
            when_full: WhenFull::Block { wait_ns_max: u64::MAX },
            ..Config::default()
        };
        let machine = Machine::new(Arrivals::default(), config).map_err(refused)?;
        Ok(Streamed {
            address: machine.address().clone(),
            machine: Seat::of(machine),
            counts: Counts::default(),
        })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index > 0 {
            let mut machine = self.machine.take()?;
            machine.run().map_err(refused)?;
            let Arrivals { count, wrong } = *machine.handler();
            self.counts.echoed(count, wrong);
            return Ok(());
        }
        let (mut sent, mut refused_count) = (0, 0);
        out.batches(|n| {
            for number in sent..sent + n {
                refused_count += u64::from(self.address.pass(number).is_err());
            }
            sent += n;
        });
        self.address.pass(END).map_err(refused)?;
        self.counts.sent(sent, refused_count);
        Ok(())
    }

    fn verify(&self) -> Result<(), Fault> {
        self.counts.verify()
    }
}

/// Peer: a queue, one way.
pub(super) struct Stream<Q: Queue> {
    sender: Seat<(Q::Sender<u64>, Q::Runtime)>,
    receiver: Seat<(Q::Receiver<u64>, Q::Runtime)>,
    counts: Counts,
}

impl<Q: Queue> Handover for Stream<Q> {
    type Args = Slots;
    const SPEC: Spec = STREAM;

    fn roles(_: &Slots) -> Vec<Role> {
        one_way()
    }

    fn rig(args: &Slots, _: &mut Rig) -> Result<Self, Fault> {
        let (sender, receiver) = Q::pair(args.slots_count);
        Ok(Stream {
            sender: Seat::of((sender, Q::runtime()?)),
            receiver: Seat::of((receiver, Q::runtime()?)),
            counts: Counts::default(),
        })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index > 0 {
            let (mut receiver, runtime) = self.receiver.take()?;
            let mut arrivals = Arrivals::default();
            Q::run(&runtime, async {
                while let Some(number) = Q::receive(&mut receiver).await {
                    if !arrivals.arrived(number) {
                        break;
                    }
                }
            });
            self.counts.echoed(arrivals.count, arrivals.wrong);
            return Ok(());
        }
        let (sender, runtime) = self.sender.take()?;
        let (mut sent, mut refused_count) = (0, 0);
        out.batches(|n| {
            Q::run(&runtime, async {
                for number in sent..sent + n {
                    refused_count += u64::from(!Q::send(&sender, number).await);
                }
            });
            sent += n;
        });
        Q::run(&runtime, Q::send(&sender, END));
        self.counts.sent(sent, refused_count);
        Ok(())
    }

    fn verify(&self) -> Result<(), Fault> {
        self.counts.verify()
    }
}
