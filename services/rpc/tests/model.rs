//! loom models of the queue from other threads to an endpoint's thread, with a model of the eventfd
//! that ends the thread's sleep.
//!
//! ```text
//! RUSTFLAGS="--cfg handover_loom" cargo test -p handover-rpc --test model --release \
//!     --target-dir target/loom
//! ```
//!
//! Calls that each model combines; `/` separates threads, and the last one is the endpoint's:
//!
//! | model | calls |
//! |---|---|
//! | answer_and_post_.. | push_answer, post / post / open, has_items, take_all; sleep |
//! | concurrent_stop_.. | request_stop / push_answer / take_all, take_stop_request; sleep |
//! | second_stop_.. | request_stop, request_stop / take_all, take_stop_request; sleep |
//! | posts_beyond_the_limit_.. | post / post, with a limit of one / take_all; sleep |
//! | each_post_is_taken_.. | post, post / post / take_all, close |
//! | post_after_the_close_.. | post / close, open, take_all; sleep |
//!
//! Seen to fail, each by a deadlock: no fence in `ParkWord::declare`; `take_all` that clears the
//! flag after it has taken what waits; an announcement that stores the flag instead of exchanging
//! it, that is relaxed or has no fence; `take_all` that is relaxed; `request_stop` that is
//! announced before it is set.
#![cfg(handover_loom)]

#[path = "../src/mailbox.rs"]
mod mailbox;

use handover_base::loom_support::explore;
use handover_base::sync::{Arc, thread};
use loom::sync::{Condvar, Mutex};
use mailbox::{Mailbox, PostError, ReceiverState};

/// Number of writes to an eventfd that ends the sleep of the thread that waits for it.
#[derive(Default)]
struct Event {
    writes: Mutex<u32>,
    sleeper: Condvar,
}

/// The queue of an endpoint, with its eventfd.
struct Inbox {
    mailbox: Mailbox<u32, u32>,
    event: Event,
}

impl Inbox {
    /// Makes an inbox that is open.
    fn new() -> Arc<Self> {
        let inbox = Self { mailbox: Mailbox::new(), event: Event::default() };
        inbox.mailbox.open();
        Arc::new(inbox)
    }

    fn notify(&self, receiver: ReceiverState) {
        if receiver == ReceiverState::Asleep {
            *self.event.writes.lock().expect("never poisoned") += 1;
            self.event.sleeper.notify_one();
        }
    }

    fn push_answer(&self, answer: u32) {
        self.notify(self.mailbox.push_answer(answer));
    }

    fn post(&self, post: u32, posts_max: usize) -> Result<(), PostError> {
        self.notify(self.mailbox.post(post, posts_max)?);
        Ok(())
    }

    fn request_stop(&self) {
        self.notify(self.mailbox.request_stop());
    }
}

/// Number of posts that no model exceeds.
const MANY: usize = 10;

/// The endpoint's thread.
#[derive(Default)]
struct Endpoint {
    answers: Vec<u32>,
    posts: Vec<u32>,
    stops_count: u32,
}

impl Endpoint {
    /// Takes what waits. Returns `true` if anything did.
    fn turn(&mut self, inbox: &Inbox) -> bool {
        if !inbox.mailbox.has_items() {
            return false;
        }
        let before = (self.answers.len(), self.posts.len(), self.stops_count);
        inbox.mailbox.take_all(&mut self.answers, &mut self.posts);
        self.stops_count += u32::from(inbox.mailbox.take_stop_request());
        before != (self.answers.len(), self.posts.len(), self.stops_count)
    }

    /// Runs turns, and sleeps without a limit when there is nothing to do, until `is_done` returns
    /// `true`.
    fn run(&mut self, inbox: &Inbox, is_done: impl Fn(&Self) -> bool) {
        while !is_done(self) {
            if self.turn(inbox) {
                continue;
            }
            inbox.mailbox.declare_sleep();
            if !self.turn(inbox) {
                let mut writes = inbox.event.writes.lock().expect("never poisoned");
                while *writes == 0 {
                    writes = inbox.event.sleeper.wait(writes).expect("never poisoned");
                }
                *writes = 0;
            }
            inbox.mailbox.declare_awake();
        }
    }
}

