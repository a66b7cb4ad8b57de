//! Detection of other processes that compute on this process's CPUs.
//!
//! A yield gives the CPU to the thread that runs next until that thread waits or has used its time slice, some ms. If
//! it belongs to this process, it does the work that the yielding thread waits for. If it belongs to a process that
//! computes, the work waits for the whole slice, whereas a thread that sleeps runs within some µs once woken. With
//! hundreds of threads that yield, yielding is still faster: all of them run between two such slices.
//!
//! Beside builds on two CPUs, 2026-11, millions of messages a second with yields alone and with this detector:
//! `hello3` 0.03 and 0.19, `hello4 10` 0.04 and 0.70, `hello5 10` 0.004 and 0.02. Without the limit of
//! [`SWITCHES_PER_MS_MAX`], `hello4 1000` fell from 0.40 to 0.11.

use handover_base::{affinity, usage};
use rustix::thread::sched_yield;
use rustix::time::{ClockId, clock_gettime};

/// Maximum number of yields between two ticks of the coarse clock for the tick to count as a long yield: with 4 ms a
/// tick, yields of more than 60 µs.
const YIELDS_PER_TICK_MAX: u32 = 64;
/// Number of long yields in a row after which the process's CPU time is read. A tick of 1 to 10 ms each.
const LONG_YIELDS_MIN: u32 = 8;
/// Maximum of that number; it doubles whenever the process itself had the CPUs, as reading its CPU time takes longer
/// with more threads.
const LONG_YIELDS_MAX: u32 = 256;
/// Number of waits without yields after a detection, and its maximum; it doubles with each detection in a row.
const WAITS_MIN: u32 = 1024;
const WAITS_MAX: u32 = 1 << 16;

/// Number of involuntary context switches of the process, per ms and CPU, from which on yielding pays despite other
/// processes.
const SWITCHES_PER_MS_MAX: u64 = 16;

/// Time on CLOCK_MONOTONIC, and the process's CPU time and context switches by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuReading {
    at_ns: u64,
    cpu_ns: u64,
    /// Involuntary switches, as those of a yield are.
    switches: u64,
}

impl CpuReading {
    fn now() -> Self {
        let read = |clock| {
            let time = clock_gettime(clock);
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        };
        Self {
            at_ns: read(ClockId::Monotonic),
            cpu_ns: read(ClockId::ProcessCPUTime),
            switches: usage::process_usage().switches_involuntary,
        }
    }

    /// Returns `true` if sleeping pays: since `self` the process has left more than half a CPU of `cpus_count` to
    /// others, and few of its threads have run between two time slices of theirs.
    fn shows_contention(self, now: Self, cpus_count: usize) -> bool {
        let cpus_count = cpus_count as u64;
        let elapsed_ns = now.at_ns.saturating_sub(self.at_ns);
        let used_ns = now.cpu_ns.saturating_sub(self.cpu_ns);
        let switches = now.switches.saturating_sub(self.switches);
        2 * used_ns < (2 * cpus_count - 1) * elapsed_ns
            && switches * 1_000_000 < SWITCHES_PER_MS_MAX * cpus_count * elapsed_ns
    }
}

/// Detector of yields that give the CPU to other processes for whole time slices, by which a thread decides whether
/// to yield or to sleep.
#[derive(Debug)]
pub(super) struct ContentionDetector {
    /// Number of yields since the last tick of the coarse clock during a yield.
    yields: u32,
    /// Number of long yields in a row.
    long_yields: u32,
    /// Number of long yields in a row that are needed to compare CPU times.
    long_yields_needed: u32,
    /// CPU time at the first of these long yields.
    started: Option<CpuReading>,
    /// Number of further waits that do not yield.
    waits_left: u32,
    /// Number of waits that do not yield after the next detection.
    waits_next: u32,
}

impl ContentionDetector {
    pub(super) const fn new() -> Self {
        Self {
            yields: 0,
            long_yields: 0,
            long_yields_needed: LONG_YIELDS_MIN,
            started: None,
            waits_left: 0,
            waits_next: WAITS_MIN,
        }
    }

