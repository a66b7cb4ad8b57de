//! loom models of a machine's inboxes, sleep and close, and of the threads and tasks that wait for
//! space, with a model of the futex below them; of a group's flags; of replies; and of the pool.
//!
//! ```text
//! RUSTFLAGS="--cfg handover_loom" cargo test -p handover-event --features async --test model \
//!     --profile loom --target-dir target/loom
//! ```
//!
//! Calls that each model combines, and the number of threads besides the one that runs the
//! machines:
//!
//! | model | threads | calls |
//! |---|---|---|
//! | each_message_sent_to_a_sleeping_machine_.. | 1 | send, send; sleep |
//! | quiet_message_is_handled_.. | 1 | send_quiet, send; sleep |
//! | message_behind_an_unfinished_push_is_handled | 2 | send_quiet / send; sleep |
//! | two_senders_send_quietly_.. | 2 | send_quiet, send / send_quiet, send; sleep |
//! | stop_ends_a_sleep | 1 | stop; sleep |
//! | closing_refuses_.. | 2 | send / send; close |
//! | each_message_sent_to_a_sleeping_group_.. | 1 | send, send; group's sleep |
//! | full_queue_.. | 1 | send, send, send, with one slot for ready machines; group's sleep |
//! | message_wakes_a_group_.. | 2 | send_quiet / send, to one flag over two inboxes; group's sleep |
//! | message_behind_.._to_another_machine | 2 | send_quiet to one machine / send to another; group's sleep |
//! | message_to_a_group_.. | 2 | send_quiet / send, to one inbox; group's sleep |
//! | two_senders_send_quietly_to_one_.. | 2 | send_quiet first, send second / send_quiet second, send first; group's sleep |
//! | each_sender_that_waits_for_room_.. | 2 | send / send, to an inbox of one message; pop, admit; sleep |
//! | sender_that_gives_up_.. | 2 | send with a time limit / send, to an inbox of one message; pop, admit; sleep |
//! | senders_that_wait_for_room_.. | 2 | send / send, to a full inbox; pop, admit, close |
//! | task_that_waits_for_room_.. | 1 | send_async, to an inbox of one message; pop, admit; sleep |
//! | two_tasks_that_wait_.., task_and_thread_.. | 2 | send_async / send_async or send, to a full inbox; pop, admit; sleep |
//! | cancelled_task_.. | 2 | send_async cancelled / send_async, to a full inbox; pop, admit; sleep |
//! | tasks_that_wait_.. | 2 | send_async / send_async, to a full inbox; pop, admit, close |
//! | reply_or_its_absence_.. | 1 | reply, drop of a reply; wait |
//! | reply_to_a_requester_.. | 1 | reply; wait given up, drop of the pending reply |
//! | inbox_that_drops_.. | 2 | send, send / send_quiet, send, to an inbox of one message; pop; sleep |
//! | closing_an_inbox_.. | 2 | send / send; pop, close |
//! | shared_value_.., value_put_.., slot_.., dropped_pool_.. | 1 | clone or put for two, drop / put, drop, drop of the pool |
//!
//! Seen to fail: a group whose quiet sender does not read the flag again after it has enqueued its
//! machine (`ReadySender::announce_quietly`), which is why that check exists; a thread that sleeps
//! while a push has begun (`IncomingMessages::has_begun_push`); a flag that is cleared by a relaxed
//! store (`ReadyQueue::pop`). Also `WaitingSenders` without the fence in `wait` or in
//! `has_waiting`, or without the check for tasks there; a thread that sleeps without checking,
//! after it has declared its sleep, for the first task that waits
//! (`SharedThreadState::is_interrupted`).
#![cfg(handover_loom)]

use handover_base::loom_support::{Futex, block_on, explore};
use handover_base::sync::atomic::{AtomicU32, Ordering::Relaxed};
use handover_base::sync::{Arc, hint, thread};
use handover_event::{
    Inbox, InboxSender, IncomingMessages, Pool, PoolArc, ReadyFlag, ReadyQueue, ReadySender,
    ReplySlot, WaitingSenders, drop_oldest_inbox, ready_queue,
};
use handover_notify::{ParkWord, SleepObject};
use handover_ring::PushError;
use std::task::{Poll, Waker};

