//! Mutual exclusion of any lock with a try, for the tests of this crate and of the suite.

use handover_lock::Backoff;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

const THREADS_COUNT: u64 = 4;

/// Increments two counters by a load and a store each, which only mutual exclusion makes atomic.
/// Relaxed, so that only the lock's own ordering shows one holder's writes to the next (Miri lets a
/// relaxed load be stale).
///
/// # Panics
/// If two threads hold the lock at once, or an update is lost.
pub fn check<G>(name: &str, wins_each: u64, try_lock: &(impl Fn() -> Option<G> + Sync)) {
    let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
    let inside = AtomicBool::new(false);
    let start = Barrier::new(THREADS_COUNT as usize);
    let busy_count = AtomicU64::new(0);
    thread::scope(|scope| {
        for index in 0..THREADS_COUNT {
            let (start, inside) = (&start, &inside);
            let (first, second, busy_count) = (&first, &second, &busy_count);
            scope.spawn(move || {
                start.wait();
                let mut wins = 0;
                let mut backoff = Backoff::new();
                while wins < wins_each {
                    let Some(_held) = try_lock() else {
                        busy_count.fetch_add(1, Relaxed);
                        backoff.wait();
                        continue;
                    };
                    assert!(!inside.swap(true, Relaxed), "two holders of {name}");
                    let seen = first.load(Relaxed);
                    assert_eq!(seen, second.load(Relaxed), "a half-written pair");
                    first.store(seen + 1, Relaxed);
                    // The first thread holds the lock until another has found it busy.
                    while index == 0 && wins == 0 && busy_count.load(Relaxed) == 0 {
                        thread::yield_now();
                    }
                    if wins % 64 == 0 {
                        thread::yield_now(); // so that others find it busy now and then
                    }
                    second.store(seen + 1, Relaxed);
                    inside.store(false, Relaxed);
                    wins += 1;
                    backoff.reset();
                }
            });
        }
    });
    assert_eq!(first.into_inner(), THREADS_COUNT * wins_each, "lost updates under {name}");
}
