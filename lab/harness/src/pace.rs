//! Whether a core gives all that it can just now.
//!
//! A hardware thread whose sibling is busy runs at half to two thirds of its pace. In a virtual machine
//! the sibling is often somebody else's, comes and goes by the millisecond, and shows nowhere: neither as
//! steal nor as a switch. So a measured party now and then runs a short loop whose pace it knows. Samples
//! between two loops that ran at full pace are taken; those beside a slow one are kept apart.
//!
//! This judges the core, never the sample: which samples are taken does not depend on what they say.

use handover_base::clock;
use handover_base::sync::shared::{AtomicU64, Ordering};
use std::hint::black_box;
use std::sync::LazyLock;

/// A loop of so many turns: about 1 µs, and 100 steps even of a clock with steps of 10 ns.
const TURNS: u64 = 4096;
/// A loop that took this much longer than the fastest was slowed. A busy sibling costs a third at least;
/// frequencies differ by less between one second and the next.
const SLOWED: f64 = 1.2;
/// The fastest loop is looked for through so much time when a process begins to measure.
const LEARN_NS: u64 = 3_000_000;

/// What the fastest loop of this process took, in ticks.
///
/// Relaxed throughout: a least value that only gets smaller; nothing is published with it.
static FASTEST: LazyLock<AtomicU64> = LazyLock::new(|| {
    let until = clock::ticks() + clock::ticks_from_ns(LEARN_NS);
    let mut fastest = u64::MAX;
    while clock::ticks() < until {
        fastest = fastest.min(lap());
    }
    AtomicU64::new(fastest.max(1))
});

/// One loop: a turn a cycle on a core that has nobody else to serve.
fn lap() -> u64 {
    let began = clock::ticks();
    for turn in 0..TURNS {
        black_box(turn);
    }
    clock::ticks().saturating_sub(began)
}

/// Whether the core runs at less than its pace now. Cost: about 1 µs; some milliseconds the first time.
pub(crate) fn is_slowed() -> bool {
    let fastest = &*FASTEST;
    let took = lap();
    let least = fastest.load(Ordering::Relaxed);
    if took < least {
        fastest.fetch_min(took, Ordering::Relaxed);
    }
    is_slower(took, least)
}

/// The fastest loop so far, in ticks.
pub(crate) fn fastest_ticks() -> u64 {
    FASTEST.load(Ordering::Relaxed)
}

/// Whether a loop of `ticks` was slowed, where one of `fastest` was had. Who learned the pace of a core
/// while it was slowed has judged by a wrong measure, which this tells later.
pub(crate) fn is_slower(ticks: u64, fastest: u64) -> bool {
    ticks as f64 > fastest as f64 * SLOWED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_judged_by_the_fastest_loop_seen() {
        // Whatever else runs here: a loop as long as the fastest is not slow, one twice as long is.
        let least = FASTEST.load(Ordering::Relaxed);
        assert!(least > 0);
        FASTEST.fetch_min(1, Ordering::Relaxed);
        assert!(is_slowed(), "beside a loop of one tick, each is slow");
        FASTEST.store(u64::MAX, Ordering::Relaxed);
        assert!(!is_slowed(), "the first is the fastest");
        assert!(FASTEST.load(Ordering::Relaxed) < u64::MAX, "and is remembered");
    }
}
