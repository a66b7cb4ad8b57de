//! State of a thread that only the thread itself accesses: its parker, its descriptors, and the
//! queues between machines that share the thread.

use super::reactor::{EpollToken, Reactor};
use super::shared_thread_state::SharedThreadState;
use crate::engine::incoming::IncomingMessages;
use crate::raw::queue::AnyQueue;
use crate::{
    EndReason, MachineError, ParkOn, Ready, RunError, Signals, Stats, ThreadConfig, WakeWhen, stage,
};
use handover_notify::{ParkResult, Parker};
use handover_ring::PushError;
use rustix::io::Errno;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Arc;

/// State of a thread that runs machines, accessed by that thread alone.
pub(crate) struct ThreadState {
    pub(crate) shared: Arc<SharedThreadState>,
    parker: Parker,
    /// Epoll set of the thread; `None` until it is first needed.
    reactor: Option<Reactor>,
    config: ThreadConfig,
    /// `true` if the run is to return. `end_reason` then holds the reason, unless another thread
    /// requested the stop.
    pub(crate) is_ending: bool,
    /// First reason that a handler or a signal has given to end the run.
    end_reason: Option<EndReason>,
    /// Signals that stop the run.
    signals: Option<Signals>,
    /// `true` once the thread has run the machines.
    has_run: bool,
    /// `true` if [`has_async_senders`](Self::has_async_senders) returned `true` when it was last
    /// called.
    had_async_senders: bool,
    /// Number of sleeps.
    parks: u64,
    /// Number of sleeps that a sender interrupted.
    wakeups: u64,
    /// Number of waits that ended while spinning.
    spins: u64,
    /// Queues of messages between machines of the group, one per receiving machine.
    pub(crate) locals: Vec<LocalQueue>,
    run_queue: RunQueue,
}

/// Queue of messages to one machine from other machines of its group, on one cache line.
#[repr(align(64))]
pub(crate) struct LocalQueue {
    /// Queued messages; contains no queue once the machine is removed.
    pub(crate) queue: AnyQueue,
    /// Next machine in the run queue, [`END`] for its last machine, or [`NOT_QUEUED`].
    next_in_run_queue: u32,
    /// `true` if other threads have sent messages to the machine, so that it must read its inbox.
    pub(crate) has_inbox_messages: bool,
}

impl LocalQueue {
    /// Creates the entry of a machine that is not in the run queue.
    pub(crate) fn new(queue: AnyQueue) -> Self {
        Self { queue, next_in_run_queue: NOT_QUEUED, has_inbox_messages: false }
    }
}

const _: () = assert!(size_of::<LocalQueue>() == 64, "a cache line");

/// Queue of the machines that have work, each at most once. They are linked by
/// [`LocalQueue::next_in_run_queue`].
struct RunQueue {
    /// First machine; [`END`] if the queue is empty.
    first: u32,
    /// Last machine, if the queue is not empty.
    last: u32,
}

/// Value in place of the machine after the last one of the run queue; more than any machine's
/// index.
const END: u32 = u32::MAX;
/// Value of `next_in_run_queue` for a machine that is not in the run queue; more than any machine's
/// index.
const NOT_QUEUED: u32 = u32::MAX - 1;

impl RunQueue {
    /// Appends a machine, unless it is in the queue.
    #[inline(always)]
    fn append(&mut self, locals: &mut [LocalQueue], machine: u32) {
        let next = &mut locals[machine as usize].next_in_run_queue;
        if *next != NOT_QUEUED {
            return;
        }
        *next = END;
        if self.first == END {
            self.first = machine;
        } else {
            locals[self.last as usize].next_in_run_queue = machine;
        }
        self.last = machine;
    }
}

// The kernel's clock, which also ends the kernel's sleeps: the time-stamp counter may be a
// microsecond ahead or behind, so that a sleep would end too early.
pub(crate) use handover_base::clock::monotonic_ns as now_ns;

/// Maximum sleep, in ns, while senders wait for space in an inbox. The sender that was woken may
/// have timed out without notifying this thread, and then the next one must be woken.
const ADMIT_AGAIN_NS: u64 = 1_000_000;
/// Maximum sleep, in ns, while a push has started and is not finished. Its sender runs at this
/// moment, or was preempted in the middle of the push.
const PUSH_AGAIN_NS: u64 = 100_000;

/// Maximum time, in ns, for which a thread with descriptors spins and yields. It does not check
/// them meanwhile.
const UNWATCHED_NS_MAX: u64 = 1_000_000;

