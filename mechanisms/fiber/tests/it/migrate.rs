//! Migration: a fiber that resumes on another thread, and the thread-local data that it finds
//! there.

#[path = "../raw/promise.rs"]
mod raw;

use handover_fiber::{Builder, Eventual, current_worker, spawn_local, yield_now};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

thread_local! {
    static THREAD_LOCAL: Cell<u32> = const { Cell::new(0) };
}

#[inline(never)]
fn write_thread_local(number: u32) {
    THREAD_LOCAL.set(number);
}

#[inline(never)]
fn read_thread_local() -> u32 {
    THREAD_LOCAL.get()
}

#[test]
fn migrated_fiber_keeps_its_stack_and_sees_new_thread_locals() {
    let runtime = raw::two_stealing_workers();
    let migrates = Builder::new().worker(0).spawn_on(&runtime.handle(), || {
        let has_moved = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&has_moved);
        let on_the_stack = [7u32; 16];
        write_thread_local(5);
        let hog = spawn_local(move || {
            while !seen.load(SeqCst) {
                std::hint::spin_loop(); // keeps worker 0 busy, so that no other fiber runs there
            }
            (current_worker(), read_thread_local())
        });
        yield_now();
        let there = (current_worker(), read_thread_local());
        has_moved.store(true, SeqCst);
        (there, hog.unwrap().join().unwrap(), on_the_stack.iter().sum::<u32>())
    });
    let (there, hog, sum) = migrates.unwrap().join().unwrap();
    assert_eq!(there, (Some(1), 0), "another worker and its own thread-local value");
    assert_eq!(hog, (Some(0), 5), "a local fiber stays on its worker");
    assert_eq!(sum, 7 * 16);
    assert!(runtime.stats().stolen_count >= 1);
}

#[test]
fn timed_wait_stays_on_its_worker_and_may_migrate_afterwards() {
    let runtime = raw::two_stealing_workers();
    let fibers: Vec<_> = (0..64u64)
        .map(|i| {
            let goes = move || {
                let mut seen_count = 0;
                for round in 0..20 {
                    let answer = Arc::new(Eventual::new());
                    let sets = Arc::clone(&answer);
                    let setter = handover_fiber::spawn(move || {
                        handover_fiber::sleep(Duration::from_micros((i + 3 * round) % 60));
                        sets.set(round)
                    });
                    let before = current_worker();
                    let in_time = answer.wait_timeout(Duration::from_micros(30)).is_some();
                    seen_count += u32::from(in_time);
                    yield_now();
                    assert_eq!(*answer.wait(), round);
                    assert!(before.is_some() && setter.unwrap().join().unwrap().is_ok());
                }
                seen_count
            };
            Builder::new().worker(0).spawn_on(&runtime.handle(), goes).unwrap()
        })
        .collect();
    let seen_count: u32 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
    assert!(seen_count <= 64 * 20);
    assert_eq!(runtime.stats().panicked_count, 0);
}
