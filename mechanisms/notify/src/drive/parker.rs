//! Spinning, then parking, for a receiver that checks a condition of its own: a queue, a ring, a
//! flag.
//!
//! ```
//! use handover_notify::{Unparker, Config, Parker};
//! use std::sync::atomic::{AtomicBool, Ordering};
//!
//! let (unparker, work) = (Unparker::new(), AtomicBool::new(false));
//! let mut parker = Parker::new(Config::default())?;
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         work.store(true, Ordering::Release); // publish first ...
//!         unparker.unpark(); // ... then wake, if it sleeps
//!     });
//!     let mut poll = || work.load(Ordering::Acquire); // pairs with the Release above
//!     while !parker.poll_eagerly(&unparker, &mut poll) {
//!         if !parker.spin(None, &mut poll) {
//!             parker.park(&unparker, None, &mut poll);
//!         }
//!     }
//! });
//! # Ok::<(), handover_notify::ConfigError>(())
//! ```

use super::waiting::{SleepStart, WaitState, now_ns};
use super::yielder::{LONG_WAIT, Yielder};
use crate::engine::Stats;
use crate::park::{ParkWord, SleepObject};
use crate::raw::current_cpu;
use crate::{Config, ConfigError, stage};
use handover_base::futex::{self, Scope};
use handover_base::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// State of a receiver through which senders wake it, alone on its cache lines.
///
/// Unpark *after* publishing the work that the receiver checks for. While the receiver is awake,
/// unparking costs a fence and a load of a line that is rarely written.
///
/// For threads of one process: the sender that finds the receiver asleep is the only one that wakes
/// it, so it must not be killed before that. Across processes use an
/// [`adaptive::NotifyCore`](crate::adaptive::NotifyCore).
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Unparker {
    word: ParkWord,
    /// Time, in ns on CLOCK_MONOTONIC, at which a sender last found the receiver asleep. The
    /// receiver computes the cost of a sleep from it.
    woken_at_ns: AtomicU64,
    /// CPU on which the receiver ran last, plus one; zero if unknown. [`POLLING`] is set while it
    /// polls more than [`EAGER_POLLS`] times, [`WAKING`] while wake-ups limit its rate.
    cpu_plus_one: AtomicU32,
}

/// Bit of [`Unparker::cpu_plus_one`] for a receiver that polls for long, so that it will answer at
/// once.
const POLLING: u32 = 1 << 31;
/// Bit of [`Unparker::cpu_plus_one`] for a receiver whose rate is limited by the wake-ups of those
/// to which it sends.
const WAKING: u32 = 1 << 30;

impl Unparker {
    /// Creates an unparker whose receiver is awake.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            word: ParkWord::new(),
            woken_at_ns: AtomicU64::new(0),
            cpu_plus_one: AtomicU32::new(0),
        }
    }

    /// Wakes the receiver if it sleeps in [`Parker::park`]; returns `true` if the receiver slept.
    ///
    /// # Panics
    /// If the kernel refuses futexes, or the receiver sleeps in [`Parker::park_with`]: use
    /// [`unpark_with`](Self::unpark_with) for it. The receiver is then not woken.
    #[inline]
    pub fn unpark(&self) -> bool {
        self.unpark_with(|| {
            panic!(
                "unpark() was called for a receiver that sleeps in park_with(): use unpark_with()"
            )
        })
    }

    /// Wakes the receiver if it sleeps; calls `wake_elsewhere` if it sleeps in
    /// [`Parker::park_with`]. In [`Parker::park`] it sleeps on a futex. Returns `true` if the
    /// receiver slept.
    ///
    /// # Panics
    /// If `wake_elsewhere` panics. The receiver is then not woken, and sleeps until something else
    /// ends its sleep.
    #[inline]
    pub fn unpark_with(&self, wake_elsewhere: impl FnOnce()) -> bool {
        match self.word.claim_wake(current_cpu) {
            None => false,
            Some(sleep_kind) => {
                self.wake(sleep_kind, wake_elsewhere);
                true
            }
        }
    }

    /// Wakes the receiver, which sleeps on `sleep_kind`.
    #[cold]
    fn wake(&self, sleep_kind: SleepObject, wake_elsewhere: impl FnOnce()) {
        stage::record_waking(self);
        // Relaxed: a measurement; the receiver checks that it belongs to its sleep.
        self.woken_at_ns.store(now_ns(), Ordering::Relaxed);
        match sleep_kind {
            SleepObject::Word => {
                futex::wake(self.word.futex(), 1, Scope::Private);
            }
            SleepObject::Elsewhere => wake_elsewhere(),
        }
    }

    /// Returns `true` if the receiver was asleep when read; a sender may have woken it since.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.word.is_asleep()
    }
}

