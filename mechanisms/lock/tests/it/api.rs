//! The lock's API: one test for each promise of its documentation.

use handover_base::sync::{CachePadded, auto_traits};
use handover_lock::{RawTryLock, TryLock, TryLockGuard};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::MutexGuard;

#[test]
fn try_lock_succeeds_on_free_and_fails_on_held_lock() {
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
fn next_holder_reads_the_previous_write() {
    let lock = TryLock::new(String::from("a"));
    lock.try_lock().expect("free").push('b');
    assert_eq!(*lock.try_lock().expect("free again"), "ab");
}

#[test]
fn owner_reads_the_value_without_locking() {
    let mut lock = TryLock::from(1);
    *lock.get_mut() += 1;
    assert_eq!(lock.into_inner(), 2);
    assert_eq!(TryLock::<u8>::default().into_inner(), 0);
}

#[test]
fn leaked_guard_blocks_try_lock_but_not_get_mut() {
    let mut lock = TryLock::new(1);
    std::mem::forget(lock.try_lock());
    assert!(lock.try_lock().is_none());
    assert_eq!(*lock.get_mut(), 1);
}

#[test]
fn panicking_holder_frees_the_lock() {
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
fn debug_shows_the_value_or_locked() {
    let lock = TryLock::new(7);
    assert_eq!(format!("{lock:?}"), "TryLock { value: 7 }");
    let held = lock.try_lock().expect("free");
    assert_eq!(format!("{lock:?}"), "TryLock { value: <locked> }");
    assert_eq!(format!("{held:?} {held}"), "7 7");
}

#[test]
fn lock_works_with_unsized_values() {
    let lock: Box<TryLock<[u32]>> = Box::new(TryLock::new([1, 2, 3]));
    lock.try_lock().expect("free")[1] = 9;
    assert_eq!(*lock.try_lock().expect("free"), [1, 9, 3]);
}

#[test]
fn value_is_dropped_once_with_its_lock() {
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
fn guard_is_send_and_sync_like_a_mutable_reference() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<TryLockGuard<'static, std::cell::Cell<u8>>>();
    send::<TryLock<std::cell::Cell<u8>>>();
    sync::<TryLock<std::cell::Cell<u8>>>();
    sync::<TryLockGuard<'static, u8>>();
    assert_eq!(auto_traits!(TryLock<Cell<u8>>), "Send + Sync");
    assert_eq!(auto_traits!(TryLockGuard<'static, Cell<u8>>), "Send", "as `&mut Cell`");
    // `MutexGuard` is `Sync` and not `Send`: a lock moves access from thread to thread.
    assert_eq!(auto_traits!(TryLock<MutexGuard<'static, u8>>), "neither");
    assert_eq!(
        auto_traits!(TryLockGuard<'static, MutexGuard<'static, u8>>),
        "neither",
        "as its lock"
    );
    assert_eq!(auto_traits!(TryLockGuard<'static, Rc<u8>>), "neither");
}

#[test]
fn blocking_lock_waits_for_the_holder() {
    let lock = TryLock::new(0);
    let held = lock.lock();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut value = lock.lock();
            assert_eq!(*value, 1, "acquired while another thread held the lock");
            *value = 2;
        });
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(!waiter.is_finished());
        let mut held = held;
        *held = 1;
        drop(held);
    });
    assert_eq!(*lock.lock(), 2);
}

#[test]
fn blocking_locks_exclude_each_other() {
    let (threads_count, rounds) = (4, if cfg!(miri) { 20 } else { 1_000 });
    let lock = TryLock::new((0, 0));
    std::thread::scope(|scope| {
        for _ in 0..threads_count {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let mut pair = lock.lock();
                    pair.0 += 1;
                    pair.1 += 1;
                }
            });
        }
    });
    assert_eq!(lock.into_inner(), (threads_count * rounds, threads_count * rounds));
}

#[cfg(feature = "lock_api")]
mod with_lock_api {
    use super::*;
    use handover_lock::{ArcMutexGuard, Mutex, MutexGuard};
    use std::sync::Arc;

    static TABLE: Mutex<u32> = Mutex::new(7);

    #[test]
    fn mutex_locks_tries_and_maps() {
        let mut held = TABLE.lock();
        assert!(TABLE.is_locked());
        assert!(TABLE.try_lock().is_none());
        *held += 1;
        drop(held);
        assert_eq!(*TABLE.try_lock().expect("free"), 8);
        let pair = Mutex::new((1, 2));
        *MutexGuard::map(pair.lock(), |pair| &mut pair.1) = 3;
        assert_eq!(pair.into_inner(), (1, 3));
    }

    #[test]
    fn guard_that_owns_the_mutex_outlives_other_handles_and_changes_threads() {
        let mutex = Arc::new(Mutex::new(String::from("a")));
        let guard: ArcMutexGuard<String> = mutex.lock_arc();
        assert!(mutex.try_lock_arc().is_none());
        drop(mutex);
        let mutex = std::thread::spawn(move || {
            let mut guard = guard;
            guard.push('b');
            Arc::clone(ArcMutexGuard::mutex(&guard))
        })
        .join()
        .expect("the guard is dropped on another thread");
        assert_eq!(*mutex.try_lock().expect("free"), "ab");
    }

    #[test]
    fn mutex_guard_is_send() {
        assert_eq!(auto_traits!(MutexGuard<'static, u8>), "Send + Sync");
    }
}
