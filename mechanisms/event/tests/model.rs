//! A machine's inbox, its sleep and its close under loom, with the futex modelled above them; and a
//! group's marks, and the pool.
//!
//! ```text
//! RUSTFLAGS="--cfg handover_loom" cargo test -p handover-event --test model --release \
//!     --target-dir target/loom
//! ```
//!
//! Seen to fail: a group whose caller does not look again after it has put its machine into the queue
//! (`Marking::call`), which is how that look came to be there.
#![cfg(handover_loom)]

use handover_base::sync::atomic::{AtomicU32, Ordering::Relaxed};
use handover_base::sync::{Arc, hint, thread};
use handover_event::{Mark, Marked, Marking, Pool, Shared, marks};
use handover_notify::{ParkWord, Sleep};
use handover_ring::{PushError, mpsc};
use loom::sync::{Condvar, Mutex};

/// Tries everything with two threads, and what takes up to three preemptions with more.
fn model(threads_count: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = (threads_count > 2).then_some(3);
    builder.check(run);
}

/// A futex: its own lock makes comparing and falling asleep one step, as the kernel's bucket lock
/// does. A wake finds who sleeps; it leaves nothing behind for who does not yet.
#[derive(Default)]
struct Futex {
    bucket: Mutex<()>,
    sleeper: Condvar,
}

impl Futex {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let bucket = self.bucket.lock().expect("never poisoned");
        // Relaxed: the kernel's comparison promises no more.
        if word.load(Relaxed) == expected {
            drop(self.sleeper.wait(bucket).expect("never poisoned"));
        }
    }

    fn wake(&self) {
        let _bucket = self.bucket.lock().expect("never poisoned");
        self.sleeper.notify_one();
    }
}

/// What a thread that runs machines shares with others, without kernel and clock.
#[derive(Default)]
struct Door {
    park: ParkWord,
    futex: Futex,
    stop: AtomicU32,
}

impl Door {
    fn ring(&self) {
        if self.park.must_wake(|| Some(0)).is_some() {
            self.futex.wake();
        }
    }

    /// Sleeps, unless `look` finds something or somebody wants to stop.
    fn park(&self, look: impl Fn() -> bool) {
        self.park.declare(Sleep::Word);
        if !look() && self.stop.load(Relaxed) == 0 {
            self.futex.wait(self.park.modelled(), Sleep::Word as u32);
        }
        let _woken = self.park.withdraw();
    }
}

#[test]
fn each_message_passed_to_a_sleeping_machine_is_handled() {
    model(2, || {
        let door = Arc::new(Door::default());
        let (producer, mut consumer) = mpsc::ring(2).expect("small");
        let sender = thread::spawn({
            let door = Arc::clone(&door);
            move || {
                for number in 0..2 {
                    producer.push(number).expect("room");
                    door.ring();
                }
                producer // so that it is not closed yet
            }
        });
        for number in 0..2 {
            let message = loop {
                match consumer.pop() {
                    Some(message) => break message,
                    None => door.park(|| !consumer.is_empty()), // a deadlock, if nobody wakes it
                }
            };
            assert_eq!(message, number);
        }
        drop(sender.join().expect("the sender"));
    });
}

#[test]
fn a_call_is_found_with_the_pass_that_follows_it() {
    model(2, || {
        let door = Arc::new(Door::default());
        let (producer, mut consumer) = mpsc::ring(2).expect("small");
        let sender = thread::spawn({
            let door = Arc::clone(&door);
            move || {
                producer.push("call").expect("room");
                producer.push("pass").expect("room");
                door.ring();
                producer
            }
        });
        let mut handled = Vec::new();
        while handled.len() < 2 {
            match consumer.pop() {
                Some(message) => handled.push(message),
                None => door.park(|| !consumer.is_empty()),
            }
        }
        assert_eq!(handled, ["call", "pass"]);
        drop(sender.join().expect("the sender"));
    });
}

#[test]
fn a_stop_ends_a_sleep() {
    model(2, || {
        let door = Arc::new(Door::default());
        let stopper = thread::spawn({
            let door = Arc::clone(&door);
            move || {
                door.stop.store(1, Relaxed);
                door.ring();
            }
        });
        while door.stop.load(Relaxed) == 0 {
            door.park(|| false);
        }
        stopper.join().expect("the stopper");
    });
}

#[test]
fn at_the_close_each_message_is_refused_or_handed_back() {
    model(3, || {
        let door = Arc::new(Door::default());
        let (producer, mut consumer) = mpsc::ring(4).expect("small");
        let senders: Vec<_> = (0..2)
            .map(|number| {
                let (door, producer) = (Arc::clone(&door), producer.clone());
                thread::spawn(move || match producer.push(number) {
                    Ok(()) => {
                        door.ring();
                        true
                    }
                    Err(PushError::Closed(back)) => {
                        assert_eq!(back, number);
                        false
                    }
                    Err(PushError::Full(_)) => panic!("there is room for all"),
                })
            })
            .collect();
        consumer.close();
        let mut handed_back = 0;
        loop {
            match consumer.pop() {
                Some(_) => handed_back += 1,
                None if consumer.is_finished() => break,
                None => hint::spin_loop(),
            }
        }
        let sent = senders.into_iter().map(|sender| sender.join().expect("a sender"));
        assert_eq!(sent.filter(|&accepted| accepted).count(), handed_back);
    });
}

