//! Machines that exchange hellos, for the workloads and for the classic programs `hello1` to
//! `hello5`: one that talks to itself, two that talk to each other, and one that serves many, by
//! address or by topic.
//!
//! A [`ReplyPolicy`] decides what follows a message: an immediate answer, a later answer, or the
//! end. If the decision is always [`Answer`](Reaction::Answer), as in [`LimitedAnswers`] except for
//! the last message, the compiler removes the other cases from the loop. Handled messages are
//! counted in the machines' own [`Stats`](handover_event::Stats), which do not include timers.
//!
//! ```
//! use handover_event::Config;
//! use handover_suite::event::drive::{SelfMessage, LimitedAnswers, SendMethod, new_self_sender};
//! let mut machine = new_self_sender(SendMethod::Call, LimitedAnswers::new(1000), Config::default())?;
//! machine.context().send_quiet(SelfMessage::Hello(1))?;
//! machine.run()?;
//! assert_eq!(machine.stats().handled, 1000);
//! machine.handler_mut().policy.left = 5; // the last answer is still under way: it goes on
//! machine.run()?;
//! assert_eq!(machine.stats().handled, 1005);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod shares;

pub use shares::EqualShares;

use handover_event::{
    Address, Config, Context, HandleFn, Handler, HandlerTable, Machine, MachineError, MessageKind,
    PoolArc, Publisher, Topic,
};
use std::time::Duration;

/// Message between machines: a hello, the end of a pause, or a request to stop.
///
/// Has whole words only: a message that is written in narrower pieces than it is read in stalls
/// until the pieces reach the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineMessage {
    /// A hello: a numbered message that the receiver answers.
    Hello {
        /// Index of the sender, if the receiver serves several machines.
        from: u64,
        /// Number of the hello, counted from 1 between the two machines.
        number: u64,
    },
    /// Timer message that ends the pause before a hello is sent.
    Idle {
        /// Index of the machine to which the hello will be sent.
        to: u64,
        /// Number of the hello that will be sent.
        number: u64,
    },
    /// Request to stop the machine.
    Quit,
}

/// Message of a machine to itself. It is a hello, the end of a pause, or a request to stop.
///
/// A message that is taken at once is read before its words have reached the cache, and a payload
/// of two words is read in one piece, which then waits for both: 9.4 ns a message with
/// [`MachineMessage`], where one word takes 3 ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelfMessage {
    /// Numbered hello, which the machine answers with the next hello.
    Hello(u64),
    /// Timer message that ends the pause before the hello with this number.
    Idle(u64),
    /// Request to stop the machine.
    Quit,
}

/// Message to a subscriber: a post, the end of a pause, or a request to stop.
#[derive(Debug)]
pub enum SubscriberMessage {
    /// Hello of the server: its number, in memory that all subscribers share.
    Post(PoolArc<u64>),
    /// Timer message that ends the pause before an answer is sent.
    Idle {
        /// Number of the answer that will be sent.
        number: u64,
    },
    /// Request to stop the machine.
    Quit,
}

/// Reaction of a machine to a hello: it answers at once or later, answers and stops, or stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// The machine answers at once.
    Answer,
    /// The machine answers after this time.
    AnswerAfter(Duration),
    /// The machine answers and then stops. When the machine runs again, it handles the replies that
    /// arrived in between.
    AnswerAndStop,
    /// The machine stops without an answer.
    Stop,
}

/// Actions that a machine performs when it starts to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartActions {
    /// `true` if the machine sends the first hello at once.
    pub sends_first_hello: bool,
    /// Time after which the machine sends the first hello; `None` to send no hello later.
    pub first_hello_after: Option<Duration>,
    /// Time after which the machine stops; `None` if it runs without a limit.
    pub stops_after: Option<Duration>,
}

