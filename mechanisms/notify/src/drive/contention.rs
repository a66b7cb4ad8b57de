//! Detection of other processes that compute on this process's CPUs.
//!
//! A yield gives the CPU to the thread that runs next until that thread waits or has used its time
//! slice, some ms. If it belongs to this process, it does the work that the yielding thread waits
//! for. If it belongs to a process that computes, the work waits for the whole slice, whereas a
//! thread that sleeps runs within some µs once woken. With hundreds of threads that yield, yielding
//! is still faster: all of them run between two such slices.
//!
//! Beside builds on two CPUs, 2026-11, with yields alone and with a detector whose readings each
//! thread took for itself: `hello3` 0.6 and 53 thousand messages a second, `hello4 10` 16 and 536,
//! `hello5 10` 3.8 and 23. Without the limit of [`SWITCHES_PER_MS_MIN`], `hello4 1000` fell from
//! 397 to 113.

use super::waiting::now_ns;
use handover_base::{affinity, usage};
use rustix::thread::sched_yield;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Mutex;

/// Maximum number of yields per tick of the coarse clock if each of them counts as long. With 4 ms
/// a tick, each of them takes more than 60 µs.
const YIELDS_PER_TICK_MAX: u32 = 64;
/// Number of consecutive long yields after which a thread checks for contention. Together they take
/// so many ticks of 1 to 10 ms.
const LONG_YIELDS_MIN: u32 = 8;
/// Number of waits without yields after the first detection of contention. It doubles with each
/// further detection in a row.
const WAITS_MIN: u32 = 1024;
/// Maximum number of waits without yields after a detection of contention.
const WAITS_MAX: u32 = 1 << 16;
/// Minimum time, in ns, between two CPU readings that are compared. The result is used for the same
/// time. Readings take longer with more threads.
const INTERVAL_NS_MIN: u64 = 30_000_000;
/// Maximum time, in ns, between two CPU readings that are compared.
const INTERVAL_NS_MAX: u64 = 500_000_000;
/// Rate of involuntary context switches, per ms and CPU, from which on many threads of this process
/// yield. Yielding then pays despite other processes.
const SWITCHES_PER_MS_MIN: u64 = 16;

/// Users of the CPUs of this process while some of its threads yield and wait for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CpuUsers {
    /// Many threads of this process, which switch often.
    ManyThreads,
    /// Few threads of this process, which rarely switch.
    FewThreads,
    /// Other processes, so that sleeping pays more than yielding.
    OtherProcesses,
}

/// Time on CLOCK_MONOTONIC, and the process's CPU time and context switches by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuReading {
    /// Time of the reading, in ns on CLOCK_MONOTONIC.
    at_ns: u64,
    /// CPU time that the process has used, in ns.
    cpu_ns: u64,
    /// Number of involuntary context switches, which include those of yields.
    switches: u64,
}

impl CpuReading {
    fn now() -> Self {
        let cpu_time = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            at_ns: now_ns(),
            cpu_ns: cpu_time.tv_sec as u64 * 1_000_000_000 + cpu_time.tv_nsec as u64,
            switches: usage::process_usage().switches_involuntary,
        }
    }

    /// Returns who used the CPUs between the readings `self` and `now`: other processes if this one
    /// left them more than half a CPU of `cpus_count`, unless it had many involuntary context
    /// switches.
    fn users(self, now: Self, cpus_count: usize) -> CpuUsers {
        let cpus_count = cpus_count as u64;
        let elapsed_ns = now.at_ns.saturating_sub(self.at_ns);
        let used_ns = now.cpu_ns.saturating_sub(self.cpu_ns);
        let switches = now.switches.saturating_sub(self.switches);
        if switches * 1_000_000 >= SWITCHES_PER_MS_MIN * cpus_count * elapsed_ns {
            CpuUsers::ManyThreads
        } else if 2 * used_ns < (2 * cpus_count - 1) * elapsed_ns {
            CpuUsers::OtherProcesses
        } else {
            CpuUsers::FewThreads
        }
    }
}

