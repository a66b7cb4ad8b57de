//! Notifications: to a busy receiver, to a sleeping one, and round trips.

mod kernel;
mod signals;

pub use kernel::{EventFd, Futex, Pipe};

use crate::floor::relay::{Medium, Relay};
use crate::floor::wait_word::{WaitLine, WaitMode};
use handover_base::clock;
use handover_base::futex::Scope;
use handover_base::sync::shared::{AtomicU32, AtomicU64, Ordering};
use handover_harness::{
    Bench, Fault, Handover, Participant, Region, Role, Samples, Setup, benches,
};
use handover_notify::shared::MappedCore;
use handover_notify::{Config, Mechanism, Notify, Wait, adaptive};
use handover_record::{Nanos, Part, Spec, Wait as Waits, args};
use rustix::fd::AsFd;
#[cfg(feature = "peers")]
use signals::{EventListener, ParkingLot, Tokio};
use signals::{SignalMechanism, StdCondvar, StdPark};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zerocopy::FromZeros;

/// Notifies `n` times.
#[inline]
pub fn notify_many(sender: &impl Notify, n: u64) {
    for _ in 0..n {
        sender.notify();
    }
}

/// Notifies once; returns the sender's cost in clock ticks, and the time stamp before the notification.
#[inline]
pub fn notify_timed(sender: &impl Notify) -> (u64, u64) {
    let began = clock::ticks();
    sender.notify();
    (clock::ticks().wrapping_sub(began), began)
}

/// Waits so that a receiver can go to sleep: spinning, so that the sender itself is awake when the
/// time is up, or sleeping if both share a CPU.
pub fn pause(gap_ns: u64, crowded: bool) {
    if crowded {
        std::thread::sleep(Duration::from_nanos(gap_ns));
        return;
    }
    let until = clock::ticks() + clock::ticks_from_ns(gap_ns);
    while clock::ticks() < until {
        std::hint::spin_loop();
    }
}

/// A connected sender and receiver, set up so that the participants can be processes if the
/// mechanism allows it.
trait Wired: 'static {
    /// `true` if a setup in another process reaches the same notification.
    const PROCESSES: bool;
    type Sender: Notify + 'static;
    type Receiver: Wait + 'static;
    fn setup(setup: &mut Setup) -> Result<(Self::Sender, Self::Receiver), Fault>;
    /// `true` for the receiver's and the sender's figure of a busy pair, if it is recorded; a floor
    /// may have only one.
    const TELLS: [bool; 2] = [true, true];
    /// Returns the number of waits that returned after spinning, without a sleep; 0 if a wait never spins.
    fn spun(_: &Self::Receiver) -> u64 {
        0
    }
}

/// Our mechanism, with its core in shared memory.
enum Ours {}

impl Wired for Ours {
    const PROCESSES: bool = true;
    type Sender = adaptive::Sender<MappedCore<adaptive::Core>>;
    type Receiver = adaptive::Receiver<MappedCore<adaptive::Core>>;

    fn setup(setup: &mut Setup) -> Result<(Self::Sender, Self::Receiver), Fault> {
        let scope = if setup.processes() { Scope::Shared } else { Scope::Private };
        let file = setup.fd(|| {
            let made = MappedCore::<adaptive::Core>::create();
            made.map(|(_, file)| file).map_err(Fault::of)
        })?;
        let core = MappedCore::<adaptive::Core>::map(file.as_fd()).map_err(Fault::of)?;
        let receiver =
            adaptive::Receiver::over(core.clone(), scope, Config::default()).map_err(Fault::of)?;
        Ok((adaptive::Sender::over(core, scope), receiver))
    }

    fn spun(receiver: &Self::Receiver) -> u64 {
        receiver.stats().by_spinning + receiver.stats().found_pending
    }
}

/// A mechanism within one process.
struct Via<M>(std::marker::PhantomData<M>);

impl<M: Mechanism> Wired for Via<M> {
    const PROCESSES: bool = false;
    type Sender = M::Sender;
    type Receiver = M::Receiver;

