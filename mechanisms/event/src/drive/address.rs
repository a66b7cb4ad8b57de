//! Where messages are sent.

use super::door::Door;
use super::room::Room;
use crate::engine::inbox::Entrance;
use crate::engine::ready::Mark;
use crate::{SendError, WhenFull, stage};
use core::fmt;
use handover_base::sync::atomic::{AtomicU64, Ordering};
use handover_ring::PushError;
use std::sync::Arc;

/// Where a machine receives its messages, for anybody on any thread. Clone it freely, put it into
/// messages, keep it after the machine is gone: sending then gives the message back.
///
/// From a handler, [`Context::pass_to`](crate::Context::pass_to) and
/// [`call_to`](crate::Context::call_to) do the same, and cost less when the machine happens to run
/// on this very thread.
///
/// Messages from one thread to one machine arrive in the order in which they were sent, if all are
/// sent in the same way (by the address, or by a context); those of different threads in any order.
pub struct Address<M> {
    mail: Arc<Mail<M>>,
}

pub(crate) struct Mail<M> {
    entrance: Entrance<M>,
    pub(crate) door: Arc<Door>,
    /// Which of a group's machines.
    pub(crate) machine: u32,
    pub(crate) mark: Mark,
    when_full: WhenFull,
    pub(crate) room: Room,
    refused: AtomicU64,
}

impl<M> Mail<M> {
    pub(crate) fn new(
        entrance: Entrance<M>,
        door: Arc<Door>,
        machine: u32,
        when_full: WhenFull,
    ) -> Self {
        Self {
            entrance,
            door,
            machine,
            mark: Mark::new(),
            when_full,
            room: Room::default(),
            refused: AtomicU64::new(0),
        }
    }

    pub(crate) fn count_refused(&self) {
        // Relaxed: a count.
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) -> u64 {
        // Relaxed: a count.
        self.refused.load(Ordering::Relaxed)
    }

    /// After a message was enqueued: wakes the thread if it sleeps.
    #[inline]
    fn notify(&self) {
        let must_ring = match self.door.marking() {
            None => true,
            Some(marking) => marking.pass(&self.mark, self.machine),
        };
        if must_ring || self.door.notifies_each() {
            self.door.ring();
        }
    }

    /// After a message was enqueued: lets a thread find it that is awake, and no more.
    #[inline]
    fn show(&self) {
        let marking = self.door.marking();
        if marking.is_some_and(|marking| marking.call(&self.mark, self.machine)) {
            self.door.ring();
        }
    }

    #[inline]
    fn enqueue(&self, message: M) -> Result<(), SendError<M>> {
        match self.entrance.push(message) {
            Ok(()) => {}
            Err(refusal) => self.full_or_closed(refusal)?,
        }
        stage::enqueued(self);
        Ok(())
    }

    #[cold]
    fn full_or_closed(&self, refusal: PushError<M>) -> Result<(), SendError<M>> {
        let answer = match (refusal, self.when_full) {
            (PushError::Full(message), WhenFull::Block { wait_ns_max }) if !self.door.is_here() => {
                let push = |message| self.entrance.push(message);
                self.room.wait(message, wait_ns_max, push, || self.notify())
            }
            (refusal, _) => Err(refusal),
        };
        answer.map_err(|refusal| {
            self.count_refused();
            match refusal {
                PushError::Full(message) => SendError::Full(message),
                PushError::Closed(message) => SendError::Closed(message),
            }
        })
    }
}

impl<M> Address<M> {
    pub(crate) fn new(mail: Mail<M>) -> Self {
        Self { mail: Arc::new(mail) }
    }

    #[inline]
    pub(crate) fn mail(&self) -> &Mail<M> {
        &self.mail
    }

    /// Sends a message, and wakes the machine if it sleeps.
    ///
    /// # Errors
    /// [`SendError`] gives the message back: [`Full`](SendError::Full) as the machine's
    /// [`WhenFull`] says, [`Closed`](SendError::Closed) when it is gone.
    ///
    /// # Blocking
    /// Only under [`WhenFull::Block`], and not on the machine's own thread.
    ///
    /// # Cost
    /// Awake: one compare-and-swap, a store to the line that the machine looks at, a fence. Asleep:
    /// a system call (1 to 2 µs) more.
    #[inline]
    pub fn pass(&self, message: M) -> Result<(), SendError<M>> {
        self.mail.enqueue(message)?;
        self.mail.notify();
        Ok(())
    }

    /// Sends a message without waking the machine: it waits until the machine wakes for another
    /// reason. A machine that is awake finds it at once.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    ///
    /// # Blocking
    /// As [`pass`](Self::pass); a sender that waits for room wakes the machine.
    #[inline]
    pub fn call(&self, message: M) -> Result<(), SendError<M>> {
        self.mail.enqueue(message)?;
        self.mail.show();
        Ok(())
    }

    /// Wakes the machine if it sleeps: for what was sent by [`call`](Self::call).
    pub fn wake(&self) {
        self.mail.notify();
    }

    /// Whether the machine is gone or closed. Once true, true for ever.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.mail.entrance.is_closed()
    }

    /// How many messages from other threads wait; stale as soon as it is said. It reads what the
    /// senders write: for people and for statistics.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.mail.entrance.len()
    }

    /// Whether both lead to the same machine.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mail, &other.mail)
    }

    /// A number that no other machine has while an address of this one exists.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.mail).addr()
    }
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { mail: Arc::clone(&self.mail) }
    }
}