/// Last CPU reading, and the result of the last comparison of two. All threads of the process share
/// them.
#[derive(Debug)]
struct ProcessCheck {
    /// Reading that the next one is compared with.
    started: Option<CpuReading>,
    /// Time of the last comparison in ns, and its result.
    last: Option<(u64, CpuUsers)>,
}

/// Check of this process for contention, shared by its threads.
static PROCESS_CHECK: Mutex<ProcessCheck> = Mutex::new(ProcessCheck { started: None, last: None });

impl ProcessCheck {
    /// Returns who uses the CPUs; `None` if unknown. Compares two readings, unless the last
    /// comparison is less than [`INTERVAL_NS_MIN`] old.
    fn check(
        &mut self,
        now_ns: u64,
        read: impl FnOnce() -> CpuReading,
        count_cpus: impl FnOnce() -> usize,
    ) -> Option<CpuUsers> {
        if let Some((at_ns, result)) = self.last
            && now_ns.saturating_sub(at_ns) < INTERVAL_NS_MIN
        {
            return Some(result);
        }
        let started = self.started;
        let elapsed_ns = started.map(|it| now_ns.saturating_sub(it.at_ns));
        if elapsed_ns.is_some_and(|it| it < INTERVAL_NS_MIN) {
            return None;
        }
        let reading = read();
        self.started = Some(reading);
        if elapsed_ns.is_none_or(|it| it > INTERVAL_NS_MAX) {
            return None;
        }
        let result = started?.users(reading, count_cpus());
        self.last = Some((reading.at_ns, result));
        Some(result)
    }
}

/// Returns who uses the CPUs of this process; `None` if unknown. Call it after long yields.
pub(super) fn check_process() -> Option<CpuUsers> {
    if cfg!(miri) {
        return None; // Miri has no clock of CPU time
    }
    let count_cpus = || affinity::thread_cpus().len();
    // If another thread holds the lock, this one asks again after its next long yield.
    PROCESS_CHECK.try_lock().ok()?.check(now_ns(), CpuReading::now, count_cpus)
}

/// Detector of yields that give the CPU to other processes for whole time slices. A thread decides
/// by it whether to yield or to sleep.
#[derive(Debug)]
pub(super) struct ContentionDetector {
    /// Number of yields since the coarse clock last advanced during a yield.
    yields: u32,
    /// Number of long yields in a row.
    long_yields: u32,
    /// Number of further waits that sleep instead of yielding.
    waits_left: u32,
    /// Number of waits that sleep instead of yielding after the next detection.
    waits_next: u32,
}