/// Makes an inbox and its senders' shared end.
fn inbox<M>(messages_max: u32) -> (Arc<InboxSender<M>>, Inbox<M>) {
    let (inbox_sender, inbox) = handover_event::inbox(messages_max).expect("small");
    (Arc::new(inbox_sender), inbox)
}

/// State of a machine's thread that other threads access, without kernel and clock.
#[derive(Default)]
struct SharedThreadState {
    park: ParkWord,
    futex: Futex,
    stop: AtomicU32,
    async_senders: AtomicU32,
}

impl SharedThreadState {
    fn wake(&self) {
        if self.park.claim_wake(|| Some(0)).is_some() {
            self.futex.wake();
        }
    }

    /// Sleeps, unless a message is queued or a stop was requested; if a push has begun, for a while
    /// only.
    fn park(&self, incoming: &mut impl IncomingMessages) {
        self.park_unless_async(incoming, true);
    }

    fn has_async_senders(&self) -> bool {
        self.async_senders.load(Relaxed) != 0
    }

    /// Sleeps like [`park`](Self::park), but not if the first task has begun to wait since
    /// `had_async_senders` was read.
    fn park_unless_async(&self, incoming: &mut impl IncomingMessages, had_async_senders: bool) {
        self.park.declare_sleep(SleepObject::Word);
        let is_interrupted =
            self.stop.load(Relaxed) != 0 || (!had_async_senders && self.has_async_senders());
        if !incoming.has_any() && !is_interrupted {
            if incoming.has_begun_push() {
                hint::spin_loop();
            } else {
                self.futex.wait(self.park.word_for_model(), SleepObject::Word as u32);
            }
        }
        let _woken = self.park.withdraw_sleep();
    }
}

#[test]
fn each_message_sent_to_a_sleeping_machine_is_handled() {
    explore(4, || {
        let shared_thread = Arc::new(SharedThreadState::default());
        let (producer, mut consumer) = inbox(2);
        let sender = thread::spawn({
            let shared_thread = Arc::clone(&shared_thread);
            move || {
                for number in 0..2 {
                    producer.push(number).expect("send a message");
                    shared_thread.wake();
                }
                producer // returned, so that the queue is not closed yet
            }
        });
        for number in 0..2 {
            let message = loop {
                match consumer.pop() {
                    Some(message) => break message,
                    // A deadlock, if no sender wakes the machine.
                    None => shared_thread.park(&mut consumer),
                }
            };
            assert_eq!(message, number);
        }
        drop(sender.join().expect("the sender"));
    });
}

#[test]
fn quiet_message_is_handled_with_the_waking_one_behind_it() {
    explore(4, || {
        let shared_thread = Arc::new(SharedThreadState::default());
        let (producer, mut consumer) = inbox(2);
        let sender = thread::spawn({
            let shared_thread = Arc::clone(&shared_thread);
            move || {
                producer.push("quiet").expect("send a message");
                producer.push("waking").expect("send a message");
                shared_thread.wake();
                producer
            }
        });
        let mut handled = Vec::new();
        while handled.len() < 2 {
            match consumer.pop() {
                Some(message) => handled.push(message),
                None => shared_thread.park(&mut consumer),
            }
        }
        assert_eq!(handled, ["quiet", "waking"]);
        drop(sender.join().expect("the sender"));
    });
}

/// A quiet sender that has taken its slot in the inbox, but has not filled it yet, hides the
/// message of a waking sender behind it; that sender wakes the machine in vain, and the quiet one
/// wakes no thread.
#[test]
fn message_behind_an_unfinished_push_is_handled() {
    explore(3, || {
        let shared_thread = Arc::new(SharedThreadState::default());
        let (producer, mut consumer) = inbox(2);
        let quiet_sender = thread::spawn({
            let producer = Arc::clone(&producer);
            move || {
                producer.push("quiet").expect("send a message");
                producer
            }
        });
        let waking_sender = thread::spawn({
            let shared_thread = Arc::clone(&shared_thread);
            move || {
                producer.push("waking").expect("send a message");
                shared_thread.wake();
                producer
            }
        });
        loop {
            match consumer.pop() {
                Some("waking") => break,
                Some(_) => {}
                None => shared_thread.park(&mut consumer),
            }
        }
        drop((
            quiet_sender.join().expect("the quiet sender"),
            waking_sender.join().expect("the waking sender"),
        ));
    });
}

