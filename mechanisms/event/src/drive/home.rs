//! State of a thread that only the thread itself accesses: its parker, its descriptors, and the
//! queues between machines that share the thread.

use super::door::SharedThreadState;
use super::reactor::{Reactor, Token};
use crate::engine::incoming::Incoming;
use crate::raw::queue::AnyQueue;
use crate::{Ended, MachineError, ParkOn, Ready, RunError, Signals, Stats, ThreadConfig, stage};
use handover_notify::{Parked, Parker};
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Arc;

pub(crate) struct ThreadState {
    pub(crate) door: Arc<SharedThreadState>,
    parker: Parker,
    reactor: Option<Reactor>,
    config: ThreadConfig,
    /// `true` if the run is to return; `ended` holds the reason.
    pub(crate) is_ending: bool,
    ended: Option<Ended>,
    signals: Option<Signals>,
    has_arrived: bool,
    parks: u64,
    wakeups: u64,
    spins: u64,
    /// Queues of messages from the group's other machines, one per machine.
    pub(crate) locals: Vec<LocalQueue>,
    /// First and last machine in the list of those that have work; see [`LocalQueue::listed`].
    listed: Option<(u32, u32)>,
}

/// Queue of messages to one machine from other machines of its group.
pub(crate) struct LocalQueue {
    /// Queue of the messages; none once the machine is removed.
    pub(crate) queue: AnyQueue,
    pub(crate) messages_max: usize,
    /// Next machine in the list of those that have work, or [`LAST`]; `None` if the machine is not in the list.
    pub(crate) listed: Option<u32>,
    /// `true` if other threads have sent messages, so that the inbox must be read.
    pub(crate) has_inbox_messages: bool,
}

/// Value of `listed` for the last machine in the list; more than any machine's index.
const LAST: u32 = u32::MAX;

// The kernel's clock, which also ends the kernel's sleeps: the time-stamp counter may be a
// microsecond ahead or behind, so that a sleep would end too early.
pub(crate) use handover_base::clock::monotonic_ns as now_ns;

/// Maximum sleep while senders wait for space in an inbox, in ns. The sender that was let in may
/// have given up without a notification, and then the next one must be let in.
const ADMIT_AGAIN_NS: u64 = 1_000_000;
/// Maximum sleep while a push has started and is not finished, in ns: its sender is either running
/// at this moment or was preempted in the middle of the push.
const PUSH_AGAIN_NS: u64 = 100_000;

/// Returns the deadline of a sleep: that of the next timer, or an earlier one if senders wait for space.
pub(crate) fn sleep_deadline_ns(deadline_ns: Option<u64>, is_waited_for: bool) -> Option<u64> {
    if is_waited_for { within(ADMIT_AGAIN_NS, deadline_ns) } else { deadline_ns }
}

/// Returns the earlier of `deadline_ns` and `ns_max` from now.
fn within(ns_max: u64, deadline_ns: Option<u64>) -> Option<u64> {
    let again_ns = now_ns().saturating_add(ns_max);
    Some(deadline_ns.map_or(again_ns, |deadline_ns| deadline_ns.min(again_ns)))
}

impl ThreadState {
    pub(crate) fn new(
        config: ThreadConfig,
        door: Arc<SharedThreadState>,
    ) -> Result<Self, MachineError> {
        let parker = Parker::new(config.spin).map_err(crate::ConfigError::from)?;
        let mut home = Self {
            door,
            parker,
            reactor: None,
            config,
            is_ending: false,
            ended: None,
            signals: None,
            has_arrived: false,
            parks: 0,
            wakeups: 0,
            spins: 0,
            locals: Vec::new(),
            listed: None,
        };
        if config.park_on == ParkOn::Descriptor || home.door.notifies_each_message() {
            let refused = |(call, errno)| MachineError::Refused { call, errno };
            home.reactor().map_err(refused)?;
        }
        Ok(home)
    }