/// Two machines of a group: their marks and inboxes, as other threads see them.
struct Shown {
    door: Door,
    marking: Marking,
    marks: [Mark; 2],
}

impl Shown {
    fn new() -> (Arc<Self>, Marked) {
        let (marking, marked) = marks(2).expect("small");
        let marks = [Mark::new(), Mark::new()];
        (Arc::new(Self { door: Door::default(), marking, marks }), marked)
    }

    fn call(&self, machine: usize, inbox: &mpsc::Producer<u32>, message: u32) {
        inbox.push(message).expect("room");
        if self.marking.call(&self.marks[machine], machine as u32) {
            self.door.ring();
        }
    }

    fn pass(&self, machine: usize, inbox: &mpsc::Producer<u32>, message: u32) {
        inbox.push(message).expect("room");
        if self.marking.pass(&self.marks[machine], machine as u32) {
            self.door.ring();
        }
    }
}

/// Runs the group until so many messages have been handled.
fn run_group(
    shown: &Shown,
    marked: &mut Marked,
    inboxes: &mut [mpsc::Consumer<u32>],
    messages_count: usize,
) {
    let mut handled = 0;
    while handled < messages_count {
        match marked.pop(|machine| Some(&shown.marks[machine as usize])) {
            Some(machine) => {
                while inboxes[machine as usize].pop().is_some() {
                    handled += 1;
                }
            }
            None => shown.door.park(|| !marked.is_empty()),
        }
    }
}

#[test]
fn a_machine_of_a_group_is_found_for_each_message() {
    model(2, || {
        let (shown, mut marked) = Shown::new();
        let (producer, consumer) = mpsc::ring(2).expect("small");
        let sender = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                shown.pass(0, &producer, 1);
                shown.pass(0, &producer, 2);
                producer
            }
        });
        run_group(&shown, &mut marked, &mut [consumer], 2);
        drop(sender.join().expect("the sender"));
    });
}

/// A caller that has set the mark, but not put the machine into the queue yet, must not make the
/// passer's wake vain.
#[test]
fn a_pass_wakes_a_group_though_a_call_has_set_the_mark() {
    model(3, || {
        let (shown, mut marked) = Shown::new();
        let (calls, mut called) = mpsc::ring(1).expect("small");
        let (passes, mut passed) = mpsc::ring(1).expect("small");
        let caller = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                shown.call(0, &calls, 1);
                calls
            }
        });
        let passer = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                shown.pass(0, &passes, 2);
                passes
            }
        });
        // One machine with two inboxes, so that the one that counts is told apart.
        while passed.pop().is_none() {
            match marked.pop(|machine| Some(&shown.marks[machine as usize])) {
                Some(_) => drop(called.pop()),
                None => shown.door.park(|| !marked.is_empty()),
            }
        }
        drop((caller.join().expect("the caller"), passer.join().expect("the passer")));
    });
}

#[test]
fn a_shared_value_is_dropped_once_by_the_last_of_its_holders_and_its_slot_is_free_again() {
    model(2, || {
        let dropped = Arc::new(AtomicU32::new(0));
        struct Noted(Arc<AtomicU32>);
        impl Drop for Noted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let mut pool = Pool::new(1);
        let shared = pool.put(Noted(Arc::clone(&dropped))).expect("a slot").share();
        let other = thread::spawn({
            let shared = shared.clone();
            move || drop(shared)
        });
        drop(shared);
        other.join().expect("the other holder");
        assert_eq!(dropped.load(Relaxed), 1);
        assert!(pool.put(Noted(dropped)).is_ok());
    });
}

#[test]
fn a_slot_is_used_again_only_after_its_last_holder() {
    model(2, || {
        let mut pool = Pool::new(1);
        let shared = pool.put(Box::new(1)).expect("a slot").share();
        let other = thread::spawn(move || assert_eq!(**shared, 1));
        // loom reports a race if the slot is written while the holder reads.
        let again = pool.put(Box::new(2));
        if let Ok(again) = again {
            assert_eq!(**again, 2);
        }
        other.join().expect("the holder");
    });
}

#[test]
fn a_pool_that_goes_while_holders_do_frees_its_memory_once() {
    model(2, || {
        let mut pool = Pool::new(1);
        let shared: Shared<_> = pool.put(Box::new(1)).expect("a slot").share();
        let other = thread::spawn(move || drop(shared));
        drop(pool); // loom reports a leak or a double free of what is in its cells
        other.join().expect("the holder");
    });
}
