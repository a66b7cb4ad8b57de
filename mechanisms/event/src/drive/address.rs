//! Addresses, to which any thread sends messages for a machine.

use super::shared_thread_state::SharedThreadState;
use super::waiting_senders;
use crate::engine::inbox::InboxSender;
use crate::engine::ready::ReadyFlag;
use crate::engine::waiting_senders::WaitingSenders;
use crate::{SendError, WhenFull, stage};
use core::fmt;
use handover_base::sync::atomic::{AtomicU64, Ordering};
use handover_ring::PushError;
use std::sync::{Arc, Weak};

/// Sending end of a machine's inbox, for any thread. It can be cloned freely, put into messages,
/// and kept after the machine is dropped: sending then returns the message.
///
/// From a handler, [`Context::send_to`](crate::Context::send_to) and
/// [`send_quiet_to`](crate::Context::send_quiet_to) do the same, and cost less if the machine runs
/// on the same thread.
///
/// Messages from one thread to one machine arrive in the order in which they were sent, if all are
/// sent in the same way (by the address, or by a context); messages of different threads arrive in
/// any order.
pub struct Address<M> {
    shared: Arc<SharedMachineState<M>>,
}

/// State of a machine that all its addresses share.
pub(crate) struct SharedMachineState<M> {
    /// Sending end of the machine's inbox.
    pub(crate) inbox_sender: InboxSender<M>,
    pub(crate) shared_thread: Arc<SharedThreadState>,
    /// Index of the machine in its group; 0 for a machine outside a group.
    pub(crate) machine: u32,
    pub(crate) ready_flag: ReadyFlag,
    when_full: WhenFull,
    pub(crate) waiting_senders: WaitingSenders,
    /// Number of messages returned to their senders.
    refused: AtomicU64,
}

impl<M> SharedMachineState<M> {
    pub(crate) fn new(
        inbox_sender: InboxSender<M>,
        shared_thread: Arc<SharedThreadState>,
        machine: u32,
        when_full: WhenFull,
    ) -> Self {
        Self {
            inbox_sender,
            shared_thread,
            machine,
            ready_flag: ReadyFlag::new(),
            when_full,
            waiting_senders: WaitingSenders::default(),
            refused: AtomicU64::new(0),
        }
    }

    /// Adds 1 to the number of refused messages.
    pub(crate) fn count_refused(&self) {
        // Relaxed: a count.
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused_count(&self) -> u64 {
        // Relaxed: a count.
        self.refused.load(Ordering::Relaxed)
    }

    /// Wakes the machine's thread if it sleeps; returns `true` if it slept. Called after a message
    /// was enqueued.
    #[inline]
    pub(crate) fn notify(&self) -> bool {
        let must_ring = match self.shared_thread.ready_sender() {
            None => true,
            Some(ready_sender) => ready_sender.announce(&self.ready_flag, self.machine),
        };
        (must_ring || self.shared_thread.notifies_each_message()) && self.shared_thread.wake()
    }

    /// Announces an enqueued message without waking the machine's thread. Wakes it only on behalf
    /// of a concurrent sender.
    #[inline]
    fn publish(&self) {
        let ready_sender = self.shared_thread.ready_sender();
        if ready_sender.is_some_and(|ready_sender| {
            ready_sender.announce_quietly(&self.ready_flag, self.machine)
        }) {
            self.shared_thread.wake();
        }
    }

    /// Pushes a message into the inbox; applies the policy [`WhenFull`] if the inbox is full.
    #[inline]
    fn enqueue(&self, message: M) -> Result<(), SendError<M>> {
        match self.inbox_sender.push(message) {
            Ok(()) => {}
            Err(refusal) => self.handle_refusal(refusal)?,
        }
        stage::record_enqueued(self);
        Ok(())
    }

    /// Handles the refusal of a message: waits for space if the policy says so. Returns `Err` with
    /// the message if it is still refused.
    #[cold]
    fn handle_refusal(&self, refusal: PushError<M>) -> Result<(), SendError<M>> {
        let answer = match (refusal, self.when_full) {
            (PushError::Full(message), WhenFull::Block { wait_max })
                if !self.shared_thread.is_running_here() =>
            {
                let push = |message| self.inbox_sender.push(message);
                waiting_senders::wait_for_space(
                    &self.waiting_senders,
                    message,
                    wait_max,
                    push,
                    || {
                        self.notify();
                    },
                )
            }
            (refusal, _) => Err(refusal),
        };
        answer.map_err(|refusal| self.refuse(refusal))
    }

    /// Counts a refused message, and returns the error with which its sender gets it back.
    #[cold]
    pub(crate) fn refuse(&self, refusal: PushError<M>) -> SendError<M> {
        self.count_refused();
        match refusal {
            PushError::Full(message) => SendError::Full(message),
            PushError::Closed(message) => SendError::Closed(message),
        }
    }
}

impl<M> Address<M> {
    pub(crate) fn new(shared: SharedMachineState<M>) -> Self {
        Self { shared: Arc::new(shared) }
    }