/// Returns the deadline of a sleep: `deadline_ns`, or earlier if senders wait for space. Then it is
/// at most [`ADMIT_AGAIN_NS`] from now. `deadline_ns` is the next timer's.
pub(crate) fn sleep_deadline_ns(
    deadline_ns: Option<u64>,
    has_waiting_senders: bool,
) -> Option<u64> {
    if has_waiting_senders { earlier_deadline_ns(ADMIT_AGAIN_NS, deadline_ns) } else { deadline_ns }
}

/// Returns `deadline_ns` or `ns_max` ns from now, whichever is earlier.
fn earlier_deadline_ns(ns_max: u64, deadline_ns: Option<u64>) -> Option<u64> {
    let again_ns = now_ns().saturating_add(ns_max);
    Some(deadline_ns.map_or(again_ns, |deadline_ns| deadline_ns.min(again_ns)))
}

impl ThreadState {
    pub(crate) fn new(
        config: ThreadConfig,
        shared: Arc<SharedThreadState>,
    ) -> Result<Self, MachineError> {
        let parker = Parker::new(config.spin).map_err(crate::ConfigError::from)?;
        let mut thread = Self {
            shared,
            parker,
            reactor: None,
            config,
            is_ending: false,
            end_reason: None,
            signals: None,
            has_run: false,
            had_async_senders: false,
            parks: 0,
            wakeups: 0,
            spins: 0,
            locals: Vec::new(),
            run_queue: RunQueue { first: END, last: END },
        };
        if config.park_on == ParkOn::Descriptor || thread.shared.notifies_each_message() {
            let refused = |(call, error)| MachineError::SystemCall { call, error };
            thread.reactor().map_err(refused)?;
        }
        Ok(thread)
    }

    /// Publishes the calling thread's CPU, and sets its timer slack at the first run.
    pub(crate) fn begin_run(&mut self) {
        self.parker.publish_cpu(self.shared.unparker());
        if std::mem::replace(&mut self.has_run, true) {
            return;
        }
        let slack_ns = u64::try_from(self.config.timer_slack.as_nanos()).unwrap_or(u64::MAX);
        if let Some(slack) = NonZeroU64::new(slack_ns) {
            // At worst a seccomp filter refuses; then timers are as late as before.
            let _ = rustix::thread::set_current_timer_slack(Some(slack));
        }
    }

    /// Returns the thread's epoll set, created on first use.
    pub(crate) fn reactor(&mut self) -> Result<&mut Reactor, (&'static str, io::Error)> {
        if self.reactor.is_none() {
            let eventfd = self.shared.eventfd().map_err(|error| ("eventfd2", error))?;
            let reactor = Reactor::new(self.config.descriptors_per_round_max, eventfd.as_fd());
            self.reactor = Some(reactor.map_err(|error| ("epoll_create1", error))?);
            tracing::debug!(target: "handover_event::descriptor", "the thread sleeps in epoll from now on");
        }
        // `Some`: set above if it was `None`.
        self.reactor.as_mut().ok_or_else(|| ("epoll_create1", Errno::BADF.into()))
    }

    /// Removes a descriptor whose watch has stopped from the epoll set. Closing it would not be
    /// enough: another reference to the open file keeps the entry.
    pub(crate) fn unwatch(&mut self, source: &dyn AsFd) {
        if let Some(reactor) = &self.reactor {
            // The only expected error is that the descriptor is not in the set, which is the goal.
            let _ = reactor.remove(source);
        }
    }

    /// Makes each later run stop when one of `signals` arrives.
    pub(crate) fn stop_on(&mut self, signals: Signals) -> Result<(), (&'static str, io::Error)> {
        let reactor = self.reactor()?;
        reactor
            .add(&signals, EpollToken::SIGNAL, crate::Interest::READ)
            .map_err(|error| ("epoll_ctl", error))?;
        self.signals = Some(signals);
        Ok(())
    }

    /// Requests the run to end after the current message, for the reason `ended`.
    pub(crate) fn request_end(&mut self, ended: EndReason) {
        self.is_ending = true;
        self.end_reason.get_or_insert(ended);
    }

    /// Returns the reason to end the run, after clearing and logging it. Returns `None` if the run
    /// is to continue.
    #[inline]
    pub(crate) fn take_end_reason(&mut self) -> Option<EndReason> {
        if !self.is_ending && !self.shared.is_stop_requested() {
            return None;
        }
        self.take_and_log_end_reason()
    }

    /// Clears the request to end the run, logs the reason and returns it.
    #[cold]
    fn take_and_log_end_reason(&mut self) -> Option<EndReason> {
        self.parker.withdraw_waking(self.shared.unparker());
        let stopped = self.shared.take_stop_request();
        self.is_ending = false;
        let ended = self.end_reason.take().or(stopped.then_some(EndReason::Stopped))?;
        tracing::debug!(target: "handover_event::machine", ?ended, "the run ends");
        Some(ended)
    }

