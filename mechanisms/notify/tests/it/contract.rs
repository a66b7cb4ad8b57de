//! The contract of every mechanism.
//!
//! Under Miri only the mechanism made of memory and a futex is run: it does not support `ppoll`,
//! which the one with a descriptor needs for waits with a timeout and for polls.

use handover_notify::{Adaptive, Mechanism, Notify, Wait};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const STORM_COUNT: u64 = if cfg!(miri) { 100 } else { 100_000 };
const ROUNDS_COUNT: u64 = if cfg!(miri) { 20 } else { 5_000 };
const SENDERS_COUNT: u64 = 4;

/// Time after which a test fails; a lost wake-up shows as a hang. Far more than any machine needs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `run` in a thread of its own; panics if it takes longer than [`PATIENCE`].
fn in_time<R: Send + 'static>(name: &str, run: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, finished) = mpsc::channel();
    let runner = thread::spawn(move || {
        let result = run();
        let _ = done.send(()); // fails only if the test has failed already
        result
    });
    if finished.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("{name}: not finished after {PATIENCE:?}: a notification was lost");
    }
    runner.join().expect("the runner panicked")
}

/// Pauses of all kinds between notifications: none, a short spin, a yield, a sleep long enough for
/// the receiver to park. From xorshift, so that a failure can be reproduced.
struct Pauses(u64);

impl Pauses {
    fn pause(&mut self) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        match self.0 % 1000 {
            0 => thread::sleep(Duration::from_micros(100)),
            1..10 => thread::yield_now(),
            10..300 => (0..self.0 % 300).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
    }
}

fn a_notification_before_the_wait_is_kept<M: Mechanism>() {
    let (sender, mut receiver) = M::pair().expect(M::NAME);
    assert_eq!(receiver.try_wait(), None, "nothing pending at first");
    sender.notify();
    assert_eq!(receiver.try_wait(), Some(1));
    assert_eq!(receiver.try_wait(), None, "consumed");
    sender.notify();
    assert_eq!(receiver.wait(), 1);
    sender.notify();
    assert_eq!(receiver.wait_timeout(Duration::ZERO), Some(1));
    assert_eq!(receiver.wait_timeout(Duration::ZERO), None);
}

fn one_wait_consumes_all_pending_notifications<M: Mechanism>() {
    let (sender, mut receiver) = M::pair().expect(M::NAME);
    let other = sender.clone();
    for _ in 0..5 {
        sender.notify();
        other.notify();
    }
    assert_eq!(receiver.wait(), if M::COUNTS_NOTIFICATIONS { 10 } else { 1 });
    assert_eq!(receiver.try_wait(), None);
}

fn timed_wait_ends_in_time_and_leaves_nothing_pending<M: Mechanism>() {
    let (sender, mut receiver) = M::pair().expect(M::NAME);
    for timeout in [Duration::from_nanos(1), Duration::from_micros(50), Duration::from_millis(20)] {
        let start = Instant::now();
        assert_eq!(receiver.wait_timeout(timeout), None);
        let took = start.elapsed();
        assert!(took >= timeout, "{}: gave up after {took:?} of {timeout:?}", M::NAME);
        assert!(took < timeout + Duration::from_secs(10), "{}: took {took:?}", M::NAME);
    }
    sender.notify();
    assert_eq!(receiver.wait_timeout(Duration::MAX), Some(1), "a time-out beyond all clocks");
    assert_eq!(receiver.try_wait(), None);
}

fn sleeper_is_woken_from_each_kind_of_wait<M: Mechanism>() {
    let (sender, mut receiver) = M::pair().expect(M::NAME);
    let asleep = Arc::new(Barrier::new(2));
    let waker = thread::spawn({
        let asleep = Arc::clone(&asleep);
        move || {
            for _ in 0..4 {
                asleep.wait();
                thread::sleep(Duration::from_millis(5)); // let the receiver go to sleep
                sender.notify();
            }
        }
    });
    in_time(M::NAME, move || {
        for _ in 0..2 {
            asleep.wait();
            assert_eq!(receiver.wait(), 1);
            asleep.wait();
            assert_eq!(receiver.wait_timeout(PATIENCE), Some(1));
        }
    });
    waker.join().expect("the waker");
}

fn no_notification_is_lost_in_a_storm_with_pauses<M: Mechanism>() {
    let (sender, mut receiver) = M::pair().expect(M::NAME);
    let sent = Arc::new(AtomicU64::new(0));
    let storm = thread::spawn({
        let sent = Arc::clone(&sent);
        move || {
            let mut pauses = Pauses(0x9E37_79B9_7F4A_7C15);
            for number in 1..=STORM_COUNT {
                sent.store(number, Relaxed); // ordered by the notification alone
                sender.notify();
                pauses.pause();
            }
        }
    });
    let (consumed, mut receiver) = in_time(M::NAME, move || {
        let mut consumed = 0;
        loop {
            consumed += receiver.wait();
            // Each consumed notification has published its number, so the last number is visible.
            if sent.load(Relaxed) == STORM_COUNT {
                break;
            }
        }
        (consumed, receiver)
    });
    storm.join().expect("the storm");
    let consumed = consumed + receiver.try_wait().unwrap_or(0);
    if M::COUNTS_NOTIFICATIONS {
        assert_eq!(consumed, STORM_COUNT, "{}", M::NAME);
    } else {
        assert!((1..=STORM_COUNT).contains(&consumed), "{}: {consumed}", M::NAME);
    }
}

