//! Yields of a thread to the others of its CPU: before it sleeps, and while it works for others.

use super::contention::{ContentionDetector, CpuUsers, check_process};
use super::waiting::now_ns;
use crate::Config;
use crate::engine::{SpinPolicy, WaitPlan};
use crate::stage;
use handover_base::usage;
use rustix::thread::sched_yield;
use std::time::Duration;

/// Assumed cost of a yield, in ps.
const YIELD_PS: u64 = 500_000;
/// Number of consecutive yields without a result after which the thread counts its context
/// switches. There may be no other thread to run. `hello5 10` on two CPUs, 2026-11: 1.0 to 1.2
/// times as many messages as when the thread was assumed to be alone and spun while others waited
/// for its CPU.
const YIELDS_BEFORE_CHECK: u32 = 4;
/// Maximum duration of yielding, in ns, counted from yield number [`YIELDS_BEFORE_CHECK`]. If other
/// threads compute for their entire time slice, a thread that sleeps runs sooner, once woken, than
/// one that waits in the run queue.
const YIELDING_NS_MAX: u64 = 10_000_000;
/// Maximum duration of a wait of [`Yielder::start_long_wait`].
pub(crate) const LONG_WAIT: Duration = Duration::from_nanos(YIELDING_NS_MAX);
/// Maximum interval, in ns, between the yields of [`Yielder::share_cpu`]: if no other thread needs
/// the CPU, or if so many threads of this process do that a yield is long. It is below the kernel's
/// time slice (1.4 ms on two CPUs), as a thread that uses two slices is passed over for a round.
/// Suite event/serve-each with 1000 clients on two CPUs, 2026-11: 6.4 µs, with 2 ms 10 µs, with
/// 0.13 ms 9.7 µs.
const INTERVAL_NS_MAX: u64 = 1_000_000;
/// Maximum ratio of the interval to its minimum while other threads of this CPU yield too. Threads
/// that all prolonged their intervals with the others' would end up with time slices.
const INTERVAL_FACTOR_MAX: u64 = 4;
/// Duration of a yield, in ns, up to which no other thread may have run.
const SHORT_YIELD_NS: u64 = 4_000;
/// Duration of a yield, in ns, from which on it is long. Beside a process that computes it takes a
/// time slice of 3 to 8 ms; with 1000 threads that answer on two CPUs, 0.5 to 5 ms.
const LONG_YIELD_NS: u64 = 3_000_000;
/// Time by which each other thread that yields on this CPU prolongs a yield that is not long, in
/// ns.
const YIELD_NS_PER_SHARER: u64 = 64_000;
/// Ratio of the time without yields after a long yield to the yield's duration.
const LONG_YIELD_FACTOR: u64 = 16;
/// Maximum time without yields after a long yield, in ns.
const PAUSE_NS_MAX: u64 = 1_000_000_000;

