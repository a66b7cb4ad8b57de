//! Groups: many machines on one thread.

use super::address::{Address, Stopper};
use super::context::Context;
use super::machine::ClosedMachine;
use super::machine_state::MachineState;
use super::member::{Handler, Member};
use super::reactor::EpollToken;
use super::shared_thread_state::{RunGuard, SharedThreadState};
use super::thread_state::{self, LocalQueue, ThreadState};
use crate::engine::ready::{self, ReadyFlag, ReadyQueue};
use crate::raw::queue::AnyQueue;
use crate::{
    Config, ConfigError, EndReason, MachineError, Ready, RoundResult, RunError, Signals, Stats,
    ThreadConfig, WatchError, WhenFull,
};
use core::fmt;
use core::marker::PhantomData;
use handover_timer::{TimerId, Wheel};
use std::any::Any;
use std::sync::Arc;

/// Maximum number of messages that a group handles before it serves timers and descriptors.
const MESSAGES_PER_ROUND: u32 = 256;

/// Set of machines that run on one thread. One blocking wait covers the messages, timers and file
/// descriptors of all.
///
/// Messages between machines of a group that are sent through a [`Context`]
/// ([`send_to`](Context::send_to)) need no synchronisation. Machines with messages from other
/// threads are found through a queue, so idle machines cost nothing, whatever their number.
///
/// ```
/// use handover_event::{Address, Config, Group, ThreadConfig, handler};
/// let mut group = Group::new(ThreadConfig::default())?;
/// let pong = group.add(handler(|hops_left: u32, cx| {
///     if hops_left == 0 { cx.stop() }
/// }), Config::default())?;
/// let to_pong = pong.address().clone();
/// let ping = group.add(handler(move |hops_left: u32, cx| {
///     cx.send_to(&to_pong, hops_left - 1).expect("free space"); // on this thread: a push to a queue
/// }), Config::default())?;
/// ping.address().send(1)?;
/// group.run()?;
/// assert_eq!(group.stats(&pong).unwrap().handled, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Fairness
/// Machines take turns; in its turn a machine handles up to its `messages_per_round_max` messages.
/// Timers and descriptors are served once 256 messages have been handled in such turns.
///
/// A handler that panics under [`OnPanic::Stop`](crate::OnPanic) ends the run of the group.
///
/// # Blocking
/// Dropping a group closes its machines; it blocks for as long as another thread is in the middle
/// of a send to one.
pub struct Group {
    /// Machines by index; `None` for those that were removed.
    members: Vec<Option<Box<dyn AnyMember>>>,
    /// Timer wheel with the next deadline of each machine that has timers.
    wheel: Wheel<u32>,
    /// Next deadline of each machine, by index; `None` without timers.
    deadlines: Vec<Option<Deadline>>,
    thread: ThreadState,
    ready_queue: ReadyQueue,
    /// Number of messages, timers and readiness events handled since the last call of
    /// [`enqueue_hidden`](Self::enqueue_hidden).
    handled_since_hidden: u32,
    machines_max: u32,
    /// Number of machines whose handler's `started` has been called.
    started_count: usize,
    /// `true` if a machine blocks its senders while its inbox is full.
    has_blocking: bool,
}

/// Next deadline of one machine, with its entry in the group's timer wheel.
#[derive(Clone, Copy)]
struct Deadline {
    /// Timer in the group's wheel.
    timer: TimerId,
    /// Deadline in ns.
    at_ns: u64,
}

/// Handle of a machine in a group. It identifies the machine to the group and holds its address.
pub struct GroupMember<H: Handler> {
    address: Address<H::Message>,
    /// Index of the machine in its group.
    machine: u32,
    _handler: PhantomData<fn() -> H>,
}

impl<H: Handler> GroupMember<H> {
    /// Returns the machine's address; clone it to hand it out.
    #[must_use]
    pub fn address(&self) -> &Address<H::Message> {
        &self.address
    }
}

impl<H: Handler> fmt::Debug for GroupMember<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupMember({})", self.machine)
    }
}

/// Result of serving one machine of the group once, with the work done and the work left. It
/// consists of two integers, so that it is returned in registers.
struct ServeResult {
    /// Number of messages, timers and readiness events handled.
    handled: u32,
    /// Work that the machine has left: 0, or a combination of [`HAS_MESSAGES`] and [`HAS_TIMERS`].
    work_left: u8,
}

