//! Notifications: to a busy receiver, to a sleeping one, and round trips.

mod kernel;
mod signals;

pub use kernel::{EventFd, Futex, Pipe};

use crate::common::{TakeCell, ensure};
use crate::floor::relay::{Relay, RelayMedium};
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
use rustix::time::{ClockId, clock_gettime};
#[cfg(feature = "peers")]
use signals::{EventListener, ParkingLot, Tokio};
use signals::{SignalMechanism, StdCondvar, StdPark};
use std::time::Duration;
use zerocopy::FromZeros;

/// Sends `n` notifications.
#[inline]
pub fn notify_many(sender: &impl Notify, n: u64) {
    for _ in 0..n {
        sender.notify();
    }
}

/// Sends one notification; returns its duration and its start time, in clock ticks.
#[inline]
pub fn time_notify(sender: &impl Notify) -> (u64, u64) {
    let began = clock::ticks();
    sender.notify();
    (clock::ticks().wrapping_sub(began), began)
}

/// Waits for `gap_ns`, in which the receiver can go to sleep. Sleeps if `is_crowded` (sender and
/// receiver share a CPU), otherwise spins.
pub fn wait_gap(gap_ns: u64, is_crowded: bool) {
    if is_crowded {
        std::thread::sleep(Duration::from_nanos(gap_ns));
        return;
    }
    let until = clock::ticks() + clock::ticks_from_ns(gap_ns);
    while clock::ticks() < until {
        std::hint::spin_loop();
    }
}

/// Constructor of a connected sender and receiver of one notification mechanism.
trait NotifyLink: 'static {
    /// `true` if the sender and the receiver can be in different processes.
    const PROCESSES: bool;
    type Sender: Notify + 'static;
    type Receiver: Wait + 'static;
    /// Returns a sender and a receiver. Only this project's mechanism uses `config`.
    fn setup(setup: &mut Setup, config: Config) -> Result<(Self::Sender, Self::Receiver), Fault>;
    /// Flags that say which parts of [`BusyPair`] are recorded: the receiver's, and the sender's.
    const RECORDED: [bool; 2] = [true, true];
    /// Returns the number of waits that returned without a sleep. 0 for a mechanism that never
    /// spins.
    fn spun_count(_: &Self::Receiver) -> u64 {
        0
    }
}

/// Contender: this project's mechanism, with its state in shared memory.
enum HandoverNotify {}

impl NotifyLink for HandoverNotify {
    const PROCESSES: bool = true;
    type Sender = adaptive::Sender<MappedCore<adaptive::NotifyCore>>;
    type Receiver = adaptive::Receiver<MappedCore<adaptive::NotifyCore>>;

    fn setup(setup: &mut Setup, config: Config) -> Result<(Self::Sender, Self::Receiver), Fault> {
        let scope = if setup.uses_processes() { Scope::Shared } else { Scope::Private };
        let file = setup.shared_fd(|| {
            let made = MappedCore::<adaptive::NotifyCore>::create();
            made.map(|(_, file)| file).map_err(Fault::from_error)
        })?;
        let core =
            MappedCore::<adaptive::NotifyCore>::map(file.as_fd()).map_err(Fault::from_error)?;
        let receiver = adaptive::Receiver::from_core(core.clone(), scope, config)
            .map_err(Fault::from_error)?;
        Ok((adaptive::Sender::from_core(core, scope), receiver))
    }

    fn spun_count(receiver: &Self::Receiver) -> u64 {
        receiver.stats().by_spinning + receiver.stats().found_pending
    }
}

/// Contender: a mechanism that works within one process.
struct InProcess<M>(std::marker::PhantomData<M>);

impl<M: Mechanism> NotifyLink for InProcess<M> {
    const PROCESSES: bool = false;
    type Sender = M::Sender;
    type Receiver = M::Receiver;

    fn setup(_: &mut Setup, _: Config) -> Result<(M::Sender, M::Receiver), Fault> {
        M::pair().map_err(Fault::from_error)
    }
}

/// Floor: notification by a word of memory. The receiver waits in the way `WAIT_KINDS[WAIT_KIND]`.
enum MemoryWord<const WAIT_KIND: usize> {}

