//! The state word under loom, with a model of the futex: comparing the value and going to sleep are
//! one step with respect to the wake, as the kernel promises.
//!
//! ```text
//! RUSTFLAGS="--cfg handover_loom" cargo test -p handover-notify --features async --test model \
//!     --profile loom --target-dir target/loom
//! ```
//!
//! # Which calls are mixed
//! In each row, every call of one column meets every call of the others at every point; models of
//! three threads allow up to three preemptions, or as many as the row says.
//!
//! | model | sender | another | receiver |
//! |---|---|---|---|
//! | `a_notification_is_never_*`, `what_was_written_*` | `notify`, wake | | `try_consume`, `sleep_until_notified` |
//! | `the_last_of_two_*` | `notify` twice | | `sleep_until_notified` |
//! | `two_senders_*` | `notify` | sender: `notify` | `sleep_until_notified` |
//! | `a_wait_that_gives_up_*` | `notify` | | `sleep_until_notified` that gives up, then one that does not |
//! | `of_two_receivers_*` | | receiver: `try_consume` | `try_consume` |
//! | `a_receiver_parked_on_a_counter_*` | `notify`, write | | `declare_sleep`, poll, `withdraw`, `try_consume` |
//! | `mixed_waits_*` (2) | `notify` twice | sender: `notify` | `try_consume`, `declare_sleep`, `withdraw`, a wait that gives up, one that does not |
//! | `a_sender_killed_*` (2) | `notify`, killed before its wake | sender: `notify` | `sleep_until_notified`, each sleep bounded |
//! | `a_receiver_parked_beside_*` | publish, `claim_wake` twice | | look, `declare`, look, sleep, `withdraw` |
//! | `of_two_senders_to_a_parked_*` | publish, `claim_wake` | sender: the same | the same |
//! | `mixed_parks_*` (2) | publish, `claim_wake` twice | sender: the same once | `declare` both ways, look, sleep on the word, sleep elsewhere, `withdraw` |
//! | `task_is_woken_*` (2) | `task`: `notify`, drop | | `notified` until closed |
//! | `task_that_was_cancelled_*` (2) | `task`: `notify`, drop | | `notified` cancelled, `poll_notified` by another task, `notified` until closed |
//! | `mixed_task_waits_*` (2) | `task`: `notify`, drop | sender: the same | `notified` cancelled, `notified` until closed |
//!
//! Mutations that loom has detected, each by a deadlock: the futex's comparison left out;
//! `declare_sleep` or `withdraw` as a store; the sender's exchange as a load and a store, or left
//! out if the word is pending already; the Release or the Acquire weakened to Relaxed. For the park
//! word: either fence left out, or the check after the declaration. For `a_sender_killed_*`: a
//! sleep without a bound.
#![cfg(handover_loom)]

use handover_base::loom_support::{Futex, explore};
use handover_base::sync::atomic::{AtomicU32, Ordering::Relaxed};
use handover_base::sync::{Arc, UnsafeCell, hint, thread};
use handover_notify::{ParkWord, SleepObject, StateWord};
use loom::sync::{Condvar, Mutex};

/// A sender and a receiver of the adaptive mechanism, without kernel and clock.
#[derive(Default)]
struct Pair {
    word: StateWord,
    futex: Futex,
}

impl Pair {
    fn notify(&self) {
        if self.word.notify(Some(0)) {
            self.futex.wake();
        }
    }

    fn wait(&self, spins_max: u32) {
        for _ in 0..=spins_max {
            if self.word.try_consume().is_some() {
                return;
            }
            hint::spin_loop();
        }
        let notified = self.word.sleep_until_notified(|word, expected| {
            self.futex.wait(word, expected);
            true
        });
        assert!(notified.is_some(), "gave up, though there is no time to run out of");
    }
}

