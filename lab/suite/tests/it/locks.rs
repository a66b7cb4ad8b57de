//! Contract of every lock in [`handover_suite::lock::contend`].

use handover_base::sync::auto_traits;
use handover_lock::Backoff;
use handover_suite::lock::contend::{
    self, HandoverTryLock, Lock, ParkingLotMutex, PosixSem, PthreadMutex, PthreadSpin, RawCas,
    StdMutex,
};
use std::pin::Pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

const THREADS_COUNT: u64 = 4;
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
        assert!(held.is_some(), "{} is free", L::NAME);
        assert!(lock.try_lock().is_none(), "{} is busy for its holder", L::NAME);
        thread::scope(|scope| {
            let other = scope.spawn(|| lock.try_lock().is_none());
            assert!(other.join().expect("the other thread"), "{} is busy for others", L::NAME);
        });
        drop(held);
    }
    thread::scope(|scope| {
        let other = scope.spawn(|| lock.try_lock().is_some());
        assert!(other.join().expect("the other thread"), "{} is free for others", L::NAME);
    });
    assert!(lock.try_lock().is_some(), "{} is free after the other's unlock", L::NAME);
}

/// Increments two counters by a load and a store each, which only mutual exclusion makes atomic.
/// Relaxed, so that only the lock's own ordering shows one holder's writes to the next (a
/// relaxed load may be stale).
fn holders_exclude_each_other_and_see_earlier_writes<L: Lock>() {
    let lock = L::new_unlocked();
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
                    assert!(!inside.swap(true, Relaxed), "two holders of {}", L::NAME);
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
    assert_eq!(first.into_inner(), THREADS_COUNT * WINS_EACH, "lost updates under {}", L::NAME);
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