#[test]
fn two_senders_send_quietly_and_then_wake_a_machine() {
    explore(2, || {
        let shared_thread = Arc::new(SharedThreadState::default());
        let (producer, mut consumer) = inbox(4);
        let senders = [(); 2].map(|()| {
            let (shared_thread, producer) = (Arc::clone(&shared_thread), Arc::clone(&producer));
            thread::spawn(move || {
                producer.push(QUIET).expect("send a message");
                producer.push(WAKING).expect("send a message");
                shared_thread.wake();
            })
        });
        let mut waking = 0;
        while waking < 2 {
            match consumer.pop() {
                Some(message) => waking += usize::from(message == WAKING),
                None => shared_thread.park(&mut consumer),
            }
        }
        for sender in senders {
            sender.join().expect("a sender");
        }
    });
}

#[test]
fn stop_ends_a_sleep() {
    explore(4, || {
        let shared_thread = Arc::new(SharedThreadState::default());
        let (_producer, mut consumer) = inbox::<u32>(1);
        let stopper = thread::spawn({
            let shared_thread = Arc::clone(&shared_thread);
            move || {
                shared_thread.stop.store(1, Relaxed);
                shared_thread.wake();
            }
        });
        while shared_thread.stop.load(Relaxed) == 0 {
            shared_thread.park(&mut consumer);
        }
        stopper.join().expect("the stopper");
    });
}

#[test]
fn closing_refuses_or_returns_each_message() {
    explore(3, || {
        let shared_thread = Arc::new(SharedThreadState::default());
        let (producer, mut consumer) = inbox(4);
        let senders: Vec<_> = (0..2)
            .map(|number| {
                let (shared_thread, producer) = (Arc::clone(&shared_thread), Arc::clone(&producer));
                thread::spawn(move || match producer.push(number) {
                    Ok(()) => {
                        shared_thread.wake();
                        true
                    }
                    Err(PushError::Closed(back)) => {
                        assert_eq!(back, number);
                        false
                    }
                    Err(PushError::Full(_)) => panic!("the queue is full"),
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

/// Machines of a group: the thread's shared state and their flags.
struct Shown {
    shared_thread: SharedThreadState,
    ready_sender: ReadySender,
    ready_flags: Vec<ReadyFlag>,
}

/// Message sent by `send_quiet`.
const QUIET: u32 = 1;
/// Message sent by `send`.
const WAKING: u32 = 2;

impl Shown {
    /// Makes `machines_count` machines, and space for as many in the queue of ready machines.
    fn new(machines_count: u32) -> (Arc<Self>, ReadyQueue) {
        let (ready_sender, ready_queue) = ready_queue(machines_count).expect("small");
        let ready_flags = (0..machines_count).map(|_| ReadyFlag::new()).collect();
        (
            Arc::new(Self {
                shared_thread: SharedThreadState::default(),
                ready_sender,
                ready_flags,
            }),
            ready_queue,
        )
    }

    fn send_quiet(&self, machine: usize, inbox: &InboxSender<u32>, message: u32) {
        inbox.push(message).expect("send a message");
        if self.ready_sender.announce_quietly(&self.ready_flags[machine], machine as u32) {
            self.shared_thread.wake();
        }
    }

    fn send(&self, machine: usize, inbox: &InboxSender<u32>, message: u32) {
        inbox.push(message).expect("send a message");
        if self.ready_sender.announce(&self.ready_flags[machine], machine as u32) {
            self.shared_thread.wake();
        }
    }
}

/// Runs the group until `waking_count` messages sent by `send` have been handled.
fn run_group(
    shown: &Shown,
    ready_queue: &mut ReadyQueue,
    inboxes: &mut [Inbox<u32>],
    waking_count: usize,
) {
    let mut waking = 0;
    while waking < waking_count {
        match ready_queue.pop(|machine| Some(&shown.ready_flags[machine as usize])) {
            Some(machine) => {
                while let Some(message) = inboxes[machine as usize].pop() {
                    waking += usize::from(message == WAKING);
                }
            }
            None => {
                shown
                    .shared_thread
                    .park(&mut ready_queue.incoming(|machine| inboxes[machine as usize].len()));
            }
        }
    }
}

#[test]
fn each_message_sent_to_a_sleeping_group_is_handled() {
    explore(4, || {
        let (shown, mut ready_queue) = Shown::new(2);
        let (producer, consumer) = inbox(2);
        let sender = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                shown.send(0, &producer, WAKING);
                shown.send(0, &producer, WAKING);
                producer
            }
        });
        let mut inboxes = [consumer];
        run_group(&shown, &mut ready_queue, &mut inboxes, 2);
        drop(sender.join().expect("the sender"));
    });
}

/// A sender that finds the flag cleared must also find space in the queue, in the slot that its
/// machine has left: a full queue would refuse the machine, and its flag would stay set for ever.
#[test]
fn full_queue_of_marked_machines_has_room_for_a_machine_whose_mark_was_cleared() {
    explore(3, || {
        let (shown, mut ready_queue) = Shown::new(1);
        let (producer, consumer) = inbox(3);
        let sender = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                shown.send(0, &producer, QUIET);
                shown.send(0, &producer, WAKING);
                shown.send(0, &producer, WAKING);
                producer
            }
        });
        let mut inboxes = [consumer];
        run_group(&shown, &mut ready_queue, &mut inboxes, 2);
        drop(sender.join().expect("the sender"));
    });
}

/// A quiet sender that has set the flag, but has not enqueued the machine yet, must not cause the
/// wake-up of a waking sender to be lost.
#[test]
fn message_wakes_a_group_although_a_quiet_send_has_set_the_mark() {
    explore(3, || {
        let (shown, mut ready_queue) = Shown::new(2);
        let (quiet_producer, mut quiet) = inbox(1);
        let (waking_producer, mut waking) = inbox(1);
        let quiet_sender = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                shown.send_quiet(0, &quiet_producer, 1);
                quiet_producer
            }
        });
        let waking_sender = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                shown.send(0, &waking_producer, 2);
                waking_producer
            }
        });
        // One machine with two inboxes, so that the waking message is distinguished from the quiet
        // one.
        while waking.pop().is_none() {
            match ready_queue.pop(|machine| Some(&shown.ready_flags[machine as usize])) {
                Some(_) => drop(quiet.pop()),
                None => shown
                    .shared_thread
                    .park(&mut ready_queue.incoming(|_| quiet.len().max(waking.len()))),
            }
        }
        drop((
            quiet_sender.join().expect("the quiet sender"),
            waking_sender.join().expect("the waking sender"),
        ));
    });
}

