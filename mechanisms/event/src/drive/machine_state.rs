//! State of a machine apart from its handler: queues, timers, watches, counters.

use super::address::{Address, SharedMachineState};
use super::reactor::EpollToken;
use super::shared_thread_state::SharedThreadState;
use super::thread_state::{ThreadState, now_ns};
use super::waiting_senders;
use crate::engine::inbox::{self, Inbox};
use crate::{Config, MachineError, Ready, SendError, Stats, WatchId, WhenFull, stage};
use handover_base::slab::Slab;
use handover_timer::{ExpiredTimer, TimerId, Wheel};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Payload of a timer: its message, or the closure that makes messages.
pub(crate) enum TimerPayload<M> {
    /// Message of a timer that expires once. It is `None` only in a clone, which the wheel does not
    /// make.
    Once(Option<M>),
    /// Closure of a periodic timer; called with the number of skipped periods.
    Every(Arc<dyn Fn(u64) -> M + Send + Sync>),
}

/// The wheel clones the payload for the next period. A timer that expires once is never cloned.
impl<M> Clone for TimerPayload<M> {
    fn clone(&self) -> Self {
        match self {
            TimerPayload::Once(_) => TimerPayload::Once(None),
            TimerPayload::Every(make) => TimerPayload::Every(Arc::clone(make)),
        }
    }
}

impl<M> TimerPayload<M> {
    /// Returns the message of an expired timer; `None` only for a clone of [`Once`](Self::Once).
    fn into_message(self, missed_count: u64) -> Option<M> {
        match self {
            TimerPayload::Once(message) => message,
            TimerPayload::Every(make) => Some(make(missed_count)),
        }
    }
}

/// Closure that converts a readiness event of a descriptor into a message.
type WrapFn<M> = Box<dyn FnMut(Ready) -> M + Send>;

/// Watched descriptor, with the closure that converts its readiness into messages.
pub(crate) struct Watch<M> {
    pub(crate) source: Box<dyn AsFd + Send>,
    /// Closure that converts a readiness event into a message.
    wrap: WrapFn<M>,
}

/// State of a machine except its handler.
pub(crate) struct MachineState<M> {
    /// Index of the machine in its group. It is a copy of the address's field, which is read
    /// without a pointer indirection.
    pub(crate) machine: u32,
    pub(crate) address: Address<M>,
    pub(crate) inbox: Inbox<M>,
    /// Queue of messages from the machine's own thread.
    pub(crate) local: VecDeque<M>,
    /// Timers. They are started through [`wheel_to_start`](Self::wheel_to_start).
    pub(crate) wheel: Wheel<TimerPayload<M>>,
    /// `true` from the start of a timer until [`next_deadline_ns`](Self::next_deadline_ns) finds
    /// none.
    pub(crate) has_timers: bool,
    watches: Slab<Watch<M>>,
    pub(crate) config: Config,
    /// Number of messages passed to the handler.
    pub(crate) handled: u64,
    /// Value of `handled` when a waiting sender was last admitted.
    handled_at_admission: u64,
    /// Counters that neither the queues nor `handled` provide.
    pub(crate) counts: Stats,
    /// Bitmap of the message kinds without a handler that have been logged.
    logged_kinds: Vec<u64>,
}

/// Number of message kinds that have separate bits in `logged_kinds`; all greater kinds share one
/// more bit.
const SEPARATE_KINDS_MAX: usize = 1 << 16;
/// Maximum number of messages handled before an inbox with space admits a waiting sender, although
/// less than half of the inbox is free. Smaller inboxes take the number of their slots.
const ADMISSION_MESSAGES_MAX: u32 = 1024;
/// Initial capacity of the local queue, in messages.
const LOCAL_RESERVED: u32 = 64;

