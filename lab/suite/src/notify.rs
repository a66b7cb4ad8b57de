//! Notifications: to a busy receiver, to a sleeping one, and round trips.

mod kernel;
mod others;

pub use kernel::{EventFd, Futex, Pipe};

use crate::floor::bed::{Bed, Manner};
use crate::floor::relay::{Medium, Relay};
use handover_base::clock;
use handover_base::futex::Scope;
use handover_base::sync::shared::{AtomicU32, AtomicU64, Ordering};
use handover_harness::{Bench, Fault, Handover, Party, Region, Rig, Role, Samples};
use handover_notify::shared::Shared;
use handover_notify::{Config, Mechanism, Notify, Wait, adaptive};
use handover_record::{Contender, Nanos, Part, Spec, Wait as Waits, args};
use others::{By, StdCondvar, StdPark};
#[cfg(feature = "peers")]
use others::{EventListener, ParkingLot, Tokio};
use rustix::fd::AsFd;
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

/// Notifies once; returns the sender's cost in clock ticks and the begin.
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
    fn rig(rig: &mut Rig) -> Result<(Self::Sender, Self::Receiver), Fault>;
    /// `true` for the receiver's and the sender's figure of a busy pair, if it is recorded; a floor
    /// may have only one.
    const TELLS: [bool; 2] = [true, true];
    /// Returns the number of waits that ended after spinning, without a sleep; 0 if a wait never
    /// spins.
    fn spun(receiver: &Self::Receiver) -> u64;
}

/// Our mechanism, with its core in shared memory.
enum Ours {}

impl Wired for Ours {
    const PROCESSES: bool = true;
    type Sender = adaptive::Sender<Shared<adaptive::Core>>;
    type Receiver = adaptive::Receiver<Shared<adaptive::Core>>;

    fn rig(rig: &mut Rig) -> Result<(Self::Sender, Self::Receiver), Fault> {
        let refused = |error: &dyn std::fmt::Display| Fault::new(error.to_string());
        let scope = if rig.processes() { Scope::Shared } else { Scope::Private };
        let file = rig.fd(|| {
            let made = Shared::<adaptive::Core>::create();
            made.map(|(_, file)| file).map_err(|error| refused(&error))
        })?;
        let core = Shared::<adaptive::Core>::map(file.as_fd()).map_err(|error| refused(&error))?;
        let receiver = adaptive::Receiver::over(core.clone(), scope, Config::default())
            .map_err(|error| refused(&error))?;
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

    fn rig(_: &mut Rig) -> Result<(M::Sender, M::Receiver), Fault> {
        M::pair().map_err(|error| Fault::new(error.to_string()))
    }

    fn spun(_: &M::Receiver) -> u64 {
        0
    }
}

/// Floor: a word of memory for each way of waiting.
enum Bare<const WAITS: usize> {}

const SPINS: usize = 0;
const ADAPTS: usize = 1;
const SLEEPS: usize = 2;
const WAYS: [Waits; 3] = [Waits::Spin, Waits::SpinThenSleep, Waits::Sleep];

/// Value of a [`Bed`] with a pending notification; 0 otherwise.
const PENDING: u32 = 1;

struct BareSender(Region<Bed>, Manner);

impl Notify for BareSender {
    #[inline]
    fn notify(&self) {
        // A notification that is already pending covers this one.
        if self.0.value() != PENDING {
            self.0.hand(PENDING, self.1);
        }
    }
}

struct BareReceiver {
    bed: Region<Bed>,
    manner: Manner,
    spun_count: u64,
}

impl Wait for BareReceiver {
    #[inline]
    fn wait(&mut self) -> u64 {
        let (_, has_slept) = self.bed.wait(self.manner, |it| it == PENDING);
        self.bed.clear();
        self.spun_count += u64::from(!has_slept);
        1
    }

    fn wait_timeout(&mut self, _: Duration) -> Option<u64> {
        Some(self.wait())
    }

    fn try_wait(&mut self) -> Option<u64> {
        (self.bed.value() == PENDING).then(|| self.wait())
    }
}

impl<const WAITS: usize> Wired for Bare<WAITS> {
    const PROCESSES: bool = true;
    // To see a pending notification, the sender reads the line, which the receiver must then fetch
    // back.
    const TELLS: [bool; 2] = [false, true];
    type Sender = BareSender;
    type Receiver = BareReceiver;

