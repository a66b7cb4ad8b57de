//! Contract of the lock: mutual exclusion, and visibility of the previous holder's writes.

use handover_lock::{Backoff, TryLock};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

const THREADS_COUNT: u64 = 4;
const WINS_EACH: u64 = if cfg!(miri) { 20 } else { 20_000 };

/// Increments two counters by a load and a store each, which only mutual exclusion makes atomic.
/// Relaxed, so that only the lock's own ordering shows one holder's writes to the next (Miri lets a
/// relaxed load be stale).
#[test]
fn holders_exclude_each_other_and_see_earlier_writes() {
    let lock = TryLock::new(());
    let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
    let inside = AtomicBool::new(false);
    let start = Barrier::new(THREADS_COUNT as usize);
    let busy_count = AtomicU64::new(0);
    thread::scope(|scope| {
        for index in 0..THREADS_COUNT {
            let (lock, start, inside) = (&lock, &start, &inside);
            let (first, second, busy_count) = (&first, &second, &busy_count);
            scope.spawn(move || {
                start.wait();
                let mut wins = 0;
                let mut backoff = Backoff::new();
                while wins < WINS_EACH {
                    let Some(_held) = lock.try_lock() else {
                        busy_count.fetch_add(1, Relaxed);
                        backoff.wait();
                        continue;
                    };
                    assert!(!inside.swap(true, Relaxed), "two holders");
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
    assert_eq!(first.into_inner(), THREADS_COUNT * WINS_EACH, "lost updates");
}

#[test]
fn concurrent_updates_of_the_value_are_not_lost() {
    let total = TryLock::new(0u64);
    thread::scope(|scope| {
        for _ in 0..THREADS_COUNT {
            scope.spawn(|| {
                for _ in 0..WINS_EACH {
                    let mut backoff = Backoff::new();
                    loop {
                        if let Some(mut held) = total.try_lock() {
                            *held += 1;
                            break;
                        }
                        backoff.wait();
                    }
                }
            });
        }
    });
    assert_eq!(total.into_inner(), THREADS_COUNT * WINS_EACH);
}

#[test]
fn guard_can_be_dropped_on_another_thread() {
    let lock = TryLock::new(vec![1]);
    let mut held = lock.try_lock().expect("free");
    thread::scope(|scope| {
        scope.spawn(move || held.push(2));
    });
    assert_eq!(*lock.try_lock().expect("freed over there"), [1, 2]);
}