    fn setup(_: &mut Setup) -> Result<(M::Sender, M::Receiver), Fault> {
        M::pair().map_err(Fault::of)
    }
}

/// Floor: a word of memory for each way of waiting.
enum Bare<const WAITS: usize> {}

const SPINS: usize = 0;
const ADAPTS: usize = 1;
const SLEEPS: usize = 2;
const WAYS: [Waits; 3] = [Waits::Spin, Waits::SpinThenSleep, Waits::Sleep];

/// Value of a [`WaitWord`](crate::floor::wait_word::WaitWord) with a pending notification; 0 otherwise.
const PENDING: u32 = 1;

struct BareSender(Region<WaitLine<1>>, WaitMode);

impl Notify for BareSender {
    #[inline]
    fn notify(&self) {
        // A notification that is already pending covers this one.
        if self.0.0[0].value() != PENDING {
            self.0.0[0].publish(PENDING, self.1);
        }
    }
}

struct BareReceiver {
    word: Region<WaitLine<1>>,
    mode: WaitMode,
    spun_count: u64,
}

impl Wait for BareReceiver {
    #[inline]
    fn wait(&mut self) -> u64 {
        let (_, has_slept) = self.word.0[0].wait(self.mode, |it| it == PENDING);
        self.word.0[0].clear();
        self.spun_count += u64::from(!has_slept);
        1
    }

    fn wait_timeout(&mut self, _: Duration) -> Option<u64> {
        Some(self.wait())
    }

    fn try_wait(&mut self) -> Option<u64> {
        (self.word.0[0].value() == PENDING).then(|| self.wait())
    }
}

impl<const WAITS: usize> Wired for Bare<WAITS> {
    const PROCESSES: bool = true;
    // To see a pending notification, the sender reads the line, which the receiver must then fetch
    // back.
    const TELLS: [bool; 2] = [false, true];
    type Sender = BareSender;
    type Receiver = BareReceiver;

    fn setup(setup: &mut Setup) -> Result<(BareSender, BareReceiver), Fault> {
        let (word, mode) = (setup.region::<WaitLine<1>>()?, WaitMode::of(WAYS[WAITS], setup));
        let receiver = BareReceiver { word: word.clone(), mode, spun_count: 0 };
        Ok((BareSender(word, mode), receiver))
    }

    fn spun(receiver: &BareReceiver) -> u64 {
        receiver.spun_count
    }
}

/// Floor: a count of notifications that only the sender writes, the least that can notify a
/// receiver.
enum Counting {}

struct CountingSender(Region<WaitLine<1>>, WaitMode, AtomicU32);

impl Notify for CountingSender {
    #[inline]
    fn notify(&self) {
        // Relaxed: there is one sender.
        let count = self.2.load(Ordering::Relaxed).wrapping_add(1);
        self.2.store(count, Ordering::Relaxed);
        self.0.0[0].publish(count, self.1);
    }
}

struct CountingReceiver(Region<WaitLine<1>>, WaitMode, u32);

impl Wait for CountingReceiver {
    #[inline]
    fn wait(&mut self) -> u64 {
        let last = self.2;
        self.2 = self.0.0[0].wait(self.1, |it| it != last).0;
        self.2.wrapping_sub(last).into()
    }

    fn wait_timeout(&mut self, _: Duration) -> Option<u64> {
        Some(self.wait())
    }

    fn try_wait(&mut self) -> Option<u64> {
        (self.0.0[0].value() != self.2).then(|| self.wait())
    }
}

impl Wired for Counting {
    const PROCESSES: bool = true;
    const TELLS: [bool; 2] = [true, false];
    type Sender = CountingSender;
    type Receiver = CountingReceiver;