/// Index of [`Waits::Spin`] in `WAIT_KINDS`.
const SPIN: usize = 0;
/// Index of [`Waits::SpinThenSleep`] in `WAIT_KINDS`.
const SPIN_THEN_SLEEP: usize = 1;
/// Index of [`Waits::Sleep`] in `WAIT_KINDS`.
const SLEEP: usize = 2;
const WAIT_KINDS: [Waits; 3] = [Waits::Spin, Waits::SpinThenSleep, Waits::Sleep];

/// Value of a [`WaitWord`](crate::floor::wait_word::WaitWord) with a pending notification; without
/// one it is 0.
const PENDING: u32 = 1;

/// Sender of [`MemoryWord`].
struct WordSender(Region<WaitLine<1>>, WaitMode);

impl Notify for WordSender {
    #[inline]
    fn notify(&self) {
        // A notification that is already pending covers this one.
        if self.0.0[0].value() != PENDING {
            self.0.0[0].publish(PENDING, self.1);
        }
    }
}

/// Receiver of [`MemoryWord`].
struct WordReceiver {
    word: Region<WaitLine<1>>,
    mode: WaitMode,
    /// Number of waits that returned without a sleep.
    spun_count: u64,
}

impl Wait for WordReceiver {
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

impl<const WAIT_KIND: usize> NotifyLink for MemoryWord<WAIT_KIND> {
    const PROCESSES: bool = true;
    // To see a pending notification, the sender reads the line, which the receiver must then fetch
    // back.
    const RECORDED: [bool; 2] = [false, true];
    type Sender = WordSender;
    type Receiver = WordReceiver;

    fn setup(setup: &mut Setup, _: Config) -> Result<(WordSender, WordReceiver), Fault> {
        let (word, mode) =
            (setup.shared_region::<WaitLine<1>>()?, WaitMode::new(WAIT_KINDS[WAIT_KIND], setup));
        let receiver = WordReceiver { word: word.clone(), mode, spun_count: 0 };
        Ok((WordSender(word, mode), receiver))
    }

    fn spun_count(receiver: &WordReceiver) -> u64 {
        receiver.spun_count
    }
}

/// Floor: a counter of notifications, which only the sender writes. Nothing cheaper can notify a
/// receiver.
enum CountingWord {}

/// Sender of [`CountingWord`]; the last field is the number of notifications sent.
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

/// Receiver of [`CountingWord`]; the last field is the number of notifications received.
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

impl NotifyLink for CountingWord {
    const PROCESSES: bool = true;
    const RECORDED: [bool; 2] = [true, false];
    type Sender = CountingSender;
    type Receiver = CountingReceiver;

    fn setup(setup: &mut Setup, _: Config) -> Result<(CountingSender, CountingReceiver), Fault> {
        let (word, mode) =
            (setup.shared_region::<WaitLine<1>>()?, WaitMode::new(Waits::SpinThenSleep, setup));
        let receiver = CountingReceiver(word.clone(), mode, 0);
        Ok((CountingSender(word, mode, AtomicU32::new(0)), receiver))
    }
}

/// State that the sending and the receiving participant share.
#[derive(FromZeros)]
#[repr(C, align(128))]
struct NotifyState {
    /// 1 when the round is over, 0 before.
    is_over: AtomicU32,
    /// 1 if the last wait returned without a sleep, 0 if it slept.
    has_not_slept: AtomicU32,
    /// Time at which the last wait returned, in clock ticks.
    woken_ticks: AtomicU64,
    /// Number of waits that have returned.
    waits_count: AtomicU64,
    /// Number of notifications sent, published at the end of the round.
    sent_count: AtomicU64,
    /// CPU time in ns that the receiver's waits have used; 0 until the last wait has returned.
    receiver_cpu_ns: AtomicU64,
}

/// Workload: a sender that notifies, and a receiver that waits, both without pause.
struct BusyPair<W: NotifyLink> {
    sender: W::Sender,
    receiver: TakeCell<W::Receiver>,
    state: Region<NotifyState>,
}

/// Number of waits between two calls of [`Samples::is_running`].
const WAITS_PER_CHECK: u64 = 64;

/// Index of the part with the receiver's cost.
const RECEIVER_PART: usize = 0;
/// Index of the part with the sender's cost.
const SENDER_PART: usize = 1;

impl<W: NotifyLink> Handover for BusyPair<W> {
    type Args = ();
    const PROCESSES: bool = W::PROCESSES;
    const SPEC: Spec = Spec::new(
        "notify/busy",
        "notifications by a sender that never pauses, to a receiver that waits in a loop",
    )
    .classic("notify")
    .ladder()
    .parts(&[
        Part::new("receiver", "wait that returns with all notifications since the previous one"),
        Part::new("sender", "notification of a receiver that is awake most of the time"),
    ])
    .hands_over();