/// Policy that decides how a machine reacts to each hello, with callbacks for its other events.
pub trait ReplyPolicy: Send + 'static {
    /// Called when the machine starts to run; returns its first actions.
    fn start_actions(&mut self) -> StartActions {
        StartActions::default()
    }

    /// Called when a hello was received; returns the reaction to it. A server that answers by topic
    /// calls this once for all its subscribers.
    fn received(&mut self, number: u64) -> Reaction;

    /// Called instead of [`received`](Self::received) by a server that answers by address, with the
    /// index of the client that sent the hello.
    #[inline(always)]
    fn received_from(&mut self, _client: u64, number: u64) -> Reaction {
        self.received(number)
    }

    /// Called when a server that answers by topic has received a hello, but not yet the hellos of
    /// all subscribers.
    fn gathered(&mut self, number: u64) {
        let _ = number;
    }

    /// Called when a hello was sent.
    fn sent(&mut self, number: u64) {
        let _ = number;
    }

    /// Called when the pause before a hello is over.
    fn idle_over(&mut self) {}

    /// Called when the machine stops because it was requested to or its time is over.
    fn quit(&mut self) {}
}

/// Policy that answers a given number of hellos at once, and stops with the last answer.
#[derive(Debug, Clone, Copy)]
pub struct LimitedAnswers {
    /// Number of answers left until the machine stops; can be set again between runs.
    pub left: u64,
}

impl LimitedAnswers {
    /// Creates a policy with `count` answers, at least one.
    #[must_use]
    pub fn new(count: u64) -> Self {
        Self { left: count }
    }
}

impl ReplyPolicy for LimitedAnswers {
    #[inline]
    fn received(&mut self, _: u64) -> Reaction {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { Reaction::AnswerAndStop } else { Reaction::Answer }
    }
}

/// A machine handler that receives and sends hellos.
trait Speaker {
    type Message: Send + 'static;
    type Policy: ReplyPolicy;

    fn policy(&mut self) -> &mut Self::Policy;

    /// Sends a hello; returns `false` if it was refused.
    fn send_hello(&mut self, to: u64, number: u64, cx: &mut Context<'_, Self::Message>) -> bool;

    /// Creates the timer message that ends the pause before a hello.
    fn new_idle_message(to: u64, number: u64) -> Self::Message;

    /// Function that creates the message to stop the machine.
    const QUIT: fn() -> Self::Message;

    fn perform_start_actions(&mut self, cx: &mut Context<'_, Self::Message>) {
        let actions = self.policy().start_actions();
        if let Some(delay) = actions.first_hello_after {
            start_timer(cx, delay, Self::new_idle_message(0, 1));
        }
        if let Some(delay) = actions.stops_after {
            start_timer(cx, delay, (Self::QUIT)());
        }
        if actions.sends_first_hello {
            self.send_hello_or_stop(0, 1, cx);
        }
    }

    #[inline(always)]
    fn send_hello_or_stop(&mut self, to: u64, number: u64, cx: &mut Context<'_, Self::Message>) {
        if self.send_hello(to, number, cx) {
            self.policy().sent(number);
        } else {
            cx.stop(); // the receiver is disconnected
        }
    }

    /// Carries out the policy's reaction to a hello.
    #[inline]
    fn answer(
        &mut self,
        next: Reaction,
        to: u64,
        number: u64,
        cx: &mut Context<'_, Self::Message>,
    ) {
        let stops = match next {
            Reaction::Answer => false,
            Reaction::AnswerAndStop => true,
            Reaction::AnswerAfter(delay) => {
                return start_timer(cx, delay, Self::new_idle_message(to, number));
            }
            Reaction::Stop => return cx.stop(),
        };
        self.send_hello_or_stop(to, number, cx);
        if stops {
            cx.stop();
        }
    }

    /// Ends the pause before a hello: sends the hello.
    #[cold]
    fn end_pause(&mut self, to: u64, number: u64, cx: &mut Context<'_, Self::Message>) {
        self.policy().idle_over();
        self.send_hello_or_stop(to, number, cx);
    }

    /// Stops the machine, on request or because its time is over.
    fn end(&mut self, cx: &mut Context<'_, Self::Message>) {
        self.policy().quit();
        cx.stop();
    }
}

/// Starts a timer. If that fails, stops the machine, which would otherwise wait for ever.
#[cold]
fn start_timer<M: Send + 'static>(cx: &mut Context<'_, M>, delay: Duration, message: M) {
    if cx.after(delay, message).is_err() {
        cx.stop();
    }
}

