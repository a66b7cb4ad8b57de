//! Contract of every lock in [`handover_suite::lock::contend`].

#[path = "../../../../mechanisms/lock/tests/support/exclusion.rs"]
mod exclusion;

use handover_base::sync::auto_traits;
use handover_lock::Backoff;
use handover_suite::lock::contend::{
    self, HandoverTryLock, Lock, ParkingLotMutex, PosixSem, PthreadMutex, PthreadSpin, RawCas,
    StdMutex,
};
use std::pin::Pin;
use std::thread;

const WINS_EACH: u64 = 20_000;

fn take<L: Lock>(lock: &L) -> L::Guard<'_> {
    let mut backoff = Backoff::new();
    loop {
        if let Some(held) = lock.try_lock() {
            return held;
        }
        backoff.wait();
    }
}

fn lock_is_busy_until_unlocked<L: Lock>() {
    let lock = L::new_unlocked();
    for _ in 0..3 {
        let held = lock.try_lock();
        assert!(held.is_some(), "{}: a free lock was busy", L::NAME);
        assert!(lock.try_lock().is_none(), "{}: the holder has taken the lock twice", L::NAME);
        thread::scope(|scope| {
            let other = scope.spawn(|| lock.try_lock().is_none());
            assert!(
                other.join().expect("the other thread"),
                "{}: another thread has taken the held lock",
                L::NAME
            );
        });
        drop(held);
    }
    thread::scope(|scope| {
        let other = scope.spawn(|| lock.try_lock().is_some());
        assert!(
            other.join().expect("the other thread"),
            "{}: another thread has found the free lock busy",
            L::NAME
        );
    });
    assert!(
        lock.try_lock().is_some(),
        "{}: the lock is busy after the other thread's unlock",
        L::NAME
    );
}

fn holders_exclude_each_other_and_see_earlier_writes<L: Lock>() {
    let lock = L::new_unlocked();
    exclusion::check(L::NAME, WINS_EACH, &|| lock.try_lock());
}

fn leaked_guard_leaves_the_lock_busy_and_droppable<L: Lock>() {
    let lock = L::new_unlocked();
    std::mem::forget(lock.try_lock());
    assert!(lock.try_lock().is_none());
    drop(lock);
}

fn lock_has_its_own_cache_lines<L: Lock>() {
    let lock: Pin<Box<L>> = L::new_unlocked();
    assert_eq!(&raw const *lock as usize % 128, 0);
    assert_eq!(size_of::<L>() % 128, 0);
    drop(take(&*lock));
    assert!(!L::NAME.is_empty() && !L::DESCRIPTION.is_empty());
}

macro_rules! contract {
    ($($module:ident: $lock:ty;)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn lock_is_busy_until_unlocked() {
                super::lock_is_busy_until_unlocked::<$lock>();
            }

            #[test]
            fn holders_exclude_each_other_and_see_earlier_writes() {
                super::holders_exclude_each_other_and_see_earlier_writes::<$lock>();
            }

            #[test]
            fn leaked_guard_leaves_the_lock_busy_and_droppable() {
                super::leaked_guard_leaves_the_lock_busy_and_droppable::<$lock>();
            }

            #[test]
            fn lock_has_its_own_cache_lines() {
                super::lock_has_its_own_cache_lines::<$lock>();
            }
        }
    )*};
}

contract! {
    handover: HandoverTryLock;
    cas: RawCas;
    std_mutex: StdMutex;
    parking_lot: ParkingLotMutex;
    pthread_mutex: PthreadMutex;
    pthread_spin: PthreadSpin;
    posix_sem: PosixSem;
}

#[test]
fn contenders_are_sync_and_posix_guards_are_not_send() {
    assert_eq!(auto_traits!(contend::HandoverTryLock), "Send + Sync");
    assert_eq!(auto_traits!(contend::RawCas), "Send + Sync");
    assert_eq!(auto_traits!(contend::PthreadMutex), "Send + Sync");
    assert_eq!(auto_traits!(contend::PthreadSpin), "Send + Sync");
    assert_eq!(auto_traits!(contend::PosixSem), "Send + Sync");
    assert_eq!(auto_traits!(contend::HandoverGuard<'static>), "Send + Sync");
    assert_eq!(auto_traits!(contend::RawCasGuard<'static>), "Send + Sync");
    type Guard<L> = <L as contend::Lock>::Guard<'static>;
    assert_eq!(auto_traits!(Guard<contend::PthreadMutex>), "neither");
    assert_eq!(auto_traits!(Guard<contend::PthreadSpin>), "neither");
    assert_eq!(auto_traits!(Guard<contend::PosixSem>), "neither");
}