    fn rig(rig: &mut Rig) -> Result<(BareSender, BareReceiver), Fault> {
        let (bed, manner) = (rig.region::<Bed>()?, Manner::of(WAYS[WAITS], rig));
        let receiver = BareReceiver { bed: bed.clone(), manner, spun_count: 0 };
        Ok((BareSender(bed, manner), receiver))
    }

    fn spun(receiver: &BareReceiver) -> u64 {
        receiver.spun_count
    }
}

/// Floor: a count of notifications that only the sender writes, the least that can notify a
/// receiver.
enum Counting {}

struct CountingSender(Region<Bed>, Manner, AtomicU32);

impl Notify for CountingSender {
    #[inline]
    fn notify(&self) {
        // Relaxed: there is one sender.
        let count = self.2.load(Ordering::Relaxed).wrapping_add(1);
        self.2.store(count, Ordering::Relaxed);
        self.0.hand(count, self.1);
    }
}

struct CountingReceiver(Region<Bed>, Manner, u32);

impl Wait for CountingReceiver {
    #[inline]
    fn wait(&mut self) -> u64 {
        let last = self.2;
        self.2 = self.0.wait(self.1, |it| it != last).0;
        self.2.wrapping_sub(last).into()
    }

    fn wait_timeout(&mut self, _: Duration) -> Option<u64> {
        Some(self.wait())
    }

    fn try_wait(&mut self) -> Option<u64> {
        (self.0.value() != self.2).then(|| self.wait())
    }
}

impl Wired for Counting {
    const PROCESSES: bool = true;
    const TELLS: [bool; 2] = [true, false];
    type Sender = CountingSender;
    type Receiver = CountingReceiver;

    fn rig(rig: &mut Rig) -> Result<(CountingSender, CountingReceiver), Fault> {
        let (bed, manner) = (rig.region::<Bed>()?, Manner::of(Waits::SpinThenSleep, rig));
        let receiver = CountingReceiver(bed.clone(), manner, 0);
        Ok((CountingSender(bed, manner, AtomicU32::new(0)), receiver))
    }