impl<M> PartialEq for Address<M> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
    }
}

impl<M> Eq for Address<M> {}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({:#x}, {} waiting)", self.id(), self.waiting_count())
    }
}

/// Stops a machine or a group from anywhere. Clone it freely; it does nothing once they are gone.
#[derive(Clone)]
pub struct Stopper {
    pub(crate) door: Arc<Door>,
}

impl Stopper {
    /// Asks it to stop running, and wakes it if it sleeps: what runs returns with
    /// [`Ended::Stopped`](crate::Ended::Stopped) after the message that it is at. If it does not run
    /// at the moment, the next run returns at once.
    pub fn stop(&self) {
        self.door.stop();
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopper")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Context, Ended, Group, Machine, ParkOn, ThreadConfig, WakeWhen, handler};
    use rustix::io::Errno;
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    const CALLED: u32 = 1;
    const PASSED: u32 = 2;
    const LATEST: Duration = Duration::from_secs(10);

    /// Gives the one message that it says only when it is told to.
    struct Late(Option<mpsc::Receiver<()>>);

    impl Iterator for Late {
        type Item = u32;

        fn next(&mut self) -> Option<u32> {
            self.0.take()?.recv().ok()?;
            Some(CALLED)
        }
    }

    impl ExactSizeIterator for Late {
        fn len(&self) -> usize {
            usize::from(self.0.is_some())
        }
    }

    /// Passes a message behind a call that has its place in the inbox, and fills it only well after the
    /// thread has gone to sleep again.
    fn pass_behind_an_unfinished_call(address: Address<u32>) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            let (finish, is_to_finish) = mpsc::channel();
            let calls = {
                let address = address.clone();
                thread::spawn(move || {
                    let Entrance::Ring(producer) = &address.mail.entrance else { return };
                    assert_eq!(producer.push_batch(&mut Late(Some(is_to_finish))), 1);
                    address.mail.show();
                })
            };
            while address.waiting_count() == 0 {
                thread::yield_now();
            }
            address.pass(PASSED).expect("room");
            thread::sleep(Duration::from_millis(20));
            finish.send(()).expect("it waits");
            calls.join().expect("the caller");
        })
    }

    fn stop_once_passed(message: u32, cx: &mut Context<'_, u32>) {
        if message == PASSED {
            cx.stop();
        }
    }

    #[test]
    fn a_pass_behind_an_unfinished_call_is_handled_though_the_thread_was_woken_too_early() {
        for park_on in [ParkOn::Whatever, ParkOn::Descriptor] {
            let thread = ThreadConfig { park_on, ..ThreadConfig::default() };
            let config = Config { thread, ..Config::default() };
            let mut machine = Machine::new(handler(stop_once_passed), config).expect("valid");
            // Wakes the thread if nothing else does.
            machine.context().after(LATEST, CALLED).expect("a timer");
            let started = Instant::now();
            let sender = pass_behind_an_unfinished_call(machine.address().clone());
            assert_eq!(machine.run(), Ok(Ended::Stopped));
            assert!(started.elapsed() < LATEST, "only the timer woke it");
            sender.join().expect("the sender");

            let mut group = Group::new(thread).expect("valid");
            let member = group.add(handler(stop_once_passed), Config::default()).expect("room");
            let mut cx = group.context(&member).expect("of this group");
            cx.after(LATEST, CALLED).expect("a timer");
            let started = Instant::now();
            let sender = pass_behind_an_unfinished_call(member.address().clone());
            assert_eq!(group.run(), Ok(Ended::Stopped));
            assert!(started.elapsed() < LATEST, "only the timer woke it");
            sender.join().expect("the sender");
        }
    }

    /// Returns the number of notifications since the last call: no machine reads its eventfd.
    fn take_notifications(address: &Address<u32>) -> u64 {
        let counter = address.mail.door.counter().expect("a descriptor");
        let mut bytes = [0; 8];
        match rustix::io::read(counter, &mut bytes) {
            Ok(_) => u64::from_ne_bytes(bytes),
            Err(Errno::AGAIN) => 0,
            Err(errno) => panic!("read from an eventfd: {errno}"),
        }
    }

    #[test]
    fn awake_thread_is_notified_of_each_passed_message_only_if_configured() {
        for (wake_when, notified) in [(WakeWhen::Asleep, 0), (WakeWhen::EachMessage, 2)] {
            let thread = ThreadConfig { wake_when, ..ThreadConfig::default() };
            let config = Config { thread, ..Config::default() };
            let mut machine = Machine::new(handler(|_: u32, _cx| ()), config).expect("valid");
            let mut group = Group::new(thread).expect("valid");
            let member = group.add(handler(|_: u32, _cx| ()), Config::default()).expect("room");
            for address in [machine.address().clone(), member.address().clone()] {
                for number in 0..2 {
                    address.pass(number).expect("room");
                }
                assert_eq!(take_notifications(&address), notified, "by address, {wake_when:?}");
                address.call(2).expect("room");
                assert_eq!(take_notifications(&address), 0, "by call, {wake_when:?}");
            }
            let own = machine.address().clone();
            let mut cx = machine.context();
            cx.call(3).expect("room");
            cx.pass(4).expect("room");
            cx.pass_to(&own, 5).expect("room");
            assert_eq!(take_notifications(&own), notified, "by context, {wake_when:?}");
            assert_eq!(machine.poll().map(|round| round.handled), Ok(6));
        }
    }
}