/// Machine 0 gets a quiet message and machine 1 a waking one: both are in the group's one queue of
/// ready machines.
#[test]
fn message_behind_an_unfinished_push_to_another_machine_is_handled() {
    explore(3, || {
        let (shown, mut ready_queue) = Shown::new(2);
        let (to_quiet, quiet) = inbox(1);
        let (to_waking, waking) = inbox(1);
        let quiet_sender = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                shown.send_quiet(0, &to_quiet, QUIET);
                to_quiet
            }
        });
        let waking_sender = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                shown.send(1, &to_waking, WAKING);
                to_waking
            }
        });
        let mut inboxes = [quiet, waking];
        run_group(&shown, &mut ready_queue, &mut inboxes, 1);
        drop((
            quiet_sender.join().expect("the quiet sender"),
            waking_sender.join().expect("the waking sender"),
        ));
    });
}

/// Both messages are in the same machine's inbox.
#[test]
fn message_to_a_group_behind_an_unfinished_push_is_handled() {
    explore(3, || {
        let (shown, mut ready_queue) = Shown::new(1);
        let (producer, consumer) = inbox(2);
        let quiet_sender = thread::spawn({
            let (shown, producer) = (Arc::clone(&shown), Arc::clone(&producer));
            move || {
                shown.send_quiet(0, &producer, QUIET);
                producer
            }
        });
        let waking_sender = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                shown.send(0, &producer, WAKING);
                producer
            }
        });
        let mut inboxes = [consumer];
        run_group(&shown, &mut ready_queue, &mut inboxes, 1);
        drop((
            quiet_sender.join().expect("the quiet sender"),
            waking_sender.join().expect("the waking sender"),
        ));
    });
}

