//! Attempts at a lock that is passed between threads.

use handover_suite::lock::contend::{HandoverTryLock, Lock, StdMutex};
use handover_suite::lock::{AttemptCost, time_attempt};

fn attempt_is_busy_only_at_a_held_lock<L: Lock>() {
    let lock = L::new_unlocked();
    let mut entered = 0;
    assert!(matches!(time_attempt(&*lock, || entered += 1), AttemptCost::Free { .. }));
    let held = lock.try_lock();
    assert!(held.is_some(), "the attempt left the lock busy");
    assert!(matches!(time_attempt(&*lock, || entered += 1), AttemptCost::Busy { .. }));
    drop(held);
    assert!(matches!(time_attempt(&*lock, || entered += 1), AttemptCost::Free { .. }));
    assert_eq!(entered, 2, "two of three attempts took the lock and ran the closure");
}

#[test]
fn attempt_of_our_lock_is_busy_only_when_held() {
    attempt_is_busy_only_at_a_held_lock::<HandoverTryLock>();
}

#[test]
fn attempt_of_a_std_mutex_is_busy_only_when_held() {
    attempt_is_busy_only_at_a_held_lock::<StdMutex>();
}