#[test]
fn answer_and_post_wake_a_sleeping_thread() {
    explore(2, || {
        let inbox = Inbox::new();
        let first = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                inbox.push_answer(1);
                inbox.post(2, MANY).expect("open");
            }
        });
        let second = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || inbox.post(3, MANY).expect("open")
        });
        let mut endpoint = Endpoint::default();
        endpoint.run(&inbox, |it| it.answers.len() == 1 && it.posts.len() == 2);
        assert_eq!(endpoint.posts.iter().sum::<u32>(), 2 + 3);
        first.join().expect("a thread");
        second.join().expect("a thread");
    });
}

#[test]
fn concurrent_stop_and_answer_end_a_sleep() {
    explore(2, || {
        let inbox = Inbox::new();
        let stopper = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || inbox.request_stop()
        });
        let pool = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || inbox.push_answer(1)
        });
        let mut endpoint = Endpoint::default();
        endpoint.run(&inbox, |it| it.stops_count == 1 && it.answers == [1]);
        stopper.join().expect("the stopper");
        pool.join().expect("the pool");
    });
}

#[test]
fn second_stop_is_merged_with_the_first_or_ends_another_sleep() {
    explore(3, || {
        let inbox = Inbox::new();
        let stopper = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                inbox.request_stop();
                inbox.push_answer(1);
                inbox.request_stop();
                inbox.push_answer(2);
            }
        });
        let mut endpoint = Endpoint::default();
        endpoint.run(&inbox, |it| it.answers == [1, 2]);
        stopper.join().expect("the stopper");
        endpoint.turn(&inbox);
        assert!(matches!(endpoint.stops_count, 1 | 2));
    });
}

#[test]
fn posts_beyond_the_limit_are_refused_and_others_taken() {
    explore(2, || {
        let inbox = Inbox::new();
        let senders = [1, 2].map(|post| {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                let posted = inbox.post(post, 1);
                assert!(matches!(posted, Ok(()) | Err(PostError::Full)));
                // Exempt from the limit, and the last of this thread.
                inbox.post(0, MANY).expect("open");
                posted.is_ok()
            })
        });
        let mut endpoint = Endpoint::default();
        endpoint.run(&inbox, |it| it.posts.iter().filter(|&&post| post == 0).count() == 2);
        let accepted = senders.map(|sender| sender.join().expect("a sender"));
        let accepted_count = accepted.iter().filter(|&&it| it).count();
        assert!(accepted_count >= 1, "the first finds an empty queue");
        assert_eq!(endpoint.posts.len(), 2 + accepted_count);
    });
}

#[test]
fn each_post_is_taken_returned_by_the_close_or_refused() {
    explore(2, || {
        let inbox = Inbox::new();
        let senders = [2, 1].map(|posts_count| {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                (0..posts_count).filter(|&post| inbox.post(post, MANY).is_ok()).count()
            })
        });
        let mut endpoint = Endpoint::default();
        endpoint.turn(&inbox);
        let returned_count = inbox.mailbox.close().len();
        // As many as were accepted: from here on, all are refused.
        let accepted_count: usize =
            senders.map(|sender| sender.join().expect("a sender")).iter().sum();
        assert_eq!(endpoint.posts.len() + returned_count, accepted_count);
        assert_eq!(inbox.post(0, MANY), Err(PostError::Closed));
    });
}

#[test]
fn post_after_the_close_is_taken_once_the_inbox_is_open_again() {
    explore(3, || {
        let inbox = Inbox::new();
        let sender = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                let is_accepted = inbox.post(1, MANY).is_ok();
                inbox.push_answer(0);
                is_accepted
            }
        });
        let returned_count = inbox.mailbox.close().len();
        inbox.mailbox.open();
        let mut endpoint = Endpoint::default();
        endpoint.run(&inbox, |it| !it.answers.is_empty());
        let is_accepted = sender.join().expect("the sender");
        assert_eq!(endpoint.posts.len() + returned_count, usize::from(is_accepted));
    });
}