/// Yields of a thread to the other threads of its CPU, as far as earlier yields have paid.
///
/// For a thread with a wait of its own; [`Parker`](crate::Parker) contains one. If more threads
/// than CPUs wait for each other, a thread that yields lets the one run that it waits for, at the
/// cost of a switch between them. A sleep costs in addition the system calls that sleep and wake,
/// and a halted CPU's wake-up.
///
/// ```
/// use handover_notify::{Config, Yielder};
/// use std::sync::atomic::{AtomicBool, Ordering};
/// let has_work = AtomicBool::new(false);
/// std::thread::scope(|scope| {
///     scope.spawn(|| has_work.store(true, Ordering::Release));
///     let mut yielder = Yielder::new(Config::default());
///     let mut wait = yielder.start_wait();
///     while yielder.yield_once(&mut wait) {
///         if has_work.load(Ordering::Acquire) {
///             return yielder.record_found(&wait);
///         }
///     }
///     while !has_work.load(Ordering::Acquire) {
///         std::thread::sleep(std::time::Duration::from_millis(1)); // or a sleep that ends with the work
///     }
///     yielder.record_sleep(None);
/// });
/// ```
#[derive(Debug)]
pub struct Yielder {
    /// Policy for the number of yields before a sleep, by the results of earlier waits.
    policy: SpinPolicy,
    /// Detector of other processes that would get the CPU by a yield. This thread then sleeps
    /// instead. `None` for a thread among other processes, which pauses after a long yield.
    contention: Option<ContentionDetector>,
    /// `true` if recent waits completed while yielding. Other threads need this CPU.
    is_yielding: bool,
    /// Time, in ns on CLOCK_MONOTONIC, of the first call of [`share_cpu`](Self::share_cpu) after
    /// this thread last left its CPU.
    working_since_ns: Option<u64>,
    /// Interval, in ns, after which [`share_cpu`](Self::share_cpu) yields.
    interval_ns: u64,
    /// Number of involuntary context switches of this thread after the last short yield of
    /// [`share_cpu`](Self::share_cpu).
    switches: u64,
    /// Duration of a yield, in ns, from which on it is long.
    long_yield_ns: u64,
    /// Time, in ns on CLOCK_MONOTONIC, until which this thread does not yield; 0 if the last yield
    /// was not long.
    paused_until_ns: u64,
    /// Duration of the last pause, in ns; 0 if the last yield was not long.
    pause_ns: u64,
}

