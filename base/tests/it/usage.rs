//! Resource usage of threads and of the process.
#![cfg(not(miri))] // Miri has no getrusage

use handover_base::usage;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::{Duration, Instant};

#[test]
fn cpu_time_counts_for_the_thread_and_the_process() {
    const WORK_NS: u64 = 20_000_000;
    let (thread, process) = (usage::thread_usage(), usage::process_usage());
    let start = Instant::now();
    while (usage::thread_usage() - thread).cpu_ns() < WORK_NS {
        black_box((0..1000u64).sum::<u64>());
        assert!(start.elapsed() < Duration::from_secs(60), "no CPU time was counted within 60 s");
    }
    // A thread that only waits is not charged.
    let waiter = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(1));
        usage::thread_usage()
    });
    assert!(waiter.join().unwrap().cpu_ns() < WORK_NS);
    // The kernel scales the two parts to the sum: each may be rounded down by a microsecond.
    assert!((usage::process_usage() - process).cpu_ns() + 10_000 >= WORK_NS);
}

#[test]
fn cpu_time_of_a_running_thread_is_not_a_tick_behind() {
    let cpu_ns = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(1));
        let (usage_before, before_ns) = (usage::thread_usage(), cpu_ns());
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(3) {}
        let counted_ns = (usage::thread_usage() - usage_before).cpu_ns();
        // Read afterwards, as reading it brings the other up to date.
        let used_ns = cpu_ns() - before_ns;
        assert!(counted_ns.abs_diff(used_ns) < 1_500_000, "{counted_ns} of {used_ns} ns");
    }
}

#[test]
fn sleep_counts_as_a_voluntary_switch() {
    let before = usage::thread_usage();
    std::thread::sleep(Duration::from_millis(2));
    assert!((usage::thread_usage() - before).switches_voluntary >= 1);
}

#[test]
fn peak_memory_includes_touched_pages() {
    const TOUCHED_BYTES: usize = 64 << 20;
    let memory = black_box(vec![1u8; TOUCHED_BYTES]);
    assert!(usage::process_usage().rss_max_bytes >= TOUCHED_BYTES as u64);
    assert_eq!(memory[TOUCHED_BYTES - 1], 1);
}

#[test]
fn difference_saturates_at_zero() {
    let some = usage::Usage { user_ns: 5, rss_max_bytes: 7, ..usage::Usage::default() };
    assert_eq!(usage::Usage::default() - some, usage::Usage::default());
    let some = usage::StealTime { steal_ns: 1, total_ns: 2 };
    assert_eq!(usage::StealTime::default() - some, usage::StealTime::default());
    assert_eq!(usage::StealTime::default().stolen_share(), 0.0);
}

#[test]
fn machine_time_grows_and_includes_steal() {
    let Some(before) = usage::read_steal_time(&handover_base::topology::allowed_cpus()) else {
        assert!(!std::path::Path::new("/proc/stat").exists(), "/proc/stat was not parsed");
        return;
    };
    assert!(before.steal_ns <= before.total_ns, "{before:?}");
    let start = Instant::now();
    while usage::read_steal_time(&handover_base::topology::allowed_cpus()).unwrap().total_ns
        == before.total_ns
    {
        assert!(start.elapsed() < Duration::from_secs(60), "no time was counted within 60 s");
        std::thread::sleep(Duration::from_millis(5));
    }
    let passed = usage::read_steal_time(&handover_base::topology::allowed_cpus()).unwrap() - before;
    assert!((0.0..=1.0).contains(&passed.stolen_share()), "{passed:?}");
}
