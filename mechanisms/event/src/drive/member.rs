//! A handler with its machine's state: one round of each kind of work, with panics caught.

use super::context::Context;
use super::desk::MachineState;
use super::home::ThreadState;
use super::reactor::Token;
use crate::{Ended, OnPanic, Ready, stage};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Behaviour of a machine: handles its messages.
///
/// A machine has one message type, usually an `enum` with one `match` on it, which compiles to a
/// jump, whatever the number of kinds. (For many kinds whose handlers are registered one by one
/// there is [`Table`](crate::Table).) Timers, descriptors and topics deliver messages of the same
/// type, made by a closure; the name of a variant will do.
///
/// ```
/// use handover_event::{Config, Context, Handler, Machine};
/// use std::time::Duration;
///
/// struct Counter { count: u32 }
/// enum Message { Add(u32), Done }
///
/// impl Handler for Counter {
///     type Message = Message;
///
///     fn started(&mut self, cx: &mut Context<'_, Message>) {
///         cx.after(Duration::from_millis(1), Message::Done).expect("start a timer");
///     }
///
///     fn handle(&mut self, message: Message, cx: &mut Context<'_, Message>) {
///         match message {
///             Message::Add(by) => self.count += by,
///             Message::Done => cx.stop(),
///         }
///     }
/// }
///
/// let mut machine = Machine::new(Counter { count: 0 }, Config::default())?;
/// let address = machine.address().clone();
/// let other = std::thread::spawn(move || address.send(Message::Add(2)));
/// other.join().unwrap()?;
/// machine.run()?;
/// assert_eq!(machine.handler().count, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Handler {
    /// The machine's message type.
    type Message: Send + 'static;

    /// Handles one message.
    fn handle(&mut self, message: Self::Message, cx: &mut Context<'_, Self::Message>);

    /// Called once, on the thread that runs the machine, before its first message.
    fn started(&mut self, cx: &mut Context<'_, Self::Message>) {
        let _ = cx;
    }
}

/// Makes a handler of a closure.
///
/// ```
/// use handover_event::{Config, Machine, handler};
/// let mut sum = 0;
/// let mut machine = Machine::new(
///     handler(|number: u32, cx| {
///         sum += number;
///         if number == 0 { cx.stop() } else { cx.send_quiet(number - 1).expect("send a message") }
///     }),
///     Config::default(),
/// )?;
/// machine.context().send_quiet(4)?;
/// machine.run()?;
/// drop(machine);
/// assert_eq!(sum, 4 + 3 + 2 + 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn handler<M, F>(handle: F) -> FnHandler<M, F>
where
    M: Send + 'static,
    F: FnMut(M, &mut Context<'_, M>),
{
    FnHandler { handle, takes: core::marker::PhantomData }
}

/// Handler made by [`handler`].
pub struct FnHandler<M, F> {
    handle: F,
    takes: core::marker::PhantomData<fn(M)>,
}

impl<M, F> core::fmt::Debug for FnHandler<M, F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FnHandler")
    }
}