    fn setup(setup: &mut Setup) -> Result<(CountingSender, CountingReceiver), Fault> {
        let (word, mode) =
            (setup.region::<WaitLine<1>>()?, WaitMode::of(Waits::SpinThenSleep, setup));
        let receiver = CountingReceiver(word.clone(), mode, 0);
        Ok((CountingSender(word, mode, AtomicU32::new(0)), receiver))
    }
}

/// The receiver, used by the one participant that waits.
struct Receiving<R>(Mutex<R>);

impl<R> Receiving<R> {
    fn take(&self) -> MutexGuard<'_, R> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State that the participants share besides the notification.
#[derive(FromZeros)]
#[repr(C, align(128))]
struct Words {
    /// Set when the receiver has waited enough, or the sender has notified enough.
    over: AtomicU32,
    /// 1 if the last wait returned without a sleep.
    spun: AtomicU32,
    /// Time at which the last wait returned, in clock ticks.
    woke: AtomicU64,
    /// Number of waits that have returned.
    waits: AtomicU64,
    /// Number of notifications sent.
    sent: AtomicU64,
}

/// Workload: a sender and a receiver that both run as fast as possible.
struct Busy<W: Wired> {
    sender: W::Sender,
    receiver: Receiving<W::Receiver>,
    words: Region<Words>,
}

/// Waits between two calls of [`Samples::running`].
const WAITS_PER_LOOK: u64 = 64;

const RECEIVER: usize = 0;
const SENDER: usize = 1;

impl<W: Wired> Handover for Busy<W> {
    type Args = ();
    const PROCESSES: bool = W::PROCESSES;
    const SPEC: Spec = Spec::new(
        "notify/busy",
        "a sender that notifies without pause, a receiver that waits without pause",
    )
    .classic("notify")
    .ladder()
    .parts(&[
        Part::new("receiver", "one wait that returned, with all that had come since the last"),
        Part::new("sender", "one notification, to a receiver that is mostly awake"),
    ])
    .hands_over();

