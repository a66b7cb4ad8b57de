//! A handler with its machine's state: one round of each kind of work, with panics caught.

use super::context::Context;
use super::machine_state::MachineState;
use super::reactor::EpollToken;
use super::thread_state::ThreadState;
use crate::{EndReason, OnPanic, Ready, stage};
use handover_base::unwind;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Behaviour of a machine: the state and the code that handle its messages.
///
/// A machine has one message type, usually an `enum` with one `match` on it, which compiles to a
/// jump, whatever the number of kinds. (For many kinds whose handlers are registered one by one
/// there is [`HandlerTable`](crate::HandlerTable).) Timers, descriptors and topics deliver messages
/// of the same type, made by a closure; the name of a variant will do.
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

    /// Called once, on the thread that runs the machine, before the machine's first message.
    fn started(&mut self, cx: &mut Context<'_, Self::Message>) {
        let _ = cx;
    }
}

/// Converts a closure into a handler.
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
    FnHandler { handle, message_type: core::marker::PhantomData }
}

/// Handler that calls a closure, made by [`handler`].
pub struct FnHandler<M, F> {
    handle: F,
    message_type: core::marker::PhantomData<fn(M)>,
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

/// Machine without a thread: its handler and its state.
pub(crate) struct Member<H: Handler> {
    pub(crate) handler: H,
    pub(crate) state: MachineState<H::Message>,
    has_started: bool,
    /// `true` if the last batch began with messages of the machine's own thread.
    began_with_own: bool,
}

impl<H: Handler> Member<H> {
    pub(crate) fn new(handler: H, state: MachineState<H::Message>) -> Self {
        Self { handler, state, has_started: false, began_with_own: false }
    }

    /// Calls the handler's `started`, but only the first time.
    pub(crate) fn start(&mut self, thread: &mut ThreadState) {
        if !self.has_started {
            self.has_started = true;
            self.catch_panic(thread, |member, thread| {
                member.handler.started(&mut Context { state: &mut member.state, thread });
            });
        }
    }

    /// Handles up to `count_max` queued messages; returns the number handled. Alternates between
    /// messages of the machine's own thread and of other threads.
    #[inline]
    pub(crate) fn handle_messages(&mut self, thread: &mut ThreadState, count_max: u32) -> u32 {
        let mut count = 0;
        while count < count_max && self.state.has_messages() && !thread.is_ending {
            let before = self.state.handled;
            self.catch_panic(thread, |member, thread| {
                member.handle_batch(thread, count_max - count)
            });
            count += (self.state.handled - before) as u32; // at most count_max
        }
        // Tasks also without a message: the machine may have handled the last one before it learned
        // of them.
        let has_async_senders = thread.shared.has_async_senders();
        if count > 0 || has_async_senders {
            self.state.admit(has_async_senders);
        }
        count
    }

    /// Handles up to `count_max` messages, only those from the machine's own thread; returns their
    /// number.
    #[inline]
    pub(crate) fn handle_local_messages(
        &mut self,
        thread: &mut ThreadState,
        count_max: u32,
    ) -> u32 {
        let before = self.state.handled;
        while !self.state.local.is_empty() && !thread.is_ending {
            let left = count_max - (self.state.handled - before) as u32; // never more
            if left == 0 {
                break;
            }
            self.catch_panic(thread, |member, thread| {
                member.handle_local_batch(thread, left);
            });
        }
        (self.state.handled - before) as u32 // at most count_max
    }

    /// Handles a message from the machine's own thread that was already taken from the local queue.
    #[inline]
    pub(crate) fn handle_local(&mut self, thread: &mut ThreadState, message: H::Message) {
        self.catch_panic(thread, |member, thread| {
            member.state.handled += 1;
            stage::record_dispatched_here(member.state.address.shared());
            member.dispatch(thread, message);
        });
    }

    /// Handles up to `count_max` messages: local ones, then those of other threads, then local ones
    /// again. Every other batch omits the first step, as a batch may end after one message, by its
    /// limit or by a panic.
    ///
    /// All are dispatched in one place, so that a handler of some size is inlined there: an
    /// out-of-line handler would read the message from memory in other pieces than it was written
    /// in (3 to 6 ns).
    #[inline]
    fn handle_batch(&mut self, thread: &mut ThreadState, count_max: u32) {
        self.began_with_own = !self.began_with_own;
        let own_share = if self.began_with_own { count_max.div_ceil(2) } else { 0 };
        let mut left = count_max;
        for (own, share) in [(true, own_share), (false, count_max), (true, count_max)] {
            let mut share_left = share.min(left);
            left -= share_left;
            while share_left > 0 && !thread.is_ending {
                let next = if own { self.state.local.pop_front() } else { self.state.inbox.pop() };
                let Some(message) = next else { break };
                share_left -= 1;
                self.state.handled += 1;
                match own {
                    true => stage::record_dispatched_here(self.state.address.shared()),
                    false => stage::record_dispatched(self.state.address.shared()),
                }
                self.dispatch(thread, message);
            }
            left += share_left;
        }
    }

