//! The lock under loom, which tries every interleaving and every reordering that the memory model
//! allows:
//!
//! ```text
//! RUSTFLAGS="--cfg handover_loom" cargo test -p handover-lock --test model --profile loom \
//!     --target-dir target/loom
//! ```
//!
//! # Which calls are mixed
//! Every call of one column meets every call of the others at every point: without a bound, but of
//! three threads with up to three preemptions, or any number with `HANDOVER_LONG`.
//!
//! | model | thread | another | a third |
//! |---|---|---|---|
//! | `no_two_threads_*` | `try_lock` twice, `is_locked`, guard's drop | the same | |
//! | `the_next_holder_*` | `try_lock`, drop | `try_lock`, drop | |
//! | `a_thread_that_keeps_*` | drop | `try_lock` until it holds, drop | |
//! | `of_three_threads_*` | bare `try_lock`, `unlock` | the same | the same |
//!
//! Mutations that loom has detected: with the Acquire in `RawTryLock::try_lock` or the Release in
//! `unlock` weakened to Relaxed, a causality violation in the guarded cell in each model that
//! passes a value on; with the compare-and-swap replaced by a load and a store, two holders.
#![cfg(handover_loom)]

use handover_base::sync::{Arc, atomic::AtomicUsize, atomic::Ordering::Relaxed, hint, thread};
use handover_lock::{RawTryLock, TryLock};

#[test]
fn holders_exclude_each_other_and_no_update_is_lost() {
    loom::model(|| {
        let lock = Arc::new(TryLock::new(0usize));
        let tries = || {
            let lock = Arc::clone(&lock);
            move || {
                let mut wins = 0;
                for _ in 0..2 {
                    if let Some(mut held) = lock.try_lock() {
                        *held += 1;
                        assert!(lock.is_locked(), "by this thread");
                        wins += 1;
                    }
                }
                wins
            }
        };
        let other = thread::spawn(tries());
        let mine = tries()();
        let total = mine + other.join().expect("the other thread");
        // The first try cannot fail, as the lock starts free.
        assert!(total >= 1, "a free lock refused everybody");
        assert_eq!(*lock.try_lock().expect("free at last"), total);
    });
}

#[test]
fn next_holder_sees_writes_before_the_release() {
    loom::model(|| {
        let lock = Arc::new(TryLock::new(false));
        let beside = Arc::new(AtomicUsize::new(0));
        let writer = thread::spawn({
            let (lock, beside) = (Arc::clone(&lock), Arc::clone(&beside));
            move || {
                if let Some(mut done) = lock.try_lock() {
                    beside.store(42, Relaxed); // ordered by the lock alone
                    *done = true;
                }
            }
        });
        if let Some(done) = lock.try_lock()
            && *done
        {
            assert_eq!(beside.load(Relaxed), 42);
        }
        writer.join().expect("the writer");
    });
}

#[test]
fn retrying_thread_acquires_after_the_release() {
    loom::model(|| {
        let lock = Arc::new(TryLock::new(0));
        let mut held = lock.try_lock().expect("free");
        let other = thread::spawn({
            let lock = Arc::clone(&lock);
            move || {
                loop {
                    if let Some(mut held) = lock.try_lock() {
                        *held += 1;
                        return;
                    }
                    hint::spin_loop();
                }
            }
        });
        *held = 1;
        drop(held);
        other.join().expect("it got in");
        assert_eq!(*lock.try_lock().expect("free"), 2);
    });
}

#[test]
fn at_most_one_of_three_threads_holds_the_word() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = std::env::var_os("HANDOVER_LONG").is_none().then_some(3);
    model.check(|| {
        let word = Arc::new(RawTryLock::new());
        let holders_count = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (word, holders_count) = (Arc::clone(&word), Arc::clone(&holders_count));
                thread::spawn(move || hold_once(&word, &holders_count))
            })
            .collect();
        hold_once(&word, &holders_count);
        for thread in threads {
            thread.join().expect("a holder");
        }
        assert!(!word.is_locked());
    });
}

fn hold_once(word: &RawTryLock, holders_count: &AtomicUsize) {
    if word.try_lock() {
        assert_eq!(holders_count.fetch_add(1, Relaxed), 0, "two holders");
        holders_count.fetch_sub(1, Relaxed);
        word.unlock();
    }
}
