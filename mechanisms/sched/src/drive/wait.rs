//! Waiting of arbiter and clients: spinning on a CPU of their own, or yielding and sleeping on
//! shared ones.

use handover_base::{clock, topology};
use std::time::Duration;

/// Waiting strategy of an arbiter or client without work: spinning, or yielding and sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdlePolicy {
    /// The thread spins; meant for threads that each have a CPU of their own. (It yields now and
    /// then all the same, in case another thread of the driver shares the CPU, unless a yield has
    /// switched to another process.)
    Spin,
    /// The thread spins for a moment, then yields, then sleeps for at most a millisecond. For
    /// threads that share CPUs. After a yield that has switched to another process, it sleeps
    /// instead of yielding. Intervals are observed as long as there is work in each.
    Share,
}

impl IdlePolicy {
    /// Returns the strategy for `threads_count` threads on the CPUs that this process may use. The
    /// count includes the arbiter's thread.
    pub fn for_threads(threads_count: usize) -> Self {
        let allowed = topology::allowed_cpus().len();
        let quota = topology::quota_cpus().unwrap_or(f64::INFINITY);
        let is_overcommitted = threads_count > allowed || threads_count as f64 > quota;
        if is_overcommitted { IdlePolicy::Share } else { IdlePolicy::Spin }
    }
}

/// Number of spins between two yields of a spinning thread: some tens of microseconds.
const SPINS_PER_YIELD: u32 = 4096;
/// Number of spins of a thread on a shared CPU before it yields.
const SPINS_BEFORE_YIELD: u32 = 32;
/// Number of yields of a thread on a shared CPU before it sleeps.
const YIELDS_BEFORE_SLEEP: u32 = 64;
/// Number of consecutive waits from which on a thread on a shared CPU may sleep longer than an
/// interval.
const INTERVALS_BEFORE_SLEEP: u32 = 2;
/// Requested duration of the first sleep in a row. Each further sleep is twice as long, up to 16
/// times the first. (The kernel about doubles this duration.)
const SLEEP_NS: u64 = 50_000;
/// Maximum number of times that the duration of the sleep doubles.
const SLEEP_DOUBLINGS_MAX: u32 = 4;
/// Usual maximum delay, in ns, between the requested and the actual end of a sleep. Within this
/// time before a deadline a thread yields instead of sleeping.
const SLEEP_LATE_NS: u64 = 100_000;
/// Maximum duration of a single sleep, in ns.
const SLEEP_MAX_NS: u64 = 1_000_000;
/// Minimum duration of a yield that is assumed to have switched to another process.
///
/// On Linux 6.18 a thread that yields gives up the rest of its time slice: beside a busy process
/// one that yielded every 20 µs got 2 % of its CPU, each yield took 8 ms, and one that never
/// yielded got half of the CPU (2026-11).
const YIELD_LONG_NS: u64 = 500_000;
/// Duration of the pause without yields after a long yield, as a multiple of the yield's duration.
const YIELD_PAUSE_FACTOR: u64 = 100;
/// Maximum duration, in ns, of the pause without yields after a long yield.
const YIELD_PAUSE_MAX_NS: u64 = 10_000_000_000;

/// Converts a duration to ns, at most `u64::MAX`.
pub(super) fn saturating_ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// State of a thread without work. It has the number of waits in a row, and the time of the next
/// yield.
#[derive(Debug)]
pub(super) struct IdleState {
    idle_policy: IdlePolicy,
    /// Number of consecutive waits without work.
    waits_in_row: u32,
    /// Time in ns before which the thread does not yield.
    yields_from_ns: u64,
}

impl IdleState {
    pub(super) fn new(idle_policy: IdlePolicy) -> Self {
        Self { idle_policy, waits_in_row: 0, yields_from_ns: 0 }
    }

    /// Records that the thread had work.
    #[inline(always)]
    pub(super) fn reset(&mut self) {
        self.waits_in_row = 0;
    }

    /// Spins, yields or sleeps for a moment; called if the time of the next work is unknown.
    #[inline(always)]
    pub(super) fn wait(&mut self) {
        self.waits_in_row = self.waits_in_row.wrapping_add(1);
        match self.idle_policy {
            IdlePolicy::Spin if !self.waits_in_row.is_multiple_of(SPINS_PER_YIELD) => {}
            IdlePolicy::Share if self.waits_in_row < SPINS_BEFORE_YIELD => core::hint::spin_loop(),
            _ => self.back_off(),
        }
    }