/// Bit of [`ServeResult::work_left`]: the machine has further messages to handle.
const HAS_MESSAGES: u8 = 1;
/// Bit of [`ServeResult::work_left`]: timers of the machine may be running, or the group holds a
/// deadline of the machine.
const HAS_TIMERS: u8 = 2;

/// Machine of a group, whose handler type is erased.
trait AnyMember: Any + Send {
    /// Calls the handler's `started` at the first call.
    fn start(&mut self, thread: &mut ThreadState);
    fn handle_messages(&mut self, thread: &mut ThreadState) -> ServeResult;
    fn handle_timers(&mut self, thread: &mut ThreadState, now_ns: u64) -> ServeResult;
    fn handle_descriptor(
        &mut self,
        thread: &mut ThreadState,
        token: EpollToken,
        ready: Ready,
    ) -> ServeResult;
    /// Returns the next deadline of the machine's timers; `None` without timers.
    fn next_deadline_ns(&mut self) -> Option<u64>;
    /// Lets a waiting sender try again as [`MachineState::admit`] does; returns `true` if senders
    /// wait.
    fn admit(&mut self, has_async_senders: bool) -> bool;
    /// Returns the number of messages in the inbox.
    fn waiting_count(&self) -> usize;
    /// Returns `true` if the inbox contains a message.
    fn has_inbox_messages(&self) -> bool;
    fn ready_flag(&self) -> &ReadyFlag;
}

impl<H: Handler + Send + 'static> Member<H> {
    /// Moves the messages from other machines on this thread into the machine's local queue.
    #[inline]
    fn take_local(&mut self, thread: &mut ThreadState) {
        let machine = self.state.machine as usize;
        if let Some(queue) = thread.locals[machine].queue.get_mut() {
            queue.move_to(&mut self.state.local);
        }
    }

    /// Handles messages of the machine from its own and other threads, up to its limit per round.
    #[inline(never)]
    fn handle_any_messages(&mut self, thread: &mut ThreadState) -> ServeResult {
        let machine = self.state.machine as usize;
        let has_inbox_messages = std::mem::take(&mut thread.locals[machine].has_inbox_messages);
        let local_max = self.state.config.local_messages_max as usize;
        // The comparison bounds the local queue if the turn's messages come from the inbox.
        if self.state.local.len() <= local_max {
            self.take_local(thread);
        }
        let count_max = self.state.config.messages_per_round_max;
        let (handled, has_more) = if has_inbox_messages {
            let handled = Member::handle_messages(self, thread, count_max);
            // Messages left in the inbox are no longer announced by the flag, so
            // `has_inbox_messages` records them.
            thread.locals[machine].has_inbox_messages = !self.state.inbox.is_empty();
            (handled, self.state.has_messages())
        } else {
            let handled = self.handle_local_messages(thread, count_max);
            (handled, !self.state.local.is_empty())
        };
        let queue = &mut thread.locals[machine].queue;
        // One at least, so that messages that the machine sends itself cannot keep out the others'.
        let free_count = local_max.saturating_sub(self.state.local.len()).max(1);
        queue.messages_max = free_count as u32; // at most local_messages_max
        // The queue is not empty if its messages were not taken above.
        self.serve_result(handled, has_more || queue.len() != 0)
    }

    /// Returns the result of serving the machine, which has handled `handled` messages and has
    /// further ones if `has_more` is `true`.
    #[inline]
    fn serve_result(&self, handled: u32, has_more: bool) -> ServeResult {
        let messages = if has_more { HAS_MESSAGES } else { 0 };
        let timers = if self.state.has_timers { HAS_TIMERS } else { 0 };
        ServeResult { handled, work_left: messages | timers }
    }
}