impl<M: Send + 'static> MachineState<M> {
    pub(crate) fn new(
        config: Config,
        shared_thread: &Arc<SharedThreadState>,
        machine: u32,
    ) -> Result<Self, MachineError> {
        let (inbox_sender, inbox) = match config.when_full {
            WhenFull::DropOldest => inbox::drop_oldest_inbox(config.inbox_messages_max),
            WhenFull::Refuse | WhenFull::Block { .. } => {
                inbox::ring_inbox(config.inbox_messages_max)
            }
        }?;
        let timers = handover_timer::Config::default().timers_max(config.timers_max);
        let wheel = Wheel::new(timers, now_ns()).map_err(crate::ConfigError::from)?;
        Ok(Self {
            machine,
            address: Address::new(SharedMachineState::new(
                inbox_sender,
                Arc::clone(shared_thread),
                machine,
                config.when_full,
            )),
            inbox,
            local: VecDeque::with_capacity(config.local_messages_max.min(LOCAL_RESERVED) as usize),
            wheel,
            has_timers: false,
            watches: Slab::new(u32::MAX),
            config,
            handled: 0,
            handled_at_admission: 0,
            counts: Stats::default(),
            logged_kinds: Vec::new(),
        })
    }
}

impl<M> MachineState<M> {
    /// Puts a message from the machine's own thread into the local queue. Returns `Err` with the
    /// message if the queue is full.
    #[inline]
    pub(crate) fn push_local(&mut self, message: M) -> Result<(), SendError<M>> {
        if self.local.len() >= self.config.local_messages_max as usize {
            self.address.shared().count_refused();
            return Err(SendError::Full(message));
        }
        self.local.push_back(message);
        stage::record_enqueued_here(self.address.shared());
        Ok(())
    }

