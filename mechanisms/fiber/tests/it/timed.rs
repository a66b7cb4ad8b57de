//! Timed waits of all primitives.

use handover_fiber::{
    Condition, Config, Eventual, Mutex, RecvTimeoutError, Runtime, SendTimeoutError, channel,
    sleep, sleep_until, spawn, yield_now,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const SHORT_TIMEOUT: Duration = Duration::from_millis(5);
/// A time-out that no test reaches: a waiter that is woken in time does not wait for it.
const LONG_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs the closure on an ordinary thread, and then in a fiber.
fn both(run: impl Fn() + Send + Sync + 'static) -> TestResult {
    run();
    let runtime = Runtime::new(Config::workers(2))?;
    Ok(runtime.spawn(run)?.join()?)
}

/// Runs the closure on a new thread, after a short delay.
fn later(run: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        std::thread::sleep(SHORT_TIMEOUT);
        run();
    })
}

#[test]
fn timed_wait_returns_none_after_the_timeout_and_not_before() -> TestResult {
    both(|| {
        let never = Eventual::<u32>::new();
        let begin = Instant::now();
        assert_eq!(never.wait_timeout(SHORT_TIMEOUT), None);
        assert!(begin.elapsed() >= SHORT_TIMEOUT - Duration::from_micros(20), "clocks differ");
        assert_eq!(never.wait_until_ns(0), None, "the deadline has passed");
        assert_eq!(never.set(1), Ok(()));
        assert_eq!(never.wait_timeout(Duration::ZERO), Some(&1));
    })
}

#[test]
fn wait_with_a_deadline_ends_at_the_deadline_and_not_before() -> TestResult {
    both(|| {
        let (answer, mutex) = (Eventual::<u32>::new(), Mutex::new(()));
        let (sender, receiver) = channel(1);
        let (runtime, go) =
            (Runtime::new(Config::default()).unwrap(), Arc::new(Eventual::<()>::new()));
        let waits = Arc::clone(&go);
        let fiber = runtime.spawn(move || *waits.wait()).unwrap();
        let held = mutex.lock();
        // Past and future.
        for timeout in [Duration::ZERO, SHORT_TIMEOUT] {
            let deadline = || Instant::now() + timeout;
            let begin = Instant::now();
            sleep_until(deadline());
            assert_eq!(answer.wait_until(deadline()), None);
            assert!(mutex.lock_until(deadline()).is_none());
            assert_eq!(receiver.recv_until(deadline()), Err(RecvTimeoutError::TimedOut));
            assert_eq!(sender.send_until(1, deadline()), Ok(()));
            assert_eq!(sender.send_until(2, deadline()), Err(SendTimeoutError::TimedOut(2)));
            assert_eq!(receiver.recv_until(deadline()), Ok(1));
            let least = timeout.saturating_sub(Duration::from_micros(20)) * 4; // the clocks differ
            assert!(begin.elapsed() >= least);
        }
        let (held, is_notified) = Condition::new().wait_until(held, Instant::now() + SHORT_TIMEOUT);
        assert!(!is_notified);
        drop(held);
        let fiber = fiber.join_until(Instant::now()).unwrap_err();
        answer.set(7).unwrap();
        assert_eq!(answer.wait_until(Instant::now()), Some(&7));
        go.set(()).unwrap();
        fiber.join_until(Instant::now() + LONG_TIMEOUT).unwrap().unwrap();
        // Allowed here: the calling fiber, if there is one, belongs to another runtime.
        runtime.shutdown();
    })
}

#[test]
fn timed_wait_returns_as_soon_as_the_value_is_set() -> TestResult {
    both(|| {
        let answer = Arc::new(Eventual::new());
        let sets = Arc::clone(&answer);
        let sets = later(move || sets.set(7).unwrap());
        assert_eq!(answer.wait_timeout(LONG_TIMEOUT), Some(&7));
        sets.join().unwrap();
    })
}

