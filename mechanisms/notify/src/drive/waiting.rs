//! Parts of both adaptive mechanisms: the core, and the receiver's ways to poll, spin and sleep.

use crate::engine::{SpinPolicy, Stats, WaitPlan};
use crate::raw::current_cpu;
use crate::word::SenderCpu;
use crate::{Config, StateWord, stage};
use handover_base::affinity;
use handover_base::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use handover_base::sync::hint;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Number of polls in one timing by [`poll_ps`]; together they take some µs.
const POLLS_TIMED: u32 = 128;
/// Number of timings by [`poll_ps`], of which the shortest counts, as the others were interrupted.
const TIMINGS_COUNT: u32 = 5;

/// State shared by the senders and the receiver of a mechanism, alone on its cache lines.
///
/// All zeroes are a fresh core. It holds no pointers, so that it may lie in memory that several
/// processes map: whatever another process writes there, the worst effect is a missing or an
/// additional notification.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct NotifyCore {
    pub(crate) word: StateWord,
    /// Time, in ns on CLOCK_MONOTONIC, at which a sender last found the receiver asleep. The
    /// receiver computes the cost of a sleep from it.
    woken_at_ns: AtomicU64,
}

impl NotifyCore {
    /// Creates a core without a pending notification, whose receiver is awake.
    #[must_use]
    pub const fn new() -> Self {
        Self { word: StateWord::new(), woken_at_ns: AtomicU64::new(0) }
    }

    /// Makes a notification pending; calls `wake` with the futex word if the receiver sleeps.
    #[inline]
    pub(crate) fn notify(&self, wake: impl FnOnce(&AtomicU32)) {
        let sleeps = self.word.notify(current_cpu());
        stage::record_notified(self);
        if sleeps {
            stage::record_waking(self);
            // Relaxed: a measurement; the receiver checks that it belongs to its sleep.
            self.woken_at_ns.store(now_ns(), Ordering::Relaxed);
            wake(self.word.futex());
        }
    }
}

// The TSC clock is not worth its calibration here: the first sleep would take 10 ms.
pub(crate) use handover_base::clock::monotonic_ns as now_ns;

/// Time at which a wait times out; `None` for no limit.
pub(crate) type Deadline = Option<Instant>;

/// Converts a timeout to a deadline; `None` if it exceeds the clock's range.
pub(crate) fn deadline_after(timeout: Duration) -> Deadline {
    Instant::now().checked_add(timeout)
}

/// Returns the time left until `deadline`: `None` for no limit, zero if it has passed.
pub(crate) fn time_left(deadline: Deadline) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Private state of a receiver: results of its earlier waits, and statistics.
#[derive(Debug)]
pub(crate) struct WaitState {
    spin_policy: SpinPolicy,
    stats: Stats,
    /// CPU on which the sender of the last notification ran; `None` if unknown.
    sender_cpu: SenderCpu,
    /// `true` if the thread of the first wait without a known sender may run on one CPU only;
    /// `None` before it.
    is_bound_to_one_cpu: Option<bool>,
    /// Number of polls of the last wait, if it completed while spinning and is not recorded yet;
    /// otherwise zero. The next wait records it while it has nothing else to do, so that this one
    /// returns sooner.
    unrecorded_polls: u32,
}

/// Time at which a receiver's sleep began, in ns on CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SleepStart {
    since_ns: u64,
}

impl SleepStart {
    pub(crate) fn now() -> Self {
        Self { since_ns: now_ns() }
    }

    /// Returns the start of a sleep at `now_ns`, after a wait of `waited`, which counts as a part
    /// of the sleep.
    pub(crate) fn after_wait(now_ns: u64, waited: Duration) -> Self {
        Self { since_ns: now_ns.saturating_sub(waited.as_nanos() as u64) } // far below 2^64
    }

    pub(crate) fn since_ns(self) -> u64 {
        self.since_ns
    }
}

impl WaitState {
    /// Creates the state of a receiver with a valid configuration.
    pub(crate) fn new(config: Config) -> Self {
        let spin_policy = SpinPolicy::new(config, poll_ps());
        Self {
            spin_policy,
            stats: Stats::default(),
            sender_cpu: None,
            is_bound_to_one_cpu: None,
            unrecorded_polls: 0,
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            wake_ns: self.spin_policy.mean_wake_ns(),
            by_spinning: self.stats.by_spinning + u64::from(self.unrecorded_polls > 0),
            spins: self.stats.spins + u64::from(self.unrecorded_polls),
            ..self.stats
        }
    }

