//! The lock's API: one test for each promise of its documentation.

use handover_base::sync::{CachePadded, auto_traits};
use handover_lock::{Guard, RawTryLock, TryLock, contend};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::MutexGuard;

#[test]
fn a_free_lock_is_given_and_a_busy_one_is_refused_even_to_its_holder() {
    let lock = TryLock::new(5);
    let held = lock.try_lock().expect("free");
    assert_eq!(*held, 5);
    assert!(lock.is_locked());
    assert!(lock.try_lock().is_none());
    drop(held);
    assert!(!lock.is_locked());
    assert!(lock.try_lock().is_some());
}

#[test]
fn what_one_holder_writes_the_next_one_reads() {
    let lock = TryLock::new(String::from("a"));
    lock.try_lock().expect("free").push('b');
    assert_eq!(*lock.try_lock().expect("free again"), "ab");
}

#[test]
fn the_value_is_to_be_had_without_locking_by_its_owner() {
    let mut lock = TryLock::from(1);
    *lock.get_mut() += 1;
    assert_eq!(lock.into_inner(), 2);
    assert_eq!(TryLock::<u8>::default().into_inner(), 0);
}

#[test]
fn a_leaked_guard_keeps_the_lock_but_not_the_owner_out() {
    let mut lock = TryLock::new(1);
    std::mem::forget(lock.try_lock());
    assert!(lock.try_lock().is_none());
    assert_eq!(*lock.get_mut(), 1);
}

#[test]
fn a_holder_that_panics_frees_the_lock() {
    let lock = TryLock::new(0);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut held = lock.try_lock().expect("free");
        *held = 1;
        panic!("while holding");
    }));
    assert!(panicked.is_err());
    assert_eq!(*lock.try_lock().expect("freed by unwinding"), 1);
}

#[test]
fn debug_shows_the_value_or_that_it_is_locked() {
    let lock = TryLock::new(7);
    assert_eq!(format!("{lock:?}"), "TryLock { value: 7 }");
    let held = lock.try_lock().expect("free");
    assert_eq!(format!("{lock:?}"), "TryLock { value: <locked> }");
    assert_eq!(format!("{held:?} {held}"), "7 7");
}

#[test]
fn a_lock_guards_what_has_no_size_too() {
    let lock: Box<TryLock<[u32]>> = Box::new(TryLock::new([1, 2, 3]));
    lock.try_lock().expect("free")[1] = 9;
    assert_eq!(*lock.try_lock().expect("free"), [1, 9, 3]);
}

#[test]
fn a_value_is_dropped_once_with_its_lock() {
    let counted = std::sync::Arc::new(());
    let lock = TryLock::new(std::sync::Arc::clone(&counted));
    drop(lock.try_lock());
    assert_eq!(std::sync::Arc::strong_count(&counted), 2);
    drop(lock);
    assert_eq!(std::sync::Arc::strong_count(&counted), 1);
}

#[test]
fn padding_separates_word_and_value_by_128_bytes() {
    let lock = TryLock::new(CachePadded::new(0u64));
    let value = &raw const **lock.try_lock().expect("free") as usize;
    assert_eq!(value % 128, 0);
    assert_eq!(size_of_val(&lock), 256, "the word's 128 bytes and the value's");
    assert_eq!(size_of::<RawTryLock>(), 1);
}

#[test]
fn each_contender_is_shared_and_a_posix_permission_stays_on_its_thread() {
    assert_eq!(auto_traits!(contend::Handover), "Send + Sync");
    assert_eq!(auto_traits!(contend::RawCas), "Send + Sync");
    assert_eq!(auto_traits!(contend::PthreadMutex), "Send + Sync");
    assert_eq!(auto_traits!(contend::PthreadSpin), "Send + Sync");
    assert_eq!(auto_traits!(contend::PosixSem), "Send + Sync");
    assert_eq!(auto_traits!(contend::HandoverHeld<'static>), "Send + Sync");
    assert_eq!(auto_traits!(contend::RawCasHeld<'static>), "Send + Sync");
    type Held<L> = <L as contend::Contender>::Held<'static>;
    assert_eq!(auto_traits!(Held<contend::PthreadMutex>), "neither");
    assert_eq!(auto_traits!(Held<contend::PthreadSpin>), "neither");
    assert_eq!(auto_traits!(Held<contend::PosixSem>), "neither");
}

#[test]
fn the_guard_may_be_sent_where_its_value_may() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Guard<'static, std::cell::Cell<u8>>>();
    send::<TryLock<std::cell::Cell<u8>>>();
    sync::<TryLock<std::cell::Cell<u8>>>();
    sync::<Guard<'static, u8>>();
    assert_eq!(auto_traits!(TryLock<Cell<u8>>), "Send + Sync");
    assert_eq!(auto_traits!(Guard<'static, Cell<u8>>), "Send", "as `&mut Cell`");
    // `MutexGuard` is `Sync` and not `Send`: a lock moves access from thread to thread.
    assert_eq!(auto_traits!(TryLock<MutexGuard<'static, u8>>), "neither");
    assert_eq!(auto_traits!(Guard<'static, MutexGuard<'static, u8>>), "neither", "as its lock");
    assert_eq!(auto_traits!(Guard<'static, Rc<u8>>), "neither");
}
