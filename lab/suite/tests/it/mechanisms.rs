//! Contract of the kernel's mechanisms in [`handover_suite::notify`].

use handover_notify::{Mechanism, Notify, Wait};
use handover_suite::notify::{EventFd, Futex, Pipe};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const ROUNDS_COUNT: u64 = 2_000;

fn notification_before_the_wait_is_kept_and_consumed_once<M: Mechanism>() {
    let (sender, mut receiver) = M::pair().expect(M::NAME);
    assert_eq!(receiver.try_wait(), None, "a notification is pending before the first");
    assert_eq!(receiver.wait_timeout(Duration::from_millis(1)), None);
    sender.notify();
    assert_eq!(receiver.try_wait(), Some(1));
    sender.notify();
    assert_eq!(receiver.wait(), 1);
    sender.notify();
    assert_eq!(receiver.wait_timeout(Duration::MAX), Some(1));
    assert_eq!(receiver.try_wait(), None, "the notification was consumed twice");
}

fn ping_pong_loses_no_notification_and_publishes_earlier_writes<M: Mechanism>() {
    let (ping, mut pinged) = M::pair().expect(M::NAME);
    let (pong, mut ponged) = M::pair().expect(M::NAME);
    // Relaxed throughout: only the notifications order the accesses.
    let word = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS_COUNT {
                assert_eq!(pinged.wait(), 1);
                assert_eq!(word.load(Relaxed), 2 * round + 1);
                word.store(2 * round + 2, Relaxed);
                pong.notify();
            }
        });
        for round in 0..ROUNDS_COUNT {
            word.store(2 * round + 1, Relaxed);
            ping.notify();
            assert_eq!(ponged.wait(), 1);
            assert_eq!(word.load(Relaxed), 2 * round + 2);
        }
    });
}

/// Sends `count` notifications; returns the number that one wait then returns.
fn count_of_one_wait<M: Mechanism>(count: u64) -> u64 {
    let (sender, mut receiver) = M::pair().expect(M::NAME);
    (0..count).for_each(|_| sender.notify());
    receiver.wait()
}

macro_rules! contract {
    ($($module:ident: $mechanism:ty, $count_max:expr;)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn notification_before_the_wait_is_kept_and_consumed_once() {
                super::notification_before_the_wait_is_kept_and_consumed_once::<$mechanism>();
            }

            #[test]
            fn ping_pong_loses_no_notification_and_publishes_earlier_writes() {
                super::ping_pong_loses_no_notification_and_publishes_earlier_writes::<$mechanism>();
            }

            #[test]
            fn wait_counts_all_pending_notifications() {
                assert_eq!(count_of_one_wait::<$mechanism>(4096), 4096);
                assert_eq!(count_of_one_wait::<$mechanism>(10_000), $count_max);
            }
        }
    )*};
}

contract! {
    eventfd: EventFd, 10_000;
    futex: Futex, 10_000;
    // A full pipe drops further notifications, and no sender blocks.
    pipe: Pipe, 4096;
}
