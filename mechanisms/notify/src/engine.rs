//! The decision whether to spin, and for how long: pure transitions. Time is an argument.
//!
//! - Spin as long as a sleep costs: this is never much worse than twice the cost of the best choice
//!   in
//!   hindsight. The cost of a sleep differs by a factor of ten between machines (a virtual CPU that
//!   halted is slow to wake), so it is measured: each sender that wakes a receiver leaves the time.
//! - By default take twice that: if two threads that hand to and fro both sleep, each waits for the
//!   other's wake-up as well as its own, and would never start to spin again. A greater multiple
//!   trades CPU time for latency.
//! - Within this limit, use four times the usual length of successful spins.
//! - When two spins in a row end in a long sleep, skip spinning for 1, 8, 64 ... waits. Large steps
//!   are safe, as short waits are detected without a spin: after a sleep of at most three quarters
//!   of the limit, the next wait spins. If this spin fails, the short sleep was an exception, as
//!   after a late wake-up, and the number of skipped waits grows as before, unless the next sleep
//!   is short again.
//!
//! Source: Karlin, Li, Manasse, Owicki, "Empirical Studies of Competitive Spinning for a
//! Shared-Memory Multiprocessor" (SOSP 1991), for the first and the last rule.

use crate::Config;

/// Cost of a sleep in ns that is assumed until one has been measured.
const WAKE_NS_GUESS: u64 = 5_000;
/// Minimum of the mean cost of a sleep, in ns.
const WAKE_NS_MIN: u64 = 100;
/// Maximum of the mean cost of a sleep, in ns.
const WAKE_NS_MAX: u64 = 1_000_000;
/// Maximum ratio of a sleep's measured cost to the mean so far. A greater cost is reduced to it. On
/// a busy machine the woken thread has waited for others too.
const WAKE_GROWTH_MAX: u64 = 2;
/// Weight of a new measurement in a running mean, as a shift: `1 / 2^MEAN_SHIFT`.
const MEAN_SHIFT: u32 = 3;
/// Ratio of the next spin's maximum number of polls to the mean number in successful spins.
const POLLS_HEADROOM: u32 = 4;
/// Ratio of [`SpinPolicy::limit_polls`] to the minimum of [`SpinPolicy::budget_polls`].
const BUDGET_MIN_DIVISOR: u32 = 16;
/// Ratio of the longest spin to the margin: spins resume after a sleep that is shorter than the
/// longest spin by at least this margin. Without it, waits about as long as the longest spin would
/// make the receiver spin to the limit, often in vain.
const NEAR_MARGIN_DIVISOR: u64 = 4;
/// Maximum number of consecutive failed spins after which the next wait still spins.
const MISSES_ALLOWED: u32 = 1;
/// Factor by which each further failed spin increases the number of waits without a spin, as a
/// shift: `2^QUIET_SHIFT`.
const QUIET_SHIFT: u32 = 3;
/// Maximum number of polls of a spin. It is so small that neither [`POLLS_HEADROOM`] nor the scale
/// of the mean can overflow.
const SPIN_POLLS_MAX: u64 = (u32::MAX >> (MEAN_SHIFT + 2)) as u64;

/// Decision on how to wait for the next notification: spin and then sleep, or sleep at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPlan {
    /// Poll up to `spins_max` times, then sleep.
    Spin {
        /// Maximum number of polls before the sleep.
        spins_max: u32,
    },
    /// Sleep without spinning, because the sender needs the receiver's CPU to run.
    ParkSharedCpu,
    /// Sleep without spinning, because recent spins have failed or spinning is disabled.
    ParkQuiet,
}