#[test]
fn notification_before_or_after_the_sleep_is_not_lost() {
    for spins_max in [0, 1] {
        loom::model(move || {
            let pair = Arc::new(Pair::default());
            let sender = thread::spawn({
                let pair = Arc::clone(&pair);
                move || pair.notify()
            });
            pair.wait(spins_max); // loom reports a deadlock if nothing wakes it
            sender.join().expect("the sender");
            assert!(pair.word.try_consume().is_none(), "consumed");
        });
    }
}

#[test]
fn writes_before_the_notification_are_visible_after_the_wait() {
    loom::model(|| {
        let pair = Arc::new(Pair::default());
        // Not atomic: loom reports a race unless the notification orders the two accesses.
        let plain = Arc::new(UnsafeCell::new(0));
        let sender = thread::spawn({
            let (pair, plain) = (Arc::clone(&pair), Arc::clone(&plain));
            move || {
                plain.with_mut(|_write| ());
                pair.notify();
            }
        });
        pair.wait(0);
        plain.with(|_read| ());
        sender.join().expect("the sender");
    });
}

#[test]
fn merged_notification_publishes_the_last_writes() {
    loom::model(|| {
        let pair = Arc::new(Pair::default());
        let sent = Arc::new(AtomicU32::new(0));
        let sender = thread::spawn({
            let (pair, sent) = (Arc::clone(&pair), Arc::clone(&sent));
            move || {
                for number in 1..=2 {
                    sent.store(number, Relaxed); // ordered by the notification alone
                    pair.notify();
                }
            }
        });
        // Deadlocks if the wait that consumes the second notification does not see its number.
        while sent.load(Relaxed) < 2 {
            pair.wait(0);
        }
        sender.join().expect("the sender");
    });
}

#[test]
fn writes_of_two_merged_senders_are_visible() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3); // three threads: all interleavings would take hours
    model.check(|| {
        let pair = Arc::new(Pair::default());
        let sent = Arc::new(AtomicU32::new(0));
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let (pair, sent) = (Arc::clone(&pair), Arc::clone(&sent));
                thread::spawn(move || {
                    sent.fetch_add(1, Relaxed); // ordered by the notification alone
                    pair.notify();
                })
            })
            .collect();
        while sent.load(Relaxed) < 2 {
            pair.wait(0);
        }
        for sender in senders {
            sender.join().expect("a sender");
        }
    });
}

#[test]
fn timed_out_wait_loses_no_notification() {
    loom::model(|| {
        let pair = Arc::new(Pair::default());
        let sender = thread::spawn({
            let pair = Arc::clone(&pair);
            move || pair.notify()
        });
        let out_of_time_at_once = |_: &AtomicU32, _| false;
        if pair.word.sleep_until_notified(out_of_time_at_once).is_none() {
            pair.wait(0); // an unreturned notification is still pending, or comes
        }
        sender.join().expect("the sender");
        assert!(pair.word.try_consume().is_none(), "returned once");
    });
}

/// Another process may read or write the word too; the worst effect must be a missing or an
/// additional notification.
#[test]
fn one_of_two_receivers_consumes_a_notification() {
    loom::model(|| {
        let word = Arc::new(StateWord::new());
        assert!(!word.notify(None));
        let other = thread::spawn({
            let word = Arc::clone(&word);
            move || u32::from(word.try_consume().is_some())
        });
        let mine = u32::from(word.try_consume().is_some());
        assert_eq!(mine + other.join().expect("the other receiver"), 1);
    });
}