    #[inline]
    pub(crate) fn shared(&self) -> &SharedMachineState<M> {
        &self.shared
    }

    /// Sends a message, and wakes the machine if it sleeps.
    ///
    /// # Errors
    /// [`SendError`] gives the message back: [`Full`](SendError::Full) as the machine's
    /// [`WhenFull`] says, [`Closed`](SendError::Closed) when the machine is closed or dropped.
    ///
    /// # Blocking
    /// Only under [`WhenFull::Block`], and never on the machine's own thread.
    ///
    /// # Cost
    /// Receiver awake: one compare-and-swap, a store to the cache line that the machine reads, a
    /// fence. Asleep: additionally a system call (1 to 2 µs).
    #[inline]
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        self.send_and_wake(message).map(drop)
    }

    /// Sends a message like [`send`](Self::send); returns `true` if the machine's thread slept and
    /// was woken.
    #[inline]
    pub(crate) fn send_and_wake(&self, message: M) -> Result<bool, SendError<M>> {
        self.shared.enqueue(message)?;
        Ok(self.shared.notify())
    }

    /// Sends a message like [`send`](Self::send), but neither blocks nor drops an older message: a
    /// full inbox refuses it. The older message may be a request, whose destructor would send
    /// again.
    pub(crate) fn send_unblocked(&self, message: M) -> Result<(), SendError<M>> {
        let pushed = self.shared.inbox_sender.push_unless_full(message);
        pushed.map_err(|refusal| self.shared.refuse(refusal))?;
        stage::record_enqueued(self.shared());
        self.shared.notify();
        Ok(())
    }

    /// Sends a message without waking the machine. A machine that is awake finds the message at
    /// once; a sleeping machine finds it when it wakes for another reason.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Blocking
    /// As [`send`](Self::send); a sender that waits for space wakes the machine.
    #[inline]
    pub fn send_quiet(&self, message: M) -> Result<(), SendError<M>> {
        self.shared.enqueue(message)?;
        self.shared.publish();
        Ok(())
    }

    /// Wakes the machine if it sleeps; call it after [`send_quiet`](Self::send_quiet).
    pub fn wake(&self) {
        self.shared.notify();
    }

    /// Returns `true` if the machine is closed or dropped. Once true, it stays true.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.inbox_sender.is_closed()
    }

    /// Returns the number of queued messages from other threads; it may have changed since. It
    /// reads cache lines that senders write: use it for display and statistics only.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.shared.inbox_sender.len()
    }

    /// Returns `true` if both addresses belong to the same machine.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns a weak address of the machine.
    #[must_use]
    pub fn downgrade(&self) -> WeakAddress<M> {
        WeakAddress { shared: Arc::downgrade(&self.shared) }
    }

    /// Returns an identifier of the machine, unique while an address of it exists.
    pub(crate) fn machine_id(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
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
        let (machine, messages_count) = (self.machine_id(), self.waiting_count());
        write!(f, "Address(machine {machine:#x}, {messages_count} messages in its inbox)")
    }
}