/// Counters of a receiver's waits since its creation, by how the waits ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of waits that found a notification already pending.
    pub found_pending: u64,
    /// Number of waits that completed while spinning.
    pub by_spinning: u64,
    /// Number of waits that completed while yielding to other threads, as a
    /// [`Parker`](crate::Parker) does.
    pub by_yielding: u64,
    /// Number of waits that slept in the kernel and were woken.
    pub by_sleeping: u64,
    /// Number of waits that timed out.
    pub timed_out: u64,
    /// Number of polls in all spins, successful or not.
    pub spins: u64,
    /// Number of waits that did not spin because the sender probably shares the receiver's CPU. The
    /// last notification came from this CPU, or none had come yet and the receiver may run on one
    /// CPU only.
    pub unspun_shared_cpu: u64,
    /// Running mean of the cost of a sleep in ns. It counts from the sender's wake until the
    /// receiver runs. It is 5000, a guess, until a sender on another CPU has woken the receiver.
    pub wake_ns: u64,
}

/// Policy that decides from earlier waits how long a receiver spins before it sleeps.
///
/// Public for receivers that others build on [`StateWord`](crate::StateWord): call
/// [`plan_wait`](Self::plan_wait) before a wait that found nothing, and report its end by
/// [`record_spun`](Self::record_spun), [`record_woken`](Self::record_woken) or
/// [`record_timeout`](Self::record_timeout).
///
/// ```
/// use handover_notify::{Config, SpinPolicy, WaitPlan};
/// let poll_ps = 25_000; // one poll of the word, and the pause before it
/// let mut engine = SpinPolicy::new(Config::default(), poll_ps);
/// assert_eq!(engine.plan_wait(false), WaitPlan::Spin { spins_max: 400 }); // twice 5 µs
/// engine.record_woken(1_000_000, None); // in vain, once ...
/// engine.plan_wait(false);
/// engine.record_woken(1_000_000, None); // ... and twice
/// assert_eq!(engine.plan_wait(false), WaitPlan::ParkQuiet);
/// assert_eq!(engine.plan_wait(true), WaitPlan::ParkSharedCpu);
/// ```
#[derive(Debug, Clone)]
pub struct SpinPolicy {
    /// Configured maximum duration of a spin in ns.
    spin_ns_max: u64,
    /// Configured maximum duration of a spin, as a multiple of the mean cost of a sleep.
    spin_per_sleep: u64,
    /// Configured maximum number of consecutive waits without a spin.
    quiet_waits_max: u32,
    /// Duration of one poll in ps, with the pause before it.
    poll_ps: u64,
    /// Running mean of the cost of a sleep in ns. It counts from the sender's wake until the
    /// receiver runs.
    wake_ns: u64,
    /// Present maximum duration of a spin in ns.
    limit_ns: u64,
    /// Present maximum number of polls in a spin; so many polls last `limit_ns`.
    limit_polls: u32,
    /// Maximum number of polls of the next spin.
    budget_polls: u32,
    /// Running mean of the number of polls that successful spins took, scaled by `2^MEAN_SHIFT`.
    mean_polls_scaled: u32,
    /// Number of consecutive spins that failed: a long sleep or a timeout followed.
    misses_in_row: u32,
    /// Number of further waits that sleep without spinning.
    quiet_waits_left: u32,
    /// `true` if the present wait began with a spin.
    is_spinning: bool,
    /// `true` if the spin of the last wait failed.
    has_missed: bool,
}

impl SpinPolicy {
    /// Creates a policy that has no results of earlier waits. `poll_ps` is the duration of one poll
    /// in a spin, in ps; `config` is not checked (see [`Config::validate`]).
    #[must_use]
    pub fn new(config: Config, poll_ps: u64) -> Self {
        let mut engine = Self {
            spin_ns_max: u64::try_from(config.spin_max.as_nanos()).unwrap_or(u64::MAX),
            spin_per_sleep: config.spin_per_sleep.into(),
            quiet_waits_max: config.quiet_waits_max,
            poll_ps: poll_ps.max(1),
            wake_ns: WAKE_NS_GUESS,
            limit_ns: 0,
            limit_polls: 0,
            budget_polls: 0,
            mean_polls_scaled: 0,
            misses_in_row: 0,
            quiet_waits_left: 0,
            is_spinning: false,
            has_missed: false,
        };
        engine.update_limit();
        engine.budget_polls = engine.limit_polls;
        engine.mean_polls_scaled = (engine.limit_polls / POLLS_HEADROOM) << MEAN_SHIFT;
        engine
    }