    /// Yields or sleeps, depending on the policy and the number of waits in a row.
    #[cold]
    #[inline(never)]
    fn back_off(&mut self) {
        match self.waits_in_row.checked_sub(SPINS_BEFORE_YIELD + YIELDS_BEFORE_SLEEP) {
            Some(slept) if self.idle_policy == IdlePolicy::Share => sleep_for(backoff_ns(slept)),
            _ => self.yield_or_sleep(SLEEP_NS),
        }
    }

    /// Yields the CPU, unless a recent yield took long. In this case it sleeps for `sleep_ns`, or
    /// returns at once if the policy is [`IdlePolicy::Spin`].
    fn yield_or_sleep(&mut self, sleep_ns: u64) {
        let began_ns = clock::now_ns();
        if self.may_yield(began_ns) {
            std::thread::yield_now();
            self.record_yield(began_ns, clock::now_ns());
        } else if self.idle_policy == IdlePolicy::Share {
            sleep_for(sleep_ns);
        }
    }

    /// Returns `true` unless a recent yield took long.
    fn may_yield(&self, now_ns: u64) -> bool {
        now_ns >= self.yields_from_ns
    }

    /// Records a yield, to detect one that switched to another process.
    fn record_yield(&mut self, began_ns: u64, ended_ns: u64) {
        let took_ns = ended_ns - began_ns;
        if took_ns >= YIELD_LONG_NS {
            let pause_ns = took_ns.saturating_mul(YIELD_PAUSE_FACTOR).min(YIELD_PAUSE_MAX_NS);
            self.yields_from_ns = ended_ns.saturating_add(pause_ns);
        }
    }

    /// Waits until `wake_ns` or until `interrupted` returns `true`; returns the current time in ns.
    /// `wake_ns` is not later than `due_ns`. No work is due before `due_ns`.
    ///
    /// A thread on a shared CPU that has found no work before sleeps beyond `wake_ns`: until
    /// `due_ns` at the latest, and at most a millisecond at a time.
    pub(super) fn wait_until(
        &mut self,
        wake_ns: u64,
        due_ns: u64,
        mut interrupted: impl FnMut() -> bool,
    ) -> u64 {
        self.waits_in_row = self.waits_in_row.wrapping_add(1);
        let is_sharing = self.idle_policy == IdlePolicy::Share;
        let sleeps_before =
            self.waits_in_row.checked_sub(INTERVALS_BEFORE_SLEEP).filter(|_| is_sharing);
        let mut spins = 0u32;
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= wake_ns || interrupted() {
                return now_ns;
            }
            let left_ns = wake_ns - now_ns;
            spins += 1;
            if let Some(slept) = sleeps_before {
                // Late for the work due by the kernel's lateness, which is acceptable after so many
                // idle rounds.
                sleep_for(left_ns.max(backoff_ns(slept)).min(due_ns - now_ns));
            } else if is_sharing && left_ns > 2 * SLEEP_LATE_NS {
                sleep_for(left_ns - SLEEP_LATE_NS);
            } else if is_sharing || spins.is_multiple_of(SPINS_PER_YIELD) {
                self.yield_or_sleep(SLEEP_NS.min(left_ns));
            } else {
                core::hint::spin_loop();
            }
        }
    }
}

/// Returns the duration of the next sleep after `slept` sleeps without work.
fn backoff_ns(slept: u32) -> u64 {
    SLEEP_NS << slept.min(SLEEP_DOUBLINGS_MAX)
}

fn sleep_for(span_ns: u64) {
    std::thread::sleep(Duration::from_nanos(span_ns.min(SLEEP_MAX_NS)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yield_that_led_to_another_process_is_not_repeated_for_a_hundred_times_its_duration() {
        for idle_policy in [IdlePolicy::Spin, IdlePolicy::Share] {
            let mut idle = IdleState::new(idle_policy);
            let began_ns = 1_000;
            assert!(idle.may_yield(began_ns));
            idle.record_yield(began_ns, began_ns + YIELD_LONG_NS - 1);
            assert!(idle.may_yield(began_ns + YIELD_LONG_NS), "a short yield is not repeated");
            let took_ns = 2 * YIELD_LONG_NS;
            idle.record_yield(began_ns, began_ns + took_ns);
            let again_ns = began_ns + took_ns + 100 * took_ns;
            assert!(!idle.may_yield(again_ns - 1) && idle.may_yield(again_ns));
            // A process that keeps the CPU for seconds, and times at the end of the clock.
            idle.record_yield(0, u64::MAX / 2);
            assert!(idle.may_yield(u64::MAX / 2 + YIELD_PAUSE_MAX_NS));
            idle.record_yield(0, u64::MAX);
            assert!(!idle.may_yield(u64::MAX - 1));
        }
    }
}
