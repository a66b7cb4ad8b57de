//! Groups: many machines on one thread.

use super::address::{Address, Stopper};
use super::context::Context;
use super::desk::MachineState;
use super::door::{RunGuard, SharedThreadState};
use super::home::{self, LocalQueue, ThreadState};
use super::machine::Closed;
use super::member::{Handler, Member};
use super::reactor::Token;
use crate::engine::ready::{self, Mark, ReadyQueue};
use crate::raw::queue::AnyQueue;
use crate::{
    Config, ConfigError, Ended, MachineError, Ready, Round, RunError, Signals, Stats, ThreadConfig,
    WatchError, WhenFull,
};
use core::fmt;
use core::marker::PhantomData;
use handover_timer::{TimerId, Wheel};
use std::any::Any;
use std::sync::Arc;

/// Number of messages after which timers and descriptors are served.
const MESSAGES_PER_ROUND: u32 = 256;

/// Machines that share a thread, its sleep and its descriptors.
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
pub struct Group {
    members: Vec<Option<Box<dyn AnyMember>>>,
    /// Next deadline of each machine that has timers.
    wheel: Wheel<u32>,
    deadlines: Vec<Option<Deadline>>,
    home: ThreadState,
    marked: ReadyQueue,
    machines_max: u32,
    /// Number of machines whose `started` has been called.
    started: usize,
    has_blocking: bool,
}

/// Entry of one machine in the group's wheel of deadlines.
#[derive(Clone, Copy)]
struct Deadline {
    timer: TimerId,
    at_ns: u64,
}

/// Handle of a machine in a group: holds its address, and identifies it to the group.
pub struct GroupMember<H: Handler> {
    address: Address<H::Message>,
    machine: u32,
    is: PhantomData<fn() -> H>,
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
        write!(f, "Joined({})", self.machine)
    }
}

/// Result of a time in which the group served one machine.
struct Turn {
    handled: u32,
    /// `true` if the machine has more to do.
    more: bool,
    deadline_ns: Option<u64>,
}

trait AnyMember: Send {
    fn start(&mut self, home: &mut ThreadState);
    fn handle_messages(&mut self, home: &mut ThreadState) -> Turn;
    fn handle_timers(&mut self, home: &mut ThreadState, now_ns: u64) -> Turn;
    fn handle_descriptor(&mut self, home: &mut ThreadState, token: Token, ready: Ready) -> Turn;
    fn admit(&self) -> bool;
    fn waiting_count(&self) -> usize;
    fn has_inbox_messages(&self) -> bool;
    fn mark(&self) -> &Mark;
    fn as_any(&mut self) -> &mut dyn Any;
    fn as_any_ref(&self) -> &dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<H: Handler + Send + 'static> Member<H> {
    /// Moves the messages that other machines on this thread have sent into the machine's local queue.
    #[inline]
    fn take_local(&mut self, home: &mut ThreadState) {
        let machine = self.desk.machine as usize;
        let Some(queue) = home.locals[machine].queue.get_mut() else { return };
        if self.desk.local.is_empty() {
            std::mem::swap(&mut self.desk.local, queue);
        } else {
            self.desk.local.append(queue);
        }
    }

    /// Handles messages of the machine, any number of them and those of other threads too.
    #[inline(never)]
    fn long_turn(&mut self, home: &mut ThreadState) -> Turn {
        let machine = self.desk.machine as usize;
        let has_inbox_messages = std::mem::take(&mut home.locals[machine].has_inbox_messages);
        self.take_local(home);
        let count_max = self.desk.config.messages_per_round_max;
        if !has_inbox_messages {
            let handled = self.handle_local_messages(home, count_max);
            return self.turn(handled, !self.desk.local.is_empty());
        }
        let handled = Member::handle_messages(self, home, count_max);
        // Messages left in the inbox are no longer announced by the mark, so `has_inbox_messages` records
        // them.
        home.locals[machine].has_inbox_messages = !self.desk.inbox.is_empty();
        self.turn(handled, self.desk.has_messages())
    }

    #[inline]
    fn turn(&mut self, handled: u32, more: bool) -> Turn {
        let wheel = &mut self.desk.wheel;
        let deadline_ns = if wheel.is_empty() { None } else { wheel.next_deadline_ns() };
        Turn { handled, more, deadline_ns }
    }
}