/// Implements the part of [`Handler`] that is common to the machines that receive
/// [`MachineMessage`].
macro_rules! hears_beats {
    () => {
        type Message = MachineMessage;

        fn started(&mut self, cx: &mut Context<'_, MachineMessage>) {
            self.perform_start_actions(cx);
        }

        #[inline]
        fn handle(&mut self, message: MachineMessage, cx: &mut Context<'_, MachineMessage>) {
            match message {
                MachineMessage::Hello { from, number } => self.handle_hello(from, number, cx),
                MachineMessage::Idle { to, number } => self.end_pause(to, number, cx),
                MachineMessage::Quit => self.end(cx),
            }
        }
    };
}

/// Implements the common part of a [`Speaker`]: its messages, and those that stop the machine or
/// end a pause.
macro_rules! speaks {
    ($message:ty, $quit:expr, ($to:ident, $number:ident) => $idle:expr) => {
        type Message = $message;
        type Policy = P;
        const QUIT: fn() -> $message = || $quit;

        #[inline]
        fn policy(&mut self) -> &mut P {
            &mut self.policy
        }

        fn new_idle_message($to: u64, $number: u64) -> $message {
            $idle
        }
    };
}

/// Function by which a machine sends to itself: [`Context::send_quiet`] or [`Context::send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendMethod {
    /// The machine calls [`Context::send_quiet`].
    Call,
    /// The machine calls [`Context::send`].
    Pass,
}

/// Handler of a machine that sends hellos to itself.
#[derive(Debug)]
pub struct SelfSendHandler<P> {
    /// Function by which the machine sends to itself.
    pub via: SendMethod,
    /// Policy, which decides when to answer.
    pub policy: P,
}

impl<P: ReplyPolicy> Speaker for SelfSendHandler<P> {
    speaks!(SelfMessage, SelfMessage::Quit, (_to, number) => SelfMessage::Idle(number));

    #[inline(always)]
    fn send_hello(&mut self, _to: u64, number: u64, cx: &mut Context<'_, SelfMessage>) -> bool {
        let hello = SelfMessage::Hello(number);
        let sent = match self.via {
            SendMethod::Call => cx.send_quiet(hello),
            SendMethod::Pass => cx.send(hello),
        };
        sent.is_ok()
    }
}

impl<P: ReplyPolicy> Handler for SelfSendHandler<P> {
    type Message = SelfMessage;

    fn started(&mut self, cx: &mut Context<'_, SelfMessage>) {
        self.perform_start_actions(cx);
    }

    #[inline]
    fn handle(&mut self, own: SelfMessage, cx: &mut Context<'_, SelfMessage>) {
        match own {
            SelfMessage::Hello(number) => {
                let next = self.policy.received(number);
                self.answer(next, 0, number + 1, cx);
            }
            SelfMessage::Idle(number) => self.end_pause(0, number, cx),
            SelfMessage::Quit => self.end(cx),
        }
    }
}

/// Creates a machine that sends hellos to itself. Unless its policy sends the first hello, the
/// caller must send one.
///
/// # Errors
/// Fails like [`Machine::new`].
pub fn new_self_sender<P: ReplyPolicy>(
    via: SendMethod,
    policy: P,
    config: Config,
) -> Result<Machine<SelfSendHandler<P>>, MachineError> {
    Machine::new(SelfSendHandler { via, policy }, config)
}

/// Handler of a machine that exchanges hellos with one other machine.
#[derive(Debug)]
pub struct PairHandler<P> {
    /// Address to which the machine sends its hellos. If `None`, the machine stops when it should
    /// send one.
    pub other: Option<Address<MachineMessage>>,
    /// Index by which this machine identifies itself in its messages.
    pub index: u32,
    /// Policy, which decides when to answer.
    pub policy: P,
}

