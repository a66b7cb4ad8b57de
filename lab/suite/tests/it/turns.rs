//! Turns at a lock that is passed around.

use handover_suite::lock::contend::{HandoverTryLock, Lock, StdMutex};
use handover_suite::lock::{Turn, turn};

fn turn_is_busy_only_at_a_held_lock<L: Lock>() {
    let lock = L::new_unlocked();
    let mut entered = 0;
    assert!(matches!(turn(&*lock, || entered += 1), Turn::Free { .. }));
    let held = lock.try_lock();
    assert!(held.is_some(), "the turn freed the lock");
    assert!(matches!(turn(&*lock, || entered += 1), Turn::Busy { .. }));
    drop(held);
    assert!(matches!(turn(&*lock, || entered += 1), Turn::Free { .. }));
    assert_eq!(entered, 2, "the inside runs only with the lock held");
}

#[test]
fn turn_of_our_lock_is_busy_only_when_held() {
    turn_is_busy_only_at_a_held_lock::<HandoverTryLock>();
}

#[test]
fn turn_of_a_std_mutex_is_busy_only_when_held() {
    turn_is_busy_only_at_a_held_lock::<StdMutex>();
}