/// Reason why [`Parker::park`] returned: the receiver did not sleep, a sender woke it, or its sleep
/// ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParkResult {
    /// The receiver did not sleep, because the condition was met when checked last.
    NotParked,
    /// A sender woke the receiver.
    Unparked,
    /// The sleep ended without a sender: by the deadline, a signal or a descriptor.
    SleepEnded,
}

/// Receiving end of an [`Unparker`], which waits for a condition. It learns from earlier waits how
/// long to spin and to yield before it sleeps.
///
/// A wait that found nothing has up to four steps, each of which is skipped while it does not pay:
/// [`poll_eagerly`](Self::poll_eagerly), for an answer that is about to come;
/// [`spin`](Self::spin), which spins with pauses while the sender is on another CPU, and then
/// yields to other threads, so that a sender on the same CPU can run; and [`park`](Self::park).
///
/// The caller's `poll` checks the condition that the receiver waits for. It is called very often;
/// make it one load.
#[derive(Debug)]
pub struct Parker {
    waiting: WaitState,
    yielder: Yielder,
    /// Number of waits since a wait last polled [`EAGER_POLLS`] times. Such a wait finds out if
    /// polling pays again.
    waits_unprobed: u32,
    /// Number of consecutive waits in which [`POLLS_BEFORE_YIELD`] polls or more found nothing.
    polls_missed: u32,
    /// Number of consecutive waits in which [`POLLS_BEFORE_YIELD`] polls or more found an answer.
    polls_found: u32,
    /// Count of [`share_cpu`](Self::share_cpu) since the time was last compared with that of the
    /// last yield.
    work_unchecked: u32,
    /// CPU on which this thread ran last, plus one; zero if unknown.
    cpu_plus_one: u32,
    /// [`WAKING`] if this thread publishes that; otherwise zero.
    waking_flag: u32,
    /// Number of messages sent since `sending_since_ns`.
    sends_count: u32,
    /// Number of these messages whose receiver this thread had to wake.
    wakes_count: u32,
    /// Time, in ns on CLOCK_MONOTONIC, at which `sends_count` was last reset; zero before that.
    sending_since_ns: u64,
    /// Time for which the last wait has yielded in vain, if it was to do so for up to
    /// [`LONG_WAIT`]; otherwise zero.
    waited_long: Duration,
    /// CPU of the thread that is expected to end the next wait: this thread's CPU or another.
    expected_answer: AnswerSource,
}

/// CPU of the thread that is expected to end a wait by its answer: the waiting thread's CPU or
/// another. The greatest value counts if several answers are expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AnswerSource {
    /// No answer is expected, or its CPU is unknown.
    Unknown,
    /// The thread that answers needs the waiting thread's CPU.
    ThisCpu,
    /// The thread that answers runs on another CPU.
    OtherCpu,
    /// Several answers are expected from other CPUs.
    OtherCpus,
    /// The thread that answers polls on another CPU.
    Polling,
    /// The thread that answers, on another CPU, is limited by wake-ups.
    Waking,
}