/// Reference to a machine's inbox that does not keep the inbox in memory; made by
/// [`Address::downgrade`]. For tables of machines that may end, and for machines that refer to each
/// other.
///
/// ```
/// use handover_event::{Config, Machine, handler};
/// let machine = Machine::new(handler(|(), _cx| ()), Config::default())?;
/// let weak = machine.address().downgrade();
/// weak.upgrade().expect("the machine is open").send(())?;
/// drop(machine);
/// assert_eq!(weak.upgrade(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WeakAddress<M> {
    shared: Weak<SharedMachineState<M>>,
}

impl<M> WeakAddress<M> {
    /// Returns the machine's address; `None` if the machine is closed or dropped, even while other
    /// addresses exist. Once `None`, it stays `None`. The machine may be closed as soon as this has
    /// returned an address, and a send then returns the message.
    ///
    /// # Cost
    /// Like a clone of an [`Address`], and a load of the inbox.
    #[must_use]
    pub fn upgrade(&self) -> Option<Address<M>> {
        let shared = self.shared.upgrade()?;
        Some(Address { shared }).filter(|address| !address.is_closed())
    }
}

impl<M> Clone for WeakAddress<M> {
    fn clone(&self) -> Self {
        Self { shared: Weak::clone(&self.shared) }
    }
}

/// Weak addresses are equal if they belong to the same machine.
impl<M> PartialEq for WeakAddress<M> {
    fn eq(&self, other: &Self) -> bool {
        self.shared.ptr_eq(&other.shared)
    }
}

impl<M> Eq for WeakAddress<M> {}

impl<M> fmt::Debug for WeakAddress<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WeakAddress({:#x})", self.shared.as_ptr().addr())
    }
}

/// Handle that stops a machine or a group from any thread. It can be cloned freely, and does
/// nothing once the machine or group is dropped.
#[derive(Clone)]
pub struct Stopper {
    pub(crate) shared_thread: Arc<SharedThreadState>,
}