#[test]
fn mixed_waits_of_every_kind_miss_no_notification() {
    explore(2, || {
        let pair = Arc::new(Pair::default());
        let sent = Arc::new(AtomicU32::new(0));
        let sends = |times: u32| {
            let (pair, sent) = (Arc::clone(&pair), Arc::clone(&sent));
            thread::spawn(move || {
                for _ in 0..times {
                    sent.fetch_add(1, Relaxed); // ordered by the notification alone
                    pair.notify();
                }
            })
        };
        let senders = [sends(2), sends(1)];
        let gives_up = |_: &AtomicU32, _| false;
        let _ = pair.word.sleep_until_notified(gives_up);
        if pair.word.declare_sleep() && !pair.word.withdraw_sleep() {
            assert!(pair.word.try_consume().is_some(), "too late to withdraw: notified");
        }
        while sent.load(Relaxed) < 3 {
            pair.wait(0);
        }
        for sender in senders {
            sender.join().expect("a sender");
        }
    });
}

#[test]
fn sender_killed_before_its_wake_does_not_block_another() {
    explore(2, || {
        let pair = Arc::new(Pair::default());
        let sent = Arc::new(AtomicU32::new(0));
        let killed = thread::spawn({
            let pair = Arc::clone(&pair);
            move || {
                let _wakes_nobody = pair.word.notify(Some(0));
            }
        });
        let sender = thread::spawn({
            let (pair, sent) = (Arc::clone(&pair), Arc::clone(&sent));
            move || {
                sent.store(1, Relaxed); // ordered by the notification alone
                pair.notify();
            }
        });
        // Models a bounded sleep: it ends spuriously, if need be after both senders.
        while sent.load(Relaxed) < 1 {
            let _ = pair.word.sleep_until_notified(|_, _| {
                hint::spin_loop();
                true
            });
        }
        killed.join().expect("as far as it came");
        sender.join().expect("the sender");
    });
}

/// Model of the descriptor that `adaptive_fd` parks on: writes stay until they are read.
#[derive(Default)]
struct Counter {
    writes: Mutex<u32>,
    readable: Condvar,
}

impl Counter {
    fn write(&self) {
        *self.writes.lock().expect("never poisoned") += 1;
        self.readable.notify_one();
    }

    /// Sleeps until there is something to read, and reads it.
    fn read(&self) {
        let mut writes = self.writes.lock().expect("never poisoned");
        while *writes == 0 {
            writes = self.readable.wait(writes).expect("never poisoned");
        }
        *writes = 0;
    }
}

#[test]
fn receiver_parked_on_a_counter_is_notified_when_readable() {
    loom::model(|| {
        let shared = Arc::new((StateWord::new(), Counter::default()));
        let sender = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let (word, counter) = &*shared;
                if word.notify(None) {
                    counter.write();
                }
            }
        });
        let (word, counter) = &*shared;
        if word.declare_sleep() {
            counter.read();
            assert!(!word.withdraw_sleep(), "readable, so notified");
        }
        assert!(word.try_consume().is_some());
        sender.join().expect("the sender");
    });
}

/// A receiver that checks a word of work, and parks beside it.
#[derive(Default)]
struct Parking {
    park: ParkWord,
    futex: Futex,
    counter: Counter,
    work: AtomicU32,
}

impl Parking {
    fn publish(&self) {
        self.work.fetch_add(1, Relaxed);
        match self.park.claim_wake(|| Some(0)) {
            Some(SleepObject::Word) => self.futex.wake(),
            Some(SleepObject::Elsewhere) => self.counter.write(),
            None => {}
        }
    }

    /// Sleeps until there are `work_min` pieces of work; loom reports a deadlock if it is not
    /// woken.
    fn await_work(&self, work_min: u32) {
        while self.work.load(Relaxed) < work_min {
            self.park.declare_sleep(SleepObject::Word);
            if self.work.load(Relaxed) < work_min {
                self.futex.wait(self.park.word_for_model(), SleepObject::Word as u32);
            }
            let _woken = self.park.withdraw_sleep();
        }
    }
}