/// Awaits each notification by itself, so that no other can stand in for a lost one.
fn ping_pong_notification_publishes_earlier_writes<M: Mechanism>() {
    let (ping, mut pinged) = M::pair().expect(M::NAME);
    let (pong, mut ponged) = M::pair().expect(M::NAME);
    let ball = Arc::new(AtomicU64::new(0));
    let partner = thread::spawn({
        let ball = Arc::clone(&ball);
        move || {
            let mut pauses = Pauses(3);
            for round in 0..ROUNDS_COUNT {
                pinged.wait();
                assert_eq!(ball.load(Relaxed), 2 * round + 1);
                ball.store(2 * round + 2, Relaxed);
                pauses.pause();
                pong.notify();
            }
        }
    });
    in_time(M::NAME, move || {
        let mut pauses = Pauses(5);
        for round in 0..ROUNDS_COUNT {
            ball.store(2 * round + 1, Relaxed);
            ping.notify();
            match round % 3 {
                0 => assert!(ponged.wait_timeout(PATIENCE).is_some()),
                _ => assert_eq!(ponged.wait(), 1),
            }
            assert_eq!(ball.load(Relaxed), 2 * round + 2);
            pauses.pause();
        }
    });
    partner.join().expect("the partner");
}

fn many_senders_reach_one_receiver<M: Mechanism>() {
    let (sender, mut receiver) = M::pair().expect(M::NAME);
    let each = STORM_COUNT / 10;
    let sent: Arc<[AtomicU64]> = (0..SENDERS_COUNT).map(|_| AtomicU64::new(0)).collect();
    let senders: Vec<_> = (0..SENDERS_COUNT)
        .map(|index| {
            let (sender, sent) = (sender.clone(), Arc::clone(&sent));
            thread::spawn(move || {
                let mut pauses = Pauses(index + 1);
                for number in 1..=each {
                    sent[index as usize].store(number, Relaxed);
                    sender.notify();
                    pauses.pause();
                }
            })
        })
        .collect();
    in_time(M::NAME, move || {
        while sent.iter().map(|sent| sent.load(Relaxed)).sum::<u64>() < SENDERS_COUNT * each {
            receiver.wait();
        }
    });
    for sender in senders {
        sender.join().expect("a sender");
    }
}

fn racing_timed_waits_lose_no_notification<M: Mechanism>() {
    let (sender, mut receiver) = M::pair().expect(M::NAME);
    let (answer, mut answered) = M::pair().expect(M::NAME);
    let partner = thread::spawn(move || {
        let mut pauses = Pauses(7);
        for _ in 0..ROUNDS_COUNT {
            pauses.pause();
            sender.notify();
            answered.wait();
        }
    });
    in_time(M::NAME, move || {
        let mut received = 0;
        while received < ROUNDS_COUNT {
            // About as long as the partner takes: many time out just as the notification comes.
            if let Some(count) = receiver.wait_timeout(Duration::from_micros(received % 8)) {
                assert_eq!(count, 1);
                received += 1;
                answer.notify();
            }
        }
        assert_eq!(receiver.try_wait(), None);
    });
    partner.join().expect("the partner");
}

fn senders_may_notify_after_the_receiver_is_dropped<M: Mechanism>() {
    let (sender, receiver) = M::pair().expect(M::NAME);
    drop(receiver);
    for _ in 0..10_000 / if cfg!(miri) { 100 } else { 1 } {
        sender.notify();
    }
    assert!(!M::NAME.is_empty() && !M::DESCRIPTION.is_empty());
}

fn receiver_works_after_all_senders_are_dropped<M: Mechanism>() {
    let (sender, mut receiver) = M::pair().expect(M::NAME);
    sender.notify();
    drop(sender);
    assert_eq!(receiver.wait(), 1);
    in_time(M::NAME, move || {
        assert_eq!(receiver.try_wait(), None);
        assert_eq!(receiver.wait_timeout(Duration::from_millis(1)), None);
    });
}

fn both_sides_progress_on_one_cpu<M: Mechanism>() {
    let cpu = handover_base::affinity::thread_cpus()[0];
    let (ping, mut pinged) = M::pair().expect(M::NAME);
    let (pong, mut ponged) = M::pair().expect(M::NAME);
    let pinned = move || handover_base::affinity::pin(cpu).expect("an allowed CPU");
    let partner = thread::spawn(move || {
        pinned();
        for _ in 0..ROUNDS_COUNT {
            pinged.wait();
            pong.notify();
        }
    });
    in_time(M::NAME, move || {
        pinned();
        for _ in 0..ROUNDS_COUNT {
            ping.notify();
            assert_eq!(ponged.wait(), 1);
        }
    });
    partner.join().expect("the partner");
}

macro_rules! contract {
    (@test $mechanism:ty: $($name:ident)*) => {$(
        #[test]
        fn $name() {
            super::$name::<$mechanism>();
        }
    )*};
    ($($(#[$meta:meta])* $module:ident: $mechanism:ident;)*) => {$(
        $(#[$meta])*
        mod $module {
            use super::$mechanism;
            contract! { @test $mechanism:
                a_notification_before_the_wait_is_kept
                one_wait_consumes_all_pending_notifications
                timed_wait_ends_in_time_and_leaves_nothing_pending
                sleeper_is_woken_from_each_kind_of_wait
                no_notification_is_lost_in_a_storm_with_pauses
                ping_pong_notification_publishes_earlier_writes
                many_senders_reach_one_receiver
                racing_timed_waits_lose_no_notification
                senders_may_notify_after_the_receiver_is_dropped
                receiver_works_after_all_senders_are_dropped
                both_sides_progress_on_one_cpu
            }
        }
    )*};
}

#[cfg(not(miri))]
use handover_notify::AdaptiveFd;

contract! {
    adaptive: Adaptive;
    #[cfg(not(miri))] adaptive_fd: AdaptiveFd;
}
