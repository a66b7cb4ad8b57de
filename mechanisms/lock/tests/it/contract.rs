//! Contract of the lock: mutual exclusion, and visibility of the previous holder's writes.

use super::exclusion;
use handover_lock::{Backoff, TryLock};
use std::thread;

const THREADS_COUNT: u64 = 4;
const WINS_EACH: u64 = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn holders_exclude_each_other_and_see_earlier_writes() {
    let lock = TryLock::new(());
    exclusion::check("handover", WINS_EACH, &|| lock.try_lock());
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