    /// Consumes a pending notification; returns `true` if there was one.
    #[inline]
    pub(crate) fn poll(&mut self, core: &NotifyCore) -> bool {
        let Some(sender_cpu) = core.word.try_consume() else { return false };
        stage::record_found(core);
        self.sender_cpu = sender_cpu;
        self.stats.found_pending += 1;
        true
    }

    /// Spins, then calls `sleep` (see [`StateWord::sleep_until_notified`]); returns `true` if
    /// notified before `deadline`. Called when no notification is pending.
    #[inline(never)]
    pub(crate) fn wait(
        &mut self,
        core: &NotifyCore,
        deadline: Deadline,
        mut sleep: impl FnMut(&AtomicU32, u32) -> bool,
    ) -> bool {
        if self.spin(core, deadline) {
            return true;
        }
        let mut asleep = None;
        let notified = core.word.sleep_until_notified(|word, expected| {
            asleep.get_or_insert_with(SleepStart::now);
            stage::record_parked(core);
            let should_continue = sleep(word, expected);
            stage::record_woken(core);
            should_continue
        });
        match (notified, asleep) {
            (Some(sender_cpu), Some(asleep)) => self.record_sleep_end(core, sender_cpu, asleep),
            (Some(sender_cpu), None) => {
                // The notification came between the last poll and the declaration: there was no
                // sleep.
                stage::record_found(core);
                self.sender_cpu = sender_cpu;
                self.record_found_before_sleep();
            }
            (None, _) => self.record_unnotified_sleep(),
        }
        notified.is_some()
    }

    /// Consumes the notification that interrupted a sleep; returns `false` if none is pending.
    pub(crate) fn consume_after_sleep(&mut self, core: &NotifyCore, asleep: SleepStart) -> bool {
        let Some(sender_cpu) = core.word.try_consume() else { return false };
        self.record_sleep_end(core, sender_cpu, asleep);
        true
    }

    /// Records a sleep of `core`'s receiver that the sender on `sender_cpu` has interrupted.
    fn record_sleep_end(&mut self, core: &NotifyCore, sender_cpu: SenderCpu, asleep: SleepStart) {
        // Relaxed: see NotifyCore::notify(). A time outside this sleep belongs to another sleep.
        let woken_at_ns = core.woken_at_ns.load(Ordering::Relaxed);
        self.record_sender_wake(woken_at_ns, sender_cpu, asleep);
    }

    /// Records a sleep that a sender interrupted at `woken_at_ns`, by the sender's clock.
    pub(crate) fn record_sender_wake(
        &mut self,
        woken_at_ns: u64,
        sender_cpu: SenderCpu,
        asleep: SleepStart,
    ) {
        stage::record_slept(asleep.since_ns);
        self.record_last_spin();
        self.sender_cpu = sender_cpu;
        self.stats.by_sleeping += 1;
        let now_ns = now_ns();
        if (asleep.since_ns..=now_ns).contains(&woken_at_ns) {
            // On one CPU the receiver waits for its sender to stop running: that is not the cost of
            // a wake.
            let shares_cpu = self.shares_cpu();
            let wake_ns = (!shares_cpu).then_some(now_ns - woken_at_ns);
            self.spin_policy.record_woken(woken_at_ns - asleep.since_ns, wake_ns);
        } else {
            self.spin_policy.record_woken(now_ns.saturating_sub(asleep.since_ns), None);
        }
    }

    /// Records a wait whose condition was met in the last check before the sleep.
    pub(crate) fn record_found_before_sleep(&mut self) {
        self.stats.found_pending += 1;
    }

    /// Records a sleep that no sender interrupted.
    pub(crate) fn record_unnotified_sleep(&mut self) {
        self.record_last_spin();
        self.spin_policy.record_timeout();
        self.stats.timed_out += 1;
    }

    /// Records a wait that completed while the receiver yielded to other threads.
    pub(crate) fn record_found_yielding(&mut self) {
        self.stats.by_yielding += 1;
    }

    /// Spins for as long as recent waits suggest; returns `true` as soon as `poll` does, otherwise
    /// `false`. `left` is the time to the deadline; `None` for no deadline.
    #[inline(never)]
    pub(crate) fn spin_for(
        &mut self,
        left: Option<Duration>,
        poll: &mut impl FnMut() -> bool,
    ) -> bool {
        let spins_max = self.plan_spin(left);
        for spin in 1..=spins_max {
            hint::spin_loop();
            if poll() {
                return self.record_spin(spin);
            }
        }
        self.stats.spins += u64::from(spins_max);
        false
    }

