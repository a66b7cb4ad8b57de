//! loom models of the counts that threads of connections share, with the ring of commands and the
//! notification beside them.
//!
//! ```text
//! RUSTFLAGS="--cfg handover_loom" cargo test -p handover-net --test model --release \
//!     --target-dir target/loom
//! ```
//!
//! Calls that each model combines; `/` separates threads, and the last one is the thread of
//! connections:
//!
//! | model | calls |
//! |---|---|
//! | connection_with_a_reservation_.. | try_reserve_slot, push, remove_remote_listener, notify / the same / pop, publish_open_count, release_slot, has_remote_listeners; sleep |
//! | refused_handover_.. | try_reserve_slot, push to a full ring, release_slot, remove_remote_listener, notify / the same / as above |
//! | slot_that_becomes_free_.. | try_reserve_slot / publish_open_count, try_reserve_slot |
//! | bytes_that_fit_.. | try_reserve_bytes, release_bytes / try_reserve_bytes of too many / release_bytes |
//! | waiting_listener_.. | try_reserve_slot, start_awaiting_slot; sleep / publish_open_count, notify / release_slot, notify |
//! | stopped_thread_.. | push, remove_remote_listener, notify / stop, notify / pop, has_remote_listeners; sleep |
//!
//! Seen to fail: open and reserved connections in two words, with a relaxed `release_slot`, or with
//! a compare-and-swap of one word after a load of the other (a connection with a reservation finds
//! no slot); attempts that add first and subtract if they fail, of slots and of bytes (others are
//! refused although there is a slot, or room); `remove_remote_listener` that is relaxed (a
//! connection is lost).
#![cfg(handover_loom)]

use handover_base::loom_support::{Futex, explore};
use handover_base::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use handover_base::sync::{Arc, thread};
use handover_net::Reservations;
use handover_notify::StateWord;
use handover_ring::{PushError, mpsc};

/// Notification of a thread that sleeps on a futex.
#[derive(Default)]
struct Wake {
    word: StateWord,
    futex: Futex,
}

impl Wake {
    fn notify(&self) {
        if self.word.notify(None) {
            self.futex.wake();
        }
    }

    fn sleep(&self) {
        let sleep = |word: &AtomicU32, expected| {
            self.futex.wait(word, expected);
            true
        };
        assert!(self.word.sleep_until_notified(sleep).is_some(), "sleeps without a time limit");
    }
}

/// The part of a thread of connections that others see.
struct Inbox {
    reservations: Reservations,
    commands: mpsc::Producer<Adopt>,
    wake: Wake,
    is_stopped: AtomicBool,
}

/// A connection that is handed over.
#[derive(Debug)]
struct Adopt;

impl Inbox {
    fn new(connections_max: usize, commands_max: u32) -> (Arc<Self>, mpsc::Consumer<Adopt>) {
        let (commands, taken) = mpsc::ring(commands_max).expect("small");
        let (reservations, wake) = (Reservations::new(10, connections_max), Wake::default());
        let is_stopped = AtomicBool::new(false);
        (Arc::new(Self { reservations, commands, wake, is_stopped }), taken)
    }

    /// Hands a connection over, as a listener of another thread. Returns `true` if it was accepted.
    fn hand_over(&self) -> bool {
        if !self.reservations.try_reserve_slot() {
            return false;
        }
        match self.commands.push(Adopt) {
            Ok(()) => self.wake.notify(),
            Err(PushError::Full(_)) => {
                assert!(!self.reservations.release_slot(), "no listener waits");
                return false;
            }
            Err(PushError::Closed(_)) => {
                panic!("the inbox was closed before its listeners had finished")
            }
        }
        true
    }

    /// Ends a listener of another thread.
    fn end_listener(&self) {
        self.reservations.remove_remote_listener();
        self.wake.notify();
    }

    /// Runs a thread until it is stopped and no listener can hand over a connection. Returns the
    /// number of connections, which stay open.
    fn run(&self, commands: &mut mpsc::Consumer<Adopt>, connections_max: usize) -> usize {
        let mut open_count = 0;
        loop {
            // Read before the commands: the last commands of a listener that has ended are in the
            // queue.
            let is_last = !self.reservations.has_remote_listeners();
            while commands.pop().is_some() {
                assert!(open_count < connections_max, "no free slot for a reserved connection");
                open_count += 1;
                let is_awaited = self.reservations.publish_open_count(open_count as u64)
                    || self.reservations.release_slot();
                assert!(!is_awaited, "no listener waits");
            }
            // Relaxed: ordered by the notification.
            if is_last && self.is_stopped.load(Ordering::Relaxed) {
                return open_count;
            }
            self.wake.sleep();
        }
    }
}