#[test]
fn two_senders_send_quietly_to_one_machine_of_a_group_and_wake_the_other() {
    explore(2, || {
        let (shown, mut ready_queue) = Shown::new(2);
        let (to_first, first) = inbox(2);
        let (to_second, second) = inbox(2);
        let send =
            |quiet: usize, to_quiet: &Arc<InboxSender<u32>>, to_waking: &Arc<InboxSender<u32>>| {
                let shown = Arc::clone(&shown);
                let (to_quiet, to_waking) = (Arc::clone(to_quiet), Arc::clone(to_waking));
                thread::spawn(move || {
                    shown.send_quiet(quiet, &to_quiet, QUIET);
                    shown.send(1 - quiet, &to_waking, WAKING);
                })
            };
        let senders = [send(0, &to_first, &to_second), send(1, &to_second, &to_first)];
        let mut inboxes = [first, second];
        run_group(&shown, &mut ready_queue, &mut inboxes, 2);
        for sender in senders {
            sender.join().expect("a sender");
        }
    });
}

/// Machine with a full inbox whose senders wait for space.
struct Crowded {
    /// `true` under `WhenFull::Block`.
    is_blocking: bool,
    shared_thread: SharedThreadState,
    waiting_senders: WaitingSenders,
    /// Model of the kernel's queue of waiting senders.
    waiters: Futex,
    inbox_sender: InboxSender<u32>,
}

impl Crowded {
    /// Makes a machine whose inbox holds one message, and blocks its senders.
    fn new() -> (Arc<Self>, Inbox<u32>) {
        Self::with_policy(true)
    }

    fn with_policy(is_blocking: bool) -> (Arc<Self>, Inbox<u32>) {
        let (inbox_sender, inbox) = handover_event::inbox(1).expect("small");
        let (shared_thread, waiting_senders, waiters) =
            (SharedThreadState::default(), WaitingSenders::default(), Futex::default());
        let crowded = Self { is_blocking, shared_thread, waiting_senders, waiters, inbox_sender };
        (Arc::new(crowded), inbox)
    }

    /// Sends as `Address::send` under `WhenFull::Block`; gives up after `sleeps_max` sleeps.
    fn send(&self, message: u32, sleeps_max: usize) -> Result<(), PushError<u32>> {
        let pushed = match self.inbox_sender.push(message) {
            Err(PushError::Full(message)) => {
                let mut sleeps_left = sleeps_max;
                self.waiting_senders.wait(
                    message,
                    |message| self.inbox_sender.push(message),
                    |word, expected| {
                        self.shared_thread.wake();
                        let may_sleep = sleeps_left > 0;
                        if may_sleep {
                            sleeps_left -= 1;
                            self.waiters.wait(word, expected);
                        }
                        may_sleep
                    },
                )
            }
            answer => answer,
        };
        pushed.inspect(|()| self.shared_thread.wake())
    }

    /// Lets one of the waiting threads and one of the tasks try again. Returns `true` if senders
    /// wait.
    fn admit_one(&self, inbox: &Inbox<u32>, has_async_senders: bool) -> bool {
        let is_waiting =
            (self.is_blocking || has_async_senders) && self.waiting_senders.has_waiting();
        if is_waiting && inbox.len() == 0 {
            self.waiting_senders.admit(1, |_word| self.waiters.wake());
        }
        is_waiting
    }

    /// Sleeps as `Machine::run`: for a while only, if senders wait.
    fn idle(&self, inbox: &mut Inbox<u32>) {
        let has_async_senders = self.shared_thread.has_async_senders();
        if self.admit_one(inbox, has_async_senders) {
            hint::spin_loop();
        } else {
            self.shared_thread.park_unless_async(inbox, has_async_senders);
        }
    }

    /// Handles a message as `Machine::run`, or sleeps if there is none.
    fn handle_or_idle(&self, inbox: &mut Inbox<u32>) -> Option<u32> {
        let message = inbox.pop();
        match message {
            Some(_) => {
                self.admit_one(inbox, self.shared_thread.has_async_senders());
            }
            None => self.idle(inbox),
        }
        message
    }

    /// Lets all waiting senders try again, as `MachineState::close`.
    fn admit_all(&self) {
        self.waiting_senders.admit(u32::MAX, |_word| {
            self.waiters.wake();
            self.waiters.wake();
        });
    }
}

#[test]
fn each_sender_that_waits_for_room_gets_it() {
    explore(2, || {
        let (crowded, mut inbox) = Crowded::new();
        let senders = [1, 2].map(|message| {
            let crowded = Arc::clone(&crowded);
            thread::spawn(move || crowded.send(message, usize::MAX).expect("not closed"))
        });
        let mut sum = 0;
        while sum < 1 + 2 {
            sum += crowded.handle_or_idle(&mut inbox).unwrap_or(0);
        }
        for sender in senders {
            sender.join().expect("a sender");
        }
    });
}