impl<M, F> Handler for FnHandler<M, F>
where
    M: Send + 'static,
    F: FnMut(M, &mut Context<'_, M>),
{
    type Message = M;

    #[inline]
    fn handle(&mut self, message: M, cx: &mut Context<'_, M>) {
        (self.handle)(message, cx);
    }
}

pub(crate) struct Member<H: Handler> {
    pub(crate) handler: H,
    pub(crate) desk: MachineState<H::Message>,
    has_started: bool,
}

impl<H: Handler> Member<H> {
    pub(crate) fn new(handler: H, desk: MachineState<H::Message>) -> Self {
        Self { handler, desk, has_started: false }
    }

    pub(crate) fn start(&mut self, home: &mut ThreadState) {
        if !self.has_started {
            self.has_started = true;
            self.catch_panic(home, |member, home| {
                member.handler.started(&mut Context { desk: &mut member.desk, home });
            });
        }
    }

    /// Handles up to `count_max` queued messages, alternately of the machine's own thread and of
    /// other threads; returns the number handled.
    #[inline]
    pub(crate) fn handle_messages(&mut self, home: &mut ThreadState, count_max: u32) -> u32 {
        let mut count = 0;
        while count < count_max && self.desk.has_messages() && !home.is_ending {
            let before = self.desk.handled;
            self.catch_panic(home, |member, home| member.batch(home, count_max - count));
            count += (self.desk.handled - before) as u32; // at most count_max
        }
        if count > 0 {
            self.desk.admit();
        }
        count
    }

    /// Handles up to `count_max` messages of the machine's own thread only; returns the number handled.
    #[inline]
    pub(crate) fn handle_local_messages(&mut self, home: &mut ThreadState, count_max: u32) -> u32 {
        let before = self.desk.handled;
        while !self.desk.local.is_empty() && !home.is_ending {
            let left = count_max - (self.desk.handled - before) as u32; // never more
            if left == 0 {
                break;
            }
            self.catch_panic(home, |member, home| {
                member.local_messages(home, left);
            });
        }
        (self.desk.handled - before) as u32 // at most count_max
    }

    /// Handles a message of the machine's own thread that was already removed from its queue.
    #[inline]
    pub(crate) fn handle_local(&mut self, home: &mut ThreadState, message: H::Message) {
        self.catch_panic(home, |member, home| {
            member.desk.handled += 1;
            stage::dispatched_here(member.desk.address.state());
            member.dispatch(home, message);
        });
    }

    /// Handles local messages, then those of other threads, then local ones again. All are
    /// dispatched in one place, so that a handler of some size is inlined there: an out-of-line
    /// handler would read the message from memory, in pieces that differ from those it was written
    /// in (3 to 6 ns).
    #[inline]
    fn batch(&mut self, home: &mut ThreadState, count_max: u32) {
        let mut left = count_max;
        for (own, share) in [(true, count_max.div_ceil(2)), (false, count_max), (true, count_max)] {
            let mut share_left = share.min(left);
            left -= share_left;
            while share_left > 0 && !home.is_ending {
                let next = if own { self.desk.local.pop_front() } else { self.desk.inbox.pop() };
                let Some(message) = next else { break };
                share_left -= 1;
                self.desk.handled += 1;
                match own {
                    true => stage::dispatched_here(self.desk.address.state()),
                    false => stage::dispatched(self.desk.address.state()),
                }
                self.dispatch(home, message);
            }
            left += share_left;
        }
    }

    #[inline]
    fn local_messages(&mut self, home: &mut ThreadState, count_max: u32) -> u32 {
        let mut count = 0;
        while count < count_max && !home.is_ending {
            let Some(message) = self.desk.local.pop_front() else { break };
            count += 1;
            self.desk.handled += 1;
            stage::dispatched_here(self.desk.address.state());
            self.dispatch(home, message);
        }
        count
    }

    #[inline(always)]
    fn dispatch(&mut self, home: &mut ThreadState, message: H::Message) {
        self.handler.handle(message, &mut Context { desk: &mut self.desk, home });
        stage::replied();
    }

    /// Handles up to `timers_per_round_max` timers due at `now_ns`; returns the number handled.
    pub(crate) fn handle_timers(&mut self, home: &mut ThreadState, now_ns: u64) -> u32 {
        let count_max = self.desk.config.timers_per_round_max;
        let mut count = 0;
        while count < count_max && !home.is_ending {
            let before = self.desk.counts.timers;
            self.catch_panic(home, |member, home| {
                for _ in count..count_max {
                    let Some(message) = member.desk.pop_timer(now_ns) else { break };
                    stage::dispatched(member.desk.address.state());
                    member.dispatch(home, message);
                    if home.is_ending {
                        break;
                    }
                }
            });
            let done = (self.desk.counts.timers - before) as u32; // at most count_max
            if done == 0 {
                break;
            }
            count += done;
        }
        count
    }

    /// Handles a readiness event; returns the number of messages made of it.
    pub(crate) fn handle_descriptor(
        &mut self,
        home: &mut ThreadState,
        token: Token,
        ready: Ready,
    ) -> u32 {
        let before = self.desk.counts.descriptors;
        self.catch_panic(home, |member, home| {
            if let Some(message) = member.desk.ready_message(token, ready) {
                stage::dispatched(member.desk.address.state());
                member.dispatch(home, message);
            }
        });
        (self.desk.counts.descriptors - before) as u32 // one at most
    }

    /// Calls `work`, catches its panic, and treats that by the configured policy.
    #[inline]
    fn catch_panic(
        &mut self,
        home: &mut ThreadState,
        work: impl FnOnce(&mut Self, &mut ThreadState),
    ) {
        // Unwind safe: queues and counters are consistent whenever a handler is called; the
        // handler's own state is the user's responsibility, chosen by `on_panic`.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self, home)));
        if let Err(panic) = outcome {
            self.panicked(home, &*panic);
        }
    }

    #[cold]
    fn panicked(&mut self, home: &mut ThreadState, panic: &(dyn Any + Send)) {
        self.desk.counts.panicked += 1;
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".to_owned());
        let machine = self.desk.address.id();
        match self.desk.config.on_panic {
            OnPanic::Stop => {
                tracing::error!(target: "handover_event::machine", machine, panic = text, "a handler panicked: stops");
                home.end(Ended::Panicked(text));
            }
            OnPanic::DropMessage => {
                tracing::error!(target: "handover_event::machine", machine, panic = text, "a handler panicked: the message is lost");
            }
        }
    }
}