/// Number of polls in a row without a pause. An answer that is sent at once arrives during these. A
/// pause would take 20 to 60 ns.
const EAGER_POLLS: u32 = 128;
/// Number of polls before a yield while yielding pays and the answer may come from another CPU.
/// Together they take half the time of a switch to another thread and back. Suite event/serve with
/// 10 and 100 clients, 2026-11: 0.17 and 0.19 µs a request, with 1024 the same, with a single poll
/// 1.0 µs.
const POLLS_BEFORE_YIELD: u32 = 512;
/// Number of polls before a yield if the next answer from another CPU is likely to come soon. It is
/// likely if several are expected, or if polls have found the last [`POLLS_FOUND_MIN`] answers. The
/// polls take about 10 µs; the other CPU usually takes less for a timer tick or for a switch to
/// another thread. After a yield, all other threads of this CPU run first, for 1 to 2 µs each: with
/// 1000 clients on two CPUs, the thread that serves them does not run for 0.5 to 1 ms.
const POLLS_FOR_LIKELY_ANSWER: u32 = 8192;
/// Number of consecutive waits for which [`POLLS_BEFORE_YIELD`] polls or more found an answer, from
/// which on the next answer is likely to come soon.
const POLLS_FOUND_MIN: u32 = 16;
/// Maximum number of consecutive waits that poll [`POLLS_BEFORE_YIELD`] times or more in vain.
/// After them, only one wait in [`WAITS_PER_POLL_PROBE`] polls so often. The answer then comes when
/// other threads run. `hello5` with 10 and 100 on two CPUs, 2026-11: 1.0 to 1.4 times as many
/// messages. After 4 already, `hello4 100` lost a sixth; after 32, nothing that exceeds the noise.
const POLLS_MISSED_MAX: u32 = 32;
/// Interval, in waits, at which a wait tries [`POLLS_BEFORE_YIELD`] polls again. It applies once
/// [`POLLS_MISSED_MAX`] consecutive waits have polled so often in vain.
const WAITS_PER_POLL_PROBE: u32 = 16;
/// Interval, in waits, at which a wait polls [`EAGER_POLLS`] times although yielding pays. This
/// wait finds out if polling pays again.
const WAITS_PER_SPIN_PROBE: u32 = 64;
/// Count of [`Parker::share_cpu`] after which the time is compared with the time of the last yield.
const WORK_PER_CHECK: u32 = 32;
/// Minimum interval, in ns, between the yields of [`Parker::share_cpu`]. Requests of 10 clients on
/// two CPUs in 2 s, 2026-11, without these yields: 1.7 million answers to a client on the other
/// CPU, 900 to one on the server's. With them, the latter receives 20,000 to 39,000.
const SHARE_INTERVAL_NS_MIN: u64 = 32_000;
/// Number of messages after which a thread determines whether wake-ups limit its rate.
const SENDS_PER_CHECK: u32 = 64;
/// Minimum number of wake-ups among [`SENDS_PER_CHECK`] messages for that.
const WAKES_MIN: u32 = 48;
/// Maximum time in which [`SENDS_PER_CHECK`] messages are sent for that, in ns: twice the time of
/// as many wake-ups, 2 µs each. If a thread works or waits for longer, its rate would not double
/// without the wake-ups.
const WAKES_NS_MAX: u64 = 256_000;
/// Minimum time to the deadline for yielding. With less time left, yielding would miss the
/// deadline.
const YIELD_LEFT_MIN: Duration = Duration::from_micros(50);