    /// Prepares the calling thread at the start of a run.
    pub(crate) fn arrive(&mut self) {
        self.parker.publish_cpu(self.door.unparker());
        if std::mem::replace(&mut self.has_arrived, true) {
            return;
        }
        if let Some(slack) = NonZeroU64::new(self.config.timer_slack_ns.into()) {
            // At worst a seccomp filter refuses; then timers are as late as before.
            let _ = rustix::thread::set_current_timer_slack(Some(slack));
        }
    }

    /// Returns the thread's epoll set, created on first use.
    pub(crate) fn reactor(&mut self) -> Result<&mut Reactor, (&'static str, Errno)> {
        if self.reactor.is_none() {
            let counter = self.door.eventfd().map_err(|errno| ("eventfd2", errno))?;
            let reactor = Reactor::new(self.config.descriptors_per_round_max, counter.as_fd());
            self.reactor = Some(reactor.map_err(|errno| ("epoll_create1", errno))?);
            tracing::debug!(target: "handover_event::descriptor", "sleeps in epoll from now on");
        }
        // `Some`: set above if it was `None`.
        self.reactor.as_mut().ok_or(("epoll_create1", Errno::BADF))
    }

    /// Removes a descriptor whose watch has stopped from the epoll set. Closing it would not be enough: another
    /// reference to the open file keeps the entry.
    pub(crate) fn unwatch(&mut self, source: &dyn AsFd) {
        if let Some(reactor) = &self.reactor {
            // The only expected error is that the descriptor is not in the set, which is the goal.
            let _ = reactor.remove(source);
        }
    }

    pub(crate) fn stop_on(&mut self, signals: Signals) -> Result<(), (&'static str, Errno)> {
        let reactor = self.reactor()?;
        reactor
            .add(&signals, Token::SIGNAL, crate::Interest::READ)
            .map_err(|errno| ("epoll_ctl", errno))?;
        self.signals = Some(signals);
        Ok(())
    }

    /// Stops the run after the current message, with this reason.
    pub(crate) fn end(&mut self, ended: Ended) {
        self.is_ending = true;
        self.ended.get_or_insert(ended);
    }

    /// Returns the reason to end the run, clears it, and logs the end; `None` if the run is to continue.
    #[inline]
    pub(crate) fn take_ended(&mut self) -> Option<Ended> {
        if !self.is_ending && !self.door.is_stop_requested() {
            return None;
        }
        self.take_ended_and_log()
    }

    #[cold]
    fn take_ended_and_log(&mut self) -> Option<Ended> {
        let stopped = self.door.take_stop_request();
        self.is_ending = false;
        let ended = self.ended.take().or(stopped.then_some(Ended::Stopped))?;
        tracing::debug!(target: "handover_event::machine", ?ended, "stops running");
        Some(ended)
    }

    /// Returns `true` if readiness events are available, after fetching more from the kernel if
    /// necessary. Returns `false` if no descriptor is watched.
    pub(crate) fn fetch_ready(&mut self) -> Result<bool, RunError> {
        let Some(reactor) = &mut self.reactor else { return Ok(false) };
        if !reactor.has_ready() {
            reactor.wait(Some(0)).map_err(epoll_wait_refused)?;
        }
        Ok(reactor.has_ready())
    }

    /// Returns the next readiness event that concerns a machine; handles those of the thread
    /// itself. `None` if there is none.
    pub(crate) fn next_ready(&mut self) -> Option<(Token, Ready)> {
        loop {
            let (token, ready) = self.reactor.as_mut()?.next_ready()?;
            match token {
                Token::WAKE => {}
                Token::SIGNAL => {
                    if let Some(signal) = self.signals.as_ref().and_then(Signals::take) {
                        tracing::info!(target: "handover_event::machine", signal, "stops on a signal");
                        self.end(Ended::Signal(signal));
                    }
                }
                _ => return Some((token, ready)),
            }
        }
    }

    /// Polls `look` in a short loop; returns `true` if `look` has returned `true` or a stop was requested.
    #[inline]
    pub(crate) fn poll_eagerly(&mut self, look: &mut impl FnMut() -> bool) -> bool {
        let door = &self.door;
        self.parker.poll_eagerly(&mut || look() || door.is_stop_requested())
    }