#[test]
fn receiver_parked_on_a_word_is_woken_for_each_item() {
    let mut model = loom::model::Builder::new();
    // All interleavings take half a minute.
    model.preemption_bound = std::env::var_os("HANDOVER_LONG").is_none().then_some(3);
    model.check(|| {
        let parking = Arc::new(Parking::default());
        let sender = thread::spawn({
            let parking = Arc::clone(&parking);
            move || {
                parking.publish();
                parking.publish();
            }
        });
        parking.await_work(1);
        parking.await_work(2);
        sender.join().expect("the sender");
    });
}

#[test]
fn two_senders_to_a_parked_receiver_are_both_seen() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3); // three threads: all interleavings would take hours
    model.check(|| {
        let parking = Arc::new(Parking::default());
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let parking = Arc::clone(&parking);
                thread::spawn(move || parking.publish())
            })
            .collect();
        parking.await_work(2);
        for sender in senders {
            sender.join().expect("a sender");
        }
    });
}

#[test]
fn mixed_parks_on_word_and_descriptor_miss_no_item() {
    explore(2, || {
        let parking = Arc::new(Parking::default());
        let publishes = |times: u32| {
            let parking = Arc::clone(&parking);
            thread::spawn(move || (0..times).for_each(|_| parking.publish()))
        };
        let senders = [publishes(2), publishes(1)];
        parking.await_work(1);
        while parking.work.load(Relaxed) < 2 {
            parking.park.declare_sleep(SleepObject::Elsewhere);
            if parking.work.load(Relaxed) < 2 {
                parking.counter.read();
            }
            let _woken = parking.park.withdraw_sleep();
        }
        parking.await_work(3);
        for sender in senders {
            sender.join().expect("a sender");
        }
    });
}

#[cfg(feature = "async")]
mod tasks {
    use super::*;
    use handover_base::loom_support::{block_on, poll_once};
    use handover_notify::{Notify, task};
    use std::task::{Context, Waker};

    /// Senders that each notify and end; and the number of those that have begun to notify.
    fn senders(count: u32) -> (Arc<AtomicU32>, task::Receiver, Vec<thread::JoinHandle<()>>) {
        let (sender, receiver) = task::pair();
        let sent = Arc::new(AtomicU32::new(0));
        let threads = (0..count).map(|_| {
            let (sender, sent) = (sender.clone(), Arc::clone(&sent));
            thread::spawn(move || {
                sent.fetch_add(1, Relaxed); // ordered by the notification alone
                sender.notify();
            })
        });
        let threads = threads.collect();
        drop(sender);
        (sent, receiver, threads)
    }

    #[test]
    fn task_is_woken_by_a_notification_and_by_the_last_drop() {
        explore(2, || {
            let (sent, mut receiver, senders) = senders(1);
            assert_eq!(block_on(receiver.notified()), Ok(()));
            assert_eq!(sent.load(Relaxed), 1);
            assert_eq!(block_on(receiver.notified()), Err(task::ClosedError));
            for sender in senders {
                sender.join().expect("a sender");
            }
        });
    }

    #[test]
    fn task_that_was_cancelled_or_moved_misses_no_notification() {
        explore(2, || {
            let (sent, mut receiver, senders) = senders(1);
            if poll_once(receiver.notified()).is_none() {
                // Registers a waker that the next poll replaces.
                let mut context = Context::from_waker(Waker::noop());
                if receiver.poll_notified(&mut context).is_pending() {
                    assert_eq!(block_on(receiver.notified()), Ok(()));
                }
            }
            assert_eq!(sent.load(Relaxed), 1);
            assert_eq!(block_on(receiver.notified()), Err(task::ClosedError));
            for sender in senders {
                sender.join().expect("a sender");
            }
        });
    }

    #[test]
    fn mixed_task_waits_see_two_senders_and_their_drops() {
        explore(2, || {
            let (sent, mut receiver, senders) = senders(2);
            let _ = poll_once(receiver.notified());
            while block_on(receiver.notified()).is_ok() {}
            assert_eq!(sent.load(Relaxed), 2);
            for sender in senders {
                sender.join().expect("a sender");
            }
        });
    }
}