impl Parker {
    /// Creates a parker that has no results of earlier waits.
    ///
    /// # Errors
    /// [`ConfigError`] if `config` is not valid.
    ///
    /// # Cost
    /// The first parker in a process times the spin loop, some tens of µs.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            waiting: WaitState::new(config),
            yielder: Yielder::new(config),
            waits_unprobed: 0,
            polls_missed: 0,
            polls_found: 0,
            work_unchecked: 0,
            cpu_plus_one: 0,
            waking_flag: 0,
            sends_count: 0,
            wakes_count: 0,
            sending_since_ns: 0,
            waited_long: Duration::ZERO,
            expected_answer: AnswerSource::Unknown,
        })
    }

    /// Publishes on `unparker` the CPU that this thread runs on;
    /// [`expect_answer_from`](Self::expect_answer_from) in other threads reads it. Call this before
    /// a wait, when a thread starts to receive, and now and then while it does not wait.
    ///
    /// # Cost
    /// Reading the CPU's number, 2 to 3 ns.
    #[inline]
    pub fn publish_cpu(&mut self, unparker: &Unparker) {
        let cpu_plus_one = current_cpu().map_or(0, |cpu| cpu.saturating_add(1));
        if cpu_plus_one != self.cpu_plus_one {
            self.cpu_plus_one = cpu_plus_one;
            self.publish(unparker, 0);
        }
    }

    /// Stores this thread's CPU, its `waking_flag` and `flag` in `unparker`.
    fn publish(&self, unparker: &Unparker, flag: u32) {
        // Relaxed: a hint.
        unparker.cpu_plus_one.store(self.cpu_plus_one | self.waking_flag | flag, Ordering::Relaxed);
    }

    /// Records a message to another thread. `has_woken` is `true` if this thread had to wake the
    /// receiver. `unparker` is this thread's own.
    ///
    /// If at least 48 of the last 64 messages needed a wake-up, and all 64 took at most 256 µs,
    /// wake-ups limit the rate of this thread. It publishes that until it sleeps, or fewer messages
    /// need a wake-up. Threads that wait for its answers then yield for up to 10 ms before they
    /// sleep, which saves the wake-ups.
    ///
    /// # Cost
    /// Some instructions, and reading the clock once in 64 calls.
    #[inline]
    pub fn record_sent(&mut self, unparker: &Unparker, has_woken: bool) {
        self.wakes_count += u32::from(has_woken);
        self.sends_count += 1;
        if self.sends_count >= SENDS_PER_CHECK {
            self.check_wakes(unparker);
        }
    }

    /// Publishes whether wake-ups limited the rate of the last [`SENDS_PER_CHECK`] messages.
    #[cold]
    fn check_wakes(&mut self, unparker: &Unparker) {
        let since_ns = std::mem::replace(&mut self.sending_since_ns, now_ns());
        let is_waking = self.wakes_count >= WAKES_MIN
            && self.sending_since_ns.saturating_sub(since_ns) <= WAKES_NS_MAX;
        (self.sends_count, self.wakes_count) = (0, 0);
        self.publish_waking(unparker, is_waking);
    }

    /// Withdraws what [`record_sent`](Self::record_sent) has published. Call this when a thread
    /// stops receiving.
    pub fn withdraw_waking(&mut self, unparker: &Unparker) {
        self.publish_waking(unparker, false);
    }

    /// Publishes whether wake-ups limit this thread's rate, unless that is already published.
    fn publish_waking(&mut self, unparker: &Unparker, is_waking: bool) {
        let flag = if is_waking { WAKING } else { 0 };
        if flag != self.waking_flag {
            self.waking_flag = flag;
            self.publish(unparker, 0);
        }
    }

    /// Records that the receiver of `unparker`, just woken, will probably end the next wait. If it
    /// runs on this thread's CPU, spinning would only keep it from answering.
    ///
    /// # Cost
    /// A load of the line that unparking has read.
    #[inline]
    pub fn expect_answer_from(&mut self, unparker: &Unparker) {
        // Relaxed: a hint.
        let there = unparker.cpu_plus_one.load(Ordering::Relaxed);
        let expected = if self.is_this_cpu(there) {
            AnswerSource::ThisCpu
        } else if there & WAKING != 0 {
            AnswerSource::Waking
        } else if there & POLLING != 0 {
            AnswerSource::Polling
        } else if self.expected_answer < AnswerSource::OtherCpu {
            AnswerSource::OtherCpu
        } else {
            AnswerSource::OtherCpus
        };
        self.expected_answer = self.expected_answer.max(expected);
    }

    /// Records like [`expect_answer_from`](Self::expect_answer_from) that several receivers were
    /// woken and must all answer. If one of them runs on this thread's CPU, the next wait yields to
    /// it, as polling for the others' answers would only delay the last one.
    ///
    /// # Cost
    /// A load for each unparker, up to the first whose receiver runs on this CPU.
    #[inline]
    pub fn expect_answers_from<'a>(&mut self, unparkers: impl IntoIterator<Item = &'a Unparker>) {
        for unparker in unparkers {
            // Relaxed: a hint.
            if self.is_this_cpu(unparker.cpu_plus_one.load(Ordering::Relaxed)) {
                self.expected_answer = AnswerSource::ThisCpu;
                return;
            }
            self.expected_answer = self.expected_answer.max(AnswerSource::OtherCpu);
        }
    }

    /// Returns `true` if `cpu_plus_one` of an unparker is this thread's CPU. Returns `false` also
    /// if the CPU is unknown.
    fn is_this_cpu(&self, cpu_plus_one: u32) -> bool {
        cpu_plus_one & !(POLLING | WAKING) == self.cpu_plus_one && self.cpu_plus_one != 0
    }

    /// Polls many times without a pause. Returns `true` as soon as `poll` does, `false` if `poll`
    /// never does. Polls only once if the answer can only come from this thread's CPU, and in most
    /// waits if recent ones ended by yielding and no answer is expected. `unparker` is this
    /// thread's; senders read from it that a poll takes long, so that their answers will come at
    /// once.
    ///
    /// # Blocking
    /// For 128 polls, 0.1 to 0.2 µs. While yielding pays, for up to 512 polls, and for 8192, about
    /// 10 µs, if an answer is likely to come soon.
    #[inline]
    pub fn poll_eagerly(&mut self, unparker: &Unparker, poll: &mut impl FnMut() -> bool) -> bool {
        let polls = match self.expected_answer {
            AnswerSource::ThisCpu => 1,
            AnswerSource::OtherCpu | AnswerSource::OtherCpus if self.yielder.is_yielding() => {
                self.plan_polls_for_answer()
            }
            AnswerSource::Polling | AnswerSource::Waking if self.yielder.is_yielding() => {
                POLLS_BEFORE_YIELD
            }
            AnswerSource::Unknown if self.yielder.is_yielding() => self.plan_probing_polls(),
            _ => EAGER_POLLS,
        };
        let found = (0..polls.min(EAGER_POLLS)).any(|_| poll())
            || (polls > EAGER_POLLS && self.poll_for_long(unparker, polls - EAGER_POLLS, poll));
        if found {
            self.expected_answer = AnswerSource::Unknown;
            // If it took the greater number of polls, other threads still need this CPU when no
            // answer comes.
            if polls == EAGER_POLLS {
                self.yielder.record_found_by_polling();
            }
        }
        if polls >= POLLS_BEFORE_YIELD {
            self.record_polls_for_answer(found);
        }
        found
    }

    /// Polls up to `polls` times, and publishes on `unparker` meanwhile that this thread will
    /// answer at once.
    #[cold]
    fn poll_for_long(
        &self,
        unparker: &Unparker,
        polls: u32,
        poll: &mut impl FnMut() -> bool,
    ) -> bool {
        self.publish(unparker, POLLING);
        let found = (0..polls).any(|_| poll());
        self.publish(unparker, 0);
        found
    }

    /// Returns the number of polls in a wait for an expected answer, while yielding pays. Counts
    /// the wait.
    fn plan_polls_for_answer(&mut self) -> u32 {
        let missed = self.polls_missed;
        self.polls_missed = missed.wrapping_add(1);
        let are_several = self.expected_answer == AnswerSource::OtherCpus;
        if self.polls_found >= POLLS_FOUND_MIN || (are_several && missed < POLLS_MISSED_MAX) {
            return POLLS_FOR_LIKELY_ANSWER;
        }
        let pays = missed < POLLS_MISSED_MAX || missed.is_multiple_of(WAITS_PER_POLL_PROBE);
        if pays { POLLS_BEFORE_YIELD } else { 1 }
    }

    /// Records whether [`POLLS_BEFORE_YIELD`] polls or more have found an answer.
    fn record_polls_for_answer(&mut self, found: bool) {
        if found {
            self.polls_missed = 0;
            self.polls_found = self.polls_found.saturating_add(1);
        } else {
            self.polls_found = 0;
        }
    }

    /// Records that this thread has done work for others `count` times. Yields once if it has done
    /// so for too long without leaving its CPU. Call this where other CPUs may provide work so fast
    /// that no wait yields: the threads of this CPU would run only once a time slice.
    ///
    /// # Blocking
    /// In a call that yields, until this thread gets the CPU again. It yields after 32 µs at the
    /// earliest; see [`Yielder::share_cpu`].
    #[inline]
    pub fn share_cpu(&mut self, count: u32) {
        self.work_unchecked = self.work_unchecked.saturating_add(count);
        if self.work_unchecked >= WORK_PER_CHECK {
            self.work_unchecked = 0;
            self.yielder.share_cpu(SHARE_INTERVAL_NS_MIN);
        }
    }

    /// Returns the number of polls in a wait without an expected answer, while yielding pays.
    /// Counts the wait.
    fn plan_probing_polls(&mut self) -> u32 {
        self.waits_unprobed += 1;
        if self.waits_unprobed < WAITS_PER_SPIN_PROBE {
            return 1;
        }
        self.waits_unprobed = 0;
        EAGER_POLLS
    }

    /// Spins, then yields, each for as long as recent waits suggest. Returns `true` as soon as
    /// `poll` does, otherwise `false`. Does not spin if the expected answer, or the sender that
    /// woke this thread last, needs this CPU.
    ///
    /// `deadline_ns`, on CLOCK_MONOTONIC, bounds the wait.
    ///
    /// # Blocking
    /// At most [`Config::spin_max`], and where it yields, until this thread gets the CPU again. It
    /// yields for up to 10 ms if wake-ups limit the rate of the thread that is to answer (see
    /// [`record_sent`](Self::record_sent)), and the deadline is at least as far ahead.
    #[inline(always)]
    pub fn spin(&mut self, deadline_ns: Option<u64>, poll: &mut impl FnMut() -> bool) -> bool {
        let left = deadline_ns.map(|at| Duration::from_nanos(at.saturating_sub(now_ns())));
        let expected = std::mem::replace(&mut self.expected_answer, AnswerSource::Unknown);
        self.waited_long = Duration::ZERO;
        let wants_long =
            expected == AnswerSource::Waking && left.is_none_or(|left| left >= LONG_WAIT);
        let long_wait = if wants_long { self.yielder.start_long_wait() } else { None };
        let is_long = long_wait.is_some();
        if self.yielder.is_yielding() || expected == AnswerSource::ThisCpu || is_long {
            self.waiting.skip_spin();
        } else if self.waiting.spin_for(left, poll) {
            return true;
        }
        if left.is_some_and(|left| left < YIELD_LEFT_MIN) {
            return false;
        }
        let mut wait = match long_wait {
            Some(wait) => wait,
            None if wants_long => return false, // this thread may not yield
            None => self.yielder.start_wait(),
        };
        while self.yielder.yield_once(&mut wait) {
            if poll() {
                self.yielder.record_found(&wait);
                self.waiting.record_found_yielding();
                return true;
            }
        }
        if is_long {
            self.waited_long = wait.duration();
        }
        false
    }

    /// Sleeps until a sender unparks `unparker` or `deadline_ns` (on CLOCK_MONOTONIC) has passed.
    /// Does not sleep if `poll` returns `true` once the sleep is declared.
    ///
    /// # Blocking
    /// Up to the deadline, and the kernel's timer slack; without a deadline, until a sender wakes
    /// it.
    pub fn park(
        &mut self,
        unparker: &Unparker,
        deadline_ns: Option<u64>,
        poll: &mut impl FnMut() -> bool,
    ) -> ParkResult {
        self.park_in(unparker, SleepObject::Word, poll, |since_ns| {
            let left = deadline_ns.map(|at| Duration::from_nanos(at.saturating_sub(since_ns)));
            if left != Some(Duration::ZERO) {
                futex::wait(unparker.word.futex(), SleepObject::Word as u32, left, Scope::Private);
            }
        })
    }

    /// Parks like [`park`](Self::park), but sleeps by calling `sleep` with the present time in ns
    /// on CLOCK_MONOTONIC. `sleep` must return when a sender calls the closure passed to
    /// [`Unparker::unpark_with`], before or during the sleep (as with a descriptor that stays
    /// readable).
    pub fn park_with(
        &mut self,
        unparker: &Unparker,
        poll: &mut impl FnMut() -> bool,
        sleep: impl FnOnce(u64),
    ) -> ParkResult {
        self.park_in(unparker, SleepObject::Elsewhere, poll, sleep)
    }

    /// Declares a sleep on `sleep_kind`, and polls once more. If that finds nothing, calls `sleep`
    /// with the current time.
    fn park_in(
        &mut self,
        unparker: &Unparker,
        sleep_kind: SleepObject,
        poll: &mut impl FnMut() -> bool,
        sleep: impl FnOnce(u64),
    ) -> ParkResult {
        let yielded = std::mem::take(&mut self.waited_long);
        unparker.word.declare_sleep(sleep_kind);
        if poll() {
            let _woken = unparker.word.withdraw_sleep();
            self.waiting.record_found_before_sleep();
            return ParkResult::NotParked;
        }
        self.yielder.record_cpu_left();
        self.withdraw_waking(unparker);
        let now_ns = now_ns();
        let asleep = SleepStart::after_wait(now_ns, yielded);
        stage::record_parked(unparker);
        sleep(now_ns);
        stage::record_woken(unparker);
        match unparker.word.withdraw_sleep() {
            Some(sender_cpu) => {
                // Relaxed: see Unparker::wake(). A time outside this sleep belongs to another
                // sleep.
                let woken_at_ns = unparker.woken_at_ns.load(Ordering::Relaxed);
                let after_ns = woken_at_ns.saturating_sub(asleep.since_ns());
                self.yielder.record_sleep(Some(after_ns));
                self.waiting.record_sender_wake(woken_at_ns, sender_cpu, asleep);
                ParkResult::Unparked
            }
            None => {
                self.yielder.record_sleep(None);
                self.waiting.record_unnotified_sleep();
                ParkResult::SleepEnded
            }
        }
    }

    /// Returns counters of the waits, by how they ended. A wait that needed neither spinning nor
    /// sleeping is not counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.waiting.stats()
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;

    /// A parker that is on CPU 0, and yields to others there.
    fn yielding() -> Parker {
        let mut parker = Parker::new(Config::default()).expect("the defaults are valid");
        parker.cpu_plus_one = 1;
        let mut wait = parker.yielder.start_wait();
        assert!(parker.yielder.yield_once(&mut wait));
        parker.yielder.record_found(&wait);
        parker
    }

    fn unparker_on(cpu: u32) -> Unparker {
        Unparker { cpu_plus_one: AtomicU32::new(cpu + 1), ..Unparker::new() }
    }

    /// Counts the polls of an eager poll that finds something at the last of `found_at`, and ends
    /// the wait.
    fn polls(parker: &mut Parker, found_at: u32) -> u32 {
        let mut count = 0;
        parker.poll_eagerly(&Unparker::new(), &mut || {
            count += 1;
            count == found_at
        });
        parker.expected_answer = AnswerSource::Unknown; // as spin() does
        count
    }

    #[test]
    fn answer_from_another_cpu_is_polled_for() {
        let mut parker = yielding();
        let (this_cpu, elsewhere) = (unparker_on(0), unparker_on(1));
        parker.expect_answer_from(&elsewhere);
        parker.expect_answer_from(&this_cpu);
        assert_eq!(polls(&mut parker, u32::MAX), POLLS_BEFORE_YIELD);
    }

    #[test]
    fn answer_from_this_cpu_makes_the_wait_yield() {
        let (this_cpu, elsewhere) = (unparker_on(0), unparker_on(1));
        for (unparkers, expected) in [
            ([&this_cpu, &elsewhere], 1),
            ([&elsewhere, &this_cpu], 1),
            ([&elsewhere, &elsewhere], POLLS_BEFORE_YIELD),
        ] {
            let mut parker = yielding();
            parker.expect_answers_from(unparkers);
            assert_eq!(polls(&mut parker, u32::MAX), expected);
        }
    }

    #[test]
    fn answer_from_a_thread_that_polls_is_polled_for_however_often_polls_have_failed() {
        let mut parker = yielding();
        parker.polls_missed = POLLS_MISSED_MAX + 1;
        let (polling, elsewhere) = (unparker_on(1), unparker_on(1));
        polling.cpu_plus_one.fetch_or(POLLING, Ordering::Relaxed);
        parker.expect_answer_from(&elsewhere);
        assert_eq!(polls(&mut parker, u32::MAX), 1);
        parker.expect_answer_from(&polling);
        assert_eq!(polls(&mut parker, u32::MAX), POLLS_BEFORE_YIELD);
    }

    #[test]
    fn thread_is_polling_only_after_its_first_polls() {
        let mut parker = yielding();
        let (unparker, elsewhere) = (Unparker::new(), unparker_on(1));
        parker.expect_answer_from(&elsewhere);
        let mut published = Vec::new();
        parker.poll_eagerly(&unparker, &mut || {
            published.push(unparker.cpu_plus_one.load(Ordering::Relaxed));
            published.len() == 2 * EAGER_POLLS as usize
        });
        let (eager, long) = published.split_at(EAGER_POLLS as usize);
        assert!(eager.iter().all(|it| it & POLLING == 0));
        assert!(long.iter().all(|it| *it == parker.cpu_plus_one | POLLING));
        assert_eq!(unparker.cpu_plus_one.load(Ordering::Relaxed), parker.cpu_plus_one);
    }

    #[test]
    fn answer_after_many_in_a_row_is_polled_for_longer_once() {
        let mut parker = yielding();
        let elsewhere = unparker_on(1);
        for _ in 0..POLLS_FOUND_MIN {
            parker.expect_answer_from(&elsewhere);
            assert_eq!(polls(&mut parker, 3), 3);
        }
        for expected in [POLLS_FOR_LIKELY_ANSWER, POLLS_BEFORE_YIELD] {
            parker.expect_answer_from(&elsewhere);
            assert_eq!(polls(&mut parker, u32::MAX), expected);
        }
    }

    #[test]
    #[cfg(not(miri))] // its polls, of one thread, take more than a minute under Miri
    fn several_answers_from_other_cpus_are_polled_for_longer_unless_polling_fails() {
        let mut parker = yielding();
        let elsewhere = unparker_on(1);
        let mut poll_for_two = |found_at| {
            parker.expect_answer_from(&elsewhere);
            parker.expect_answer_from(&elsewhere);
            polls(&mut parker, found_at)
        };
        for _ in 0..POLLS_MISSED_MAX {
            assert_eq!(poll_for_two(u32::MAX), POLLS_FOR_LIKELY_ANSWER);
        }
        assert_eq!(poll_for_two(u32::MAX), POLLS_BEFORE_YIELD);
        assert_eq!(poll_for_two(u32::MAX), 1);
    }

    #[test]
    fn unsuccessful_polling_becomes_rare_until_it_succeeds() {
        let mut parker = yielding();
        let elsewhere = unparker_on(1);
        let mut counts = Vec::new();
        for _ in 0..POLLS_MISSED_MAX + 2 * WAITS_PER_POLL_PROBE {
            parker.expect_answer_from(&elsewhere);
            counts.push(polls(&mut parker, u32::MAX));
        }
        let (free, rare) = counts.split_at(POLLS_MISSED_MAX as usize);
        assert!(free.iter().all(|count| *count == POLLS_BEFORE_YIELD), "{free:?}");
        assert_eq!(
            rare.iter().filter(|count| **count == POLLS_BEFORE_YIELD).count(),
            2,
            "{rare:?}"
        );
        assert_eq!(rare.iter().filter(|count| **count == 1).count(), rare.len() - 2, "{rare:?}");
        parker.expect_answer_from(&elsewhere);
        assert_eq!(polls(&mut parker, 7), 7, "the wait did not poll 7 times");
        parker.expect_answer_from(&elsewhere);
        assert_eq!(polls(&mut parker, u32::MAX), POLLS_BEFORE_YIELD);
    }

    #[test]
    #[cfg(not(miri))] // under Miri the messages take longer than WAKES_NS_MAX
    fn sender_publishes_that_it_wakes_most_receivers_until_it_wakes_few_or_sleeps() {
        let own = Unparker::new();
        let mut sender = Parker::new(Config::default()).expect("valid");
        let mut receiver = Parker::new(Config::default()).expect("valid");
        let mut send = |has_woken| {
            (0..SENDS_PER_CHECK).for_each(|_| sender.record_sent(&own, has_woken));
            receiver.expected_answer = AnswerSource::Unknown;
            receiver.expect_answer_from(&own);
            receiver.expected_answer == AnswerSource::Waking
        };
        assert!(!send(true), "published after the first messages, whose duration is unknown");
        // The thread may be preempted while it sends.
        assert!((0..1000).any(|_| send(true)), "not published");
        assert!(!send(false), "still published");
        assert!((0..1000).any(|_| send(true)), "not published again");
        sender.park(&own, Some(0), &mut || false);
        receiver.expected_answer = AnswerSource::Unknown;
        receiver.expect_answer_from(&own);
        assert_ne!(receiver.expected_answer, AnswerSource::Waking, "published during a sleep");
    }

    #[test]
    fn long_wait_does_not_begin_before_a_near_deadline() {
        let mut parker = Parker::new(Config::default()).expect("valid");
        for _ in 0..4 {
            parker.spin(None, &mut || false);
            parker.yielder.record_sleep(None);
            parker.waiting.record_unnotified_sleep();
        }
        // Neither spins nor yields have paid, and the policies do not try them in the next waits.
        parker.expected_answer = AnswerSource::Waking;
        let deadline_ns = now_ns() + LONG_WAIT.as_nanos() as u64 / 2;
        assert!(!parker.spin(Some(deadline_ns), &mut || panic!("polled")));
        assert_eq!(parker.waited_long, Duration::ZERO);
    }

    #[test]
    fn long_wait_counts_as_asleep_for_as_long_as_it_has_yielded() {
        let mut parker = Parker::new(Config::default()).expect("valid");
        parker.expected_answer = AnswerSource::Waking;
        assert!(!parker.spin(None, &mut || false));
        // Beside other processes, the wait may have ended early.
        assert!(parker.waited_long <= 100 * LONG_WAIT, "{:?}", parker.waited_long);
        assert!(!parker.spin(None, &mut || false), "without an expected answer");
        assert_eq!(parker.waited_long, Duration::ZERO, "of the wait before");
        let mut parker = Parker::new(Config::never_spin()).expect("valid");
        parker.expected_answer = AnswerSource::Waking;
        assert!(!parker.spin(None, &mut || false));
        assert_eq!(parker.waited_long, Duration::ZERO, "of a wait that did not yield");
    }
}
