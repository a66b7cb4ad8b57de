//! How a thread waits: on its CPU where it has one to itself, and out of the others' way otherwise.

use handover_base::{clock, topology};
use std::time::Duration;

/// How the arbiter and the clients wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Each thread has a CPU: it spins. (It yields now and then all the same, so that nothing hangs
    /// where that is not so.)
    Spin,
    /// Threads share CPUs: they spin for a moment, then yield, then sleep.
    Share,
}

impl Patience {
    /// For so many threads, arbiter included, on the CPUs that this process is allowed.
    pub fn for_threads(threads_count: usize) -> Self {
        let allowed = topology::allowed().len();
        let quota = topology::quota_cpus().unwrap_or(f64::INFINITY);
        let crowded = threads_count > allowed || threads_count as f64 > quota;
        if crowded { Patience::Share } else { Patience::Spin }
    }
}

/// A thread that spins lets others run once in so many rounds: some tens of microseconds.
const SPINS_PER_YIELD: u32 = 4096;
/// One that shares spins so often, then yields so often, before it sleeps.
const SPINS_SHARED: u32 = 32;
const YIELDS_SHARED: u32 = 256;
/// And sleeps for so long.
const SLEEP: Duration = Duration::from_micros(50);
/// What sleeping is late by at most, mostly: that much before a moment one yields instead.
const SLEEP_LATE_NS: u64 = 100_000;
const SLEEP_MAX_NS: u64 = 1_000_000;

/// Counts how long there was nothing to do.
#[derive(Debug)]
pub(super) struct Idle {
    patience: Patience,
    rounds: u32,
}

impl Idle {
    pub(super) fn new(patience: Patience) -> Self {
        Self { patience, rounds: 0 }
    }

    /// There was something to do.
    #[inline(always)]
    pub(super) fn reset(&mut self) {
        self.rounds = 0;
    }

    /// There was nothing to do, and when there will be something nobody knows.
    #[inline(always)]
    pub(super) fn wait(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        match self.patience {
            Patience::Spin if !self.rounds.is_multiple_of(SPINS_PER_YIELD) => {}
            Patience::Share if self.rounds < SPINS_SHARED => core::hint::spin_loop(),
            _ => self.give_way(),
        }
    }

    #[cold]
    #[inline(never)]
    fn give_way(&mut self) {
        if self.patience == Patience::Share && self.rounds > SPINS_SHARED + YIELDS_SHARED {
            std::thread::sleep(SLEEP);
        } else {
            std::thread::yield_now();
        }
    }

    /// There is nothing to do before `until_ns`, unless `interrupted`; the time.
    pub(super) fn wait_until(
        &mut self,
        until_ns: u64,
        mut interrupted: impl FnMut() -> bool,
    ) -> u64 {
        let mut rounds = 0u32;
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= until_ns || interrupted() {
                return now_ns;
            }
            let left_ns = until_ns - now_ns;
            rounds += 1;
            if left_ns > 2 * SLEEP_LATE_NS && self.patience == Patience::Share {
                let sleep_ns = (left_ns - SLEEP_LATE_NS).min(SLEEP_MAX_NS);
                std::thread::sleep(Duration::from_nanos(sleep_ns));
            } else if self.patience == Patience::Share || rounds.is_multiple_of(SPINS_PER_YIELD) {
                std::thread::yield_now();
            } else {
                core::hint::spin_loop();
            }
        }
    }
}