    /// Returns `true` unless the configuration forbids spins.
    pub(crate) fn can_spin(&self) -> bool {
        self.limit_polls > 0
    }

    /// Returns the decision for a wait that found no notification pending. `shares_cpu` is `true`
    /// if the sender needs the CPU that the receiver would spin on.
    pub fn plan_wait(&mut self, shares_cpu: bool) -> WaitPlan {
        self.is_spinning = false;
        if !self.can_spin() {
            return WaitPlan::ParkQuiet;
        }
        if shares_cpu {
            return WaitPlan::ParkSharedCpu;
        }
        if self.quiet_waits_left > 0 {
            self.quiet_waits_left -= 1;
            return WaitPlan::ParkQuiet;
        }
        self.is_spinning = true;
        WaitPlan::Spin { spins_max: self.budget_polls }
    }

    /// Records that a wait has begun without a plan, and does not spin.
    pub(crate) fn skip_wait(&mut self) {
        self.is_spinning = false;
    }

    /// Records that the wait completed while spinning, after `spins` polls.
    pub fn record_spun(&mut self, spins: u32) {
        self.misses_in_row = 0;
        self.has_missed = false;
        // mean += (spins - mean) / 8, on the scaled value.
        let spins = spins.min(self.limit_polls);
        self.mean_polls_scaled =
            self.mean_polls_scaled - (self.mean_polls_scaled >> MEAN_SHIFT) + spins;
        let mean_polls = self.mean_polls_scaled >> MEAN_SHIFT;
        let budget_min = self.limit_polls.div_ceil(BUDGET_MIN_DIVISOR);
        self.budget_polls = (mean_polls * POLLS_HEADROOM).clamp(budget_min, self.limit_polls);
    }

    /// Records that the wait slept until a sender woke it. The notification came `after_ns` after
    /// the end of the spin or, without a spin, after the start of the sleep. `wake_ns` is the time
    /// from the sender's wake until the receiver ran; `None` if unknown or not the cost of a wake,
    /// as when both shared a CPU.
    pub fn record_woken(&mut self, after_ns: u64, wake_ns: Option<u64>) {
        if let Some(wake_ns) = wake_ns {
            let wake_ns = wake_ns.min(self.wake_ns * WAKE_GROWTH_MAX);
            let mean = self.wake_ns - (self.wake_ns >> MEAN_SHIFT) + (wake_ns >> MEAN_SHIFT);
            self.wake_ns = mean.clamp(WAKE_NS_MIN, WAKE_NS_MAX);
            self.update_limit();
        }
        let spun_polls = if self.is_spinning { u64::from(self.budget_polls) } else { 0 };
        let waited_ns = (spun_polls * self.poll_ps / 1000).saturating_add(after_ns);
        if waited_ns <= self.limit_ns - self.limit_ns / NEAR_MARGIN_DIVISOR {
            // The notification was near: spinning up to the limit would have caught it.
            self.budget_polls = self.limit_polls;
            self.quiet_waits_left = 0;
            if std::mem::take(&mut self.has_missed) {
                // Long and short waits take turns: the next wait spins, and the one after it too.
                self.misses_in_row = 0;
            }
        } else {
            self.record_missed();
        }
    }

    /// Records that the wait timed out.
    pub fn record_timeout(&mut self) {
        self.record_missed();
    }

    /// Returns the mean cost of a sleep in ns, from the sender's wake until the receiver runs.
    #[must_use]
    pub fn mean_wake_ns(&self) -> u64 {
        self.wake_ns
    }