    /// Fetches readiness events from the kernel, unless earlier ones are unread. Returns `true` if
    /// there are unread ones. Returns `false` also if no descriptor is watched.
    pub(crate) fn fetch_ready(&mut self) -> Result<bool, RunError> {
        let Some(reactor) = &mut self.reactor else { return Ok(false) };
        if !reactor.has_ready() {
            reactor.wait(Some(0)).map_err(epoll_wait_error)?;
        }
        Ok(reactor.has_ready())
    }

    /// Returns the next readiness event of a machine's descriptor. Returns `None` if there is none.
    /// Handles events of the thread's own descriptors before it.
    pub(crate) fn next_ready(&mut self) -> Option<(EpollToken, Ready)> {
        loop {
            let (token, ready) = self.reactor.as_mut()?.next_ready()?;
            match token {
                EpollToken::WAKE => {}
                EpollToken::SIGNAL => {
                    if let Some(signal) = self.signals.as_ref().and_then(Signals::take) {
                        tracing::info!(target: "handover_event::machine", signal, "a signal stops the run");
                        self.request_end(EndReason::Signal(signal));
                    }
                }
                _ => return Some((token, ready)),
            }
        }
    }

    /// Returns `true` if tasks may be waiting for space in the machines' inboxes. They must then be
    /// admitted. The next [`wait_for_work`](Self::wait_for_work) returns when the first task begins
    /// to wait after a `false`.
    pub(crate) fn has_async_senders(&mut self) -> bool {
        self.had_async_senders = self.shared.has_async_senders();
        self.had_async_senders
    }

    /// Calls `poll` repeatedly without pauses. Returns `true` once `poll` has returned `true` or a
    /// stop was requested, otherwise `false`.
    #[inline]
    pub(crate) fn poll_eagerly(&mut self, poll: &mut impl FnMut() -> bool) -> bool {
        let shared = &self.shared;
        self.parker.poll_eagerly(shared.unparker(), &mut || poll() || shared.is_stop_requested())
    }

    /// Yields at intervals to threads of this CPU to which messages were sent, unless the run is to
    /// end. `handled` is the number of messages just handled.
    #[inline]
    pub(crate) fn share_cpu(&mut self, handled: u32) {
        if !self.is_ending {
            self.parker.share_cpu(handled);
        }
    }

    /// Publishes the CPU that this thread runs on, for senders that wait for its answers.
    #[inline]
    pub(crate) fn publish_cpu(&mut self) {
        self.parker.publish_cpu(self.shared.unparker());
    }

    /// Spins, then sleeps until there is work. The sleep ends if a message is queued, another
    /// thread wakes this one, a descriptor is ready, or `deadline_ns` has passed.
    ///
    /// All but the sleep is inlined into the loop that waits: see [`Parker::spin`].
    #[inline(always)]
    pub(crate) fn wait_for_work(
        &mut self,
        deadline_ns: Option<u64>,
        incoming: &mut impl IncomingMessages,
    ) -> Result<(), RunError> {
        let Self { shared, parker, reactor, had_async_senders, .. } = self;
        parker.publish_cpu(shared.unparker());
        let mut poll = || incoming.has_any() || shared.is_interrupted(*had_async_senders);
        let spin_deadline_ns = match reactor {
            None => deadline_ns,
            Some(_) => earlier_deadline_ns(UNWATCHED_NS_MAX, deadline_ns),
        };
        if parker.spin(spin_deadline_ns, &mut poll) {
            self.spins += 1;
            return Ok(());
        }
        self.sleep(deadline_ns, incoming)
    }

    /// Sleeps until there is work, but only briefly while a push is unfinished. See
    /// [`wait_for_work`](Self::wait_for_work).
    #[inline(never)]
    fn sleep(
        &mut self,
        deadline_ns: Option<u64>,
        incoming: &mut impl IncomingMessages,
    ) -> Result<(), RunError> {
        let Self { shared, parker, reactor, had_async_senders, .. } = self;
        let mut answer = Ok(());
        let mut park = |deadline_ns: Option<u64>, poll: &mut dyn FnMut() -> bool| match reactor {
            None => parker.park(shared.unparker(), deadline_ns, &mut &mut *poll),
            Some(reactor) => parker.park_with(shared.unparker(), &mut &mut *poll, |now_ns| {
                let left = |at_ns: u64| at_ns.saturating_sub(now_ns);
                answer = reactor.wait(deadline_ns.map(left)).map_err(epoll_wait_error);
            }),
        };
        let mut has_begun_push = false;
        let mut parked = park(deadline_ns, &mut || {
            if incoming.has_any() || shared.is_interrupted(*had_async_senders) {
                return true;
            }
            has_begun_push = incoming.has_begun_push();
            has_begun_push
        });
        if has_begun_push {
            let mut poll = || incoming.has_any() || shared.is_interrupted(*had_async_senders);
            parked = park(earlier_deadline_ns(PUSH_AGAIN_NS, deadline_ns), &mut poll);
        }
        if parked != ParkResult::NotParked {
            stage::record_woken();
            self.parks += 1;
            self.wakeups += u64::from(parked == ParkResult::Unparked);
        }
        answer
    }