impl<H: Handler + Send + 'static> AnyMember for Member<H> {
    fn start(&mut self, thread: &mut ThreadState) {
        Member::start(self, thread);
    }

    fn handle_messages(&mut self, thread: &mut ThreadState) -> ServeResult {
        let local = &mut thread.locals[self.state.machine as usize];
        // As a rule a machine has one message, of another machine of the group.
        let only = match local.queue.get_mut::<H::Message>() {
            Some(queue) if self.state.local.is_empty() && !local.has_inbox_messages => {
                queue.take_only()
            }
            _ => None,
        };
        let Some(only) = only else { return self.handle_any_messages(thread) };
        self.handle_local(thread, only);
        self.serve_result(1, !self.state.local.is_empty())
    }

    fn handle_timers(&mut self, thread: &mut ThreadState, now_ns: u64) -> ServeResult {
        let handled = Member::handle_timers(self, thread, now_ns);
        self.serve_result(handled, !self.state.local.is_empty())
    }

    fn handle_descriptor(
        &mut self,
        thread: &mut ThreadState,
        token: EpollToken,
        ready: Ready,
    ) -> ServeResult {
        let handled = Member::handle_descriptor(self, thread, token, ready);
        self.serve_result(handled, !self.state.local.is_empty())
    }

    fn next_deadline_ns(&mut self) -> Option<u64> {
        self.state.next_deadline_ns()
    }

    fn admit(&mut self, has_async_senders: bool) -> bool {
        self.state.admit(has_async_senders)
    }

    fn waiting_count(&self) -> usize {
        self.state.inbox.len()
    }

    fn has_inbox_messages(&self) -> bool {
        !self.state.inbox.is_empty()
    }

    fn ready_flag(&self) -> &ReadyFlag {
        &self.state.address.shared().ready_flag
    }
}

impl Group {
    /// Creates a group without machines.
    ///
    /// # Errors
    /// [`MachineError`]: the configuration is not valid, or memory or descriptors are exhausted.
    pub fn new(config: ThreadConfig) -> Result<Self, MachineError> {
        config.validate()?;
        let (ready_sender, ready_queue) = ready::ready_queue(config.machines_max)?;
        let thread =
            ThreadState::new(config, SharedThreadState::new(Some(ready_sender), config.wake_when))?;
        let timers = handover_timer::Config::default().timers_max(config.machines_max);
        let wheel = Wheel::new(timers, thread_state::now_ns()).map_err(ConfigError::from)?;
        Ok(Self {
            members: Vec::new(),
            wheel,
            deadlines: Vec::new(),
            thread,
            ready_queue,
            handled_since_hidden: 0,
            machines_max: config.machines_max,
            started_count: 0,
            has_blocking: false,
        })
    }

    /// Adds a machine with this handler. The group's thread configuration applies; `config.thread`
    /// is ignored.
    ///
    /// # Errors
    /// [`MachineError`]: the configuration is not valid, the group is full, or memory is exhausted.
    pub fn add<H>(&mut self, handler: H, config: Config) -> Result<GroupMember<H>, MachineError>
    where
        H: Handler + Send + 'static,
    {
        config.validate()?;
        if self.members.len() >= self.machines_max as usize {
            return Err(MachineError::GroupFull { machines_max: self.machines_max });
        }
        let machine = self.members.len() as u32; // below machines_max
        let state = MachineState::new(config, &self.thread.shared, machine)?;
        let address = state.address.clone();
        let queue = AnyQueue::for_messages::<H::Message>(config.local_messages_max);
        self.thread.locals.push(LocalQueue::new(queue));
        self.members.push(Some(Box::new(Member::new(handler, state))));
        self.deadlines.push(None);
        self.has_blocking |= matches!(config.when_full, WhenFull::Block { .. });
        self.thread.enqueue(machine); // messages put into its context before the run are found
        Ok(GroupMember { address, machine, _handler: PhantomData })
    }