/// The machine admits one sender at a time. If that one has given up, another must be admitted.
#[test]
fn sender_that_gives_up_lets_another_one_in() {
    explore(1, || {
        let (crowded, mut inbox) = Crowded::new();
        crowded.inbox_sender.push(0).expect("send a message");
        let impatient = thread::spawn({
            let crowded = Arc::clone(&crowded);
            move || crowded.send(1, 0).is_ok()
        });
        let patient = thread::spawn({
            let crowded = Arc::clone(&crowded);
            move || crowded.send(2, usize::MAX).expect("not closed")
        });
        let mut handled = Vec::new();
        while !handled.contains(&2) {
            handled.extend(crowded.handle_or_idle(&mut inbox));
        }
        patient.join().expect("the patient sender");
        let is_accepted = impatient.join().expect("the impatient sender");
        handled.extend(inbox.pop());
        assert_eq!(handled.contains(&1), is_accepted);
    });
}

#[test]
fn senders_that_wait_for_room_are_let_in_or_refused_at_the_close() {
    explore(2, || {
        let (crowded, mut inbox) = Crowded::new();
        crowded.inbox_sender.push(0).expect("send a message");
        let senders = [1, 2].map(|message| {
            let crowded = Arc::clone(&crowded);
            thread::spawn(move || crowded.send(message, usize::MAX).is_ok())
        });
        let handled = handle_one_and_close(&crowded, &mut inbox);
        let accepted = senders.map(|sender| sender.join().expect("a sender"));
        assert_eq!(handled, 1 + accepted.into_iter().filter(|&it| it).count());
    });
}

/// Handles one message, and closes the inbox; returns the number of messages handled and returned.
fn handle_one_and_close(crowded: &Crowded, inbox: &mut Inbox<u32>) -> usize {
    let mut count = usize::from(inbox.pop().is_some());
    crowded.admit_one(inbox, crowded.shared_thread.has_async_senders());
    inbox.close();
    crowded.admit_all();
    loop {
        match inbox.pop() {
            Some(_) => count += 1,
            None if inbox.is_finished() => return count,
            None => hint::spin_loop(),
        }
    }
}

#[cfg(feature = "async")]
mod tasks {
    use super::*;
    use handover_base::loom_support::poll_once;
    use handover_base::wakers::Registration;
    use std::pin::Pin;
    use std::task::Context;