    /// Returns `true` if the local queue or the inbox contains a message.
    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        !self.local.is_empty() || !self.inbox.is_empty()
    }

    /// Lets one waiting sender try again if half of the inbox is free, or if other senders have
    /// kept the inbox fuller for [`ADMISSION_MESSAGES_MAX`] messages. Returns `true` if senders
    /// wait. Called after messages were removed; `has_async_senders` says if tasks may be waiting.
    ///
    /// Only one sender tries again, as it can fill the free slots by itself and more would contend.
    /// A task that was admitted admits the next one.
    #[inline]
    pub(crate) fn admit(&mut self, has_async_senders: bool) -> bool {
        let has_senders =
            has_async_senders || matches!(self.config.when_full, WhenFull::Block { .. });
        has_senders && self.admit_one_sender()
    }

    /// Does [`admit`](Self::admit) if senders may be waiting.
    fn admit_one_sender(&mut self) -> bool {
        let waiting = &self.address.shared().waiting_senders;
        if !waiting.has_waiting() {
            return false;
        }
        let messages_max = self.config.inbox_messages_max;
        let interval = u64::from(messages_max.min(ADMISSION_MESSAGES_MAX));
        let is_overdue = self.handled - self.handled_at_admission >= interval;
        let waiting_max = if is_overdue { messages_max - 1 } else { messages_max / 2 };
        if self.inbox.len() <= waiting_max as usize {
            self.handled_at_admission = self.handled;
            waiting_senders::admit_senders(waiting, 1);
        }
        true
    }

    /// Returns the timer wheel, for the start of a timer.
    pub(crate) fn wheel_to_start(&mut self) -> &mut Wheel<TimerPayload<M>> {
        self.has_timers = true;
        &mut self.wheel
    }

    /// Returns the earliest deadline of the timers; `None` without timers.
    pub(crate) fn next_deadline_ns(&mut self) -> Option<u64> {
        let deadline_ns = self.wheel.next_deadline_ns();
        self.has_timers = deadline_ns.is_some();
        deadline_ns
    }

    /// Removes the next timer due at `now_ns` and returns its message; `None` if no timer is due.
    #[inline]
    pub(crate) fn pop_due_message(&mut self, now_ns: u64) -> Option<M> {
        loop {
            let ExpiredTimer { payload, missed_count, .. } = self.wheel.pop_due(now_ns)?;
            if let Some(message) = payload.into_message(missed_count) {
                self.counts.timers += 1;
                self.counts.timers_missed += missed_count;
                return Some(message);
            }
        }
    }

    /// Cancels a timer, and returns `Some` with its message. Returns `Some(None)` for a periodic
    /// timer, `None` if no such timer is running.
    pub(crate) fn cancel_timer(&mut self, id: TimerId) -> Option<Option<M>> {
        self.wheel.cancel(id).map(|payload| match payload {
            TimerPayload::Once(message) => message,
            TimerPayload::Every(_) => None,
        })
    }

    /// Returns the identifier of the next watch to be added. Returns `None` if the maximum of
    /// watches is reached.
    pub(crate) fn next_watch_id(&self) -> Option<WatchId> {
        self.watches.next_key().map(WatchId)
    }

    /// Adds a watch, whose identifier is [`next_watch_id`](Self::next_watch_id).
    pub(crate) fn insert_watch(&mut self, source: Box<dyn AsFd + Send>, wrap: WrapFn<M>) {
        // Not full: it has a next key.
        let _ = self.watches.insert(Watch { source, wrap });
    }

    /// Returns the watch with this identifier; `None` if it has stopped.
    pub(crate) fn watch(&self, id: WatchId) -> Option<&Watch<M>> {
        self.watches.get(id.0)
    }

    pub(crate) fn remove_watch(&mut self, id: WatchId) -> Option<Watch<M>> {
        self.watches.remove(id.0)
    }

    /// Returns the watched descriptors.
    pub(crate) fn watched_sources(&self) -> impl Iterator<Item = &dyn AsFd> {
        self.watches.keys().filter_map(|key| Some(&*self.watches.get(key)?.source as &dyn AsFd))
    }

    /// Returns the message for a readiness event of the watch with this token. Returns `None` if
    /// the watch has stopped.
    pub(crate) fn ready_message(&mut self, token: EpollToken, ready: Ready) -> Option<M> {
        let key = self.watches.key_at(token.slot)?;
        if token != EpollToken::for_watch(self.machine, WatchId(key)) {
            return None;
        }
        let watch = self.watches.get_mut(key)?;
        self.counts.descriptors += 1;
        Some((watch.wrap)(ready))
    }

    /// Counts a message without a handler. Returns `true` if its kind is to be logged for the first
    /// time.
    pub(crate) fn count_unhandled(&mut self, kind: usize) -> bool {
        self.counts.unhandled += 1;
        let kind = kind.min(SEPARATE_KINDS_MAX);
        let (word, bit) = (kind / 64, 1 << (kind % 64));
        if word >= self.logged_kinds.len() {
            self.logged_kinds.resize(word + 1, 0);
        }
        let is_new = self.logged_kinds[word] & bit == 0;
        self.logged_kinds[word] |= bit;
        is_new
    }

    /// Closes the inbox, and returns all queued messages. Those of the local queue come first, then
    /// those of the inbox.
    pub(crate) fn close(&mut self) -> Vec<M> {
        let mut left: Vec<M> = self.local.drain(..).collect();
        self.close_inbox();
        left.extend(std::iter::from_fn(|| pop_closed(&mut self.inbox)));
        self.counts.returned += left.len() as u64;
        left
    }

    /// Closes the inbox, so that no further messages are accepted.
    fn close_inbox(&mut self) {
        self.inbox.close();
        // They find it closed.
        waiting_senders::admit_senders(&self.address.shared().waiting_senders, u32::MAX);
    }

    /// Returns the machine's counters and those of its thread, `thread`.
    pub(crate) fn stats(&self, thread: &ThreadState) -> Stats {
        let refused = self.address.shared().refused_count();
        let dropped = self.inbox.dropped_count();
        // A machine outside a group has no queue of messages from other machines of its thread.
        let of_group = thread.locals.get(self.machine as usize).map_or(0, |one| one.queue.len());
        let waiting = (self.local.len() + self.inbox.len()) as u64 + u64::from(of_group);
        let sent = self.handled + refused + dropped + waiting + self.counts.returned;
        let mut stats =
            Stats { sent, handled: self.handled, refused, dropped, waiting, ..self.counts };
        thread.write_counts(&mut stats);
        stats
    }
}

/// Number of times that [`pop_closed`] yields the CPU before it sleeps between checks.
const YIELDS_MAX: u32 = 64;