/// Runs a thread to which two listeners of other threads hand over a connection each, and checks
/// that the connections which they have handed over have arrived.
fn hand_over_from_two(connections_max: usize, commands_max: u32) {
    let (inbox, mut commands) = Inbox::new(connections_max, commands_max);
    inbox.is_stopped.store(true, Ordering::Relaxed);
    let listeners = [(); 2].map(|()| {
        inbox.reservations.add_remote_listener();
        let inbox = Arc::clone(&inbox);
        thread::spawn(move || {
            let accepted = usize::from(inbox.hand_over());
            inbox.end_listener();
            accepted
        })
    });
    let open_count = inbox.run(&mut commands, connections_max);
    let accepted = listeners.map(|listener| listener.join().expect("a listener"));
    assert_eq!(open_count, accepted.iter().sum());
    for _ in open_count..connections_max {
        assert!(inbox.reservations.try_reserve_slot(), "a reservation was not released");
    }
    assert!(!inbox.reservations.try_reserve_slot());
}

#[test]
fn connection_with_a_reservation_finds_a_slot() {
    explore(2, || hand_over_from_two(1, 2));
}

#[test]
fn refused_handover_gives_its_reservation_back() {
    explore(2, || hand_over_from_two(3, 1));
}

#[test]
fn slot_that_becomes_free_is_given_to_one_of_two() {
    explore(3, || {
        let reservations = Arc::new(Reservations::new(0, 2));
        assert!(!reservations.publish_open_count(2));
        let other = thread::spawn({
            let reservations = Arc::clone(&reservations);
            move || reservations.try_reserve_slot()
        });
        assert!(!reservations.publish_open_count(1), "no listener waits");
        let is_ours = reservations.try_reserve_slot();
        let is_theirs = other.join().expect("the other listener");
        assert!(is_ours != is_theirs, "one free slot: {is_ours}, {is_theirs}");
    });
}

#[test]
fn waiting_listener_is_woken_for_a_slot() {
    explore(3, || {
        let (inbox, _commands) = Inbox::new(2, 2);
        assert!(inbox.reservations.try_reserve_slot());
        assert!(!inbox.reservations.publish_open_count(1));
        let listener = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                // Two slots become free.
                for _ in 0..2 {
                    while !inbox.reservations.try_reserve_slot() {
                        if inbox.reservations.start_awaiting_slot() {
                            inbox.wake.sleep();
                        }
                    }
                }
            }
        });
        let closing = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                if inbox.reservations.publish_open_count(0) {
                    inbox.wake.notify();
                }
            }
        });
        if inbox.reservations.release_slot() {
            inbox.wake.notify();
        }
        closing.join().expect("the thread of connections");
        listener.join().expect("the listener, which found two slots");
    });
}

#[test]
fn bytes_that_fit_are_accepted_beside_bytes_that_do_not() {
    explore(3, || {
        let reservations = Arc::new(Reservations::new(10, 0));
        assert!(reservations.try_reserve_bytes(4));
        let small = thread::spawn({
            let reservations = Arc::clone(&reservations);
            move || {
                assert!(reservations.try_reserve_bytes(3), "refused 3 of 6 bytes");
                reservations.release_bytes(3);
            }
        });
        let large = thread::spawn({
            let reservations = Arc::clone(&reservations);
            // Accepted only if nothing is queued.
            move || reservations.try_reserve_bytes(7)
        });
        assert!(reservations.try_reserve_bytes(3), "refused 3 of 6 bytes");
        reservations.release_bytes(3);
        small.join().expect("the small command");
        assert!(!large.join().expect("the large command"));
        reservations.release_bytes(4);
        assert!(reservations.try_reserve_bytes(1000), "bytes were not released");
    });
}

#[test]
fn stopped_thread_ends_after_the_last_handover() {
    explore(2, || {
        let (inbox, mut commands) = Inbox::new(2, 2);
        inbox.reservations.add_remote_listener();
        let listener = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                assert!(inbox.hand_over());
                inbox.end_listener();
            }
        });
        let stopper = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                // Relaxed: ordered by the notification.
                inbox.is_stopped.store(true, Ordering::Relaxed);
                inbox.wake.notify();
            }
        });
        assert_eq!(inbox.run(&mut commands, 2), 1);
        listener.join().expect("the listener");
        stopper.join().expect("the stopper");
    });
}