impl Yielder {
    /// Creates a yielder that has no results of earlier yields. It never yields before a sleep if
    /// `config.spin_max` is zero; `config` is not checked (see [`Config::validate`]).
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            policy: SpinPolicy::new(config, YIELD_PS),
            contention: Some(ContentionDetector::new()),
            is_yielding: false,
            working_since_ns: None,
            interval_ns: 0,
            switches: 0,
            long_yield_ns: LONG_YIELD_NS,
            paused_until_ns: 0,
            pause_ns: 0,
        }
    }

    /// Creates a yielder like [`new`](Self::new) for a thread that yields to other processes, and
    /// only while it knows that they yield too. After a yield of 3 ms or more, as beside a process
    /// that computes, it does not yield for 16 times as long, and for up to 1 s if that happens
    /// again.
    #[must_use]
    pub fn among_processes(config: Config) -> Self {
        Self { contention: None, ..Self::new(config) }
    }

    /// Sets the number of other threads that yield on this CPU, as far as known. Each prolongs a
    /// yield, which may then take 3 ms and 64 µs for each of them before it counts as long.
    #[inline]
    pub fn set_sharers(&mut self, count: u32) {
        self.long_yield_ns = LONG_YIELD_NS + YIELD_NS_PER_SHARER * u64::from(count);
    }

    /// Returns `true` if no process that computes was detected on this thread's CPU.
    #[inline(always)]
    fn may_yield(&mut self) -> bool {
        match &mut self.contention {
            Some(contention) => contention.should_yield(),
            None => self.paused_until_ns == 0 || now_ns() >= self.paused_until_ns,
        }
    }

    /// Returns `true` if recent waits completed while yielding. Other threads need this CPU, so
    /// that spinning would only keep it from them.
    #[inline]
    #[must_use]
    pub fn is_yielding(&self) -> bool {
        self.is_yielding
    }

    /// Records that a wait completed by polling, although yields had paid before: no other thread
    /// needs this CPU.
    #[inline]
    pub fn record_found_by_polling(&mut self) {
        self.is_yielding = false;
    }

    /// Records that this thread has left its CPU to others, by a sleep or a yield.
    #[inline(always)]
    pub fn record_cpu_left(&mut self) {
        self.working_since_ns = None;
    }

    /// Records how the sleep ended that followed yields without a result, or a wait that did not
    /// yield: a sender woke the thread `after_ns` after the sleep began; `None` if none did.
    #[inline]
    pub fn record_sleep(&mut self, after_ns: Option<u64>) {
        match after_ns {
            Some(after_ns) => self.policy.record_woken(after_ns, None),
            None => self.policy.record_timeout(),
        }
    }

    /// Starts a wait, and decides how often it yields at most: not at all if that does not pay.
    #[inline(always)]
    pub fn start_wait(&mut self) -> YieldingWait {
        let plan = match self.may_yield() {
            true => self.policy.plan_wait(false),
            false => WaitPlan::ParkQuiet,
        };
        let yields_max = if let WaitPlan::Spin { spins_max } = plan { spins_max } else { 0 };
        YieldingWait { yields_max, ..YieldingWait::default() }
    }

    /// Starts a wait that yields for up to 10 ms, whatever earlier waits have found. Returns `None`
    /// if `config.spin_max` is zero, or if a process that computes was detected on this thread's
    /// CPU.
    #[inline(always)]
    pub(crate) fn start_long_wait(&mut self) -> Option<YieldingWait> {
        if !self.policy.can_spin() || !self.may_yield() {
            return None;
        }
        self.policy.skip_wait();
        Some(YieldingWait { yields_max: u32::MAX, ..YieldingWait::default() })
    }

    /// Yields once; then check whether there is work, and call [`record_found`](Self::record_found)
    /// if there is. Returns `false` without a yield if it is time to sleep. Then report the end of
    /// the sleep by [`record_sleep`](Self::record_sleep).
    ///
    /// Inlined all the way up into the loop that waits, system call included: after a switch from
    /// another thread the processor mispredicts each return to a caller that was entered before
    /// (the kernel overwrites the return-address predictor), 0.3 µs for the first.
    ///
    /// # Blocking
    /// While other threads of this CPU run.
    #[inline(always)]
    pub fn yield_once(&mut self, wait: &mut YieldingWait) -> bool {
        if wait.yields_count >= wait.yields_max || wait.is_too_long() {
            self.is_yielding = false;
            return false;
        }
        self.leave_cpu();
        wait.yields_count += 1;
        if self.paused_until_ns > 0 {
            wait.yields_max = 0;
        }
        true
    }

    /// Records that there was work after the last yield of `wait`.
    #[inline]
    pub fn record_found(&mut self, wait: &YieldingWait) {
        let yields_count = wait.yields_count;
        stage::record_yielded(yields_count);
        self.policy.record_spun(yields_count);
        self.is_yielding = yields_count <= YIELDS_BEFORE_CHECK
            || involuntary_switches() - wait.switches_before
                >= u64::from(yields_count - YIELDS_BEFORE_CHECK) / 2;
    }

    /// Yields once if this thread has worked for others for too long without leaving its CPU. Call
    /// this now and then where other CPUs may provide work so fast that no wait yields: the threads
    /// of this CPU would run only once a time slice. Returns `true` if it has yielded.
    ///
    /// # Blocking
    /// In a call that yields, until this thread gets the CPU again. It yields after
    /// `interval_ns_min` at the earliest. If the last of these yields took longer, it yields after
    /// as long a time, at most 4 times `interval_ns_min`; if it took 3 ms or more, as beside a
    /// process that computes, after 16 times as long, or after 1 ms if hundreds of threads of this
    /// process ran. While no other thread runs on this CPU, the interval doubles from yield to
    /// yield, up to 1 ms.
    #[cold]
    pub fn share_cpu(&mut self, interval_ns_min: u64) -> bool {
        let start_ns = now_ns();
        let since_ns = *self.working_since_ns.get_or_insert(start_ns);
        let yields =
            start_ns - since_ns >= self.interval_ns.max(interval_ns_min) && self.may_yield();
        if yields {
            self.leave_cpu();
            let yield_ns = now_ns() - start_ns;
            let is_alone = yield_ns <= SHORT_YIELD_NS && !self.has_switched();
            let users = || self.contention.is_some().then(check_process).flatten();
            self.interval_ns = self.next_interval_ns(yield_ns, is_alone, interval_ns_min, users);
        }
        yields
    }

    /// Returns the time until the next yield of [`share_cpu`](Self::share_cpu), in ns, after one of
    /// `yield_ns`. `users` returns who used the CPU during a long yield; `None` if unknown.
    fn next_interval_ns(
        &self,
        yield_ns: u64,
        is_alone: bool,
        interval_ns_min: u64,
        users: impl FnOnce() -> Option<CpuUsers>,
    ) -> u64 {
        if is_alone {
            (2 * self.interval_ns.max(interval_ns_min)).min(INTERVAL_NS_MAX)
        } else if yield_ns >= self.long_yield_ns {
            match users() {
                Some(CpuUsers::ManyThreads) => INTERVAL_NS_MAX,
                _ => LONG_YIELD_FACTOR * yield_ns,
            }
        } else {
            yield_ns.min(INTERVAL_FACTOR_MAX * interval_ns_min)
        }
    }

    /// Returns `true` if this thread has left the CPU to another one since the last call.
    fn has_switched(&mut self) -> bool {
        let switches = involuntary_switches();
        switches != std::mem::replace(&mut self.switches, switches)
    }

    #[inline(always)] // see yield_once()
    fn leave_cpu(&mut self) {
        self.record_cpu_left();
        if let Some(contention) = &mut self.contention {
            return contention.yield_now();
        }
        let start_ns = now_ns();
        sched_yield();
        let end_ns = now_ns();
        self.record_yield(end_ns - start_ns, end_ns);
    }

    /// Starts a pause after a long yield, and forgets earlier ones after another yield.
    #[inline(always)]
    fn record_yield(&mut self, yield_ns: u64, end_ns: u64) {
        if yield_ns < self.long_yield_ns {
            (self.pause_ns, self.paused_until_ns) = (0, 0);
        } else {
            self.pause_ns = (2 * self.pause_ns).max(LONG_YIELD_FACTOR * yield_ns).min(PAUSE_NS_MAX);
            self.paused_until_ns = end_ns + self.pause_ns;
        }
    }
}

