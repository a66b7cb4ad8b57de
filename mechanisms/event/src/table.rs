//! Table of handlers, registered one by one and found by index.

use crate::{Context, Handler};
use core::fmt;

/// Message type whose values have a small number that identifies their kind.
///
/// Number the kinds from zero without gaps: a [`HandlerTable`] has an entry for each number up to
/// the greatest that has a handler.
pub trait MessageKind: Send + 'static {
    /// Returns the number of the message's kind.
    fn kind(&self) -> usize;
}

/// Function that handles the messages of one kind.
pub type HandleFn<S, M> = fn(&mut S, M, &mut Context<'_, M>);

/// [`Handler`] with a state and a table of functions, one for each kind of message. The function is
/// found by index, in the same time for any number of kinds.
///
/// A message of a kind without a function is *unhandled*: counted, reported once per kind, and
/// dropped; see [`Context::unhandled`].
///
/// ```
/// use handover_event::{Config, MessageKind, Machine, HandlerTable};
///
/// struct Message { kind: u16, amount: u32 }
/// impl MessageKind for Message {
///     fn kind(&self) -> usize { self.kind.into() }
/// }
/// const ADD: usize = 0;
/// const SUBTRACT: usize = 1;
///
/// let table = HandlerTable::new(0u32)
///     .on(ADD, |sum, message: Message, _cx| *sum += message.amount)
///     .on(SUBTRACT, |sum, message, _cx| *sum -= message.amount);
/// let mut machine = Machine::new(table, Config::default())?;
/// machine.address().send(Message { kind: 0, amount: 5 })?;
/// machine.address().send(Message { kind: 1, amount: 2 })?;
/// machine.address().send(Message { kind: 7, amount: 9 })?;
/// machine.poll()?;
/// assert_eq!(*machine.handler().state(), 3);
/// assert_eq!(machine.stats().unhandled, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HandlerTable<S, M> {
    /// State that the functions share.
    state: S,
    /// Function for each message kind, by number; `None` without a function.
    handlers: Vec<Option<HandleFn<S, M>>>,
    /// Function that is called before the first message is handled.
    started: Option<fn(&mut S, &mut Context<'_, M>)>,
}

/// Greatest kind number for which a function can be registered: 65,535.
pub const KIND_MAX: usize = u16::MAX as usize;

impl<S, M: MessageKind> HandlerTable<S, M> {
    /// Creates a table without handlers.
    #[must_use]
    pub fn new(state: S) -> Self {
        Self { state, handlers: Vec::new(), started: None }
    }

    /// Registers the function for messages of a kind, in place of an earlier one.
    ///
    /// # Panics
    /// Panics if `kind` is above [`KIND_MAX`].
    #[must_use]
    pub fn on(mut self, kind: usize, handle: HandleFn<S, M>) -> Self {
        assert!(kind <= KIND_MAX, "kind={kind}: must lie in 0..={KIND_MAX}");
        if kind >= self.handlers.len() {
            self.handlers.resize(kind + 1, None);
        }
        self.handlers[kind] = Some(handle);
        self
    }

    /// Registers the function that is called once before the first message is handled.
    #[must_use]
    pub fn on_start(mut self, started: fn(&mut S, &mut Context<'_, M>)) -> Self {
        self.started = Some(started);
        self
    }

    /// Returns the state that the functions share.
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the state that the functions share, mutably.
    #[must_use]
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

impl<S, M: MessageKind> Handler for HandlerTable<S, M> {
    type Message = M;

    #[inline]
    fn handle(&mut self, message: M, cx: &mut Context<'_, M>) {
        let kind = message.kind();
        match self.handlers.get(kind) {
            Some(Some(handle)) => handle(&mut self.state, message, cx),
            _ => cx.unhandled(kind, message),
        }
    }

    fn started(&mut self, cx: &mut Context<'_, M>) {
        if let Some(started) = self.started {
            started(&mut self.state, cx);
        }
    }
}

impl<S: fmt::Debug, M> fmt::Debug for HandlerTable<S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handlers_count = self.handlers.iter().flatten().count();
        write!(f, "HandlerTable({state:?}, {handlers_count} handlers)", state = self.state)
    }
}