    /// Records that the wait's spin, if it had one, failed. After several failures, the next waits
    /// do not spin.
    fn record_missed(&mut self) {
        self.has_missed = self.is_spinning;
        if !self.is_spinning {
            return;
        }
        self.misses_in_row = self.misses_in_row.saturating_add(1);
        if let Some(steps) = self.misses_in_row.checked_sub(MISSES_ALLOWED + 1) {
            let quiet = 1u32.checked_shl(steps.saturating_mul(QUIET_SHIFT)).unwrap_or(u32::MAX);
            self.quiet_waits_left = quiet.min(self.quiet_waits_max);
            // The spin after these waits tries the limit: a shorter one would not find out if
            // spinning pays again.
            self.budget_polls = self.limit_polls;
        }
    }

    /// Computes the maximum duration of a spin from the mean cost of a sleep.
    fn update_limit(&mut self) {
        self.limit_ns = self.spin_ns_max.min(self.wake_ns * self.spin_per_sleep);
        let spins = (self.limit_ns * 1000).div_ceil(self.poll_ps).min(SPIN_POLLS_MAX);
        self.limit_polls = spins as u32; // at most SPIN_POLLS_MAX, which fits
        self.budget_polls = self.budget_polls.min(self.limit_polls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LONG_NS: u64 = 1_000_000;
    const SHORT_NS: u64 = 5_000;

    /// Policy whose first limit, twice 5 µs, is 400 polls.
    fn engine() -> SpinPolicy {
        SpinPolicy::new(Config::default(), 25_000)
    }

    fn budget(engine: &mut SpinPolicy) -> u32 {
        match engine.plan_wait(false) {
            WaitPlan::Spin { spins_max } => spins_max,
            other => panic!("expected a plan to spin, found {other:?}"),
        }
    }

    /// Records 100 waits that complete while spinning, after `polls` polls each.
    fn short_spins(engine: &mut SpinPolicy, polls: u32) {
        for _ in 0..100 {
            engine.plan_wait(false);
            engine.record_spun(polls);
        }
    }

    /// Records `waits` waits that all sleep long; returns how many of them spun.
    fn long_sleeps(engine: &mut SpinPolicy, waits: u32) -> u32 {
        (0..waits)
            .filter(|_| {
                let spun = matches!(engine.plan_wait(false), WaitPlan::Spin { .. });
                engine.record_woken(LONG_NS, None);
                spun
            })
            .count() as u32
    }

    #[test]
    fn spin_to_the_limit_that_missed_a_notification_shortly_after_it_has_failed() {
        let mut engine = SpinPolicy::new(Config::default(), 25_000);
        for _ in 0..2 {
            let spins_max = engine.limit_polls;
            assert_eq!(engine.plan_wait(false), WaitPlan::Spin { spins_max });
            engine.record_woken(SHORT_NS, None);
        }
        assert_eq!(engine.plan_wait(false), WaitPlan::ParkQuiet);
    }

    #[test]
    fn fresh_engine_spins_twice_the_assumed_sleep_cost() {
        assert_eq!(budget(&mut engine()), 400);
    }

    #[test]
    fn shared_cpu_never_spins() {
        let mut engine = engine();
        short_spins(&mut engine, 3);
        assert_eq!(engine.plan_wait(true), WaitPlan::ParkSharedCpu);
    }

    #[test]
    fn short_waits_shrink_the_budget_and_one_short_sleep_restores_it() {
        let mut engine = engine();
        short_spins(&mut engine, 1);
        assert_eq!(budget(&mut engine), 25);
        engine.record_woken(SHORT_NS, None);
        assert_eq!(budget(&mut engine), 400);
    }

    #[test]
    fn budget_is_the_typical_spin_times_the_headroom() {
        let mut engine = engine();
        short_spins(&mut engine, 50);
        let spins_max = budget(&mut engine);
        assert!((170..=200).contains(&spins_max), "{spins_max} polls instead of about 4 x 50");
    }

    #[test]
    fn slow_wakes_lengthen_spins_up_to_the_configured_limit() {
        let mut engine = engine();
        for _ in 0..100 {
            engine.plan_wait(false);
            engine.record_woken(SHORT_NS, Some(16_000));
        }
        let spins_max = engine.limit_polls;
        assert!(
            (1200..=1290).contains(&spins_max),
            "{spins_max} polls instead of about 2 x 16 µs / 25 ns"
        );
        for _ in 0..100 {
            engine.plan_wait(false);
            engine.record_woken(SHORT_NS, Some(1_000_000));
        }
        assert_eq!(engine.limit_polls, 50_000 / 25);
    }

    #[test]
    fn spin_after_a_pause_tries_the_limit() {
        let mut engine = engine();
        short_spins(&mut engine, 1);
        assert!(budget(&mut engine) < engine.limit_polls);
        long_sleeps(&mut engine, 100);
        while engine.plan_wait(false) == WaitPlan::ParkQuiet {
            engine.record_woken(LONG_NS, None);
        }
        assert_eq!(engine.budget_polls, engine.limit_polls);
    }

    #[test]
    fn sleeps_about_as_long_as_the_limit_do_not_resume_spinning() {
        let mut engine = engine();
        long_sleeps(&mut engine, 1000);
        let limit_ns = engine.limit_ns;
        for (wait_ns, resumes) in
            [(limit_ns, false), (limit_ns * 4 / 5, false), (limit_ns / 2, true)]
        {
            engine.quiet_waits_left = 100;
            engine.plan_wait(false);
            engine.record_woken(wait_ns, None);
            assert_eq!(engine.quiet_waits_left == 0, resumes, "after a sleep of {wait_ns} ns");
        }
    }

    #[test]
    fn low_latency_spins_through_waits_of_many_sleeps_cost_and_not_through_longer_ones() {
        const WAKE_NS: u64 = 10_000;
        for (wait_ns, is_spun) in [(50_000, true), (100_000, true), (200_000, false)] {
            let mut engine = SpinPolicy::new(Config::low_latency(), 25_000);
            let mut spun_count = 0;
            for _ in 0..1000 {
                match engine.plan_wait(false) {
                    WaitPlan::Spin { spins_max } if u64::from(spins_max) * 25 > wait_ns => {
                        engine.record_spun((wait_ns / 25) as u32);
                        spun_count += 1;
                    }
                    WaitPlan::Spin { spins_max } => {
                        engine.record_woken(wait_ns - u64::from(spins_max) * 25, Some(WAKE_NS));
                    }
                    _ => engine.record_woken(wait_ns, Some(WAKE_NS)),
                }
            }
            let expected = if is_spun { 900..=1000 } else { 0..=100 };
            assert!(expected.contains(&spun_count), "{spun_count} of 1000 waits of {wait_ns} ns");
        }
    }

    #[test]
    fn fast_wakes_shorten_spins() {
        let mut engine = engine();
        for _ in 0..100 {
            engine.plan_wait(false);
            engine.record_woken(SHORT_NS, Some(1_000));
        }
        assert!((950..1050).contains(&engine.mean_wake_ns()), "{}", engine.mean_wake_ns());
        assert_eq!(
            engine.plan_wait(false),
            WaitPlan::ParkQuiet,
            "spins 5 µs although a wake-up takes only 1 µs"
        );
    }

    #[test]
    fn single_slow_wake_changes_the_mean_little() {
        let mut engine = engine();
        engine.plan_wait(false);
        engine.record_woken(SHORT_NS, Some(10_000_000));
        assert!(engine.mean_wake_ns() < 6_000, "{}", engine.mean_wake_ns());
    }

    #[test]
    fn mutual_sleeping_ends_after_some_waits() {
        // Each wait of a ping-pong lasts as long as the partner's wake-up, if both sleep.
        for wake_ns in [1_000, 5_000, 15_000, 24_000] {
            let mut engine = engine();
            long_sleeps(&mut engine, 1000);
            let waits = (0..1000)
                .take_while(|_| {
                    let spins = wake_ns * 1000 / 25_000;
                    if matches!(engine.plan_wait(false), WaitPlan::Spin { spins_max } if spins_max as u64 > spins)
                    {
                        return false;
                    }
                    engine.record_woken(wake_ns, Some(wake_ns));
                    true
                })
                .count();
            assert!(waits < 100, "wake-ups of {wake_ns} ns: no spinning after {waits} waits");
        }
    }

    #[test]
    fn single_long_sleep_keeps_spinning() {
        let mut engine = engine();
        engine.plan_wait(false);
        engine.record_spun(10);
        engine.plan_wait(false);
        engine.record_woken(LONG_NS, None);
        assert!(matches!(engine.plan_wait(false), WaitPlan::Spin { .. }));
    }

    #[test]
    fn long_sleeps_reduce_spins_to_one_probe_in_1025_waits() {
        let mut engine = engine();
        // Two spins at first, then one each after 1, 8, 64, 512 and 1024 quiet waits.
        assert_eq!(long_sleeps(&mut engine, 2 + 1609 + 5), 7);
        assert_eq!(long_sleeps(&mut engine, 1025 * 10), 10);
    }

    #[test]
    fn timed_out_wait_counts_as_long_sleep() {
        let mut engine = engine();
        for _ in 0..2 {
            engine.plan_wait(false);
            engine.record_timeout();
        }
        assert_eq!(engine.plan_wait(false), WaitPlan::ParkQuiet);
    }

    #[test]
    fn successful_probe_resumes_spinning() {
        let mut engine = engine();
        long_sleeps(&mut engine, 1000);
        while engine.plan_wait(false) == WaitPlan::ParkQuiet {
            engine.record_woken(LONG_NS, None);
        }
        engine.record_spun(20);
        assert!(matches!(engine.plan_wait(false), WaitPlan::Spin { .. }));
        engine.record_woken(LONG_NS, None);
        assert!(
            matches!(engine.plan_wait(false), WaitPlan::Spin { .. }),
            "misses were not reset to zero"
        );
    }

    #[test]
    fn short_sleep_resumes_spinning_without_a_probe() {
        let mut engine = engine();
        long_sleeps(&mut engine, 1000);
        engine.plan_wait(false);
        engine.record_woken(SHORT_NS, None);
        assert!(matches!(engine.plan_wait(false), WaitPlan::Spin { .. }));
    }

    #[test]
    fn short_sleep_among_long_ones_causes_one_spin() {
        let mut engine = engine();
        long_sleeps(&mut engine, 10_000);
        engine.quiet_waits_left = 1;
        engine.plan_wait(false);
        engine.record_woken(SHORT_NS, None);
        assert_eq!(long_sleeps(&mut engine, 1025), 1);
    }

    #[test]
    fn short_sleeps_after_each_long_one_are_caught_by_spinning() {
        let mut engine = engine();
        long_sleeps(&mut engine, 10_000);
        engine.quiet_waits_left = 0;
        let mut caught = 0;
        for _ in 0..100 {
            engine.plan_wait(false);
            engine.record_woken(LONG_NS, None);
            match engine.plan_wait(false) {
                WaitPlan::Spin { .. } => {
                    engine.record_spun(200);
                    caught += 1;
                }
                _ => engine.record_woken(SHORT_NS, None),
            }
        }
        assert!(caught > 90, "{caught} of 100 short waits were caught");
    }

    #[test]
    fn zero_spin_limit_never_spins() {
        let mut engine = SpinPolicy::new(Config::never_spin(), 25_000);
        for _ in 0..10 {
            assert_eq!(engine.plan_wait(false), WaitPlan::ParkQuiet);
            engine.record_woken(0, Some(1));
        }
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let config =
            Config { spin_max: Duration::MAX, spin_per_sleep: u32::MAX, quiet_waits_max: u32::MAX };
        for poll_ps in [0, 1, u64::MAX] {
            let mut engine = SpinPolicy::new(config, poll_ps);
            for ns in [0, 1, u64::MAX] {
                for _ in 0..100 {
                    engine.plan_wait(false);
                    engine.record_woken(ns, Some(ns));
                    engine.plan_wait(false);
                    engine.record_spun(u32::MAX);
                    engine.quiet_waits_left = 0;
                    engine.plan_wait(false);
                    engine.record_timeout();
                }
            }
            assert!(engine.budget_polls <= engine.limit_polls);
        }
    }
}