    /// Handles up to `count_max` messages of the local queue; returns the number handled.
    #[inline]
    fn handle_local_batch(&mut self, thread: &mut ThreadState, count_max: u32) -> u32 {
        let mut count = 0;
        while count < count_max && !thread.is_ending {
            let Some(message) = self.state.local.pop_front() else { break };
            count += 1;
            self.state.handled += 1;
            stage::record_dispatched_here(self.state.address.shared());
            self.dispatch(thread, message);
        }
        count
    }

    /// Passes a message to the handler.
    #[inline(always)]
    fn dispatch(&mut self, thread: &mut ThreadState, message: H::Message) {
        self.handler.handle(message, &mut Context { state: &mut self.state, thread });
        stage::record_replied();
    }

    /// Handles up to `timers_per_round_max` timers due at `now_ns`; returns the number handled.
    pub(crate) fn handle_timers(&mut self, thread: &mut ThreadState, now_ns: u64) -> u32 {
        let count_max = self.state.config.timers_per_round_max;
        let mut count = 0;
        while count < count_max && !thread.is_ending {
            let before = self.state.counts.timers;
            self.catch_panic(thread, |member, thread| {
                for _ in count..count_max {
                    let Some(message) = member.state.pop_due_message(now_ns) else { break };
                    stage::record_dispatched(member.state.address.shared());
                    member.dispatch(thread, message);
                    if thread.is_ending {
                        break;
                    }
                }
            });
            let done = (self.state.counts.timers - before) as u32; // at most count_max
            if done == 0 {
                break;
            }
            count += done;
        }
        count
    }

    /// Handles a readiness event; returns the number of messages made of the event, 0 or 1.
    pub(crate) fn handle_descriptor(
        &mut self,
        thread: &mut ThreadState,
        token: EpollToken,
        ready: Ready,
    ) -> u32 {
        let before = self.state.counts.descriptors;
        self.catch_panic(thread, |member, thread| {
            if let Some(message) = member.state.ready_message(token, ready) {
                stage::record_dispatched(member.state.address.shared());
                member.dispatch(thread, message);
            }
        });
        (self.state.counts.descriptors - before) as u32 // one at most
    }

    /// Calls `work` and handles its panic, if any, by the policy `on_panic`.
    #[inline]
    fn catch_panic(
        &mut self,
        thread: &mut ThreadState,
        work: impl FnOnce(&mut Self, &mut ThreadState),
    ) {
        // Unwind safe: queues and counters are consistent whenever a handler is called; the
        // handler's own state is the user's responsibility, chosen by `on_panic`.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self, thread)));
        if let Err(payload) = outcome {
            self.record_panic(thread, payload);
        }
    }

    /// Counts and logs a panic of the handler. Stops the run if the policy `on_panic` says so.
    ///
    /// Takes the payload, so that the callers, which handle each message, save no registers to drop
    /// it.
    #[cold]
    fn record_panic(&mut self, thread: &mut ThreadState, payload: Box<dyn Any + Send>) {
        self.state.counts.panicked += 1;
        let text = unwind::panic_message(&*payload).unwrap_or("a panic without a message");
        let text = text.to_owned();
        let machine = self.state.address.machine_id();
        match self.state.config.on_panic {
            OnPanic::Stop => {
                tracing::error!(target: "handover_event::machine", machine, panic = text, "a handler panicked: the run stops");
                thread.request_end(EndReason::Panicked(text));
            }
            OnPanic::DropMessage => {
                tracing::error!(target: "handover_event::machine", machine, panic = text, "a handler panicked: the message is lost");
            }
        }
        // Last: its destructor is foreign code, which may abort the process.
        unwind::drop_payload(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Machine};
    use std::panic::panic_any;

    /// Payload of a panic whose destructor panics.
    struct PanickingPayload;

    impl Drop for PanickingPayload {
        fn drop(&mut self) {
            panic!("from the destructor of a payload");
        }
    }

    #[test]
    fn machine_runs_on_although_the_destructor_of_a_panic_payload_panics() {
        let config = Config::default().on_panic(OnPanic::DropMessage);
        let panics = handler(|is_last: bool, cx: &mut Context<'_, bool>| match is_last {
            true => cx.stop(),
            false => panic_any(PanickingPayload),
        });
        let mut machine = Machine::new(panics, config).expect("create a machine");
        for is_last in [false, true] {
            machine.address().send(is_last).expect("send a message");
        }
        assert_eq!(machine.run().expect("run the machine"), EndReason::Stopped);
        assert_eq!(machine.stats().panicked, 1);
    }
}