    /// Returns a handle that stops the group from any thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { shared_thread: Arc::clone(&self.thread.shared) }
    }

    /// Makes each later run stop when one of these signals arrives.
    ///
    /// # Errors
    /// [`WatchError::SystemCall`] when no descriptor is available.
    pub fn stop_on(&mut self, signals: Signals) -> Result<(), WatchError> {
        self.thread.stop_on(signals).map_err(|(call, error)| WatchError::SystemCall { call, error })
    }

    /// Returns the number of machines ever added, including removed ones. Their indices are not
    /// reused.
    #[must_use]
    pub fn machines_count(&self) -> usize {
        self.members.len()
    }

    /// Returns a machine's handler; `None` if the machine was removed or belongs to another group.
    #[must_use]
    pub fn handler<H: Handler + Send + 'static>(&self, which: &GroupMember<H>) -> Option<&H> {
        Some(&self.member(which)?.handler)
    }

    /// Returns a machine's handler, to change it between runs. Returns `None` if the machine was
    /// removed or belongs to another group.
    pub fn handler_mut<H: Handler + Send + 'static>(
        &mut self,
        which: &GroupMember<H>,
    ) -> Option<&mut H> {
        self.member(which)?;
        let member: &mut dyn Any = self.members[which.machine as usize].as_deref_mut()?;
        Some(&mut member.downcast_mut::<Member<H>>()?.handler)
    }

    /// Returns the context that a machine's handler gets, for use before or between runs. Returns
    /// `None` if the machine was removed or belongs to another group.
    pub fn context<H: Handler + Send + 'static>(
        &mut self,
        which: &GroupMember<H>,
    ) -> Option<Context<'_, H::Message>> {
        self.member(which)?;
        self.thread.enqueue(which.machine);
        let member: &mut dyn Any = self.members[which.machine as usize].as_deref_mut()?;
        let member = member.downcast_mut::<Member<H>>()?;
        Some(Context { state: &mut member.state, thread: &mut self.thread })
    }

    /// Returns a machine's counters; its counts of parks, wake-ups and spins are those of the
    /// thread. `None` if the machine was removed or is of another group.
    #[must_use]
    pub fn stats<H: Handler + Send + 'static>(&self, which: &GroupMember<H>) -> Option<Stats> {
        Some(self.member(which)?.state.stats(&self.thread))
    }

    /// Removes and closes a machine, and returns the messages that were not handled. Stops the
    /// machine's timers and watches. Returns `None` if the machine was removed or belongs to
    /// another group.
    ///
    /// # Blocking
    /// For as long as another thread is in the middle of a send to the machine.
    pub fn remove<H: Handler + Send + 'static>(
        &mut self,
        which: &GroupMember<H>,
    ) -> Option<ClosedMachine<H>> {
        self.member(which)?;
        let place = which.machine as usize;
        let member: Box<dyn Any> = self.members[place].take()?;
        let mut member = *member.downcast::<Member<H>>().ok()?;
        member.take_local(&mut self.thread);
        member.state.watched_sources().for_each(|source| self.thread.unwatch(source));
        // Sends to the removed machine find no queue.
        self.thread.locals[place].queue = AnyQueue::without_queue();
        if let Some(deadline) = self.deadlines[place].take() {
            self.wheel.cancel(deadline.timer);
        }
        Some(ClosedMachine::from_member(member, &self.thread))
    }

    /// Returns the machine of a handle; `None` if it was removed or belongs to another group.
    fn member<H: Handler + Send + 'static>(&self, which: &GroupMember<H>) -> Option<&Member<H>> {
        if !Arc::ptr_eq(&which.address.shared().shared_thread, &self.thread.shared) {
            return None;
        }
        let member: &dyn Any = self.members.get(which.machine as usize)?.as_deref()?;
        member.downcast_ref()
    }

    /// Runs the group until it is stopped. Messages that are still queued stay queued, and the
    /// group may be run again.
    ///
    /// # Errors
    /// [`RunError`] when the kernel refuses a system call that used to succeed.
    ///
    /// # Blocking
    /// Blocks until the group is stopped.
    pub fn run(&mut self) -> Result<EndReason, RunError> {
        let _guard = self.begin_run();
        loop {
            let round = self.round()?;
            self.thread.share_cpu(round.handled);
            self.thread.publish_cpu();
            if let Some(ended) = round.end_reason {
                return Ok(ended);
            }
            if round.handled == 0 {
                self.idle()?;
            }
        }
    }

    /// Runs one round of the group; waits first if there is no work.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Blocking
    /// Blocks until something was handled or the group is stopped.
    pub fn run_once(&mut self) -> Result<RoundResult, RunError> {
        let _guard = self.begin_run();
        loop {
            let round = self.round()?;
            self.thread.share_cpu(round.handled);
            if round.handled > 0 || round.end_reason.is_some() {
                return Ok(round);
            }
            self.idle()?;
        }
    }

    /// Runs one round of the group with the work that is ready, without waiting.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Blocking
    /// Never, unless a handler does.
    pub fn poll(&mut self) -> Result<RoundResult, RunError> {
        let _guard = self.begin_run();
        self.round()
    }

    /// Registers the calling thread as the one that runs the group. Calls `started` of the handlers
    /// added since the last run.
    fn begin_run(&mut self) -> RunGuard {
        let guard = self.thread.shared.enter_run();
        self.thread.begin_run();
        while self.started_count < self.members.len() {
            let machine = self.started_count;
            self.started_count += 1;
            if let Some(member) = &mut self.members[machine] {
                member.start(&mut self.thread);
            }
            // Lists the machine, so that messages it sent to itself and timers it started are
            // found.
            self.thread.enqueue(machine as u32);
        }
        guard
    }

    /// Handles the messages, timers and descriptors that are ready, up to the limits of a round.
    fn round(&mut self) -> Result<RoundResult, RunError> {
        if let Some(ended) = self.thread.take_end_reason() {
            return Ok(RoundResult { handled: 0, end_reason: Some(ended) });
        }
        let mut handled = self.handle_messages();
        if handled == 0 && self.poll_eagerly() {
            handled = self.handle_messages();
        }
        handled += self.handle_timers();
        handled += self.handle_descriptors()?;
        self.handled_since_hidden += handled;
        if handled == 0 || self.handled_since_hidden >= MESSAGES_PER_ROUND {
            self.handled_since_hidden = 0;
            self.enqueue_hidden(handled != 0);
        }
        Ok(RoundResult { handled, end_reason: self.thread.take_end_reason() })
    }

    /// Serves the machines in the run queue round robin until the limit of a round is reached or a
    /// stop is requested. Returns the number of messages handled.
    fn handle_messages(&mut self) -> u32 {
        let mut handled = 0;
        self.enqueue_ready();
        loop {
            let Some(machine) = self.thread.dequeue() else {
                // Checks the flags once more here, at the end of the list, rather than after each
                // message.
                self.enqueue_ready();
                match self.thread.has_work() {
                    true => continue,
                    false => return handled,
                }
            };
            let Some(member) = &mut self.members[machine as usize] else { continue };
            let served = member.handle_messages(&mut self.thread);
            handled += served.handled;
            self.requeue(machine, &served);
            let is_over = handled >= MESSAGES_PER_ROUND || self.thread.is_ending;
            if is_over || self.thread.shared.is_stop_requested() {
                return handled;
            }
        }
    }

    /// Pops the machines from the queue of ready machines, and appends them to the run queue.
    #[inline]
    fn enqueue_ready(&mut self) {
        let Self { members, thread, ready_queue, .. } = self;
        // A machine is in this queue at most once. The bound ends the loop if others keep sending.
        for _ in 0..members.len() {
            let flag_of =
                |machine: u32| members[machine as usize].as_ref().map(|one| one.ready_flag());
            let Some(machine) = ready_queue.pop(flag_of) else { break };
            thread.locals[machine as usize].has_inbox_messages = true;
            thread.enqueue(machine);
        }
    }

    /// Appends all machines with inbox messages to the run queue if an unfilled slot blocks the
    /// ready queue. The slot is one that a sender has reserved and not filled yet. If `is_busy`, it
    /// must have blocked the queue at the last call too: as a rule it is filled soon, and the
    /// search takes longer the more machines the group has.
    fn enqueue_hidden(&mut self, is_busy: bool) {
        if !self.ready_queue.is_blocked(is_busy) {
            return;
        }
        for (machine, member) in (0..).zip(&self.members) {
            if member.as_ref().is_some_and(|one| one.has_inbox_messages()) {
                self.thread.locals[machine as usize].has_inbox_messages = true;
                self.thread.enqueue(machine);
            }
        }
    }

    /// Queues a machine again if it has more messages, and updates its deadline.
    #[inline(always)]
    fn requeue(&mut self, machine: u32, served: &ServeResult) {
        if served.work_left & HAS_MESSAGES != 0 {
            self.thread.enqueue(machine);
        }
        if served.work_left & HAS_TIMERS != 0 {
            self.update_deadline(machine);
        }
    }

    /// Sets a machine's deadline in the group's wheel to that of its earliest timer.
    #[inline(never)]
    fn update_deadline(&mut self, machine: u32) {
        let member = self.members[machine as usize].as_mut();
        let deadline_ns = member.and_then(|member| member.next_deadline_ns());
        let known = self.deadlines[machine as usize];
        if known.map(|known| known.at_ns) == deadline_ns {
            return;
        }
        if let Some(known) = known {
            self.wheel.cancel(known.timer);
        }
        self.deadlines[machine as usize] = deadline_ns.and_then(|at_ns| {
            // Never fails: the wheel has space for one timer of each machine.
            let timer = self.wheel.start(at_ns, machine).ok()?;
            Some(Deadline { timer, at_ns })
        });
    }

    /// Serves once each machine that has due timers; returns the number of timers handled.
    fn handle_timers(&mut self) -> u32 {
        if self.wheel.is_empty() || self.thread.is_ending {
            return 0;
        }
        let now_ns = thread_state::now_ns();
        let mut handled = 0;
        // A machine that still has due timers is served again after the others.
        for _ in 0..self.wheel.len() {
            let Some(expired) = self.wheel.pop_due(now_ns) else { break };
            let machine = expired.payload;
            self.deadlines[machine as usize] = None;
            let Some(member) = &mut self.members[machine as usize] else { continue };
            let served = member.handle_timers(&mut self.thread, now_ns);
            handled += served.handled;
            self.requeue(machine, &served);
            if self.thread.is_ending {
                break;
            }
        }
        handled
    }

    /// Handles the ready descriptors of all machines; returns the number of messages made of them.
    fn handle_descriptors(&mut self) -> Result<u32, RunError> {
        let mut handled = 0;
        if self.thread.is_ending || !self.thread.fetch_ready()? {
            return Ok(0);
        }
        while let Some((token, ready)) = self.thread.next_ready() {
            let machine = u32::from(token.machine);
            let member = self.members.get_mut(machine as usize).and_then(Option::as_mut);
            if let Some(member) = member {
                let served = member.handle_descriptor(&mut self.thread, token, ready);
                handled += served.handled;
                self.requeue(machine, &served);
            }
            if self.thread.is_ending {
                break;
            }
        }
        Ok(handled)
    }

    /// Polls for messages for a fraction of a microsecond. Returns `true` if there are some or a
    /// stop was requested.
    fn poll_eagerly(&mut self) -> bool {
        let ready_queue = &self.ready_queue;
        self.thread.poll_eagerly(&mut || !ready_queue.is_empty())
    }

    /// Spins, then sleeps, until there is work or a timer is due. Does nothing if the run is to
    /// end.
    fn idle(&mut self) -> Result<(), RunError> {
        if self.thread.is_ending || self.thread.has_work() {
            return Ok(());
        }
        let has_async_senders = self.thread.has_async_senders();
        let mut has_waiting_senders = false;
        if self.has_blocking || has_async_senders {
            for member in self.members.iter_mut().flatten() {
                has_waiting_senders |= member.admit(has_async_senders);
            }
        }
        let deadline_ns =
            thread_state::sleep_deadline_ns(self.wheel.next_deadline_ns(), has_waiting_senders);
        let Self { members, ready_queue, thread, .. } = self;
        let waiting_count =
            |machine: u32| members[machine as usize].as_ref().map_or(0, |one| one.waiting_count());
        thread.wait_for_work(deadline_ns, &mut ready_queue.incoming(waiting_count))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({} machines)", self.members.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler;
    use std::time::Duration;

    #[test]
    fn group_holds_the_deadline_of_a_machine_only_while_a_timer_runs() {
        let mut group = Group::new(ThreadConfig::default()).expect("create a group");
        let mut timer = None;
        let machine = handler(move |starts: bool, cx: &mut Context<'_, bool>| {
            if starts {
                timer = cx.after(Duration::from_secs(1000), false).ok();
            } else if let Some(timer) = timer.take() {
                assert_eq!(cx.cancel(timer), Some(Some(false)));
            }
        });
        let machine = group.add(machine, Config::default()).expect("add a machine");
        for (starts, deadlines_count) in [(true, 1), (false, 0), (true, 1)] {
            machine.address().send(starts).expect("send a message");
            group.poll().expect("poll the group");
            assert_eq!(group.wheel.len(), deadlines_count, "the timer starts: {starts}");
        }
        assert_eq!(group.stats(&machine).map(|stats| stats.panicked), Some(0));
    }
}
