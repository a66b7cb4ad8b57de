//! Promises of the clock, whichever source it has.

use handover_base::clock;
#[cfg(all(target_os = "linux", not(handover_portable)))]
use rustix::time::{ClockId, clock_gettime};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

#[cfg(all(target_os = "linux", not(handover_portable)))]
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

const ROUNDS_COUNT: u32 = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn ticks_never_decrease_on_a_thread() {
    let mut last = clock::ticks();
    for _ in 0..ROUNDS_COUNT {
        let now = clock::ticks();
        assert!(now >= last, "the clock went back from {last} to {now}");
        last = now;
    }
}

#[cfg(all(target_os = "linux", not(handover_portable)))]
#[test]
fn now_never_decreases_and_stays_near_the_kernel_clock() {
    const APART_MAX_NS: u64 = 5_000;
    let mut last = clock::now_ns();
    for round in 0..ROUNDS_COUNT {
        let before = monotonic_ns();
        let now = clock::now_ns();
        let after = monotonic_ns();
        assert!(now >= last, "the clock went back from {last} to {now}");
        // The middle reading lies between the others, whatever the scheduler does.
        assert!(
            now + APART_MAX_NS >= before && now <= after + APART_MAX_NS,
            "{now} is not within [{before}, {after}]"
        );
        last = now;
        if round % (ROUNDS_COUNT / 10) == 0 {
            thread::sleep(Duration::from_millis(7)); // longer than a thread extrapolates
        }
    }
}

#[test]
fn reading_after_a_hand_over_is_not_earlier() {
    let (to_partner, from_us) = mpsc::channel::<u64>();
    let (to_us, from_partner) = mpsc::channel::<u64>();
    let partner = thread::spawn(move || {
        for theirs in from_us {
            let ours = clock::ticks();
            assert!(ours >= theirs, "read {theirs} here, then {ours} on the other thread");
            to_us.send(clock::ticks()).unwrap();
        }
    });
    for _ in 0..ROUNDS_COUNT / 10 {
        to_partner.send(clock::ticks()).unwrap();
        let theirs = from_partner.recv().unwrap();
        let ours = clock::ticks();
        assert!(ours >= theirs, "read {theirs} on the other thread, then {ours} here");
    }
    drop(to_partner);
    partner.join().unwrap();
}

#[test]
fn tick_span_agrees_with_the_kernel_clock() {
    let outer = Instant::now();
    let start = clock::ticks();
    let inner = Instant::now();
    thread::sleep(Duration::from_millis(30));
    let inner_ns = inner.elapsed().as_nanos() as f64;
    let span_ns = clock::ns_from_ticks(clock::ticks() - start) as f64;
    let outer_ns = outer.elapsed().as_nanos() as f64;
    // A thousandth is a hundred times the error that the calibration promises.
    assert!(
        span_ns >= inner_ns * 0.999 && span_ns <= outer_ns * 1.001,
        "{span_ns} is not within [{inner_ns}, {outer_ns}]"
    );
}

#[test]
fn conversions_agree_with_each_other_and_with_the_rate() {
    let hz = clock::calibration().ticks_hz;
    for ticks in [0u64, 1, 1000, 1 << 32, (hz * 86_400.0) as u64] {
        let exact_ns = ticks as f64 / hz * 1e9;
        assert!((clock::ns_from_ticks(ticks) as f64 - exact_ns).abs() <= 1.0 + exact_ns * 1e-9);
        assert!(
            (clock::ps_from_ticks(ticks) as f64 - exact_ns * 1e3).abs() <= 1.0 + exact_ns * 1e-6
        );
    }
    for ns in [0u64, 1, 1000, 1_000_000_000, 86_400_000_000_000] {
        let there_and_back = clock::ns_from_ticks(clock::ticks_from_ns(ns));
        // Rounded down twice: a tick may be lost, and a nanosecond.
        let loss_max_ns = 1 + (1e9 / hz).ceil() as u64 + ns / 1_000_000_000;
        assert!(ns.abs_diff(there_and_back) <= loss_max_ns, "{ns} became {there_and_back}");
    }
    assert_eq!(clock::ns_from_ticks(0), 0);
    assert_eq!(clock::ticks_from_ns(0), 0);
}

#[test]
fn calibration_reports_source_rate_and_cost() {
    let found = clock::calibration();
    assert!(found.ticks_hz >= 1e6, "{found:?}");
    assert!(found.cost_ns > 0.0 && found.cost_ns.is_finite(), "{found:?}");
    assert!(found.resolution_ns > 0.0, "{found:?}");
    assert!(found.error_ppm_max >= 0.0, "{found:?}");
    assert!(!found.why.is_empty() && !found.why.contains('\n'), "{found:?}");
    assert!(found.to_string().contains(&found.source.to_string()), "{found}");
    assert!(std::ptr::eq(found, clock::calibration()), "calibrated twice");
}

/// Runs all the tests above once more in child processes, one for each source.
#[cfg(not(miri))]
#[test]
fn all_clock_tests_pass_with_each_source() {
    use handover_base::clock::ClockSource;
    let chosen = |text: &str| text.parse::<ClockSource>().unwrap();
    if let Ok(text) = std::env::var(clock::CLOCK_VARIABLE) {
        let found = clock::calibration();
        assert_eq!(found.source, chosen(&text), "{found:?}");
        assert!(found.why.contains(clock::CLOCK_VARIABLE), "{found:?}");
        return;
    }
    let mut sources = vec![ClockSource::ClockGettime];
    // The counter is forced only where it would be chosen: elsewhere the promises need not hold.
    sources.extend((clock::calibration().source == ClockSource::Tsc).then_some(ClockSource::Tsc));
    for source in sources {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .arg("clock::")
            .env(clock::CLOCK_VARIABLE, source.to_string())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{source}: {output}");
        assert!(output.contains("all_clock_tests_pass"), "{source}: {output}");
    }
}

#[test]
fn concurrent_first_calls_calibrate_once() {
    let threads: Vec<_> =
        (0..8).map(|_| thread::spawn(|| clock::ns_from_ticks(clock::ticks()))).collect();
    for thread in threads {
        assert!(thread.join().unwrap() > 0);
    }
}