impl<P: ReplyPolicy> PairHandler<P> {
    #[inline]
    fn handle_hello(&mut self, _from: u64, number: u64, cx: &mut Context<'_, MachineMessage>) {
        let next = self.policy.received(number);
        self.answer(next, 0, number + 1, cx);
    }
}

impl<P: ReplyPolicy> Speaker for PairHandler<P> {
    speaks!(MachineMessage, MachineMessage::Quit, (to, number) => MachineMessage::Idle { to, number });

    #[inline(always)]
    fn send_hello(&mut self, _to: u64, number: u64, cx: &mut Context<'_, MachineMessage>) -> bool {
        let Some(other) = &self.other else { return false };
        cx.send_to(other, MachineMessage::Hello { from: self.index.into(), number }).is_ok()
    }
}

impl<P: ReplyPolicy> Handler for PairHandler<P> {
    hears_beats!();
}

/// Creates two machines that exchange hellos. Unless a policy sends the first hello, the caller
/// must send it to one of them.
///
/// # Errors
/// Fails like [`Machine::new`].
pub fn new_pair<P: ReplyPolicy>(
    policies: [P; 2],
    config: Config,
) -> Result<[Machine<PairHandler<P>>; 2], MachineError> {
    let [first, second] = policies;
    let mut first = Machine::new(PairHandler { other: None, index: 0, policy: first }, config)?;
    let other = Some(first.address().clone());
    let second = Machine::new(PairHandler { other, index: 1, policy: second }, config)?;
    first.handler_mut().other = Some(second.address().clone());
    Ok([first, second])
}

/// Message of two numbers: its kind, which selects the handler, and its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindMessage {
    /// Kind of the message, which selects the handler.
    pub kind: usize,
    /// Content of the message.
    pub number: u64,
}

impl MessageKind for KindMessage {
    #[inline]
    fn kind(&self) -> usize {
        self.kind
    }
}

/// Table of handlers by kind of message, as in the classic event machines. It is searched linearly,
/// in the order of registration. Its functions are those of [`HandlerTable`].
pub struct LinearHandlerTable<S, M> {
    state: S,
    /// Kind and handler of each entry, in the order of registration.
    entries: Vec<(usize, HandleFn<S, M>)>,
    /// Function called once before the first message; `None` if there is none.
    started: Option<fn(&mut S, &mut Context<'_, M>)>,
}

impl<S, M: MessageKind> LinearHandlerTable<S, M> {
    /// Creates a table with the state `state` and without handlers.
    #[must_use]
    pub fn new(state: S) -> Self {
        LinearHandlerTable { state, entries: Vec::new(), started: None }
    }

    /// Registers the handler of a kind of message, and returns the table. The handler is searched
    /// after all earlier ones.
    #[must_use]
    pub fn on(mut self, kind: usize, handle: HandleFn<S, M>) -> Self {
        self.entries.push((kind, handle));
        self
    }