/// Yields of one wait of a [`Yielder`]'s thread.
#[derive(Debug, Default)]
pub struct YieldingWait {
    /// Number of yields so far.
    yields_count: u32,
    yields_max: u32,
    /// Number of involuntary context switches of this thread after [`YIELDS_BEFORE_CHECK`] yields.
    switches_before: u64,
    /// Time, in ns on CLOCK_MONOTONIC, after [`YIELDS_BEFORE_CHECK`] yields.
    since_ns: u64,
}

impl YieldingWait {
    /// Returns `true` if the wait has yielded for too long. Called before each yield.
    #[inline(always)]
    fn is_too_long(&mut self) -> bool {
        if self.yields_count < YIELDS_BEFORE_CHECK {
            return false;
        }
        let now_ns = now_ns();
        if self.yields_count == YIELDS_BEFORE_CHECK {
            (self.switches_before, self.since_ns) = (involuntary_switches(), now_ns);
        }
        now_ns.saturating_sub(self.since_ns) > YIELDING_NS_MAX
    }

    /// Returns the time since [`YIELDS_BEFORE_CHECK`] yields; zero after fewer.
    pub(crate) fn duration(&self) -> Duration {
        match self.since_ns {
            0 => Duration::ZERO,
            since_ns => Duration::from_nanos(now_ns().saturating_sub(since_ns)),
        }
    }
}