    /// Records a message to a machine of another thread, which may reply. `has_woken` is `true` if
    /// that thread slept and was woken.
    #[inline]
    pub(crate) fn record_sent_to(&mut self, other: &SharedThreadState, has_woken: bool) {
        self.parker.record_sent(self.shared.unparker(), has_woken);
        self.parker.expect_answer_from(other.unparker());
    }

    /// Records that messages were sent to machines of these threads, which may reply.
    #[inline]
    pub(crate) fn expect_replies_from<'a>(
        &mut self,
        shared_threads: impl Iterator<Item = &'a SharedThreadState>,
    ) {
        let Self { parker, shared, .. } = self;
        let others = shared_threads.filter(|other| !std::ptr::eq(*other, &**shared));
        parker.expect_answers_from(others.map(SharedThreadState::unparker));
    }

    /// Makes the system call for a message from this thread to itself if
    /// [`WakeWhen`](crate::WakeWhen) asks for it.
    #[inline]
    pub(crate) fn notify_itself(&self) {
        if self.notifies_itself() {
            self.wake_itself();
        }
    }

    /// Returns `true` if this thread makes a system call for each message to itself.
    #[inline]
    pub(crate) fn notifies_itself(&self) -> bool {
        self.config.wake_when == WakeWhen::EachMessage
    }

    /// Writes to this thread's own eventfd, as for a message from another thread. Not inlined, so
    /// that handlers that send stay small enough to be inlined.
    #[cold]
    #[inline(never)]
    fn wake_itself(&self) {
        self.shared.wake();
    }

    /// Writes the thread's counters to `stats`.
    pub(crate) fn write_counts(&self, stats: &mut Stats) {
        stats.parks = self.parks;
        stats.wakeups = self.wakeups;
        stats.spins = self.spins;
    }

    /// Puts a message into the queue of another machine of the group, and appends the machine to
    /// the run queue.
    #[inline(always)]
    pub(crate) fn push_to<N: Send + 'static>(
        &mut self,
        machine: u32,
        message: N,
    ) -> Result<(), PushError<N>> {
        let Self { locals, run_queue, .. } = self;
        let locals = locals.as_mut_slice();
        let queue = locals.get_mut(machine as usize).and_then(|local| local.queue.get_mut::<N>());
        // Without a queue, the machine was removed.
        let Some(queue) = queue else { return Err(PushError::Closed(message)) };
        queue.push(message).map_err(PushError::Full)?;
        run_queue.append(locals, machine);
        Ok(())
    }

    /// Puts the message `wrap(value)` into the queue of another machine of the group, and appends
    /// the machine to the run queue. Returns the value instead if the queue is not empty, or the
    /// machine was removed.
    #[inline(always)]
    pub(crate) fn push_first_to<N: Send + 'static, V>(
        &mut self,
        machine: u32,
        value: V,
        wrap: impl FnOnce(V) -> N,
    ) -> Result<(), V> {
        let Self { locals, run_queue, .. } = self;
        let locals = locals.as_mut_slice();
        let queue = locals.get_mut(machine as usize).and_then(|local| local.queue.get_mut::<N>());
        match queue {
            Some(queue) if queue.is_empty() => queue.push_first(wrap(value)),
            _ => return Err(value),
        }
        run_queue.append(locals, machine);
        Ok(())
    }

    /// Appends a machine of the group to the run queue, unless it is in the queue.
    #[inline]
    pub(crate) fn enqueue(&mut self, machine: u32) {
        self.run_queue.append(&mut self.locals, machine);
    }

    /// Removes and returns the first machine of the run queue; `None` if the queue is empty.
    #[inline]
    pub(crate) fn dequeue(&mut self) -> Option<u32> {
        let first = self.run_queue.first;
        if first == END {
            return None;
        }
        let next = &mut self.locals[first as usize].next_in_run_queue;
        self.run_queue.first = std::mem::replace(next, NOT_QUEUED);
        Some(first)
    }

    /// Returns `true` if the run queue contains a machine.
    pub(crate) fn has_work(&self) -> bool {
        self.run_queue.first != END
    }
}

/// Returns the error of a failed wait for events.
fn epoll_wait_error(error: io::Error) -> RunError {
    RunError::SystemCall { call: "epoll_wait", error }
}