    /// Spins, then sleeps until a message is queued, another thread wakes this one, a descriptor is
    /// ready, or `deadline_ns` has passed.
    ///
    /// All but the sleep is inlined into the loop that waits: see [`Parker::spin`].
    #[inline(always)]
    pub(crate) fn idle(
        &mut self,
        deadline_ns: Option<u64>,
        incoming: &mut impl Incoming,
    ) -> Result<(), RunError> {
        let Self { door, parker, .. } = self;
        parker.publish_cpu(door.unparker());
        if parker.spin(deadline_ns, &mut || incoming.has_any() || door.is_stop_requested()) {
            self.spins += 1;
            return Ok(());
        }
        self.sleep(deadline_ns, incoming)
    }

    #[inline(never)]
    fn sleep(
        &mut self,
        deadline_ns: Option<u64>,
        incoming: &mut impl Incoming,
    ) -> Result<(), RunError> {
        let Self { door, parker, reactor, .. } = self;
        let mut answer = Ok(());
        let mut park = |deadline_ns: Option<u64>, look: &mut dyn FnMut() -> bool| match reactor {
            None => parker.park(door.unparker(), deadline_ns, &mut &mut *look),
            Some(reactor) => parker.park_with(door.unparker(), &mut &mut *look, |now_ns| {
                let left = |at_ns: u64| at_ns.saturating_sub(now_ns);
                answer = reactor.wait(deadline_ns.map(left)).map_err(epoll_wait_refused);
            }),
        };
        let mut has_begun_push = false;
        let mut parked = park(deadline_ns, &mut || {
            if incoming.has_any() || door.is_stop_requested() {
                return true;
            }
            has_begun_push = incoming.has_begun_push();
            has_begun_push
        });
        if has_begun_push {
            let mut look = || incoming.has_any() || door.is_stop_requested();
            parked = park(within(PUSH_AGAIN_NS, deadline_ns), &mut look);
        }
        if parked != Parked::Found {
            stage::woken();
            self.parks += 1;
            self.wakeups += u64::from(parked == Parked::Unparked);
        }
        answer
    }

    /// Records that a message was sent to a machine of another thread, which may reply.
    #[inline]
    pub(crate) fn expect_reply_from(&mut self, door: &SharedThreadState) {
        self.parker.expect(door.unparker());
    }

    /// Records that messages were sent to machines of these threads, which may reply.
    #[inline]
    pub(crate) fn expect_replies_from<'a>(
        &mut self,
        doors: impl Iterator<Item = &'a SharedThreadState>,
    ) {
        let Self { parker, door, .. } = self;
        let others = doors.filter(|other| !std::ptr::eq(*other, &**door));
        parker.expect_all(others.map(SharedThreadState::unparker));
    }

    /// Notifies this thread of a message from itself, if each message is notified.
    #[inline]
    pub(crate) fn notify_itself(&self) {
        if self.door.notifies_each_message() {
            self.door.wake();
        }
    }

    /// Adds the thread's counters to `stats`.
    pub(crate) fn count(&self, stats: &mut Stats) {
        stats.parks = self.parks;
        stats.wakeups = self.wakeups;
        stats.spins = self.spins;
    }

    /// Appends a machine of a group to the list of those that have work.
    #[inline]
    pub(crate) fn list(&mut self, machine: u32) {
        let local = &mut self.locals[machine as usize];
        if local.listed.is_some() {
            return;
        }
        local.listed = Some(LAST);
        let first = match self.listed {
            None => machine,
            Some((first, last)) => {
                self.locals[last as usize].listed = Some(machine);
                first
            }
        };
        self.listed = Some((first, machine));
    }

    /// Removes and returns the first machine of the list of those that have work.
    #[inline]
    pub(crate) fn next_with_work(&mut self) -> Option<u32> {
        let (first, last) = self.listed?;
        let next = self.locals[first as usize].listed.take();
        self.listed = next.filter(|next| *next != LAST).map(|next| (next, last));
        Some(first)
    }

    /// Returns `true` if a machine of the group has work.
    pub(crate) fn has_work(&self) -> bool {
        self.listed.is_some()
    }
}

fn epoll_wait_refused(errno: Errno) -> RunError {
    RunError::Refused { call: "epoll_pwait2", errno }
}
