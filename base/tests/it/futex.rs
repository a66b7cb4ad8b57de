//! Waiting on a word and waking the waiters.

use handover_base::futex::{self, Scope, WaitOutcome};
use handover_base::sync::shared::{AtomicU32, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const SCOPES: [Scope; 2] = [Scope::Private, Scope::Shared];
/// Bound for events that must happen soon: long enough for any machine, so that only a hang fails.
const LIVENESS: Duration = Duration::from_secs(20);

#[test]
fn wait_returns_if_the_word_differs() {
    for scope in SCOPES {
        let word = AtomicU32::new(1);
        assert_eq!(futex::wait(&word, 0, None, scope), WaitOutcome::ValueChanged);
    }
}

#[test]
fn wait_times_out_and_not_too_early() {
    for scope in SCOPES {
        let word = AtomicU32::new(0);
        let start = Instant::now();
        let timeout = Duration::from_millis(5);
        while futex::wait(&word, 0, Some(timeout), scope) != WaitOutcome::TimedOut {
            assert!(start.elapsed() < LIVENESS, "the wait did not time out within {LIVENESS:?}");
        }
        assert!(start.elapsed() >= timeout);
    }
}

#[test]
fn wake_without_sleepers_returns_zero() {
    for scope in SCOPES {
        assert_eq!(futex::wake(&AtomicU32::new(0), u32::MAX, scope), 0);
    }
}

#[test]
fn huge_timeout_means_no_timeout() {
    let word = Arc::new(AtomicU32::new(0));
    let sleeper = sleeper(&word, Some(Duration::MAX), Scope::Private);
    wake_in_all(&word, 1, 1, Scope::Private);
    assert_eq!(sleeper.join().unwrap(), WaitOutcome::Woken);
}

/// Starts a thread that sleeps once on the word, whose value does not change.
fn sleeper(
    word: &Arc<AtomicU32>,
    timeout: Option<Duration>,
    scope: Scope,
) -> thread::JoinHandle<WaitOutcome> {
    let word = Arc::clone(word);
    thread::spawn(move || {
        loop {
            match futex::wait(&word, 0, timeout, scope) {
                WaitOutcome::Interrupted => {}
                outcome => return outcome,
            }
        }
    })
}

/// Calls `wake` for at most `at_once` threads at a time, until `total` have been woken.
fn wake_in_all(word: &AtomicU32, total: u32, at_once: u32, scope: Scope) {
    let start = Instant::now();
    let mut woken_count = 0;
    while woken_count < total {
        let now = futex::wake(word, at_once, scope);
        assert!(now <= at_once, "{now} threads were woken at once, more than {at_once}");
        woken_count += now;
        assert!(start.elapsed() < LIVENESS, "only {woken_count} of {total} were woken");
        thread::yield_now();
    }
    assert_eq!(woken_count, total);
}

#[test]
fn each_sleeper_is_woken_and_counted_once() {
    for scope in SCOPES {
        for at_once in [1, 2, u32::MAX] {
            let word = Arc::new(AtomicU32::new(0));
            let sleepers: Vec<_> = (0..4).map(|_| sleeper(&word, None, scope)).collect();
            wake_in_all(&word, 4, at_once, scope);
            for sleeper in sleepers {
                assert_eq!(sleeper.join().unwrap(), WaitOutcome::Woken);
            }
        }
    }
}

/// Waits until `threads_count` threads of this process with this name are asleep.
#[cfg(not(miri))]
fn wait_until_asleep(name: &str, threads_count: usize) {
    let start = Instant::now();
    let asleep = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
        stats.filter(|stat| stat.contains(&format!("({name}) S"))).count()
    };
    while asleep() < threads_count {
        assert!(start.elapsed() < LIVENESS, "only {} of {threads_count} sleep", asleep());
        thread::yield_now();
    }
}

#[cfg(not(miri))]
#[test]
fn wake_wakes_at_most_the_given_number() {
    let word = Arc::new(AtomicU32::new(0));
    let sleepers: Vec<_> = (0..5)
        .map(|_| {
            let word = Arc::clone(&word);
            let body = move || futex::wait(&word, 0, None, Scope::Private);
            thread::Builder::new().name("five-sleepers".to_owned()).spawn(body).unwrap()
        })
        .collect();
    wait_until_asleep("five-sleepers", 5);
    assert_eq!(futex::wake(&word, 0, Scope::Private), 0);
    assert_eq!(futex::wake(&word, 2, Scope::Private), 2);
    assert_eq!(futex::wake(&word, u32::MAX, Scope::Private), 3);
    for sleeper in sleepers {
        assert_eq!(sleeper.join().unwrap(), WaitOutcome::Woken);
    }
}

#[test]
fn store_before_the_wake_is_not_missed() {
    const ROUNDS_COUNT: u32 = if cfg!(miri) { 5 } else { 2_000 };
    let word = Arc::new(AtomicU32::new(0));
    let follower = thread::spawn({
        let word = Arc::clone(&word);
        move || {
            for round in 0..ROUNDS_COUNT {
                // Acquire: pairs with the Release of the leader's store.
                while word.load(Ordering::Acquire) <= round {
                    let outcome = futex::wait(&word, round, Some(LIVENESS), Scope::Private);
                    assert_ne!(
                        outcome,
                        WaitOutcome::TimedOut,
                        "a wake-up was lost in round {round}"
                    );
                }
            }
        }
    });
    for round in 0..ROUNDS_COUNT {
        // Release: pairs with the Acquire of the follower's load.
        word.store(round + 1, Ordering::Release);
        futex::wake(&word, 1, Scope::Private);
    }
    follower.join().unwrap();
}