    /// Returns `false` if a wait should not yield, as other processes would get the CPU.
    #[inline(always)]
    pub(super) fn should_yield(&mut self) -> bool {
        if self.waits_left == 0 {
            return true;
        }
        self.waits_left -= 1;
        false
    }

    /// Yields, and records whether that took long.
    #[inline(always)]
    pub(super) fn yield_now(&mut self) {
        let before = clock_gettime(ClockId::MonotonicCoarse).tv_nsec;
        sched_yield();
        self.yields = self.yields.wrapping_add(1);
        if clock_gettime(ClockId::MonotonicCoarse).tv_nsec != before {
            self.record_tick(CpuReading::now, || affinity::thread_cpus().len());
        }
    }

    /// Records that the coarse clock has advanced during a yield.
    #[cold]
    fn record_tick(
        &mut self,
        read: impl FnOnce() -> CpuReading,
        count_cpus: impl FnOnce() -> usize,
    ) {
        let is_long = std::mem::take(&mut self.yields) <= YIELDS_PER_TICK_MAX;
        if !is_long {
            self.long_yields = 0;
            self.started = None;
            return;
        }
        self.long_yields += 1;
        if self.started.is_some() && self.long_yields < self.long_yields_needed {
            return;
        }
        let now = read();
        let Some(started) = self.started.replace(now) else { return };
        self.long_yields = 0;
        if started.shows_contention(now, count_cpus()) {
            self.started = None;
            self.long_yields_needed = LONG_YIELDS_MIN;
            self.waits_left = self.waits_next;
            self.waits_next = (self.waits_next * 2).min(WAITS_MAX);
        } else {
            self.long_yields_needed = (self.long_yields_needed * 2).min(LONG_YIELDS_MAX);
            self.waits_next = WAITS_MIN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_NS: u64 = 4_000_000;

    /// Records `ticks` ticks with `yields` yields each, in which the process uses `cpus_used` of two CPUs and makes
    /// `switches` switches a tick; returns the number of waits that then do not yield.
    fn waits_after(ticks: u64, yields: u32, cpus_used: f64, switches: u64) -> u32 {
        let mut detector = ContentionDetector::new();
        record(&mut detector, ticks, yields, cpus_used, switches);
        std::iter::from_fn(|| (!detector.should_yield()).then_some(())).count() as u32
    }

    fn record(
        detector: &mut ContentionDetector,
        ticks: u64,
        yields: u32,
        cpus_used: f64,
        switches: u64,
    ) {
        for tick in 1..=ticks {
            detector.yields = yields;
            let at_ns = tick * TICK_NS;
            let cpu_ns = (at_ns as f64 * cpus_used) as u64;
            detector.record_tick(|| CpuReading { at_ns, cpu_ns, switches: tick * switches }, || 2);
        }
    }

    #[test]
    fn long_yields_to_other_processes_stop_the_yielding() {
        let ticks = u64::from(LONG_YIELDS_MIN);
        assert_eq!(waits_after(ticks, 1, 1.0, 20), WAITS_MIN);
        assert_eq!(waits_after(ticks - 1, 1, 1.0, 20), 0, "too few ticks");
    }

    #[test]
    fn long_yields_to_threads_of_this_process_go_on() {
        assert_eq!(waits_after(1000, 1, 1.9, 20), 0);
    }

    #[test]
    fn yields_among_hundreds_of_threads_go_on_beside_other_processes() {
        assert_eq!(waits_after(1000, 1, 1.0, 1000), 0);
    }

    #[test]
    fn short_yields_go_on() {
        assert_eq!(waits_after(1000, YIELDS_PER_TICK_MAX + 1, 0.5, 20), 0);
    }

    #[test]
    fn detections_in_a_row_double_the_number_of_waits() {
        let mut detector = ContentionDetector::new();
        for waits in [WAITS_MIN, 2 * WAITS_MIN, 4 * WAITS_MIN] {
            record(&mut detector, u64::from(LONG_YIELDS_MIN), 1, 1.0, 20);
            assert_eq!(detector.waits_left, waits);
        }
        record(&mut detector, u64::from(LONG_YIELDS_MIN), 1, 2.0, 20);
        assert_eq!(detector.waits_next, WAITS_MIN);
    }
}