#[test]
fn timed_out_waiters_leave_and_the_others_are_woken() -> TestResult {
    let runtime = Runtime::new(Config::workers(2))?;
    let answer = Arc::new(Eventual::new());
    let waits: Vec<_> = (0..30u32)
        .map(|i| {
            let answer = Arc::clone(&answer);
            runtime.spawn(move || match i % 3 {
                0 => Some(*answer.wait()),
                1 => answer.wait_timeout(Duration::from_micros(200 * u64::from(i))).copied(),
                _ => answer.wait_timeout(LONG_TIMEOUT).copied(),
            })
        })
        .collect::<Result<_, _>>()?;
    while !waits.iter().skip(1).step_by(3).all(|one| one.is_finished()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    answer.set(5)?;
    for (i, one) in waits.into_iter().enumerate() {
        assert_eq!(one.join()?, (i % 3 != 1).then_some(5), "number {i}");
    }
    Ok(())
}

#[test]
fn mutex_goes_to_the_next_waiter_after_a_timeout() -> TestResult {
    for workers in [1, 2] {
        let runtime = Runtime::new(Config::workers(workers))?;
        let mutex = Arc::new(Mutex::new(0u32));
        let held = mutex.lock();
        let its = Arc::clone(&mutex);
        let gives_up = runtime.spawn(move || its.lock_timeout(SHORT_TIMEOUT).is_none())?;
        let its = Arc::clone(&mutex);
        let patient = runtime.spawn(move || *its.lock_timeout(LONG_TIMEOUT).unwrap() += 1)?;
        assert!(mutex.lock_timeout(SHORT_TIMEOUT).is_none(), "held by this thread");
        assert!(gives_up.join()?);
        drop(held);
        patient.join()?;
        assert_eq!(*mutex.lock_timeout(Duration::ZERO).unwrap(), 1);
    }
    Ok(())
}

#[test]
fn notification_skips_timed_out_waiters() -> TestResult {
    let runtime = Runtime::new(Config::workers(2))?;
    let shared = Arc::new((Mutex::new(()), Condition::new()));
    let wait = |timeout: Duration| {
        let shared = Arc::clone(&shared);
        runtime.spawn(move || {
            let (mutex, condition) = &*shared;
            let (guard, is_notified) = condition.wait_timeout(mutex.lock(), timeout);
            drop(guard);
            is_notified
        })
    };
    let gives_up = wait(SHORT_TIMEOUT)?;
    assert!(!gives_up.join()?);
    assert!(!shared.1.notify_one(), "a timed-out waiter leaves the list");
    let patient = wait(LONG_TIMEOUT)?;
    while !shared.1.notify_one() {
        std::thread::yield_now();
    }
    assert!(patient.join()?);
    let (guard, is_notified) = shared.1.wait_timeout(shared.0.lock(), SHORT_TIMEOUT); // as a thread
    assert!(!is_notified);
    drop(guard);
    assert_eq!(shared.1.notify_all(), 0);
    Ok(())
}

#[test]
fn channel_operations_time_out_on_both_sides() -> TestResult {
    both(|| {
        let (sender, receiver) = channel(1);
        assert_eq!(receiver.recv_timeout(SHORT_TIMEOUT), Err(RecvTimeoutError::TimedOut));
        assert_eq!(sender.send_timeout(1, SHORT_TIMEOUT), Ok(()));
        assert_eq!(sender.send_timeout(2, SHORT_TIMEOUT), Err(SendTimeoutError::TimedOut(2)));
        assert_eq!(receiver.recv_timeout(SHORT_TIMEOUT), Ok(1));
        let sends = sender.clone();
        let sends = later(move || sends.send(3).unwrap());
        assert_eq!(receiver.recv_timeout(LONG_TIMEOUT), Ok(3));
        sends.join().unwrap();
        let drops = later(move || drop(sender));
        assert_eq!(receiver.recv_timeout(LONG_TIMEOUT), Err(RecvTimeoutError::Disconnected));
        drops.join().unwrap();
        let (sender, receiver) = channel(1);
        assert_eq!(sender.send(1), Ok(()));
        let drops = later(move || drop(receiver));
        assert_eq!(sender.send_timeout(2, LONG_TIMEOUT), Err(SendTimeoutError::Disconnected(2)));
        drops.join().unwrap();
    })
}

#[test]
fn timed_out_join_returns_the_handle() -> TestResult {
    both(|| {
        let runtime = Runtime::new(Config::default()).unwrap();
        let go = Arc::new(Eventual::<()>::new());
        let its = Arc::clone(&go);
        let fiber =
            runtime.spawn(move || its.test().or_else(|| Some(its.wait())).is_some()).unwrap();
        let fiber = fiber.join_timeout(SHORT_TIMEOUT).unwrap_err();
        go.set(()).unwrap();
        assert!(fiber.join_timeout(LONG_TIMEOUT).unwrap().unwrap());
        let fails = runtime.spawn(|| panic!("all the same")).unwrap();
        let panicked = fails.join_timeout(LONG_TIMEOUT).unwrap().unwrap_err();
        assert_eq!(panicked.message(), Some("all the same"));
        // Allowed here: the calling fiber, if there is one, belongs to another runtime.
        runtime.shutdown();
    })
}

#[test]
fn unexpired_timer_is_cancelled() -> TestResult {
    let runtime = Runtime::new(Config::default())?;
    let begin = Instant::now();
    let waits = runtime.spawn(|| {
        for _ in 0..100 {
            let answer = Arc::new(Eventual::new());
            let sets = Arc::clone(&answer);
            let setter = spawn(move || sets.set(())).unwrap();
            assert!(answer.wait_timeout(LONG_TIMEOUT).is_some());
            assert!(setter.join().unwrap().is_ok());
        }
    })?;
    waits.join()?;
    runtime.shutdown(); // does not wait for the timer
    assert!(begin.elapsed() < LONG_TIMEOUT / 10);
    Ok(())
}

#[test]
fn values_and_mutexes_are_not_lost_in_races_with_timeouts() -> TestResult {
    let rounds = if std::env::var_os("HANDOVER_LONG").is_some() { 20_000 } else { 500 };
    let runtime = Runtime::new(Config::workers(2))?;
    let (sender, receiver) = channel::<u32>(1);
    let mutex = Arc::new(Mutex::new(0u32));
    let got_count = Arc::new(AtomicU32::new(0));
    let mut receives = Vec::new();
    for one in 0..4u64 {
        let (receiver, mutex, got) = (receiver.clone(), mutex.clone(), got_count.clone());
        receives.push(runtime.spawn(move || {
            let (mut round, mut locked_count) = (one, 0);
            loop {
                round += 1;
                let timeout = Duration::from_micros(round * 7 % 90);
                match receiver.recv_timeout(timeout) {
                    Ok(_) => got.fetch_add(1, SeqCst),
                    Err(RecvTimeoutError::Disconnected) => return locked_count,
                    Err(_) => 0,
                };
                if let Some(mut count) = mutex.lock_timeout(timeout) {
                    locked_count += 1;
                    *count += 1;
                    match round % 3 {
                        0 => yield_now(),
                        1 => sleep(Duration::from_micros(20)),
                        _ => {}
                    }
                }
            }
        })?);
    }
    drop(receiver);
    let sent = runtime.spawn(move || {
        let mut sent_count = 0;
        for round in 0..rounds {
            let timeout = Duration::from_micros(u64::from(round * 11 % 70));
            sent_count += u32::from(sender.send_timeout(round, timeout).is_ok());
            sleep(timeout / 2);
        }
        sent_count
    })?;
    let sent_count = sent.join()?;
    let mut locked_count = 0;
    for one in receives {
        locked_count += one.join()?;
    }
    assert_eq!(got_count.load(SeqCst), sent_count);
    assert_eq!(*mutex.lock(), locked_count);
    assert!(sent_count > 0 && locked_count > 0);
    Ok(())
}