    /// Send of a task, as `Address::send_async`; completes with `true` if the message was accepted.
    struct Sending<'a> {
        crowded: &'a Crowded,
        message: u32,
        registration: Registration,
    }

    impl Crowded {
        fn send_async(&self, message: u32) -> Sending<'_> {
            Sending { crowded: self, message, registration: Registration::default() }
        }
    }

    impl Future for Sending<'_> {
        type Output = bool;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
            let Self { crowded, message, registration } = &mut *self;
            let push = |message| crowded.inbox_sender.push(message);
            let pushed = crowded.waiting_senders.push_or_register(
                *message,
                registration,
                context.waker(),
                push,
            );
            match pushed {
                Ok(()) => crowded.shared_thread.wake(),
                Err(PushError::Full(_)) => {
                    crowded.shared_thread.async_senders.store(1, Relaxed);
                    crowded.shared_thread.wake();
                    return Poll::Pending;
                }
                Err(PushError::Closed(_)) => return Poll::Ready(false),
            }
            Poll::Ready(true)
        }
    }

    impl Drop for Sending<'_> {
        fn drop(&mut self) {
            self.crowded.waiting_senders.leave(&mut self.registration);
        }
    }

    #[test]
    fn task_that_waits_for_room_wakes_a_machine_that_knows_of_no_task() {
        explore(2, || {
            let (crowded, mut inbox) = Crowded::with_policy(false);
            let task = thread::spawn({
                let crowded = Arc::clone(&crowded);
                move || [1, 2].map(|message| assert!(block_on(crowded.send_async(message))))
            });
            let mut sum = 0;
            while sum < 1 + 2 {
                sum += crowded.handle_or_idle(&mut inbox).unwrap_or(0);
            }
            task.join().expect("the task");
        });
    }

    #[test]
    fn two_tasks_that_wait_for_room_get_it() {
        explore(1, || {
            let (crowded, mut inbox) = Crowded::with_policy(false);
            crowded.inbox_sender.push(4).expect("send a message");
            let tasks = [1, 2].map(|message| {
                let crowded = Arc::clone(&crowded);
                thread::spawn(move || assert!(block_on(crowded.send_async(message))))
            });
            let mut sum = 0;
            while sum < 4 + 1 + 2 {
                sum += crowded.handle_or_idle(&mut inbox).unwrap_or(0);
            }
            for task in tasks {
                task.join().expect("a task");
            }
        });
    }

    #[test]
    fn task_and_thread_that_wait_for_room_get_it() {
        explore(1, || {
            let (crowded, mut inbox) = Crowded::new();
            crowded.inbox_sender.push(4).expect("send a message");
            let task = thread::spawn({
                let crowded = Arc::clone(&crowded);
                move || assert!(block_on(crowded.send_async(1)))
            });
            let sender = thread::spawn({
                let crowded = Arc::clone(&crowded);
                move || crowded.send(2, usize::MAX).expect("not closed")
            });
            let mut sum = 0;
            while sum < 4 + 1 + 2 {
                sum += crowded.handle_or_idle(&mut inbox).unwrap_or(0);
            }
            task.join().expect("the task");
            sender.join().expect("the sender");
        });
    }

    #[test]
    fn cancelled_task_lets_another_one_in() {
        explore(1, || {
            let (crowded, mut inbox) = Crowded::with_policy(false);
            crowded.inbox_sender.push(0).expect("send a message");
            let cancelled = thread::spawn({
                let crowded = Arc::clone(&crowded);
                move || poll_once(crowded.send_async(1)).is_some()
            });
            let patient = thread::spawn({
                let crowded = Arc::clone(&crowded);
                move || assert!(block_on(crowded.send_async(2)))
            });
            let mut handled = Vec::new();
            while !handled.contains(&2) {
                handled.extend(crowded.handle_or_idle(&mut inbox));
            }
            patient.join().expect("the patient task");
            let is_accepted = cancelled.join().expect("the cancelled task");
            handled.extend(inbox.pop());
            assert_eq!(handled.contains(&1), is_accepted);
        });
    }

    #[test]
    fn tasks_that_wait_for_room_are_let_in_or_refused_at_the_close() {
        explore(1, || {
            let (crowded, mut inbox) = Crowded::with_policy(false);
            crowded.inbox_sender.push(0).expect("send a message");
            let tasks = [1, 2].map(|message| {
                let crowded = Arc::clone(&crowded);
                thread::spawn(move || block_on(crowded.send_async(message)))
            });
            let handled = handle_one_and_close(&crowded, &mut inbox);
            let accepted = tasks.map(|task| task.join().expect("a task"));
            assert_eq!(handled, 1 + accepted.into_iter().filter(|&it| it).count());
        });
    }
}

/// Waits for the end of the wait for a reply, and takes the reply.
fn wait_for_reply<R>(slot: &ReplySlot<R>) -> Option<R> {
    block_on(std::future::poll_fn(|context| slot.poll_ended(context.waker())));
    match slot.take() {
        Poll::Ready(reply) => reply,
        Poll::Pending => panic!("the wait has not ended"),
    }
}

#[test]
fn reply_or_its_absence_ends_the_wait() {
    for reply in [Some(1), None] {
        explore(4, move || {
            let slot = Arc::new(ReplySlot::new());
            let replier = thread::spawn({
                let slot = Arc::clone(&slot);
                move || {
                    assert_eq!(slot.end(reply), Ok(()));
                    assert_eq!(slot.end(None), Err(None), "the drop of a reply that was sent");
                }
            });
            assert_eq!(wait_for_reply(&slot), reply);
            assert_eq!(wait_for_reply(&slot), None, "the reply was received twice");
            replier.join().expect("the replier");
        });
    }
}

#[test]
fn reply_to_a_requester_that_gives_up_is_received_returned_or_dropped_once() {
    explore(4, || {
        let dropped = Arc::new(AtomicU32::new(0));
        let slot = Arc::new(ReplySlot::new());
        let replier = thread::spawn({
            let (slot, reply) = (Arc::clone(&slot), Noted(Arc::clone(&dropped)));
            move || slot.end(Some(reply)).is_ok()
        });
        // As a wait with a time limit, after which the waker is removed.
        let is_ended = slot.poll_ended(Waker::noop()).is_ready();
        let received = match slot.take() {
            Poll::Ready(reply) => reply.is_some(),
            Poll::Pending => false,
        };
        assert!(received || !is_ended);
        slot.abandon();
        let is_accepted = replier.join().expect("the replier");
        assert!(is_accepted || !received);
        assert_eq!(dropped.load(Relaxed), 1);
    });
}

