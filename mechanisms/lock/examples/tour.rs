//! Five-minute tour: use of a try-lock, and its cost.
//!
//! `cargo run --release -p handover-lock --example lock-tour`

use handover_lock::{Backoff, TryLock};
use std::hint::black_box;
use std::thread;
use std::time::Instant;

fn main() {
    // 1. Work for one thread at a time that the others need not wait for.
    let housekeeping = TryLock::new(0u32);
    let skipped: u32 = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut skipped = 0;
                    for _ in 0..10_000 {
                        match housekeeping.try_lock() {
                            Some(mut rounds) => *rounds += 1, // this thread does the work
                            None => skipped += 1,             // another thread is doing the work
                        }
                    }
                    skipped
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("a worker thread panicked")).sum()
    });
    let done = housekeeping.into_inner();
    assert_eq!(done + skipped, 40_000);
    println!("housekeeping: done {done} times, skipped {skipped} times (lock held by others)");

    // 2. A thread that must have the lock waits between tries, away from the lock's cache line.
    let total = TryLock::new(0u64);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..1000 {
                    let mut backoff = Backoff::new();
                    loop {
                        if let Some(mut total) = total.try_lock() {
                            *total += n;
                            break;
                        }
                        backoff.wait();
                    }
                }
            });
        }
    });
    println!("summed: {}", total.into_inner());

    // 3. In one thread: the cost of a try on a busy lock, and of a try and unlock on a free one.
    //    These are rough figures; the lab measures properly, beside other locks:
    //    `handover run lock/`.
    const CALLS_COUNT: u32 = 1_000_000;
    let lock = TryLock::new(());
    let free_ns = mean_call_ns(CALLS_COUNT, || drop(black_box(lock.try_lock())));
    let held = lock.try_lock().expect("the lock is held");
    let busy_ns = mean_call_ns(CALLS_COUNT, || assert!(black_box(lock.try_lock()).is_none()));
    drop(held);
    println!("busy: {busy_ns:.1} ns, free and unlock: {free_ns:.1} ns");
}

fn mean_call_ns(calls_count: u32, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls_count {
        call();
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls_count)
}
