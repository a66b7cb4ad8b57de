//! Context of a handler: sending, timers, descriptors, stopping.

use super::address::{Address, Stopper};
use super::local_machines::LocalMachines;
use super::machine_state::{MachineState, TimerPayload};
use super::reactor::EpollToken;
use super::thread_state::{self, ThreadState};
use crate::{
    EndReason, Interest, PoolFull, PostCounts, Publisher, Ready, SendError, Stats, TimerId,
    TimersFull, WatchError, WatchId,
};
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Access to a machine's queues, timers and descriptors, for its handler.
///
/// `M` is the machine's message type. All methods are called on the thread that runs the machine,
/// and its own data needs no synchronisation.
pub struct Context<'a, M> {
    pub(crate) state: &'a mut MachineState<M>,
    pub(crate) thread: &'a mut ThreadState,
}

impl<M: Send + 'static> Context<'_, M> {
    /// Sends a message to this machine itself, through its local queue.
    ///
    /// # Errors
    /// [`SendError::Full`] returns the message when `local_messages_max` messages are queued.
    ///
    /// # Cost
    /// A push to a queue that no other thread accesses: 1 to 2 ns.
    #[inline]
    pub fn send_quiet(&mut self, message: M) -> Result<(), SendError<M>> {
        self.state.push_local(message)
    }

    /// Sends a message to this machine itself; also writes to the thread's eventfd under
    /// [`WakeWhen::EachMessage`](crate::WakeWhen). Otherwise it does the same as
    /// [`send_quiet`](Self::send_quiet).
    ///
    /// # Errors
    /// As [`send_quiet`](Self::send_quiet).
    #[inline]
    pub fn send(&mut self, message: M) -> Result<(), SendError<M>> {
        self.state.push_local(message)?;
        self.thread.notify_itself();
        Ok(())
    }