    fn spun(_: &CountingReceiver) -> u64 {
        0
    }
}

/// The receiving side, used by the one participant that waits.
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
    /// 1 if the last wait ended without a sleep.
    spun: AtomicU32,
    /// Time at which the last wait ended, in clock ticks.
    woke: AtomicU64,
    /// Number of waits that have ended.
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
    const SPEC: Spec = Spec {
        id: "notify/busy",
        what: "a sender that notifies without pause, a receiver that waits without pause",
        classic: Some("notify"),
        ladder: true,
        parts: &[
            Part::new("receiver", "one wait that returned, with all that had come since the last"),
            Part::new("sender", "one notification, to a receiver that is mostly awake"),
        ],
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn roles((): &()) -> Vec<Role> {
        vec![Role::measured("sender"), Role::measured("receiver")]
    }

    fn rig((): &(), rig: &mut Rig) -> Result<Self, Fault> {
        let (sender, receiver) = W::rig(rig)?;
        Ok(Busy { sender, receiver: Receiving(receiver.into()), words: rig.region()? })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index == 0 {
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
    const SPEC: Spec = Spec {
        id: "notify/sleeping",
        what: "a notification to a receiver that has had time to fall asleep",
        classic: Some("notify -S"),
        ladder: true,
        parts: &[
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
        ],
        hands_over: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn roles(_: &Gap) -> Vec<Role> {
        vec![Role::measured("sender"), Role::serving("receiver")]
    }

    fn rig(args: &Gap, rig: &mut Rig) -> Result<Self, Fault> {
        let (sender, receiver) = W::rig(rig)?;
        Ok(Sleeping {
            sender,
            receiver: Receiving(receiver.into()),
            words: rig.region()?,
            gap_ns: args.gap_ns.0,
            crowded: rig.cpus().windows(2).all(|pair| pair[0] == pair[1]),
        })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index == 0 {
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
            false => Err(Fault::new(format!("{sent} notifications ended {waits} waits"))),
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
    const SPEC: Spec = Spec {
        id: "notify/round-trip",
        what: "a notification to a thread that waits, and one back",
        ladder: true,
        hands_over: true,
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    type Ping = ();

    fn rig((): &(), rig: &mut Rig) -> Result<Self, Fault> {
        let (there, back) = (W::rig(rig)?, W::rig(rig)?);
        Ok(There {
            there: (there.0, Receiving(there.1.into())),
            back: (back.0, Receiving(back.1.into())),
            words: rig.region()?,
        })
    }

    fn ping(&self) {}

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

const OURS: Contender = Contender::ours("handover").waits(Waits::SpinThenSleep);
const SPINNING: Contender = Contender::floor("spinning").waits(Waits::Spin);
const ADAPTIVE: Contender = Contender::floor("adaptive").waits(Waits::SpinThenSleep);
const COUNTING: Contender = Contender::floor("counting").waits(Waits::SpinThenSleep);
const SLEEPING: Contender = Contender::floor("sleeping").waits(Waits::Sleep);
const EVENTFD: Contender = Contender::peer("eventfd").waits(Waits::Sleep);
const PIPE: Contender = Contender::peer("pipe").waits(Waits::Sleep);
const FUTEX: Contender = Contender::peer("futex").waits(Waits::Sleep);

const CONDVAR: Contender = Contender::peer("std_condvar").waits(Waits::Sleep);
const PARK: Contender = Contender::peer("std_park").waits(Waits::Sleep);
#[cfg(feature = "peers")]
const PARKING_LOT: Contender = Contender::peer("parking_lot").waits(Waits::Sleep);
#[cfg(feature = "peers")]
const EVENT_LISTENER: Contender = Contender::peer("event-listener").waits(Waits::Sleep);
#[cfg(feature = "peers")]
const TOKIO: Contender = Contender::peer("tokio").waits(Waits::Sleep);

/// The benchmarks of notifications.
pub const ALL: &[Bench] = &[
    Bench::many::<Busy<Ours>>(OURS),
    Bench::many::<Busy<Counting>>(COUNTING),
    Bench::many::<Busy<Bare<ADAPTS>>>(ADAPTIVE),
    Bench::many::<Busy<Bare<SLEEPS>>>(SLEEPING),
    Bench::many::<Busy<Via<EventFd>>>(EVENTFD),
    Bench::many::<Busy<Via<Pipe>>>(PIPE),
    Bench::many::<Busy<Via<Futex>>>(FUTEX),
    Bench::many::<Busy<By<StdCondvar>>>(CONDVAR),
    Bench::many::<Busy<By<StdPark>>>(PARK),
    #[cfg(feature = "peers")]
    Bench::many::<Busy<By<ParkingLot>>>(PARKING_LOT),
    #[cfg(feature = "peers")]
    Bench::many::<Busy<By<EventListener>>>(EVENT_LISTENER),
    #[cfg(feature = "peers")]
    Bench::many::<Busy<By<Tokio>>>(TOKIO),
    Bench::many::<Sleeping<Ours>>(OURS),
    Bench::many::<Sleeping<Bare<SPINS>>>(SPINNING),
    Bench::many::<Sleeping<Bare<SLEEPS>>>(SLEEPING),
    Bench::many::<Sleeping<Via<EventFd>>>(EVENTFD),
    Bench::many::<Sleeping<Via<Pipe>>>(PIPE),
    Bench::many::<Sleeping<Via<Futex>>>(FUTEX),
    Bench::many::<Sleeping<By<StdCondvar>>>(CONDVAR),
    Bench::many::<Sleeping<By<StdPark>>>(PARK),
    #[cfg(feature = "peers")]
    Bench::many::<Sleeping<By<ParkingLot>>>(PARKING_LOT),
    #[cfg(feature = "peers")]
    Bench::many::<Sleeping<By<EventListener>>>(EVENT_LISTENER),
    #[cfg(feature = "peers")]
    Bench::many::<Sleeping<By<Tokio>>>(TOKIO),
    Bench::many::<Relay<There<Ours>>>(OURS),
    Bench::many::<Relay<There<Bare<ADAPTS>>>>(ADAPTIVE),
    Bench::many::<Relay<There<Bare<SLEEPS>>>>(SLEEPING),
    Bench::many::<Relay<There<Via<EventFd>>>>(EVENTFD),
    Bench::many::<Relay<There<Via<Pipe>>>>(PIPE),
    Bench::many::<Relay<There<Via<Futex>>>>(FUTEX),
    Bench::many::<Relay<There<By<StdCondvar>>>>(CONDVAR),
    Bench::many::<Relay<There<By<StdPark>>>>(PARK),
    #[cfg(feature = "peers")]
    Bench::many::<Relay<There<By<ParkingLot>>>>(PARKING_LOT),
    #[cfg(feature = "peers")]
    Bench::many::<Relay<There<By<EventListener>>>>(EVENT_LISTENER),
    #[cfg(feature = "peers")]
    Bench::many::<Relay<There<By<Tokio>>>>(TOKIO),
];