impl ContentionDetector {
    pub(super) const fn new() -> Self {
        Self { yields: 0, long_yields: 0, waits_left: 0, waits_next: WAITS_MIN }
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

    /// Yields once, and records it if the coarse clock has advanced meanwhile.
    #[inline(always)]
    pub(super) fn yield_now(&mut self) {
        if cfg!(miri) {
            sched_yield(); // Miri lacks the clock of the process's CPU time.
            return;
        }
        let before = clock_gettime(ClockId::MonotonicCoarse).tv_nsec;
        sched_yield();
        self.yields = self.yields.wrapping_add(1);
        if clock_gettime(ClockId::MonotonicCoarse).tv_nsec != before {
            self.record_tick(check_process);
        }
    }

    /// Records that the coarse clock has advanced during a yield. `check` returns who had the CPUs;
    /// `None` if unknown.
    #[cold]
    fn record_tick(&mut self, check: impl FnOnce() -> Option<CpuUsers>) {
        let is_long = std::mem::take(&mut self.yields) <= YIELDS_PER_TICK_MAX;
        if !is_long {
            self.long_yields = 0;
            return;
        }
        self.long_yields = self.long_yields.saturating_add(1);
        if self.long_yields < LONG_YIELDS_MIN {
            return;
        }
        let Some(users) = check() else { return };
        self.long_yields = 0;
        if users == CpuUsers::OtherProcesses {
            self.waits_left = self.waits_next;
            self.waits_next = (self.waits_next * 2).min(WAITS_MAX);
        } else {
            self.waits_next = WAITS_MIN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn reading(at_ms: u64, cpus_used: f64, switches_per_ms: u64) -> CpuReading {
        let at_ns = at_ms * MS;
        CpuReading {
            at_ns,
            cpu_ns: (at_ns as f64 * cpus_used) as u64,
            switches: at_ms * switches_per_ms,
        }
    }

    /// Returns the result of the first comparison on two CPUs, after 100 ms.
    fn compared(cpus_used: f64, switches_per_ms: u64) -> CpuUsers {
        let mut check = ProcessCheck { started: None, last: None };
        let mut at = |ms| {
            let read = || reading(ms, cpus_used, switches_per_ms);
            check.check(ms * MS, read, || 2)
        };
        assert_eq!([at(1000), at(1010)], [None, None], "a result without two readings");
        at(1100).expect("two readings")
    }

    #[test]
    fn cpus_left_to_other_processes_are_contention() {
        assert_eq!(compared(1.0, 5), CpuUsers::OtherProcesses);
    }

    #[test]
    fn cpus_used_by_this_process_are_no_contention() {
        assert_eq!(compared(1.9, 5), CpuUsers::FewThreads);
    }

    #[test]
    fn hundreds_of_threads_beside_other_processes_are_no_contention() {
        assert_eq!(compared(1.0, 250), CpuUsers::ManyThreads);
        assert_eq!(compared(1.9, 250), CpuUsers::ManyThreads);
    }

    #[test]
    fn result_is_shared_while_fresh_and_old_readings_are_not_compared() {
        let mut check = ProcessCheck { started: None, last: None };
        let mut at = |ms| check.check(ms * MS, || reading(ms, 1.0, 5), || 2);
        let contended = Some(CpuUsers::OtherProcesses);
        assert_eq!([at(0), at(40), at(60)], [None, contended, contended]);
        assert_eq!(at(1000), None, "compared with a reading of 960 ms ago");
        assert_eq!(at(1040), contended);
    }

    /// Records `ticks` ticks with `yields` yields each.
    fn record(
        detector: &mut ContentionDetector,
        ticks: u32,
        yields: u32,
        result: Option<CpuUsers>,
    ) {
        for _ in 0..ticks {
            detector.yields = yields;
            detector.record_tick(|| result);
        }
    }

    #[test]
    fn long_yields_to_other_processes_stop_the_yielding_for_twice_as_many_waits_each_time() {
        let mut detector = ContentionDetector::new();
        let contended = Some(CpuUsers::OtherProcesses);
        for waits in [WAITS_MIN, 2 * WAITS_MIN, 4 * WAITS_MIN] {
            record(&mut detector, LONG_YIELDS_MIN - 1, 1, contended);
            assert!(detector.should_yield(), "too few ticks");
            record(&mut detector, 1, 1, contended);
            assert_eq!(detector.waits_left, waits);
            assert!((0..waits).all(|_| !detector.should_yield()));
            assert!(detector.should_yield());
        }
        record(&mut detector, LONG_YIELDS_MIN, 1, Some(CpuUsers::FewThreads));
        assert_eq!((detector.waits_left, detector.waits_next), (0, WAITS_MIN));
    }

    #[test]
    fn short_yields_and_unknown_results_go_on_yielding() {
        let mut detector = ContentionDetector::new();
        record(&mut detector, 100, YIELDS_PER_TICK_MAX + 1, Some(CpuUsers::OtherProcesses));
        record(&mut detector, 100, 1, None);
        assert!(detector.should_yield());
    }
}
