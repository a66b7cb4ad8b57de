//! Waiting of arbiter and clients: spinning on a CPU of their own, or yielding and sleeping on
//! shared ones.

use handover_base::{clock, topology};
use std::time::Duration;

/// Behaviour of a waiting arbiter or client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Each thread has a CPU: it spins, and never yields. Where threads share a CPU all the same, the
    /// kernel takes it from one when its time slice is over.
    ///
    /// From Linux 6.18 on a thread that yields gives up the rest of its slice: one that yielded every
    /// 20 us beside a busy process of the lowest priority got 0.1 to 1 % of the CPU, and was off it for
    /// up to 1.2 s at a time; one that never did got a third (2026-11).
    Spin,
    /// Threads share CPUs: they spin for a moment, then yield, then sleep, for a millisecond at most. Where
    /// a yield has led to another process they sleep instead. Intervals are kept as long as there is
    /// something to do in each.
    Share,
}

impl Patience {
    /// Returns the behaviour for `threads_count` threads, including the arbiter, on the CPUs that
    /// this process may use.
    pub fn for_threads(threads_count: usize) -> Self {
        let allowed = topology::allowed().len();
        let quota = topology::quota_cpus().unwrap_or(f64::INFINITY);
        let crowded = threads_count > allowed || threads_count as f64 > quota;
        if crowded { Patience::Share } else { Patience::Spin }
    }
}

/// One that shares spins so often, then yields so often, before it sleeps.
const SPINS_SHARED: u32 = 32;
const YIELDS_SHARED: u32 = 64;
/// Intervals without work after which a thread on a shared CPU sleeps through further ones.
const INTERVALS_SHARED: u32 = 2;
/// First sleep, which the kernel about doubles; each further sleep is twice as long, up to 16 times
/// as long.
const SLEEP_NS: u64 = 50_000;
const SLEEP_DOUBLINGS_MAX: u32 = 4;
/// Usual upper bound of a sleep's lateness: for that time before a deadline a thread yields
/// instead.
const SLEEP_LATE_NS: u64 = 100_000;
const SLEEP_MAX_NS: u64 = 1_000_000;
/// Duration of a yield from which on it has led to another process: threads of the driver yield or sleep
/// sooner.
const YIELD_LONG_NS: u64 = 500_000;
/// Number of times that a thread sleeps instead of yielding after such a yield.
const SLEEPS_PER_LONG_YIELD: u32 = 100;

pub(super) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Counter of rounds without work.
#[derive(Debug)]
pub(super) struct Idle {
    patience: Patience,
    rounds: u32,
    /// Number of times that the thread sleeps before it yields again.
    sleeps_left: u32,
}

impl Idle {
    pub(super) fn new(patience: Patience) -> Self {
        Self { patience, rounds: 0, sleeps_left: 0 }
    }

    /// Records that there was work.
    #[inline(always)]
    pub(super) fn reset(&mut self) {
        self.rounds = 0;
    }

    /// Waits for a moment, without a known time of the next work.
    #[inline(always)]
    pub(super) fn wait(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        match self.patience {
            Patience::Spin => {}
            Patience::Share if self.rounds < SPINS_SHARED => core::hint::spin_loop(),
            Patience::Share => self.give_way(),
        }
    }

    #[cold]
    #[inline(never)]
    fn give_way(&mut self) {
        match self.rounds.checked_sub(SPINS_SHARED + YIELDS_SHARED) {
            Some(slept) => sleep(backoff_ns(slept)),
            None => self.yield_or_sleep(),
        }
    }

    /// Lets another thread run.
    fn yield_or_sleep(&mut self) {
        if self.sleeps_instead() {
            return sleep(SLEEP_NS);
        }
        let began_ns = clock::now_ns();
        std::thread::yield_now();
        self.yielded(clock::now_ns() - began_ns);
    }

    /// Returns `true` if a yield has led to another process lately.
    fn sleeps_instead(&mut self) -> bool {
        let sleeps = self.sleeps_left > 0;
        self.sleeps_left = self.sleeps_left.saturating_sub(1);
        sleeps
    }

    /// Records how long a yield took.
    fn yielded(&mut self, took_ns: u64) {
        if took_ns >= YIELD_LONG_NS {
            self.sleeps_left = SLEEPS_PER_LONG_YIELD;
        }
    }

    /// Waits until `look_ns`, which is not later than `due_ns`, or until `interrupted` returns
    /// `true`; returns the time. No work is known before `due_ns`.
    ///
    /// A thread on a shared CPU that has found no work before sleeps beyond `look_ns`: until
    /// `due_ns` at the latest, and at most a millisecond at a time.
    pub(super) fn wait_until(
        &mut self,
        look_ns: u64,
        due_ns: u64,
        mut interrupted: impl FnMut() -> bool,
    ) -> u64 {
        self.rounds = self.rounds.wrapping_add(1);
        let shares = self.patience == Patience::Share;
        let idle = self.rounds.checked_sub(INTERVALS_SHARED).filter(|_| shares);
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= look_ns || interrupted() {
                return now_ns;
            }
            let left_ns = look_ns - now_ns;
            if let Some(slept) = idle {
                // Late for the work due by the kernel's lateness, which is acceptable after so many
                // idle rounds.
                sleep(left_ns.max(backoff_ns(slept)).min(due_ns - now_ns));
            } else if shares && left_ns > 2 * SLEEP_LATE_NS {
                sleep(left_ns - SLEEP_LATE_NS);
            } else if shares {
                self.yield_or_sleep();
            } else {
                core::hint::spin_loop();
            }
        }
    }
}

/// Returns the duration of a sleep after `slept` sleeps without work.
fn backoff_ns(slept: u32) -> u64 {
    SLEEP_NS << slept.min(SLEEP_DOUBLINGS_MAX)
}

fn sleep(span_ns: u64) {
    std::thread::sleep(Duration::from_nanos(span_ns.min(SLEEP_MAX_NS)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_sleeps_after_a_yield_that_led_to_another_process_and_then_yields_again() {
        let mut idle = Idle::new(Patience::Share);
        assert!(!idle.sleeps_instead());
        idle.yielded(YIELD_LONG_NS - 1);
        assert!(!idle.sleeps_instead());
        idle.yielded(YIELD_LONG_NS);
        let sleeps = (0..1000).take_while(|_| idle.sleeps_instead()).count();
        assert_eq!(sleeps, SLEEPS_PER_LONG_YIELD as usize);
        assert!(!idle.sleeps_instead());
    }
}
