//! The pace of a core: the current duration of a short loop of fixed work.
//!
//! A hardware thread whose sibling is busy runs at half to two thirds of its speed. In a virtual
//! machine the sibling often belongs to another guest, comes and goes by the millisecond, and is
//! visible neither as steal nor as a switch. So a measured participant times a short loop now and
//! then, and compares it with the fastest such loop of the same contender's rounds, in which the
//! same participants run: on a machine that hides which CPUs share a core, a participant that slows
//! its partner is part of every round, and no disturbance.
//!
//! Slow samples are counted and never dropped: a record also holds its figure without them.

use handover_base::clock;
use std::hint::black_box;

/// Number of iterations of the calibration loop. They take about 1 µs, or 100 ticks even of a clock
/// with a resolution of 10 ns.
const ITERATIONS: u64 = 4096;
/// Duration of a calibration loop, relative to the fastest one, above which it counts as slowed. A
/// busy sibling costs at least a third; frequencies differ less from one second to the next.
const SLOWED_RATIO: f64 = 1.2;

/// Runs a calibration loop and returns its duration in ticks. An iteration takes one cycle on a
/// core with an idle sibling.
pub(crate) fn time_loop_ticks() -> u64 {
    let began = clock::ticks();
    for turn in 0..ITERATIONS {
        black_box(turn);
    }
    clock::ticks().saturating_sub(began).max(1)
}

/// Returns `true` if a calibration loop of `ticks` ran on a slowed core. `fastest_ticks` is the
/// duration of the fastest loop, 0 if unknown.
pub(crate) fn is_slower(ticks: u64, fastest_ticks: u64) -> bool {
    fastest_ticks > 0 && ticks as f64 > fastest_ticks as f64 * SLOWED_RATIO
}

/// Returns the shorter of two durations of calibration loops in ticks; 0 stands for unknown.
pub(crate) fn min_known_ticks(one: u64, other: u64) -> u64 {
    match (one, other) {
        (0, known) | (known, 0) => known,
        both => both.0.min(both.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_is_slow_only_compared_with_a_faster_one() {
        assert!(time_loop_ticks() > 0);
        assert!(!is_slower(1_000, 0), "slower than an unknown loop");
        assert!(!is_slower(1_190, 1_000) && is_slower(1_210, 1_000));
        assert_eq!(
            (
                min_known_ticks(0, 7),
                min_known_ticks(7, 0),
                min_known_ticks(9, 7),
                min_known_ticks(0, 0)
            ),
            (7, 7, 7, 0)
        );
    }
}
