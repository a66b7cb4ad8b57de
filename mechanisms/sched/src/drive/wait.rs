//! Waiting of arbiter and clients: spinning on a CPU of their own, or yielding and sleeping on
//! shared ones.

use handover_base::{clock, topology};
use std::time::Duration;

/// Behaviour of a waiting arbiter or client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Each thread has a CPU: it spins. (It yields now and then all the same, so that nothing hangs
    /// where that is not so.)
    Spin,
    /// Threads share CPUs: they spin for a moment, then yield, then sleep, for a millisecond at
    /// most. Intervals are kept as long as there is something to do in each.
    Share,
}

impl Patience {
    /// Returns the behaviour for `threads_count` threads, including the arbiter, on the CPUs that
    /// this process may use.
    pub fn for_threads(threads_count: usize) -> Self {
        let allowed = topology::allowed().len();
        let quota = topology::quota_cpus().unwrap_or(f64::INFINITY);
        let is_overcommitted = threads_count > allowed || threads_count as f64 > quota;
        if is_overcommitted { Patience::Share } else { Patience::Spin }
    }
}

/// A thread that spins lets others run once in so many rounds: some tens of microseconds.
const SPINS_PER_YIELD: u32 = 4096;
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

pub(super) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Counter of rounds without work.
#[derive(Debug)]
pub(super) struct Idle {
    patience: Patience,
    rounds: u32,
}

impl Idle {
    pub(super) fn new(patience: Patience) -> Self {
        Self { patience, rounds: 0 }
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
            Patience::Spin if !self.rounds.is_multiple_of(SPINS_PER_YIELD) => {}
            Patience::Share if self.rounds < SPINS_SHARED => core::hint::spin_loop(),
            _ => self.yield_or_sleep(),
        }
    }

    #[cold]
    #[inline(never)]
    fn yield_or_sleep(&mut self) {
        match self.rounds.checked_sub(SPINS_SHARED + YIELDS_SHARED) {
            Some(slept) if self.patience == Patience::Share => sleep(backoff_ns(slept)),
            _ => std::thread::yield_now(),
        }
    }

    /// Waits until `wake_ns`, which is not later than `due_ns`, or until `interrupted` returns
    /// `true`; returns the time. No work is known before `due_ns`.
    ///
    /// A thread on a shared CPU that has found no work before sleeps beyond `wake_ns`: until
    /// `due_ns` at the latest, and at most a millisecond at a time.
    pub(super) fn wait_until(
        &mut self,
        wake_ns: u64,
        due_ns: u64,
        mut interrupted: impl FnMut() -> bool,
    ) -> u64 {
        self.rounds = self.rounds.wrapping_add(1);
        let is_sharing = self.patience == Patience::Share;
        let sleeps_before = self.rounds.checked_sub(INTERVALS_SHARED).filter(|_| is_sharing);
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
                sleep(left_ns.max(backoff_ns(slept)).min(due_ns - now_ns));
            } else if is_sharing && left_ns > 2 * SLEEP_LATE_NS {
                sleep(left_ns - SLEEP_LATE_NS);
            } else if is_sharing || spins.is_multiple_of(SPINS_PER_YIELD) {
                std::thread::yield_now();
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