impl<H: Handler + Send + 'static> AnyMember for Member<H> {
    fn start(&mut self, home: &mut ThreadState) {
        Member::start(self, home);
    }

    fn handle_messages(&mut self, home: &mut ThreadState) -> Turn {
        let local = &mut home.locals[self.desk.machine as usize];
        // As a rule a machine has one message, of another machine of the group.
        let only = match local.queue.get_mut::<H::Message>() {
            Some(queue)
                if queue.len() == 1 && self.desk.local.is_empty() && !local.has_inbox_messages =>
            {
                queue.pop_front()
            }
            _ => None,
        };
        let Some(only) = only else { return self.long_turn(home) };
        self.handle_local(home, only);
        self.turn(1, !self.desk.local.is_empty())
    }

    fn handle_timers(&mut self, home: &mut ThreadState, now_ns: u64) -> Turn {
        let handled = Member::handle_timers(self, home, now_ns);
        self.turn(handled, !self.desk.local.is_empty())
    }

    fn handle_descriptor(&mut self, home: &mut ThreadState, token: Token, ready: Ready) -> Turn {
        let handled = Member::handle_descriptor(self, home, token, ready);
        self.turn(handled, !self.desk.local.is_empty())
    }

    fn admit(&self) -> bool {
        self.desk.admit()
    }

    fn waiting_count(&self) -> usize {
        self.desk.inbox.len()
    }

    fn has_inbox_messages(&self) -> bool {
        !self.desk.inbox.is_empty()
    }

    fn mark(&self) -> &Mark {
        &self.desk.address.state().mark
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn as_any_ref(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Group {
    /// Makes a group without machines.
    ///
    /// # Errors
    /// [`MachineError`]: the configuration is not valid, or memory or descriptors are exhausted.
    pub fn new(config: ThreadConfig) -> Result<Self, MachineError> {
        config.validate()?;
        let (marking, marked) = ready::ready_queue(config.machines_max)?;
        let home =
            ThreadState::new(config, SharedThreadState::new(Some(marking), config.wake_when))?;
        let timers = handover_timer::Config {
            timers_max: config.machines_max,
            ..handover_timer::Config::default()
        };
        let wheel = Wheel::new(timers, home::now_ns()).map_err(ConfigError::from)?;
        Ok(Self {
            members: Vec::new(),
            wheel,
            deadlines: Vec::new(),
            home,
            marked,
            machines_max: config.machines_max,
            started: 0,
            has_blocking: false,
        })
    }

    /// Adds a machine. Its `config.thread` is ignored: the group's applies.
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
        let desk = MachineState::new(config, &self.home.door, machine)?;
        let address = desk.address.clone();
        self.home.locals.push(LocalQueue {
            queue: AnyQueue::of::<H::Message>(),
            messages_max: config.local_messages_max as usize,
            listed: None,
            has_inbox_messages: false,
        });
        self.members.push(Some(Box::new(Member::new(handler, desk))));
        self.deadlines.push(None);
        self.has_blocking |= matches!(config.when_full, WhenFull::Block { .. });
        self.home.list(machine); // messages put into its context before the run are found
        Ok(GroupMember { address, machine, is: PhantomData })
    }

    /// Returns a handle that stops the group from any thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { door: Arc::clone(&self.home.door) }
    }

    /// Stops a run when one of these signals arrives.
    ///
    /// # Errors
    /// [`WatchError::Refused`] when no descriptor is available.
    pub fn stop_on(&mut self, signals: Signals) -> Result<(), WatchError> {
        self.home.stop_on(signals).map_err(|(call, errno)| WatchError::Refused { call, errno })
    }

    /// Returns the number of machines added, including those that were removed: their indices are
    /// not reused.
    #[must_use]
    pub fn machines_count(&self) -> usize {
        self.members.len()
    }

    /// Returns a machine's handler; `None` if the machine was removed or belongs to another group.
    #[must_use]
    pub fn handler<H: Handler + Send + 'static>(&self, which: &GroupMember<H>) -> Option<&H> {
        Some(&self.member(which)?.handler)
    }

    /// Returns a machine's handler, mutably, to change it between runs; `None` as for
    /// [`handler`](Self::handler).
    pub fn handler_mut<H: Handler + Send + 'static>(
        &mut self,
        which: &GroupMember<H>,
    ) -> Option<&mut H> {
        self.member(which)?;
        let member = self.members[which.machine as usize].as_mut()?;
        Some(&mut member.as_any().downcast_mut::<Member<H>>()?.handler)
    }

    /// Returns the context that the machine's handler gets, for use before or between runs; `None`
    /// as for [`handler`](Self::handler).
    pub fn context<H: Handler + Send + 'static>(
        &mut self,
        which: &GroupMember<H>,
    ) -> Option<Context<'_, H::Message>> {
        self.member(which)?;
        self.home.list(which.machine);
        let member = self.members[which.machine as usize].as_mut()?;
        let member = member.as_any().downcast_mut::<Member<H>>()?;
        Some(Context { desk: &mut member.desk, home: &mut self.home })
    }

    /// Returns a machine's counters; parks, wake-ups and spins are those of the thread. `None` as
    /// for [`handler`](Self::handler).
    #[must_use]
    pub fn stats<H: Handler + Send + 'static>(&self, which: &GroupMember<H>) -> Option<Stats> {
        let member = self.member(which)?;
        let mut stats = member.desk.stats();
        let local = &self.home.locals[which.machine as usize].queue;
        let local = local.get::<H::Message>().map_or(0, |queue| queue.len()) as u64;
        stats.waiting += local;
        stats.sent += local;
        self.home.count(&mut stats);
        Some(stats)
    }

    /// Removes and closes a machine, stops its timers and watches, and returns the messages that were not handled.
    /// `None` as for [`handler`](Self::handler).
    pub fn remove<H: Handler + Send + 'static>(
        &mut self,
        which: &GroupMember<H>,
    ) -> Option<Closed<H>> {
        self.member(which)?;
        let place = which.machine as usize;
        let member = self.members[place].take()?.into_any().downcast::<Member<H>>().ok()?;
        let mut member = *member;
        member.take_local(&mut self.home);
        member.desk.watched().for_each(|source| self.home.unwatch(source));
        self.home.locals[place].queue = AnyQueue::none(); // sends to the removed machine find no queue
        if let Some(deadline) = self.deadlines[place].take() {
            self.wheel.cancel(deadline.timer);
        }
        Some(Closed::of(member, &self.home))
    }

    fn member<H: Handler + Send + 'static>(&self, which: &GroupMember<H>) -> Option<&Member<H>> {
        if !Arc::ptr_eq(&which.address.state().door, &self.home.door) {
            return None;
        }
        self.members.get(which.machine as usize)?.as_ref()?.as_any_ref().downcast_ref()
    }

    /// Runs until stopped. Messages that are still queued stay queued, and the group may be run again.
    ///
    /// # Errors
    /// [`RunError`] when the kernel refuses a system call that used to succeed.
    ///
    /// # Blocking
    /// Blocks until the group is stopped.
    pub fn run(&mut self) -> Result<Ended, RunError> {
        let _inside = self.arrive();
        loop {
            let round = self.round()?;
            if let Some(ended) = round.ended {
                return Ok(ended);
            }
            if round.handled == 0 {
                self.idle()?;
            }
        }
    }

    /// Runs one round; waits first if there is no work.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Blocking
    /// Blocks until something was handled or the group is stopped.
    pub fn run_once(&mut self) -> Result<Round, RunError> {
        let _inside = self.arrive();
        loop {
            let round = self.round()?;
            if round.handled > 0 || round.ended.is_some() {
                return Ok(round);
            }
            self.idle()?;
        }
    }

    /// Runs one round of the work that is ready.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Blocking
    /// Never, unless a handler does.
    pub fn poll(&mut self) -> Result<Round, RunError> {
        let _inside = self.arrive();
        self.round()
    }

    fn arrive(&mut self) -> RunGuard {
        let inside = self.home.door.enter();
        self.home.arrive();
        while self.started < self.members.len() {
            let machine = self.started;
            self.started += 1;
            if let Some(member) = &mut self.members[machine] {
                member.start(&mut self.home);
            }
            // Lists the machine, so that messages it sent to itself and timers it started are
            // found.
            self.home.list(machine as u32);
        }
        inside
    }

    fn round(&mut self) -> Result<Round, RunError> {
        if let Some(ended) = self.home.take_ended() {
            return Ok(Round { handled: 0, ended: Some(ended) });
        }
        let mut handled = self.handle_messages();
        if handled == 0 && self.poll_eagerly() {
            handled = self.handle_messages();
        }
        handled += self.handle_timers();
        handled += self.handle_descriptors()?;
        Ok(Round { handled, ended: self.home.take_ended() })
    }

    /// Serves the listed machines round robin until the limit of a round is reached; returns the number of messages
    /// handled.
    fn handle_messages(&mut self) -> u32 {
        let mut handled = 0;
        self.list_marked();
        loop {
            let Some(machine) = self.home.next_with_work() else {
                // Checks the marks once more here, at the end of the list, rather than after each
                // message.
                self.list_marked();
                match self.home.has_work() {
                    true => continue,
                    false => return handled,
                }
            };
            let Some(member) = &mut self.members[machine as usize] else { continue };
            let turn = member.handle_messages(&mut self.home);
            handled += turn.handled;
            self.after(machine, &turn);
            if handled >= MESSAGES_PER_ROUND || self.home.is_ending {
                return handled;
            }
        }
    }

    /// Lists the machines to which other threads have announced messages.
    #[inline]
    fn list_marked(&mut self) {
        let Self { members, home, marked, .. } = self;
        // A machine is in this queue at most once. The bound ends the loop if others keep sending.
        for _ in 0..members.len() {
            let mark_of = |machine: u32| members[machine as usize].as_ref().map(|one| one.mark());
            let Some(machine) = marked.pop(mark_of) else { break };
            home.locals[machine as usize].has_inbox_messages = true;
            home.list(machine);
        }
    }

    /// Lists the machines with messages from other threads, if the queue of marked machines is
    /// blocked: a sender that has taken its slot there and was preempted before filling it hides
    /// the machines behind it. Returns `true` if there are any.
    fn list_hidden(&mut self) -> bool {
        if !self.marked.is_blocked() {
            return false;
        }
        for (machine, member) in (0..).zip(&self.members) {
            if member.as_ref().is_some_and(|one| one.has_inbox_messages()) {
                self.home.locals[machine as usize].has_inbox_messages = true;
                self.home.list(machine);
            }
        }
        self.home.has_work()
    }

    #[inline(always)]
    fn after(&mut self, machine: u32, turn: &Turn) {
        if turn.more {
            self.home.list(machine);
        }
        if turn.deadline_ns.is_some() || self.deadlines[machine as usize].is_some() {
            self.set_deadline(machine, turn.deadline_ns);
        }
    }

    #[inline(never)]
    fn set_deadline(&mut self, machine: u32, deadline_ns: Option<u64>) {
        let known = self.deadlines[machine as usize];
        if known.map(|known| known.at_ns) == deadline_ns {
            return;
        }
        if let Some(known) = known {
            self.wheel.cancel(known.timer);
        }
        self.deadlines[machine as usize] = deadline_ns.and_then(|at_ns| {
            // Never fails: the wheel has room for one timer of each machine.
            let timer = self.wheel.start(at_ns, machine).ok()?;
            Some(Deadline { timer, at_ns })
        });
    }

    fn handle_timers(&mut self) -> u32 {
        if self.wheel.is_empty() || self.home.is_ending {
            return 0;
        }
        let now_ns = home::now_ns();
        let mut handled = 0;
        // A machine that still has due timers is served again after the others.
        for _ in 0..self.wheel.len() {
            let Some(expired) = self.wheel.pop_due(now_ns) else { break };
            let machine = expired.payload;
            self.deadlines[machine as usize] = None;
            let Some(member) = &mut self.members[machine as usize] else { continue };
            let turn = member.handle_timers(&mut self.home, now_ns);
            handled += turn.handled;
            self.after(machine, &turn);
            if self.home.is_ending {
                break;
            }
        }
        handled
    }

    fn handle_descriptors(&mut self) -> Result<u32, RunError> {
        let mut handled = 0;
        if self.home.is_ending || !self.home.fetch_ready()? {
            return Ok(0);
        }
        while let Some((token, ready)) = self.home.next_ready() {
            let machine = u32::from(token.machine);
            let member = self.members.get_mut(machine as usize).and_then(Option::as_mut);
            if let Some(member) = member {
                let turn = member.handle_descriptor(&mut self.home, token, ready);
                handled += turn.handled;
                self.after(machine, &turn);
            }
            if self.home.is_ending {
                break;
            }
        }
        Ok(handled)
    }

    fn poll_eagerly(&mut self) -> bool {
        let marked = &self.marked;
        self.home.poll_eagerly(&mut || !marked.is_empty())
    }

    fn idle(&mut self) -> Result<(), RunError> {
        if self.home.is_ending || self.list_hidden() {
            return Ok(());
        }
        let mut is_waited_for = false;
        if self.has_blocking {
            for member in self.members.iter().flatten() {
                is_waited_for |= member.admit();
            }
        }
        let deadline_ns = home::sleep_deadline_ns(self.wheel.next_deadline_ns(), is_waited_for);
        let Self { members, marked, home, .. } = self;
        let waiting_count =
            |machine: u32| members[machine as usize].as_ref().map_or(0, |one| one.waiting_count());
        home.idle(deadline_ns, &mut marked.incoming(waiting_count))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({} machines)", self.members.len())
    }
}