impl Stopper {
    /// Requests the machine or group to stop, and wakes it if it sleeps. The run returns
    /// [`EndReason::Stopped`](crate::EndReason::Stopped) after the turn of one machine, of at most
    /// [`messages_per_round_max`](crate::Config::messages_per_round_max) messages, and one round of
    /// timers and descriptors. A handler that wants no further message calls
    /// [`Context::stop`](crate::Context::stop). If no run is in progress, the next run returns at
    /// once.
    pub fn stop(&self) {
        self.shared_thread.stop();
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
    use crate::{
        Config, Context, EndReason, Group, Machine, ParkOn, ThreadConfig, WakeWhen, handler,
    };
    use rustix::io::Errno;
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    const QUIET: u32 = 1;
    const WAKING: u32 = 2;
    const LATEST: Duration = Duration::from_secs(10);

    /// Sends a message behind a quiet send that has taken its slot in the inbox. The quiet send
    /// fills the slot well after the thread has gone to sleep again.
    fn send_behind_an_unfinished_push(address: Address<u32>) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            let (finish, is_to_finish) = mpsc::channel();
            let calls = {
                let address = address.clone();
                thread::spawn(move || {
                    let InboxSender::Ring(producer) = &address.shared.inbox_sender else { return };
                    let mut late = std::iter::once(QUIET)
                        .inspect(|_| is_to_finish.recv().expect("a request to finish"));
                    assert_eq!(producer.push_batch(&mut late), 1);
                    address.shared.publish();
                })
            };
            while address.waiting_count() == 0 {
                thread::yield_now();
            }
            address.send(WAKING).expect("send a message");
            thread::sleep(Duration::from_millis(20));
            finish.send(()).expect("the sender thread has exited");
            calls.join().expect("the caller");
        })
    }

    fn stop_at_waking(message: u32, cx: &mut Context<'_, u32>) {
        if message == WAKING {
            cx.stop();
        }
    }

    #[test]
    fn message_behind_an_unfinished_push_is_handled() {
        for park_on in [ParkOn::Auto, ParkOn::Descriptor] {
            let thread = ThreadConfig::default().park_on(park_on);
            let config = Config::default().thread(thread);
            let mut machine =
                Machine::new(handler(stop_at_waking), config).expect("create a machine");
            // Wakes the thread if nothing else does.
            machine.context().after(LATEST, QUIET).expect("start a timer");
            let started = Instant::now();
            let sender = send_behind_an_unfinished_push(machine.address().clone());
            assert_eq!(machine.run().expect("run the machine"), EndReason::Stopped);
            assert!(started.elapsed() < LATEST, "only the timer woke it");
            sender.join().expect("the sender panicked");

            let mut group = Group::new(thread).expect("create a group");
            let member =
                group.add(handler(stop_at_waking), Config::default()).expect("add a machine");
            let mut cx = group.context(&member).expect("find the machine");
            cx.after(LATEST, QUIET).expect("start a timer");
            let started = Instant::now();
            let sender = send_behind_an_unfinished_push(member.address().clone());
            assert_eq!(group.run().expect("run the group"), EndReason::Stopped);
            assert!(started.elapsed() < LATEST, "only the timer woke it");
            sender.join().expect("the sender panicked");
        }
    }

    #[test]
    fn weak_address_keeps_neither_the_machine_nor_its_inbox() {
        let mut machine =
            Machine::new(handler(|_: u32, _cx| ()), Config::default()).expect("valid");
        let weak = machine.address().downgrade();
        assert_eq!(weak, weak.clone());
        let address = weak.upgrade().expect("the machine is open");
        assert_eq!((&address, weak.shared.strong_count()), (machine.address(), 2));
        address.send(1).expect("send a message");
        assert_eq!(machine.poll().expect("poll the machine").handled, 1);
        drop(machine);
        assert_eq!(weak.upgrade(), None, "of a dropped machine, with an address left");
        drop(address);
        assert_eq!((weak.upgrade(), weak.shared.strong_count()), (None, 0));

        let machine = Machine::new(handler(|_: u32, _cx| ()), Config::default()).expect("valid");
        let (weak, address) = (machine.address().downgrade(), machine.address().clone());
        drop(machine.close());
        assert!(weak.upgrade().is_none() && address.is_closed());
        let other = Machine::new(handler(|_: u32, _cx| ()), Config::default()).expect("valid");
        assert_ne!(weak, other.address().downgrade());
    }

    /// Returns the number of notifications since the last call: no machine reads its eventfd.
    fn take_notifications(address: &Address<u32>) -> u64 {
        let eventfd = address.shared.shared_thread.eventfd().expect("a descriptor");
        let mut bytes = [0; 8];
        match rustix::io::read(eventfd, &mut bytes) {
            Ok(_) => u64::from_ne_bytes(bytes),
            Err(Errno::AGAIN) => 0,
            Err(errno) => panic!("read from an eventfd: {errno}"),
        }
    }

    #[test]
    fn awake_thread_is_notified_of_each_message_only_if_configured() {
        for (wake_when, notified) in [(WakeWhen::Asleep, 0), (WakeWhen::EachMessage, 2)] {
            let thread = ThreadConfig::default().wake_when(wake_when);
            let config = Config::default().thread(thread);
            let mut machine =
                Machine::new(handler(|_: u32, _cx| ()), config).expect("create a machine");
            let mut group = Group::new(thread).expect("create a group");
            let member =
                group.add(handler(|_: u32, _cx| ()), Config::default()).expect("add a machine");
            for address in [machine.address().clone(), member.address().clone()] {
                for number in 0..2 {
                    address.send(number).expect("send a message");
                }
                assert_eq!(take_notifications(&address), notified, "by address, {wake_when:?}");
                address.send_quiet(2).expect("send a message");
                assert_eq!(take_notifications(&address), 0, "by send_quiet, {wake_when:?}");
            }
            let own = machine.address().clone();
            let mut cx = machine.context();
            cx.send_quiet(3).expect("send a message");
            cx.send(4).expect("send a message");
            cx.send_to(&own, 5).expect("send a message");
            assert_eq!(take_notifications(&own), notified, "by context, {wake_when:?}");
            assert_eq!(machine.poll().expect("poll the machine").handled, 6);
        }
    }
}