/// Removes and returns the next message of a closed inbox; `None` if it is empty. Waits for a
/// sender in the middle of a push: the messages behind such a push have been accepted, and their
/// senders may wait for a reply.
fn pop_closed<M>(inbox: &mut Inbox<M>) -> Option<M> {
    let mut yields_count = 0;
    loop {
        if let Some(message) = inbox.pop() {
            return Some(message);
        }
        if inbox.is_finished() {
            return None;
        }
        if yields_count < YIELDS_MAX {
            yields_count += 1;
            std::thread::yield_now();
        } else {
            // The sender may be a thread of lower priority on this CPU.
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl<M> Drop for MachineState<M> {
    fn drop(&mut self) {
        /// Guard that drops the remaining messages, also if the destructor of one panics.
        struct Rest<'a, M>(&'a mut Inbox<M>);
        impl<M> Drop for Rest<'_, M> {
            fn drop(&mut self) {
                while pop_closed(self.0).is_some() {}
            }
        }
        self.close_inbox();
        let rest = Rest(&mut self.inbox);
        while pop_closed(rest.0).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::inbox::InboxSender;
    use crate::{Config, Machine, NoReplyError, Reply, WhenFull, handler};
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn request_behind_an_unfinished_push_ends_when_the_machine_is_dropped() {
        drop_machine_with_an_unfinished_push(None);
    }

    #[test]
    fn request_behind_an_unfinished_push_ends_although_dropping_a_message_panics() {
        drop_machine_with_an_unfinished_push(Some(PanicsOnDrop));
    }

    struct PanicsOnDrop;

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(())); // prints nothing
        }
    }

    /// Drops a machine with the message `first` before an unfinished push, and a request behind it.
    fn drop_machine_with_an_unfinished_push(first: Option<PanicsOnDrop>) {
        type Request = (Option<PanicsOnDrop>, Option<Reply<u32>>);
        let is_panic_expected = first.is_some();
        let ignore = handler(|_: Request, _cx| ());
        let machine = Machine::new(ignore, Config::default()).expect("create a machine");
        let address = machine.address().clone();
        assert!(address.send((first, None)).is_ok());
        let (has_slot, slot) = mpsc::channel();
        let (finish, is_to_finish) = mpsc::channel();
        let outcome = thread::scope(|scope| {
            let unfinished = address.clone();
            scope.spawn(move || {
                let InboxSender::Ring(producer) = &unfinished.shared().inbox_sender else { return };
                let mut late = std::iter::once((None, None)).inspect(|_| {
                    has_slot.send(()).expect("the test has ended");
                    is_to_finish.recv().expect("a request to finish");
                });
                assert_eq!(producer.push_batch(&mut late), 1);
            });
            slot.recv().expect("the sender takes a slot");
            let mut pending = address.request(|reply| (None, Some(reply))).expect("send a request");
            let drops = scope.spawn(move || drop(machine));
            while !address.is_closed() {
                thread::yield_now();
            }
            // Time in which a drop that does not wait for the push ends.
            let until = Instant::now() + Duration::from_millis(50);
            while !drops.is_finished() && Instant::now() < until {
                thread::yield_now();
            }
            finish.send(()).expect("the sender thread has exited");
            assert_eq!(drops.join().is_err(), is_panic_expected);
            pending.wait_timeout(Duration::from_secs(10))
        });
        assert_eq!(outcome, Err(NoReplyError), "`address` keeps the inbox in memory");
    }

    #[test]
    fn blocked_sender_gets_space_although_another_keeps_the_inbox_more_than_half_full() {
        let when_full = WhenFull::Block { wait_max: Duration::MAX };
        let config =
            Config::default().inbox_messages_max(8).messages_per_round_max(1).when_full(when_full);
        let mut machine = Machine::new(handler(|_: u32, _cx| ()), config).expect("valid");
        let address = machine.address().clone();
        for _ in 0..8 {
            address.send(0).expect("send a message");
        }
        let blocked = thread::spawn({
            let address = address.clone();
            move || address.send(1)
        });
        while !address.shared().waiting_senders.has_waiting() {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(10)); // it tries once more, and sleeps
        // From here on, the inbox has one or two free slots.
        machine.poll().expect("run the machine");
        let until = Instant::now() + Duration::from_secs(10);
        while !blocked.is_finished() && Instant::now() < until {
            machine.poll().expect("run the machine");
            address.send(0).expect("send a message");
            thread::yield_now();
        }
        drop(machine); // ends the wait
        assert_eq!(blocked.join().expect("the sender panicked"), Ok(()));
    }
}