    const ROLES: &'static [Role] = &[Role::measured("sender"), Role::measured("receiver")];

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let (sender, receiver) = W::setup(setup)?;
        Ok(Busy { sender, receiver: Receiving(receiver.into()), words: setup.region()? })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index == 0 {
            if W::TELLS[SENDER] {
                out.batches_of(SENDER, |n| notify_many(&self.sender, n));
            }
            // Relaxed: the flag publishes no other data. The receiver always has another
            // notification to come.
            while self.words.over.load(Ordering::Relaxed) == 0 {
                self.sender.notify();
            }
        } else {
            let mut receiver = self.receiver.take();
            let mut wait = |n: u64| {
                for _ in 0..n {
                    receiver.wait();
                }
            };
            match W::TELLS[RECEIVER] {
                true => out.batches_of(RECEIVER, wait),
                false => {
                    while out.running() {
                        wait(WAITS_PER_LOOK);
                    }
                }
            }
            self.words.over.store(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

args! {
    /// Pause between notifications.
    pub struct Gap {
        /// Pause before each notification, for the receiver to fall asleep (the classic notify: 30us).
        gap_ns: Nanos = 200000 (smoke 200000, range 1000..=100000000)
    }
}

/// Workload: a sender that gives the receiver time to fall asleep.
struct Sleeping<W: Wired> {
    sender: W::Sender,
    receiver: Receiving<W::Receiver>,
    words: Region<Words>,
    gap_ns: u64,
    crowded: bool,
}

const SEND: usize = 0;
const WAKE: usize = 1;
const SEND_SPUN: usize = 2;
const WAKE_SPUN: usize = 3;

impl<W: Wired> Handover for Sleeping<W> {
    type Args = Gap;
    const PROCESSES: bool = W::PROCESSES;
    const SPEC: Spec = Spec::new(
        "notify/sleeping",
        "a notification to a receiver that has had time to fall asleep",
    )
    .classic("notify -S")
    .ladder()
    .parts(&[
        Part::new("send", "the sender's cost when the receiver truly slept, clock included")
            .waits(Waits::Sleep),
        Part::new("wake", "from before the notification to after the wait of a true sleeper")
            .waits(Waits::Sleep),
        Part::new("send-spun", "the sender's cost when the receiver was still spinning")
            .waits(Waits::Spin)
            .optional()
            .off_ladder(),
        Part::new("wake-spun", "the same way to a receiver that was still spinning")
            .waits(Waits::Spin)
            .optional()
            .off_ladder(),
    ])
    .hands_over();

    const ROLES: &'static [Role] = &[Role::measured("sender"), Role::serving("receiver")];

    fn setup(args: &Gap, setup: &mut Setup) -> Result<Self, Fault> {
        let (sender, receiver) = W::setup(setup)?;
        Ok(Sleeping {
            sender,
            receiver: Receiving(receiver.into()),
            words: setup.region()?,
            gap_ns: args.gap_ns.0,
            crowded: setup.cpus().windows(2).all(|pair| pair[0] == pair[1]),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index == 0 {
            self.send(out)
        } else {
            self.receive()
        }
        Ok(())
    }

    fn verify(&self) -> Result<(), Fault> {
        // Relaxed: both participants have ended.
        let sent = self.words.sent.load(Ordering::Relaxed);
        let waits = self.words.waits.load(Ordering::Relaxed);
        match sent == waits && sent > 0 {
            true => Ok(()),
            false => Err(Fault::new(format!(
                "{sent} notifications were sent, but {waits} waits have returned"
            ))),
        }
    }
}

impl<W: Wired> Sleeping<W> {
    fn send(&self, out: &mut Samples) {
        let words = &*self.words;
        let mut turn = 0;
        let mut spun_count = 0u32;
        while out.running() {
            pause(self.gap_ns, self.crowded);
            let (cost, began) = notify_timed(&self.sender);
            turn += 1;
            // Acquire: pairs with the Release in receive().
            while words.waits.load(Ordering::Acquire) != turn {
                std::thread::yield_now();
            }
            // Relaxed: ordered by the Acquire above.
            let spun = words.spun.load(Ordering::Relaxed) != 0;
            let latency = words.woke.load(Ordering::Relaxed).saturating_sub(began);
            spun_count += u32::from(spun);
            out.note(if spun { SEND_SPUN } else { SEND }, cost);
            out.note(if spun { WAKE_SPUN } else { WAKE }, latency);
        }
        // Each turn yields two figures, and a tally is divided by all operations.
        out.tally("spun_share", 2.0 * f64::from(spun_count));
        words.sent.store(turn, Ordering::Relaxed);
        // Release: pairs with the Acquire in receive().
        words.over.store(1, Ordering::Release);
        self.sender.notify();
    }

    fn receive(&self) {
        let words = &*self.words;
        let mut receiver = self.receiver.take();
        let mut turn = 0;
        loop {
            let before = W::spun(&receiver);
            receiver.wait();
            let now = clock::ticks();
            // Acquire: pairs with the Release in send().
            if words.over.load(Ordering::Acquire) != 0 {
                return;
            }
            turn += 1;
            // Relaxed: published by the Release below.
            words.spun.store(u32::from(W::spun(&receiver) != before), Ordering::Relaxed);
            words.woke.store(now, Ordering::Relaxed);
            // Release: pairs with the Acquire in send().
            words.waits.store(turn, Ordering::Release);
        }
    }
}

/// Medium: a notification in each direction, like a call to an answering thread.
struct There<W: Wired> {
    there: (W::Sender, Receiving<W::Receiver>),
    back: (W::Sender, Receiving<W::Receiver>),
    words: Region<Words>,
}

impl<W: Wired> Medium for There<W>
where
    W::Receiver: Send,
{
    type Args = ();
    const PROCESSES: bool = W::PROCESSES;
    const SPEC: Spec =
        Spec::new("notify/round-trip", "a notification to a thread that waits, and one back")
            .floor("floor/adaptive")
            .floors(&["floor/sleeping"])
            .ladder()
            .hands_over()
            .batched();
    type Ping = ();

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let (there, back) = (W::setup(setup)?, W::setup(setup)?);
        Ok(There {
            there: (there.0, Receiving(there.1.into())),
            back: (back.0, Receiving(back.1.into())),
            words: setup.region()?,
        })
    }

    fn ping(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn round_trip(&self, (): &mut ()) -> Result<(), Fault> {
        self.there.0.notify();
        self.back.1.take().wait();
        Ok(())
    }

    fn end(&self, (): &mut ()) -> Result<(), Fault> {
        // Release: pairs with the Acquire in echo().
        self.words.over.store(1, Ordering::Release);
        self.there.0.notify();
        Ok(())
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut turns = 0;
        let mut receiver = self.there.1.take();
        loop {
            receiver.wait();
            // Acquire: pairs with the Release in end().
            if self.words.over.load(Ordering::Acquire) != 0 {
                return Ok(turns);
            }
            turns += 1;
            self.back.0.notify();
        }
    }
}

/// The benchmarks of notifications.
pub const ALL: &[Bench] = benches! {
    many ours "handover" SpinThenSleep: Busy<Ours>;
    many floor "counting" SpinThenSleep: Busy<Counting>;
    many floor "adaptive" SpinThenSleep: Busy<Bare<ADAPTS>>;
    many floor "sleeping" Sleep: Busy<Bare<SLEEPS>>;
    many peer "eventfd" Sleep: Busy<Via<EventFd>>;
    many peer "pipe" Sleep: Busy<Via<Pipe>>;
    many peer "futex" Sleep: Busy<Via<Futex>>;
    many peer "std_condvar" Sleep: Busy<SignalMechanism<StdCondvar>>;
    many peer "std_park" Sleep: Busy<SignalMechanism<StdPark>>;
    many peer "parking_lot" Sleep: Busy<SignalMechanism<ParkingLot>>, if feature = "peers";
    many peer "event-listener" Sleep: Busy<SignalMechanism<EventListener>>, if feature = "peers";
    many peer "tokio" Sleep: Busy<SignalMechanism<Tokio>>, if feature = "peers";
    many ours "handover" SpinThenSleep: Sleeping<Ours>;
    many floor "spinning" Spin: Sleeping<Bare<SPINS>>;
    many floor "sleeping" Sleep: Sleeping<Bare<SLEEPS>>;
    many peer "eventfd" Sleep: Sleeping<Via<EventFd>>;
    many peer "pipe" Sleep: Sleeping<Via<Pipe>>;
    many peer "futex" Sleep: Sleeping<Via<Futex>>;
    many peer "std_condvar" Sleep: Sleeping<SignalMechanism<StdCondvar>>;
    many peer "std_park" Sleep: Sleeping<SignalMechanism<StdPark>>;
    many peer "parking_lot" Sleep: Sleeping<SignalMechanism<ParkingLot>>, if feature = "peers";
    many peer "event-listener" Sleep: Sleeping<SignalMechanism<EventListener>>, if feature = "peers";
    many peer "tokio" Sleep: Sleeping<SignalMechanism<Tokio>>, if feature = "peers";
    many ours "handover" SpinThenSleep: Relay<There<Ours>>;
    many peer "eventfd" Sleep: Relay<There<Via<EventFd>>>;
    many peer "pipe" Sleep: Relay<There<Via<Pipe>>>;
    many peer "futex" Sleep: Relay<There<Via<Futex>>>;
    many peer "std_condvar" Sleep: Relay<There<SignalMechanism<StdCondvar>>>;
    many peer "std_park" Sleep: Relay<There<SignalMechanism<StdPark>>>;
    many peer "parking_lot" Sleep: Relay<There<SignalMechanism<ParkingLot>>>, if feature = "peers";
    many peer "event-listener" Sleep: Relay<There<SignalMechanism<EventListener>>>, if feature = "peers";
    many peer "tokio" Sleep: Relay<There<SignalMechanism<Tokio>>>, if feature = "peers";
};