    const ROLES: &'static [Role] = &[Role::measured("sender"), Role::measured("receiver")];

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let (sender, receiver) = W::setup(setup, Config::default())?;
        Ok(BusyPair { sender, receiver: TakeCell::new(receiver), state: setup.shared_region()? })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index == 0 {
            if W::RECORDED[SENDER_PART] {
                out.time_batches_of_part(SENDER_PART, |n| notify_many(&self.sender, n));
            }
            // Relaxed: the flag publishes no other data. The receiver always has another
            // notification to come.
            while self.state.is_over.load(Ordering::Relaxed) == 0 {
                self.sender.notify();
            }
        } else {
            let mut receiver = self.receiver.take()?;
            let mut wait = |n: u64| {
                for _ in 0..n {
                    receiver.wait();
                }
            };
            match W::RECORDED[RECEIVER_PART] {
                true => out.time_batches_of_part(RECEIVER_PART, wait),
                false => {
                    while out.is_running() {
                        wait(WAITS_PER_CHECK);
                    }
                }
            }
            self.state.is_over.store(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Returns the CPU time of the calling thread, in ns; `usage::thread_usage` counts whole
/// microseconds.
fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

args! {
    /// Arguments of the benchmark of a sleeping receiver.
    pub struct SleepGapArgs {
        /// Pause before each notification, in which the receiver falls asleep (30us in the classic
        /// notify).
        gap_ns: Nanos = 200000 (smoke 200000, range 1000..=100000000),
        /// Longest spin of handover's receiver, as a multiple of the cost of a sleep. Above 2, it
        /// may last 1 ms.
        spin_per_sleep: u32 = 2 (smoke 2, range 1..=1000)
    }
}

/// Workload: notifications with a pause before each, in which the receiver falls asleep.
struct SleepingReceiver<W: NotifyLink> {
    sender: W::Sender,
    receiver: TakeCell<W::Receiver>,
    state: Region<NotifyState>,
    gap_ns: u64,
    /// Number of notifications at the start of a round that are not measured: a receiver that
    /// learns from its waits when to spin has then learned it. The measured ones are fewer than
    /// handover's receiver sleeps at once after them; later, one in 513 spins, and then one in
    /// 1,025.
    warm_up_count: u64,
    /// `true` if both participants share a CPU.
    is_crowded: bool,
}

/// Maximum value of `warm_up_count`. From the 79th wait on, handover's receiver sleeps at once in
/// 512 waits.
const WARM_UP_COUNT_MAX: u64 = 80;
/// Minimum value of `warm_up_count`.
const WARM_UP_COUNT_MIN: u64 = 8;
/// Maximum duration of the notifications that are not measured, in ns, unless they are so few.
const WARM_UP_NS_MAX: u64 = 25_000_000;

/// Minimum number of measured notifications in a round. The receiver's CPU time is a mean over
/// them, and a batch of one would count as an operation that was timed singly.
const MEASURED_COUNT_MIN: u64 = 2;

/// Index of the part with the sender's cost if the receiver slept.
const SEND_PART: usize = 0;
/// Index of the part with the wake-up latency if the receiver slept.
const WAKE_PART: usize = 1;
/// Index of the part with the sender's cost if the receiver was still polling.
const SEND_POLLING_PART: usize = 2;
/// Index of the part with the wake-up latency if the receiver was still polling.
const WAKE_POLLING_PART: usize = 3;
/// Index of the part with the receiver's CPU time.
const CPU_PART: usize = 4;
/// Index of the part with the geometric mean of latency and CPU time.
const LATENCY_CPU_PART: usize = 5;

impl<W: NotifyLink> Handover for SleepingReceiver<W> {
    type Args = SleepGapArgs;
    const PROCESSES: bool = W::PROCESSES;
    const SPEC: Spec = Spec::new(
        "notify/sleeping",
        "notification of a receiver that has had time to fall asleep",
    )
    .classic("notify -S")
    .ladder()
    .parts(&[
        Part::new("send", "sender's cost for a sleeping receiver, including the clock reading")
            .waits(Waits::Sleep),
        Part::new(
            "wake",
            "latency from before the notification until after the wait of a sleeping receiver",
        )
        .waits(Waits::Sleep),
        Part::new("send-spun", "sender's cost for a receiver that is still spinning")
            .waits(Waits::Spin)
            .optional()
            .off_ladder(),
        Part::new("wake-spun", "the same latency for a receiver that is still spinning")
            .waits(Waits::Spin)
            .optional()
            .off_ladder(),
        Part::new("cpu", "receiver's CPU time for one notification and the wait for it")
            .waits(Waits::Sleep)
            .floors_are_peers()
            .off_ladder(),
        Part::new(
            "latency-cpu",
            "geometric mean of the mean latency and the receiver's CPU time for one notification",
        )
        .waits(Waits::Sleep)
        .floors_are_peers()
        .off_ladder(),
    ])
    .hands_over();

    const ROLES: &'static [Role] = &[Role::measured("sender"), Role::serving("receiver")];

    fn setup(args: &SleepGapArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let spin_per_sleep = args.spin_per_sleep;
        let config = if spin_per_sleep > 2 { Config::low_latency() } else { Config::default() };
        let (sender, receiver) = W::setup(setup, config.spin_per_sleep(spin_per_sleep))?;
        Ok(SleepingReceiver {
            sender,
            receiver: TakeCell::new(receiver),
            state: setup.shared_region()?,
            gap_ns: args.gap_ns.0,
            warm_up_count: (WARM_UP_NS_MAX / args.gap_ns.0)
                .clamp(WARM_UP_COUNT_MIN, WARM_UP_COUNT_MAX),
            is_crowded: setup.cpus().windows(2).all(|pair| pair[0] == pair[1]),
        })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index == 0 {
            self.send(out);
            return Ok(());
        }
        self.receive(out)
    }

    fn check_round(&self) -> Result<(), Fault> {
        // Relaxed: both participants have ended.
        let sent = self.state.sent_count.load(Ordering::Relaxed);
        let waits = self.state.waits_count.load(Ordering::Relaxed);
        ensure(sent == waits && sent > 0, || {
            format!("{sent} notifications were sent, but {waits} waits have returned")
        })
    }
}

impl<W: NotifyLink> SleepingReceiver<W> {
    /// Sends notifications with a pause before each, and records their costs and latencies.
    fn send(&self, out: &mut Samples) {
        let state = &*self.state;
        let mut turn = 0;
        let mut spun_count = 0u32;
        let mut latency_sum = 0u64;
        let turns_min = self.warm_up_count + MEASURED_COUNT_MIN;
        while turn < self.warm_up_count || out.is_running() || turn < turns_min {
            wait_gap(self.gap_ns, self.is_crowded);
            let (cost, began) = time_notify(&self.sender);
            turn += 1;
            // Acquire: pairs with the Release in receive().
            while state.waits_count.load(Ordering::Acquire) != turn {
                std::thread::yield_now();
            }
            if turn <= self.warm_up_count {
                if turn == self.warm_up_count {
                    out.restart_round();
                }
                continue;
            }
            // Relaxed: ordered by the Acquire above.
            let spun = state.has_not_slept.load(Ordering::Relaxed) != 0;
            let latency = state.woken_ticks.load(Ordering::Relaxed).saturating_sub(began);
            spun_count += u32::from(spun);
            latency_sum += latency;
            out.record_ticks(if spun { SEND_POLLING_PART } else { SEND_PART }, cost);
            out.record_ticks(if spun { WAKE_POLLING_PART } else { WAKE_PART }, latency);
        }
        let waits_count = turn - self.warm_up_count;
        out.set_operations_count(waits_count);
        out.add_to_counter("spun_share", f64::from(spun_count));
        state.sent_count.store(turn, Ordering::Relaxed);
        // Release: pairs with the Acquire in receive().
        state.is_over.store(1, Ordering::Release);
        self.sender.notify();
        // Relaxed: a number alone.
        let mut cpu_ns = state.receiver_cpu_ns.load(Ordering::Relaxed);
        while cpu_ns == 0 {
            std::thread::sleep(Duration::from_micros(100));
            cpu_ns = state.receiver_cpu_ns.load(Ordering::Relaxed);
        }
        // The receiver waits once more, for the end, which has come by then: that costs next to
        // nothing.
        let cpu = clock::ticks_from_ns(cpu_ns);
        out.record_batch(CPU_PART, cpu, waits_count);
        let both = (latency_sum as f64 * cpu as f64).sqrt().round() as u64;
        out.record_batch(LATENCY_CPU_PART, both, waits_count);
    }

    /// Waits for notifications, and publishes the time at which each wait returned. At the end,
    /// publishes the CPU time of the measured ones.
    fn receive(&self, out: &mut Samples) -> Result<(), Fault> {
        let mut receiver = self.receiver.take()?;
        let warmed_up_ns = self.wait_until_over(&mut receiver, out);
        let used_ns = thread_cpu_ns() - warmed_up_ns;
        self.state.receiver_cpu_ns.store(used_ns.max(1), Ordering::Relaxed);
        Ok(())
    }

    /// Waits for notifications until the round is over; publishes the time at which each wait
    /// returned. Returns the CPU time that this thread had used when the measured ones began.
    fn wait_until_over(&self, receiver: &mut W::Receiver, out: &mut Samples) -> u64 {
        let state = &*self.state;
        let mut turn = 0;
        let mut warmed_up_ns = 0;
        loop {
            let before = W::spun_count(receiver);
            receiver.wait();
            let now = clock::ticks();
            // Acquire: pairs with the Release in send().
            if state.is_over.load(Ordering::Acquire) != 0 {
                return warmed_up_ns;
            }
            turn += 1;
            if turn == self.warm_up_count {
                out.restart_round();
                warmed_up_ns = thread_cpu_ns();
            }
            // Relaxed: published by the Release below.
            state
                .has_not_slept
                .store(u32::from(W::spun_count(receiver) != before), Ordering::Relaxed);
            state.woken_ticks.store(now, Ordering::Relaxed);
            // Release: pairs with the Acquire in send().
            state.waits_count.store(turn, Ordering::Release);
        }
    }
}

/// Medium of round trips: a notification mechanism for each direction.
struct NotifyRoundTrip<W: NotifyLink> {
    forward: (W::Sender, TakeCell<W::Receiver>),
    backward: (W::Sender, TakeCell<W::Receiver>),
    state: Region<NotifyState>,
}

impl<W: NotifyLink> RelayMedium for NotifyRoundTrip<W>
where
    W::Receiver: Send,
{
    type Args = ();
    const PROCESSES: bool = W::PROCESSES;
    const SPEC: Spec =
        Spec::new("notify/round-trip", "round trip of notifications between two threads")
            .floor("floor/adaptive")
            .floors(&["floor/sleeping"])
            .ladder()
            .hands_over()
            .batched();
    type PingState = W::Receiver;

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        let (forward, backward) =
            (W::setup(setup, Config::default())?, W::setup(setup, Config::default())?);
        Ok(NotifyRoundTrip {
            forward: (forward.0, TakeCell::new(forward.1)),
            backward: (backward.0, TakeCell::new(backward.1)),
            state: setup.shared_region()?,
        })
    }

    fn new_ping_state(&self) -> Result<W::Receiver, Fault> {
        self.backward.1.take()
    }

    fn round_trip(&self, receiver: &mut W::Receiver) -> Result<(), Fault> {
        self.forward.0.notify();
        receiver.wait();
        Ok(())
    }

    fn end(&self, _: &mut W::Receiver) -> Result<(), Fault> {
        // Release: pairs with the Acquire in echo().
        self.state.is_over.store(1, Ordering::Release);
        self.forward.0.notify();
        Ok(())
    }

    fn echo(&self) -> Result<u64, Fault> {
        let mut turns = 0;
        let mut receiver = self.forward.1.take()?;
        loop {
            receiver.wait();
            // Acquire: pairs with the Release in end().
            if self.state.is_over.load(Ordering::Acquire) != 0 {
                return Ok(turns);
            }
            turns += 1;
            self.backward.0.notify();
        }
    }
}

/// All benchmarks of notifications.
pub const BENCHES: &[Bench] = benches! {
    many ours "handover" SpinThenSleep: BusyPair<HandoverNotify>;
    many floor "counting" SpinThenSleep: BusyPair<CountingWord>;
    many floor "adaptive" SpinThenSleep: BusyPair<MemoryWord<SPIN_THEN_SLEEP>>;
    many floor "sleeping" Sleep: BusyPair<MemoryWord<SLEEP>>;
    many peer "eventfd" Sleep: BusyPair<InProcess<EventFd>>;
    many peer "pipe" Sleep: BusyPair<InProcess<Pipe>>;
    many peer "futex" Sleep: BusyPair<InProcess<Futex>>;
    many peer "std_condvar" Sleep: BusyPair<SignalMechanism<StdCondvar>>;
    many peer "std_park" Sleep: BusyPair<SignalMechanism<StdPark>>;
    many peer "parking_lot" Sleep: BusyPair<SignalMechanism<ParkingLot>>, if feature = "peers";
    many peer "event-listener" Sleep: BusyPair<SignalMechanism<EventListener>>, if feature = "peers";
    many peer "tokio" Sleep: BusyPair<SignalMechanism<Tokio>>, if feature = "peers";
    many ours "handover" SpinThenSleep: SleepingReceiver<HandoverNotify>;
    many floor "spinning" Spin: SleepingReceiver<MemoryWord<SPIN>>;
    many floor "sleeping" Sleep: SleepingReceiver<MemoryWord<SLEEP>>;
    many peer "eventfd" Sleep: SleepingReceiver<InProcess<EventFd>>;
    many peer "pipe" Sleep: SleepingReceiver<InProcess<Pipe>>;
    many peer "futex" Sleep: SleepingReceiver<InProcess<Futex>>;
    many peer "std_condvar" Sleep: SleepingReceiver<SignalMechanism<StdCondvar>>;
    many peer "std_park" Sleep: SleepingReceiver<SignalMechanism<StdPark>>;
    many peer "parking_lot" Sleep: SleepingReceiver<SignalMechanism<ParkingLot>>, if feature = "peers";
    many peer "event-listener" Sleep: SleepingReceiver<SignalMechanism<EventListener>>, if feature = "peers";
    many peer "tokio" Sleep: SleepingReceiver<SignalMechanism<Tokio>>, if feature = "peers";
    many ours "handover" SpinThenSleep: Relay<NotifyRoundTrip<HandoverNotify>>;
    many peer "eventfd" Sleep: Relay<NotifyRoundTrip<InProcess<EventFd>>>;
    many peer "pipe" Sleep: Relay<NotifyRoundTrip<InProcess<Pipe>>>;
    many peer "futex" Sleep: Relay<NotifyRoundTrip<InProcess<Futex>>>;
    many peer "std_condvar" Sleep: Relay<NotifyRoundTrip<SignalMechanism<StdCondvar>>>;
    many peer "std_park" Sleep: Relay<NotifyRoundTrip<SignalMechanism<StdPark>>>;
    many peer "parking_lot" Sleep: Relay<NotifyRoundTrip<SignalMechanism<ParkingLot>>>, if feature = "peers";
    many peer "event-listener" Sleep: Relay<NotifyRoundTrip<SignalMechanism<EventListener>>>, if feature = "peers";
    many peer "tokio" Sleep: Relay<NotifyRoundTrip<SignalMechanism<Tokio>>>, if feature = "peers";
};