    /// Sends a message to any machine, and wakes the machine if it sleeps. Needs no synchronisation
    /// if the receiver runs on this thread: if it is this machine itself, or belongs to the same
    /// [`Group`](crate::Group).
    ///
    /// # Errors
    /// As [`Address::send`].
    ///
    /// # Blocking
    /// As [`Address::send`]; never when the receiver runs on this thread.
    #[inline]
    pub fn send_to<N: Send + 'static>(
        &mut self,
        to: &Address<N>,
        message: N,
    ) -> Result<(), SendError<N>> {
        let mut local_machines = self.local_machines();
        if local_machines.contains(to) {
            local_machines.send(to, message)
        } else {
            self.send_remote(to, message)
        }
    }

    /// Sends a message to a machine on another thread. Not inlined, so that the path to machines on
    /// this thread stays small enough to be inlined.
    #[inline(never)]
    fn send_remote<N: Send + 'static>(
        &mut self,
        to: &Address<N>,
        message: N,
    ) -> Result<(), SendError<N>> {
        let has_woken = to.send_and_wake(message)?;
        self.thread.record_sent_to(&to.shared().shared_thread, has_woken);
        Ok(())
    }

    /// Posts a value to a topic like [`Publisher::post`]. Subscribers on this thread get it without
    /// synchronisation, as from [`send_to`](Self::send_to).
    ///
    /// Subscribers on other threads are expected to answer: before this thread polls for the
    /// answers, it yields to those on its own CPU.
    ///
    /// ```
    /// use handover_event::{Config, Machine, PoolArc, Topic, handler};
    /// let topic = Topic::new();
    /// let mut subscriber = Machine::new(
    ///     handler(|news: PoolArc<u32>, _cx| assert_eq!(*news, 7)),
    ///     Config::default(),
    /// )?;
    /// topic.subscribe(subscriber.address(), |news| news);
    /// let mut publisher = topic.publisher(1);
    /// let mut machine = Machine::new(
    ///     handler(move |number: u32, cx| {
    ///         let posted = cx.post(&mut publisher, number).expect("post a value");
    ///         assert_eq!((posted.accepted_count, posted.refused_count), (1, 0));
    ///     }),
    ///     Config::default(),
    /// )?;
    /// machine.context().send_quiet(7)?;
    /// machine.poll()?;
    /// assert_eq!(subscriber.poll()?.handled, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Publisher::post`].
    ///
    /// # Blocking
    /// As [`Publisher::post`]; never for subscribers on this thread.
    #[inline]
    pub fn post<T: Send + Sync + 'static>(
        &mut self,
        publisher: &mut Publisher<T>,
        value: T,
    ) -> Result<PostCounts, PoolFull<T>> {
        // Inlined, so that the value is made in its slot.
        let shares = publisher.put_for_subscribers(value)?;
        let mut local_machines = self.local_machines();
        let posted = publisher.send_from(&mut local_machines, shares);
        if local_machines.has_sent_remotely {
            self.expect_replies_to(publisher);
        }
        Ok(posted)
    }

    /// Records that a value was posted to machines of other threads, which may reply. Not inlined,
    /// so that [`post`](Self::post) stays small enough to be inlined.
    #[inline(never)]
    fn expect_replies_to<T: Send + Sync + 'static>(&mut self, publisher: &Publisher<T>) {
        self.thread.expect_replies_from(publisher.subscriber_threads());
    }

    /// Sends like [`send_to`](Self::send_to), without waking the thread; see
    /// [`Address::send_quiet`].
    ///
    /// # Errors
    /// As [`Address::send_quiet`].
    #[inline]
    pub fn send_quiet_to<N: Send + 'static>(
        &mut self,
        to: &Address<N>,
        message: N,
    ) -> Result<(), SendError<N>> {
        let mut local_machines = self.local_machines();
        if local_machines.contains(to) {
            local_machines.send_quiet(to, message)
        } else {
            to.send_quiet(message)
        }
    }

    /// Returns access to the queues of the machines on this thread, for sending.
    #[inline(always)]
    fn local_machines(&mut self) -> LocalMachines<'_> {
        LocalMachines {
            machine: self.state.machine,
            local: &mut self.state.local,
            local_messages_max: self.state.config.local_messages_max as usize,
            has_sent_remotely: false,
            thread: self.thread,
        }
    }

    /// Returns this machine's address; clone it to hand it out.
    #[must_use]
    pub fn address(&self) -> &Address<M> {
        &self.state.address
    }

    /// Returns a handle with which any thread stops the run of this machine or its group.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { shared_thread: Arc::clone(&self.thread.shared) }
    }

    /// Stops the run of this machine, or of its group, once the handler returns. Queued messages
    /// stay queued.
    pub fn stop(&mut self) {
        self.thread.request_end(EndReason::Stopped);
    }

    /// Returns the present time in ns on CLOCK_MONOTONIC, the clock of the timers.
    ///
    /// # Cost
    /// A reading of the kernel's clock, 25 to 50 ns.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        thread_state::now_ns()
    }

    /// Starts a timer: the machine handles `message` once `delay` has passed, never earlier.
    ///
    /// # Errors
    /// [`TimersFull`] returns the message when `timers_max` timers are running.
    ///
    /// # Cost
    /// A clock read, and constant time whatever the number of timers.
    pub fn after(&mut self, delay: Duration, message: M) -> Result<TimerId, TimersFull<M>> {
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.at_ns(thread_state::now_ns().saturating_add(delay_ns), message)
    }

    /// Starts a timer: the machine handles `message` at `deadline`, never earlier. It handles it at
    /// once if that time has passed.
    ///
    /// # Errors
    /// As [`after`](Self::after).
    ///
    /// # Cost
    /// As [`after`](Self::after), and another clock read, which [`at_ns`](Self::at_ns) saves.
    pub fn at(&mut self, deadline: Instant, message: M) -> Result<TimerId, TimersFull<M>> {
        self.after(deadline.saturating_duration_since(Instant::now()), message)
    }

    /// Starts a timer: the machine handles `message` at `deadline_ns` on CLOCK_MONOTONIC. It
    /// handles it at once if that time has passed.
    ///
    /// # Errors
    /// As [`after`](Self::after).
    pub fn at_ns(&mut self, deadline_ns: u64, message: M) -> Result<TimerId, TimersFull<M>> {
        let payload = TimerPayload::Once(Some(message));
        self.state.wheel_to_start().start(deadline_ns, payload).map_err(|full| match full.0 {
            TimerPayload::Once(Some(message)) => TimersFull(message),
            // The wheel returns the payload that it was given above.
            TimerPayload::Once(None) | TimerPayload::Every(_) => {
                unreachable!("the wheel returned another payload than the one passed to it")
            }
        })
    }

    /// Starts a timer that expires every `period` (at least 1 ns). At each expiry the machine
    /// handles a message made by `make`.
    ///
    /// The timer does not drift. Periods that passed while the thread was busy are skipped;
    /// [`every_counted`](Self::every_counted) reports their number.
    ///
    /// # Errors
    /// [`TimersFull`] when `timers_max` timers are running; `make` is dropped.
    pub fn every<F>(&mut self, period: Duration, make: F) -> Result<TimerId, TimersFull<()>>
    where
        F: Fn() -> M + Send + Sync + 'static,
    {
        self.every_counted(period, move |_missed_count| make())
    }

    /// Starts a timer like [`every`](Self::every), but passes `make` the number of skipped periods.
    /// These have passed since the expiry; the number is 0 as long as the thread keeps up.
    ///
    /// ```
    /// use handover_event::{Config, Machine, handler};
    /// use std::time::Duration;
    /// let mut machine = Machine::new(
    ///     handler(|missed_count: u64, _cx| assert!(missed_count >= 9)),
    ///     Config::default(),
    /// )?;
    /// machine.context().every_counted(Duration::from_millis(1), |missed_count| missed_count)?;
    /// std::thread::sleep(Duration::from_millis(10)); // the thread was busy
    /// machine.poll()?;
    /// assert_eq!(machine.stats().timers, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`every`](Self::every).
    pub fn every_counted<F>(&mut self, period: Duration, make: F) -> Result<TimerId, TimersFull<()>>
    where
        F: Fn(u64) -> M + Send + Sync + 'static,
    {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let period_ns = NonZeroU64::new(period_ns).unwrap_or(NonZeroU64::MIN);
        let first_ns = thread_state::now_ns().saturating_add(period_ns.get());
        let tick = TimerPayload::Every(Arc::new(make));
        let wheel = self.state.wheel_to_start();
        wheel.start_periodic(first_ns, period_ns, tick).map_err(|_full| TimersFull(()))
    }

    /// Cancels a timer, and returns `Some` with its message. Returns `Some(None)` for a periodic
    /// timer, which makes its messages at expiry. Returns `None` if the timer has expired or was
    /// cancelled.
    ///
    /// # Cost
    /// Constant.
    pub fn cancel(&mut self, timer: TimerId) -> Option<Option<M>> {
        self.state.cancel_timer(timer)
    }

    /// Watches a descriptor; the machine handles each readiness event as a message made by `wrap`.
    ///
    /// The source is kept until the watch ends, so that it cannot be closed meanwhile; share it
    /// through an [`Arc`] to read from it. From the first watch on, the thread sleeps in epoll
    /// instead of on a futex.
    ///
    /// # Errors
    /// [`WatchError::SystemCall`]: the descriptor cannot be polled or is watched already, or no
    /// descriptor is available for epoll.
    pub fn watch<S, F>(
        &mut self,
        source: S,
        interest: Interest,
        wrap: F,
    ) -> Result<WatchId, WatchError>
    where
        S: AsFd + Send + 'static,
        F: FnMut(Ready) -> M + Send + 'static,
    {
        let refused = |(call, error)| WatchError::SystemCall { call, error };
        let none = || refused(("epoll_ctl", Errno::NOSPC.into()));
        let id = self.state.next_watch_id().ok_or_else(none)?;
        let token = EpollToken::for_watch(self.state.machine, id);
        let reactor = self.thread.reactor().map_err(refused)?;
        reactor.add(&source, token, interest).map_err(|error| refused(("epoll_ctl", error)))?;
        self.state.insert_watch(Box::new(source), Box::new(wrap));
        Ok(id)
    }

    /// Changes the events that a watch waits for.
    ///
    /// # Errors
    /// [`WatchError::Stopped`] when the watch has ended; [`WatchError::SystemCall`] when the kernel
    /// refuses.
    pub fn set_interest(&mut self, watch: WatchId, interest: Interest) -> Result<(), WatchError> {
        let refused = |(call, error)| WatchError::SystemCall { call, error };
        let token = EpollToken::for_watch(self.state.machine, watch);
        let Some(kept) = self.state.watch(watch) else { return Err(WatchError::Stopped) };
        let reactor = self.thread.reactor().map_err(refused)?;
        let answer = reactor.modify(&kept.source, token, interest);
        answer.map_err(|error| refused(("epoll_ctl", error)))
    }

    /// Stops a watch and drops its source; returns `false` if the watch has already stopped.
    /// Readiness that the kernel has reported but the machine has not handled is discarded.
    pub fn unwatch(&mut self, watch: WatchId) -> bool {
        let Some(kept) = self.state.remove_watch(watch) else { return false };
        self.thread.unwatch(&kept.source);
        true
    }

    /// Drops and counts a message of a kind without a handler. The first message of a kind is
    /// logged as a `tracing` warning. For a `match` arm that should not be reached;
    /// [`HandlerTable`](crate::HandlerTable) uses it.
    #[cold]
    pub fn unhandled(&mut self, kind: usize, message: M) {
        if self.state.count_unhandled(kind) {
            let machine = self.state.address.machine_id();
            tracing::warn!(
                target: "handover_event::machine",
                machine, kind, "no handler for this kind of message: dropped, reported once"
            );
        }
        drop(message);
    }

    /// Returns the machine's counters.
    ///
    /// # Cost
    /// Reads cache lines that senders write: use it for display and statistics only.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.state.stats(self.thread)
    }
}