/// Returns the number of involuntary context switches of this thread. It grows with a yield after
/// which another thread ran, and not with one after which this thread ran on.
fn involuntary_switches() -> u64 {
    usage::thread_switches_involuntary()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// Time that no test takes, even if it is preempted.
    const FAR_NS: u64 = 3_600_000 * MS;

    fn yielder() -> Yielder {
        Yielder::among_processes(Config::default())
    }

    #[test]
    fn long_wait_yields_after_failed_yields_but_not_with_a_spin_max_of_zero() {
        for (config, yields) in [(Config::default(), true), (Config::never_spin(), false)] {
            let mut yielder = Yielder::among_processes(config);
            for _ in 0..10 {
                yielder.start_wait();
                yielder.record_sleep(Some(MS));
            }
            assert_eq!(yielder.start_wait().yields_max, 0);
            assert_eq!(yielder.start_long_wait().is_some(), yields, "{config:?}");
        }
    }

    #[test]
    fn long_yield_pauses_the_yields_for_twice_as_long_each_time() {
        let mut yielder = yielder();
        yielder.record_yield(3 * MS, now_ns() + FAR_NS);
        assert_eq!(yielder.pause_ns, 48 * MS);
        let mut wait = yielder.start_wait();
        assert!(!yielder.yield_once(&mut wait), "a yield during the pause");
        for pause_ns in [96 * MS, 192 * MS, 384 * MS, 768 * MS, 1000 * MS, 1000 * MS] {
            yielder.record_yield(4 * MS, now_ns() + FAR_NS);
            assert_eq!(yielder.pause_ns, pause_ns);
        }
        yielder.record_yield(2 * MS, now_ns() + FAR_NS);
        assert!(yielder.may_yield() && yielder.pause_ns == 0, "the pause outlasted a short yield");
    }

    #[test]
    fn yield_after_which_the_thread_pauses_is_the_last_of_its_wait() {
        let mut yielder = yielder();
        yielder.long_yield_ns = 0;
        let mut wait = yielder.start_wait();
        assert!(yielder.yield_once(&mut wait));
        assert!(!yielder.yield_once(&mut wait));
    }

    #[test]
    fn more_sharers_make_longer_yields_usual() {
        let mut yielder = yielder();
        yielder.set_sharers(100);
        yielder.record_yield(9 * MS, now_ns() + FAR_NS);
        assert!(yielder.may_yield());
        yielder.record_yield(10 * MS, now_ns() + FAR_NS);
        assert!(!yielder.may_yield());
        yielder.set_sharers(u32::MAX);
    }

    #[test]
    fn interval_of_a_thread_alone_on_its_cpu_doubles_up_to_its_maximum() {
        let mut yielder = yielder();
        let intervals = [16_000, 32_000, 64_000, 128_000, 256_000, 512_000, MS, MS];
        for interval_ns in intervals {
            yielder.interval_ns = yielder.next_interval_ns(300, true, 8_000, || None);
            assert_eq!(yielder.interval_ns, interval_ns);
        }
    }

    #[test]
    fn interval_follows_the_yields_of_others_up_to_a_limit() {
        let yielder = yielder();
        let interval_ns = |yield_ns| yielder.next_interval_ns(yield_ns, false, 8_000, || None);
        assert_eq!([10_000, 100_000, 3 * MS].map(interval_ns), [10_000, 32_000, 48 * MS]);
    }

    #[test]
    fn interval_after_a_long_yield_depends_on_who_used_the_cpu() {
        let interval_ns = |users| yielder().next_interval_ns(5 * MS, false, 8_000, || Some(users));
        assert_eq!(interval_ns(CpuUsers::ManyThreads), MS);
        assert_eq!(interval_ns(CpuUsers::FewThreads), 80 * MS);
        assert_eq!(interval_ns(CpuUsers::OtherProcesses), 80 * MS);
    }

    #[test]
    fn working_thread_yields_once_the_interval_has_passed() {
        let mut yielder = yielder();
        assert!(!yielder.share_cpu(1), "a yield before any work");
        while !yielder.share_cpu(1) {}
        assert_eq!(yielder.working_since_ns, None);
    }

    #[test]
    fn waits_that_found_work_after_a_yield_keep_yielding_and_two_that_did_not_pause() {
        let mut yielder = yielder();
        yielder.long_yield_ns = u64::MAX; // whatever else this CPU does
        let mut wait = yielder.start_wait();
        assert!(yielder.yield_once(&mut wait));
        yielder.record_found(&wait);
        assert!(yielder.is_yielding());
        for _ in 0..2 {
            let mut wait = yielder.start_wait();
            let mut yields_count = 0;
            while yielder.yield_once(&mut wait) {
                yields_count += 1;
            }
            assert!(yields_count > 0 && !yielder.is_yielding());
            yielder.record_sleep(None);
        }
        let mut wait = yielder.start_wait();
        assert!(!yielder.yield_once(&mut wait), "a yield after two waits in vain");
    }
}