    /// Notes that this wait does not spin, whatever the policy would plan.
    pub(crate) fn skip_spin(&mut self) {
        self.record_last_spin();
        self.spin_policy.skip_wait();
    }

    /// Notes that the wait completed after `spins` polls; returns `true`.
    #[inline]
    fn record_spin(&mut self, spins: u32) -> bool {
        stage::record_spun(spins);
        self.unrecorded_polls = spins;
        true
    }

    /// Records the last wait's spin if it was successful and is not recorded yet.
    fn record_last_spin(&mut self) {
        let spins = std::mem::take(&mut self.unrecorded_polls);
        if spins > 0 {
            self.spin_policy.record_spun(spins);
            self.stats.by_spinning += 1;
            self.stats.spins += u64::from(spins);
        }
    }

    /// Plans this wait's spin: returns its maximum number of polls, which fit into `left`. Returns
    /// 0 if the wait should not spin.
    fn plan_spin(&mut self, left: Option<Duration>) -> u32 {
        self.record_last_spin();
        let shares_cpu = self.shares_cpu();
        match self.spin_policy.plan_wait(shares_cpu) {
            WaitPlan::Spin { spins_max } => spins_max.min(polls_until_deadline(left)),
            WaitPlan::ParkQuiet => 0,
            WaitPlan::ParkSharedCpu => {
                self.stats.unspun_shared_cpu += 1;
                0
            }
        }
    }

    /// Spins for as long as recent waits suggest. Returns `true` as soon as a notification is
    /// consumed, otherwise `false`.
    pub(crate) fn spin(&mut self, core: &NotifyCore, deadline: Deadline) -> bool {
        let spins_max = self.plan_spin(time_left(deadline));
        for spin in 1..=spins_max {
            hint::spin_loop();
            if let Some(sender_cpu) = core.word.try_consume() {
                self.sender_cpu = sender_cpu;
                return self.record_spin(spin);
            }
        }
        self.stats.spins += u64::from(spins_max);
        false
    }

    /// Returns `true` if the last sender ran on this thread's CPU. If its CPU is unknown, returns
    /// `true` if this thread may run on one CPU only.
    fn shares_cpu(&mut self) -> bool {
        match (self.sender_cpu, current_cpu()) {
            (Some(sender_cpu), Some(this_cpu)) => sender_cpu == this_cpu,
            // No sender is known yet: if this thread may run on one CPU only, the whole process
            // probably may (taskset, a container).
            _ => *self.is_bound_to_one_cpu.get_or_insert_with(affinity::is_bound_to_one_cpu),
        }
    }
}

/// Returns the number of polls that fit into `left`, the time to the deadline. Returns `u32::MAX`
/// without a deadline.
fn polls_until_deadline(left: Option<Duration>) -> u32 {
    let Some(left) = left else { return u32::MAX };
    u32::try_from(left.as_nanos() * 1000 / u128::from(poll_ps())).unwrap_or(u32::MAX)
}

/// Returns the duration, in ps, of one poll while spinning on this machine. It is measured at the
/// first call.
///
/// The pause instruction takes 10 to 60 ns, depending on the processor, and only a measurement
/// tells.
fn poll_ps() -> u64 {
    static POLL_PS: OnceLock<u64> = OnceLock::new();
    *POLL_PS.get_or_init(|| {
        let word = StateWord::new();
        let timings = (0..TIMINGS_COUNT).map(|_| {
            let start = Instant::now();
            for _ in 0..POLLS_TIMED {
                hint::spin_loop();
                std::hint::black_box(&word).try_consume();
            }
            start.elapsed().as_nanos() as u64 * 1000 / u64::from(POLLS_TIMED)
        });
        timings.min().unwrap_or(0).max(1)
    })
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;

    #[test]
    fn spin_is_recorded_before_the_sleep_of_a_wait_that_did_not_spin() {
        let sleeps: [fn(&mut WaitState); 2] = [WaitState::record_unnotified_sleep, |waiting| {
            waiting.record_sender_wake(1, None, SleepStart { since_ns: 1 });
        }];
        for record_sleep in sleeps {
            let mut waiting = WaitState::new(Config::default());
            assert!(waiting.record_spin(5));
            assert_eq!((waiting.stats().by_spinning, waiting.stats().spins), (1, 5));
            record_sleep(&mut waiting);
            assert_eq!(waiting.unrecorded_polls, 0, "the spin was not recorded before the sleep");
            assert_eq!((waiting.stats().by_spinning, waiting.stats().spins), (1, 5));
        }
    }
}