/// Inbox of one message that drops the oldest, and the shared state of its thread.
fn dropping() -> (Arc<(SharedThreadState, InboxSender<u32>)>, Inbox<u32>) {
    let (inbox_sender, inbox) = drop_oldest_inbox(1).expect("create a queue");
    (Arc::new((SharedThreadState::default(), inbox_sender)), inbox)
}

#[test]
fn inbox_that_drops_the_oldest_message_wakes_the_machine_for_the_newest() {
    explore(2, || {
        let (shared, mut inbox) = dropping();
        // The second message of each sender wakes the machine.
        let senders = [[10, 11], [20, 21]].map(|messages| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (shared_thread, inbox_sender) = &*shared;
                for message in messages {
                    inbox_sender.push(message).expect("not closed");
                    if message != 20 {
                        shared_thread.wake();
                    }
                }
            })
        });
        let (mut handled, mut latest) = (0, 0);
        // The last message to be pushed is a waking one, and is never dropped.
        while handled + inbox.dropped_count() < 4 {
            match inbox.pop() {
                Some(message) => {
                    handled += 1;
                    latest = message;
                }
                None => shared.0.park(&mut inbox),
            }
        }
        assert!(latest == 11 || latest == 21);
        for sender in senders {
            sender.join().expect("a sender");
        }
    });
}

#[test]
fn closing_an_inbox_that_drops_the_oldest_message_accounts_for_each() {
    explore(3, || {
        let (shared, mut inbox) = dropping();
        let senders = [1, 2].map(|message| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || match shared.1.push(message) {
                Ok(()) => 1,
                Err(PushError::Closed(back)) => {
                    assert_eq!(back, message);
                    0
                }
                Err(PushError::Full(_)) => panic!("never full"),
            })
        });
        let mut handed_back = u64::from(inbox.pop().is_some());
        inbox.close();
        while inbox.pop().is_some() {
            handed_back += 1;
        }
        assert!(inbox.is_finished());
        let accepted = senders.map(|sender| sender.join().expect("a sender"));
        assert_eq!(accepted.iter().sum::<u64>(), handed_back + inbox.dropped_count());
    });
}

struct Noted(Arc<AtomicU32>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Checks that the value is dropped once, and its slot free again, when both holders are dropped on
/// two threads.
fn check_last_of_two_holders(two_of: fn(&mut Pool<Noted>, Noted) -> [PoolArc<Noted>; 2]) {
    explore(4, move || {
        let dropped = Arc::new(AtomicU32::new(0));
        let mut pool = Pool::new(1);
        let [shared, theirs] = two_of(&mut pool, Noted(Arc::clone(&dropped)));
        let other = thread::spawn(move || drop(theirs));
        drop(shared);
        other.join().expect("the other holder");
        assert_eq!(dropped.load(Relaxed), 1);
        assert!(pool.put(Noted(dropped)).is_ok());
    });
}

#[test]
fn shared_value_is_dropped_once_by_its_last_holder_and_frees_its_slot() {
    check_last_of_two_holders(|pool, value| {
        let shared = pool.put(value).expect("a slot").share();
        [shared.clone(), shared]
    });
}

#[test]
fn value_put_for_two_holders_is_dropped_once_by_the_last_and_frees_its_slot() {
    check_last_of_two_holders(|pool, value| {
        let mut shares = pool.put_shared(value, 2).expect("a slot");
        std::array::from_fn(|_| shares.next().expect("one of two"))
    });
}

#[test]
fn slot_is_reused_only_after_its_last_holder_is_dropped() {
    explore(4, || {
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
fn dropped_pool_with_holders_frees_its_memory_once() {
    explore(4, || {
        let mut pool = Pool::new(1);
        let shared: PoolArc<_> = pool.put(Box::new(1)).expect("a slot").share();
        let other = thread::spawn(move || drop(shared));
        drop(pool); // loom reports a leak or a double free of what is in its cells
        other.join().expect("the holder");
    });
}