    /// Registers a function that is called once before the first message; returns the table.
    #[must_use]
    pub fn on_start(mut self, started: fn(&mut S, &mut Context<'_, M>)) -> Self {
        self.started = Some(started);
        self
    }

    /// Returns the state that all handlers share.
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns a mutable reference to the state that all handlers share.
    #[must_use]
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

impl<S, M: MessageKind> Handler for LinearHandlerTable<S, M> {
    type Message = M;

    #[inline]
    fn handle(&mut self, message: M, cx: &mut Context<'_, M>) {
        let kind = message.kind();
        match self.entries.iter().find(|entry| entry.0 == kind) {
            Some((_, handle)) => handle(&mut self.state, message, cx),
            None => cx.unhandled(kind, message),
        }
    }

    fn started(&mut self, cx: &mut Context<'_, M>) {
        if let Some(started) = self.started {
            started(&mut self.state, cx);
        }
    }
}

/// State of one of two machines that exchange hellos. The machines look up the handler by the kind
/// of a message.
#[derive(Debug)]
pub struct KindPartner<P> {
    other: Option<Address<KindMessage>>,
    /// Kind of a hello message: the last registered kind.
    hello_kind: usize,
    /// Policy, which decides when to answer.
    pub policy: P,
}

/// Kind of the message that ends a pause.
const IDLE: usize = 0;
/// Kind of the message that stops the machine.
const QUIT: usize = 1;
/// Kind of the message with id 0. The kinds below it are `IDLE` and `QUIT`.
const FIRST_ID_KIND: usize = 2;

impl<P: ReplyPolicy> KindPartner<P> {
    fn handle_hello(&mut self, hello: KindMessage, cx: &mut Context<'_, KindMessage>) {
        let next = self.policy.received(hello.number);
        self.answer(next, 0, hello.number + 1, cx);
    }

    /// Returns the handlers of all kinds. They are those of `ids_count` ids, the last of which is
    /// the hello's, and of the timers.
    fn handlers(ids_count: usize) -> impl Iterator<Item = (usize, HandleFn<Self, KindMessage>)> {
        let others = (0..ids_count - 1).map(|id| {
            let unused: HandleFn<Self, KindMessage> = |_, message, cx| {
                cx.unhandled(message.kind, message);
            };
            (FIRST_ID_KIND + id, unused)
        });
        let hello: HandleFn<Self, KindMessage> = Self::handle_hello;
        let idle: HandleFn<Self, KindMessage> = |partner, idle, cx| {
            partner.end_pause(0, idle.number, cx);
        };
        let quit: HandleFn<Self, KindMessage> = |partner, _, cx| partner.end(cx);
        let used = [(FIRST_ID_KIND + ids_count - 1, hello), (IDLE, idle), (QUIT, quit)];
        others.chain(used)
    }
}

impl<P: ReplyPolicy> Speaker for KindPartner<P> {
    speaks!(
        KindMessage,
        KindMessage { kind: QUIT, number: 0 },
        (_to, number) => KindMessage { kind: IDLE, number }
    );

    #[inline(always)]
    fn send_hello(&mut self, _to: u64, number: u64, cx: &mut Context<'_, KindMessage>) -> bool {
        let Some(other) = &self.other else { return false };
        cx.send_to(other, KindMessage { kind: self.hello_kind, number }).is_ok()
    }
}

/// Lookup of message handlers by kind, for two machines that exchange hellos.
pub trait HandlerLookup<P>: Handler<Message = KindMessage> + Sized {
    /// Creates a lookup with one handler for each of `ids_count` message ids. They share the state
    /// `partner`.
    fn with_ids(partner: KindPartner<P>, ids_count: usize) -> Self;

    /// Returns the state of the machine.
    fn partner(&self) -> &KindPartner<P>;

    /// Returns a mutable reference to the state of the machine.
    fn partner_mut(&mut self) -> &mut KindPartner<P>;
}

macro_rules! looks_up {
    ($finder:ident) => {
        impl<P: ReplyPolicy> HandlerLookup<P> for $finder<KindPartner<P>, KindMessage> {
            fn with_ids(partner: KindPartner<P>, ids_count: usize) -> Self {
                let none = $finder::new(partner).on_start(KindPartner::perform_start_actions);
                KindPartner::handlers(ids_count)
                    .fold(none, |it, (kind, handle)| it.on(kind, handle))
            }

            fn partner(&self) -> &KindPartner<P> {
                self.state()
            }

            fn partner_mut(&mut self) -> &mut KindPartner<P> {
                self.state_mut()
            }
        }
    };
}
looks_up!(HandlerTable);
looks_up!(LinearHandlerTable);

/// Creates two machines that exchange hellos and look up the hello's handler. It is the last of
/// `ids_count` registered ones. At least one is registered; a policy must send the first hello.
///
/// # Errors
/// Fails like [`Machine::new`].
pub fn new_pair_by_id<P: ReplyPolicy, L: HandlerLookup<P>>(
    policies: [P; 2],
    ids_count: usize,
    config: Config,
) -> Result<[Machine<L>; 2], MachineError> {
    let [first, second] = policies;
    let ids_count = ids_count.max(1);
    let hello_kind = FIRST_ID_KIND + ids_count - 1;
    let first = KindPartner { other: None, hello_kind, policy: first };
    let mut first = Machine::new(L::with_ids(first, ids_count), config)?;
    let second = KindPartner { other: Some(first.address().clone()), hello_kind, policy: second };
    let second = Machine::new(L::with_ids(second, ids_count), config)?;
    first.handler_mut().partner_mut().other = Some(second.address().clone());
    Ok([first, second])
}

/// Handler of a server that answers the hellos of its clients. Each client sends its index in
/// `clients`.
#[derive(Debug)]
pub struct HelloServer<P> {
    /// Addresses of the clients.
    pub clients: Vec<Address<MachineMessage>>,
    /// Policy, which decides when to answer.
    pub policy: P,
}

impl<P: ReplyPolicy> HelloServer<P> {
    #[inline]
    fn handle_hello(&mut self, from: u64, number: u64, cx: &mut Context<'_, MachineMessage>) {
        let next = self.policy.received_from(from, number);
        self.answer(next, from, number, cx);
    }
}

impl<P: ReplyPolicy> Speaker for HelloServer<P> {
    speaks!(MachineMessage, MachineMessage::Quit, (to, number) => MachineMessage::Idle { to, number });

    #[inline]
    fn send_hello(&mut self, to: u64, number: u64, cx: &mut Context<'_, MachineMessage>) -> bool {
        let Some(client) = self.clients.get(to as usize) else { return false };
        cx.send_to(client, MachineMessage::Hello { from: 0, number }).is_ok()
    }
}

impl<P: ReplyPolicy> Handler for HelloServer<P> {
    hears_beats!();
}

/// Capacity of a client's inbox, in messages. One message at a time is expected.
const CLIENT_INBOX_MESSAGES: u32 = 8;

/// Returns the configuration of a server, with an inbox for a message of each client.
fn server_config(config: Config, clients_count: usize) -> Config {
    let least =
        u32::try_from(clients_count).unwrap_or(u32::MAX).saturating_add(CLIENT_INBOX_MESSAGES);
    config.inbox_messages_max(config.inbox_messages_max.max(least))
}

/// Returns a client's configuration, with a small inbox.
fn client_config(config: Config) -> Config {
    config.inbox_messages_max(CLIENT_INBOX_MESSAGES)
}

/// A server machine and its client machines.
pub type ServerWithClients<H, K> = (Machine<H>, Vec<Machine<K>>);

/// Creates a server, and a client for each of the policies. The clients send first; the server
/// answers a hello with one of the same number.
///
/// # Errors
/// Fails like [`Machine::new`].
pub fn new_server_with_clients<S: ReplyPolicy, C: ReplyPolicy>(
    policy: S,
    clients: impl IntoIterator<Item = C>,
    config: Config,
) -> Result<ServerWithClients<HelloServer<S>, PairHandler<C>>, MachineError> {
    let policies: Vec<C> = clients.into_iter().collect();
    let server = HelloServer { clients: Vec::with_capacity(policies.len()), policy };
    let mut server = Machine::new(server, server_config(config, policies.len()))?;
    let mut machines = Vec::with_capacity(policies.len());
    for (index, policy) in (0..).zip(policies) {
        let client = PairHandler { other: Some(server.address().clone()), index, policy };
        let client = Machine::new(client, client_config(config))?;
        server.handler_mut().clients.push(client.address().clone());
        machines.push(client);
    }
    Ok((server, machines))
}

/// Handler of a server that posts to all subscribers once each of them has sent a hello.
#[derive(Debug)]
pub struct TopicServer<P> {
    publisher: Publisher<u64>,
    subscribers_count: u64,
    /// Number of hellos received since the last post.
    gathered: u64,
    /// Number of values posted so far.
    posted: u64,
    /// Policy, which decides when to answer.
    pub policy: P,
}

/// Maximum number of a topic's values that are in use at a time.
const VALUES_MAX: u32 = 8;

impl<P: ReplyPolicy> TopicServer<P> {
    #[inline]
    fn handle_hello(&mut self, _from: u64, number: u64, cx: &mut Context<'_, MachineMessage>) {
        self.gathered += 1;
        if self.gathered < self.subscribers_count {
            self.policy.gathered(number);
            return;
        }
        self.gathered = 0;
        let next = self.policy.received(number);
        self.answer(next, 0, self.posted + 1, cx);
    }
}

impl<P: ReplyPolicy> Speaker for TopicServer<P> {
    speaks!(MachineMessage, MachineMessage::Quit, (to, number) => MachineMessage::Idle { to, number });

    #[inline]
    fn send_hello(&mut self, _to: u64, number: u64, cx: &mut Context<'_, MachineMessage>) -> bool {
        self.posted = number;
        cx.post(&mut self.publisher, number).is_ok_and(|posted| posted.refused_count == 0)
    }
}

impl<P: ReplyPolicy> Handler for TopicServer<P> {
    hears_beats!();
}

/// Handler of a subscriber, which sends its answers to the server only.
#[derive(Debug)]
pub struct TopicClient<P> {
    /// Address of the server, which receives the answers.
    pub server_address: Address<MachineMessage>,
    /// Index by which this machine identifies itself in its messages.
    pub index: u32,
    /// Policy, which decides when to answer.
    pub policy: P,
}

impl<P: ReplyPolicy> Speaker for TopicClient<P> {
    speaks!(SubscriberMessage, SubscriberMessage::Quit, (_to, number) => SubscriberMessage::Idle { number });

    #[inline]
    fn send_hello(
        &mut self,
        _to: u64,
        number: u64,
        cx: &mut Context<'_, SubscriberMessage>,
    ) -> bool {
        cx.send_to(&self.server_address, MachineMessage::Hello { from: self.index.into(), number })
            .is_ok()
    }
}

impl<P: ReplyPolicy> Handler for TopicClient<P> {
    type Message = SubscriberMessage;

    fn started(&mut self, cx: &mut Context<'_, SubscriberMessage>) {
        self.perform_start_actions(cx);
    }

    #[inline]
    fn handle(&mut self, message: SubscriberMessage, cx: &mut Context<'_, SubscriberMessage>) {
        match message {
            SubscriberMessage::Post(number) => {
                let number = *number; // returns the share before the answer is sent
                let next = self.policy.received(number);
                self.answer(next, 0, number + 1, cx);
            }
            SubscriberMessage::Idle { number } => self.end_pause(0, number, cx),
            SubscriberMessage::Quit => self.end(cx),
        }
    }
}

/// Creates a machine that posts to a topic, and a subscriber for each of the policies. The
/// subscribers answer the posts, and send first.
///
/// # Errors
/// Fails like [`Machine::new`].
pub fn new_topic_server_with_clients<S: ReplyPolicy, C: ReplyPolicy>(
    policy: S,
    subscribers: impl IntoIterator<Item = C>,
    config: Config,
) -> Result<ServerWithClients<TopicServer<S>, TopicClient<C>>, MachineError> {
    let policies: Vec<C> = subscribers.into_iter().collect();
    let topic = Topic::new();
    let publisher = topic.publisher(VALUES_MAX);
    let subscribers_count = policies.len() as u64;
    let server = TopicServer { publisher, subscribers_count, gathered: 0, posted: 0, policy };
    let server = Machine::new(server, server_config(config, policies.len()))?;
    let mut machines = Vec::with_capacity(policies.len());
    for (index, policy) in (0..).zip(policies) {
        let client = TopicClient { server_address: server.address().clone(), index, policy };
        let client = Machine::new(client, client_config(config))?;
        topic.subscribe(client.address(), SubscriberMessage::Post);
        machines.push(client);
    }
    Ok((server, machines))
}
