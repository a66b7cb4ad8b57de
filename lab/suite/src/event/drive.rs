//! Machines that say hello to each other, for the workloads and for the classic programs `hello1` to
//! `hello5` alike: one that talks to itself, two that talk to each other, one that serves many, by
//! address or by topic.
//!
//! A [`Pace`] decides what follows a message: an answer at once, an answer later, an end. Where it is
//! [`Answer`](Next::Answer) always, as in [`Rounds`] but for the last message, nothing of the rest is
//! left in the loop. The messages that were handled are in the machines' own
//! [`Stats`](handover_event::Stats): timers are not among them.
//!
//! ```
//! use handover_event::Config;
//! use handover_suite::event::drive::{Own, Rounds, Via, alone};
//! let mut machine = alone(Via::Call, Rounds::new(1000), Config::default())?;
//! machine.context().call(Own::Hello(1))?;
//! machine.run()?;
//! assert_eq!(machine.stats().handled, 1000);
//! machine.handler_mut().pace.left = 5; // the last answer is still under way: it goes on
//! machine.run()?;
//! assert_eq!(machine.stats().handled, 1005);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use handover_event::{
    Address, Config, Context, HandleKind, Handler, Kind, Machine, MachineError, Publisher, Shared,
    Table, Topic,
};
use std::time::Duration;

/// What is said.
///
/// Whole words only: a message that is written in narrower pieces than it is read in waits for them
/// to reach the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// A hello, to be answered.
    Hello {
        /// Who says it, where one serves many.
        from: u64,
        /// Which it is, counted from 1 between these two.
        number: u64,
    },
    /// The pause before a hello is over.
    Idle {
        /// Who is to hear it.
        to: u64,
        /// Which it will be.
        number: u64,
    },
    /// It is enough: the machine stops.
    Quit,
}

/// What a machine says to itself: nobody need be named.
///
/// A message that is taken at once is read before its words have reached the cache, and a payload of two
/// words is read as one piece, which then waits for both: 9.4 ns a message with [`Beat`], where one word
/// takes 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// A hello, to be answered, by its number.
    Hello(u64),
    /// The pause before the hello of this number is over.
    Idle(u64),
    /// It is enough: the machine stops.
    Quit,
}

/// What a subscriber hears.
#[derive(Debug)]
pub enum Heard {
    /// The server's hello, by its number; all subscribers share it.
    News(Shared<u64>),
    /// The pause before the answer is over.
    Idle {
        /// Which answer it will be.
        number: u64,
    },
    /// It is enough: the machine stops.
    Quit,
}

/// What follows a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The answer, at once.
    Answer,
    /// The answer, after this long.
    AnswerAfter(Duration),
    /// The answer, and then the machine stops; run again, it finds what was answered meanwhile.
    AnswerAndStop,
    /// The machine stops without an answer.
    Stop,
}

/// How a machine begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opening {
    /// It says the first hello.
    pub says: bool,
    /// It says the first hello after this long.
    pub says_after: Option<Duration>,
    /// It stops after this long.
    pub quits_after: Option<Duration>,
}

/// What decides how it goes on, and hears what happens.
pub trait Pace: Send + 'static {
    /// The machine begins to run.
    fn opening(&mut self) -> Opening {
        Opening::default()
    }

    /// A hello was received; what follows. A server that answers by topic asks once for all.
    fn received(&mut self, number: u64) -> Next;

    /// A hello was received by a server that answers by topic, which waits for the others.
    fn gathered(&mut self, number: u64) {
        let _ = number;
    }

    /// A hello was sent.
    fn sent(&mut self, number: u64) {
        let _ = number;
    }

    /// A pause is over.
    fn idle_over(&mut self) {}

    /// The time is over: the machine stops.
    fn quit(&mut self) {}
}

/// Answers at once and for ever.
#[derive(Debug, Clone, Copy, Default)]
pub struct Always;

impl Pace for Always {
    #[inline]
    fn received(&mut self, _: u64) -> Next {
        Next::Answer
    }
}

/// Answers so many times, at once, and stops with the last.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    /// How many are left; set it anew between runs.
    pub left: u64,
}

impl Rounds {
    /// So many, one at least.
    #[must_use]
    pub fn new(count: u64) -> Self {
        Self { left: count }
    }
}

impl Pace for Rounds {
    #[inline]
    fn received(&mut self, _: u64) -> Next {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { Next::AnswerAndStop } else { Next::Answer }
    }
}

/// A machine's side that hears beats and speaks.
trait Speaker {
    type Message: Send + 'static;
    type Pace: Pace;

    fn pace(&mut self) -> &mut Self::Pace;

    /// Says a hello; false if nobody takes it.
    fn say(&mut self, to: u64, number: u64, cx: &mut Context<'_, Self::Message>) -> bool;

    fn idle(to: u64, number: u64) -> Self::Message;

    const QUIT: fn() -> Self::Message;

    fn open(&mut self, cx: &mut Context<'_, Self::Message>) {
        let opening = self.pace().opening();
        if let Some(delay) = opening.says_after {
            later(cx, delay, Self::idle(0, 1));
        }
        if let Some(delay) = opening.quits_after {
            later(cx, delay, (Self::QUIT)());
        }
        if opening.says {
            self.say_or_stop(0, 1, cx);
        }
    }

    #[inline(always)]
    fn say_or_stop(&mut self, to: u64, number: u64, cx: &mut Context<'_, Self::Message>) {
        if self.say(to, number, cx) {
            self.pace().sent(number);
        } else {
            cx.stop(); // whoever should answer is gone
        }
    }

    #[inline]
    fn answer(&mut self, next: Next, to: u64, number: u64, cx: &mut Context<'_, Self::Message>) {
        let stops = match next {
            Next::Answer => false,
            Next::AnswerAndStop => true,
            Next::AnswerAfter(delay) => return later(cx, delay, Self::idle(to, number)),
            Next::Stop => return cx.stop(),
        };
        self.say_or_stop(to, number, cx);
        if stops {
            cx.stop();
        }
    }

    #[cold]
    fn end_pause(&mut self, to: u64, number: u64, cx: &mut Context<'_, Self::Message>) {
        self.pace().idle_over();
        self.say_or_stop(to, number, cx);
    }

    fn end(&mut self, cx: &mut Context<'_, Self::Message>) {
        self.pace().quit();
        cx.stop();
    }
}

/// Starts a timer; without one the machine would wait for ever, and rather stops.
#[cold]
fn later<M: Send + 'static>(cx: &mut Context<'_, M>, delay: Duration, message: M) {
    if cx.after(delay, message).is_err() {
        cx.stop();
    }
}

/// What the handlers of beats share.
macro_rules! hears_beats {
    () => {
        type Message = Beat;

        fn started(&mut self, cx: &mut Context<'_, Beat>) {
            self.open(cx);
        }

        #[inline]
        fn handle(&mut self, beat: Beat, cx: &mut Context<'_, Beat>) {
            match beat {
                Beat::Hello { from, number } => self.hear(from, number, cx),
                Beat::Idle { to, number } => self.end_pause(to, number, cx),
                Beat::Quit => self.end(cx),
            }
        }
    };
}

/// What the speakers of beats share.
macro_rules! speaks_beats {
    () => {
        type Message = Beat;
        type Pace = P;
        const QUIT: fn() -> Beat = || Beat::Quit;

        #[inline]
        fn pace(&mut self) -> &mut P {
            &mut self.pace
        }

        fn idle(to: u64, number: u64) -> Beat {
            Beat::Idle { to, number }
        }
    };
}

/// How a machine talks to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// By [`Context::call`].
    Call,
    /// By [`Context::pass`].
    Pass,
}

/// Talks to itself.
#[derive(Debug)]
pub struct Alone<P> {
    /// How.
    pub via: Via,
    /// How it goes on.
    pub pace: P,
}

impl<P: Pace> Speaker for Alone<P> {
    type Message = Own;
    type Pace = P;
    const QUIT: fn() -> Own = || Own::Quit;

    #[inline]
    fn pace(&mut self) -> &mut P {
        &mut self.pace
    }

    #[inline(always)]
    fn say(&mut self, _to: u64, number: u64, cx: &mut Context<'_, Own>) -> bool {
        let hello = Own::Hello(number);
        let sent = match self.via {
            Via::Call => cx.call(hello),
            Via::Pass => cx.pass(hello),
        };
        sent.is_ok()
    }

    fn idle(_to: u64, number: u64) -> Own {
        Own::Idle(number)
    }
}

impl<P: Pace> Handler for Alone<P> {
    type Message = Own;

    fn started(&mut self, cx: &mut Context<'_, Own>) {
        self.open(cx);
    }

    #[inline]
    fn handle(&mut self, own: Own, cx: &mut Context<'_, Own>) {
        match own {
            Own::Hello(number) => {
                let next = self.pace.received(number);
                self.answer(next, 0, number + 1, cx);
            }
            Own::Idle(number) => self.end_pause(0, number, cx),
            Own::Quit => self.end(cx),
        }
    }
}

/// A machine that talks to itself. Unless its pace says the first hello, send it one.
///
/// # Errors
/// As [`Machine::new`].
pub fn alone<P: Pace>(
    via: Via,
    pace: P,
    config: Config,
) -> Result<Machine<Alone<P>>, MachineError> {
    Machine::new(Alone { via, pace }, config)
}

/// Talks to one other.
#[derive(Debug)]
pub struct Player<P> {
    /// Who hears it; without one it stops when it should speak.
    pub other: Option<Address<Beat>>,
    /// What it says it is.
    pub name: u32,
    /// How it goes on.
    pub pace: P,
}

impl<P: Pace> Player<P> {
    #[inline]
    fn hear(&mut self, _from: u64, number: u64, cx: &mut Context<'_, Beat>) {
        let next = self.pace.received(number);
        self.answer(next, 0, number + 1, cx);
    }
}

impl<P: Pace> Speaker for Player<P> {
    speaks_beats!();

    #[inline(always)]
    fn say(&mut self, _to: u64, number: u64, cx: &mut Context<'_, Beat>) -> bool {
        let Some(other) = &self.other else { return false };
        cx.pass_to(other, Beat::Hello { from: self.name.into(), number }).is_ok()
    }
}

impl<P: Pace> Handler for Player<P> {
    hears_beats!();
}

/// Two machines that talk to each other. Unless a pace says the first hello, send one to either.
///
/// # Errors
/// As [`Machine::new`].
pub fn pair<P: Pace>(
    paces: [P; 2],
    config: Config,
) -> Result<[Machine<Player<P>>; 2], MachineError> {
    let [first, second] = paces;
    let mut first = Machine::new(Player { other: None, name: 0, pace: first }, config)?;
    let other = Some(first.address().clone());
    let second = Machine::new(Player { other, name: 1, pace: second }, config)?;
    first.handler_mut().other = Some(second.address().clone());
    Ok([first, second])
}

/// A message of one of many kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered {
    /// Its kind, by which its handler is found.
    pub kind: usize,
    /// Its content.
    pub number: u64,
}

impl Kind for Numbered {
    #[inline]
    fn kind(&self) -> usize {
        self.kind
    }
}

/// A state and handlers registered one by one, like [`Table`]; searches them one after the other, in
/// the order of registration, as the classic event machines do.
pub struct Search<S, M> {
    state: S,
    entries: Vec<(usize, HandleKind<S, M>)>,
    started: Option<fn(&mut S, &mut Context<'_, M>)>,
}

impl<S, M: Kind> Search<S, M> {
    /// Makes one without handlers.
    #[must_use]
    pub fn new(state: S) -> Self {
        Search { state, entries: Vec::new(), started: None }
    }

    /// Registers the handler of a kind, behind all others.
    #[must_use]
    pub fn on(mut self, kind: usize, handle: HandleKind<S, M>) -> Self {
        self.entries.push((kind, handle));
        self
    }

    /// Registers what is done once before the first message.
    #[must_use]
    pub fn on_start(mut self, started: fn(&mut S, &mut Context<'_, M>)) -> Self {
        self.started = Some(started);
        self
    }

    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the state, to be changed.
    #[must_use]
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

impl<S, M: Kind> Handler for Search<S, M> {
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

/// One of two that talk to each other by messages whose handler is found by their kind.
#[derive(Debug)]
pub struct Caller<P> {
    other: Option<Address<Numbered>>,
    /// Kind of the hellos: the last of the registered ids.
    hello: usize,
    /// How it goes on.
    pub pace: P,
}

/// Kind of the end of a pause.
const IDLE: usize = 0;
/// Kind of the message that stops the machine.
const QUIT: usize = 1;
/// Kind of the first message id.
const FIRST_ID: usize = 2;

impl<P: Pace> Caller<P> {
    fn hear(&mut self, hello: Numbered, cx: &mut Context<'_, Numbered>) {
        let next = self.pace.received(hello.number);
        self.answer(next, 0, hello.number + 1, cx);
    }

    /// Returns the handlers of all kinds: of `ids_count` ids, the last of which is the hello's, and
    /// of the timers.
    fn handlers(ids_count: usize) -> impl Iterator<Item = (usize, HandleKind<Self, Numbered>)> {
        let others = (0..ids_count - 1).map(|id| {
            let unused: HandleKind<Self, Numbered> = |_, message, cx| {
                cx.unhandled(message.kind, message);
            };
            (FIRST_ID + id, unused)
        });
        let hello: HandleKind<Self, Numbered> = Self::hear;
        let idle: HandleKind<Self, Numbered> = |caller, idle, cx| {
            caller.end_pause(0, idle.number, cx);
        };
        let quit: HandleKind<Self, Numbered> = |caller, _, cx| caller.end(cx);
        let used = [(FIRST_ID + ids_count - 1, hello), (IDLE, idle), (QUIT, quit)];
        others.chain(used)
    }
}

impl<P: Pace> Speaker for Caller<P> {
    type Message = Numbered;
    type Pace = P;
    const QUIT: fn() -> Numbered = || Numbered { kind: QUIT, number: 0 };

    #[inline]
    fn pace(&mut self) -> &mut P {
        &mut self.pace
    }

    #[inline(always)]
    fn say(&mut self, _to: u64, number: u64, cx: &mut Context<'_, Numbered>) -> bool {
        let Some(other) = &self.other else { return false };
        cx.pass_to(other, Numbered { kind: self.hello, number }).is_ok()
    }

    fn idle(_to: u64, number: u64) -> Numbered {
        Numbered { kind: IDLE, number }
    }
}

/// What finds the handler of a kind for two that talk to each other.
pub trait Lookup<P>: Handler<Message = Numbered> + Sized {
    /// Makes one that has a handler for each of `ids_count` message ids.
    fn of(caller: Caller<P>, ids_count: usize) -> Self;

    /// Returns the side that it serves.
    fn caller(&self) -> &Caller<P>;

    /// Returns the side that it serves, to be changed.
    fn caller_mut(&mut self) -> &mut Caller<P>;
}

macro_rules! looks_up {
    ($finder:ident) => {
        impl<P: Pace> Lookup<P> for $finder<Caller<P>, Numbered> {
            fn of(caller: Caller<P>, ids_count: usize) -> Self {
                let none = $finder::new(caller).on_start(Caller::open);
                Caller::handlers(ids_count).fold(none, |it, (kind, handle)| it.on(kind, handle))
            }

            fn caller(&self) -> &Caller<P> {
                self.state()
            }

            fn caller_mut(&mut self) -> &mut Caller<P> {
                self.state_mut()
            }
        }
    };
}
looks_up!(Table);
looks_up!(Search);

/// Two machines that talk to each other, each of which finds the handler of a message by the last of
/// `ids_count` registered ids, one at least. A pace must say the first hello.
///
/// # Errors
/// As [`Machine::new`].
pub fn pair_by_id<P: Pace, L: Lookup<P>>(
    paces: [P; 2],
    ids_count: usize,
    config: Config,
) -> Result<[Machine<L>; 2], MachineError> {
    let [first, second] = paces;
    let ids_count = ids_count.max(1);
    let hello = FIRST_ID + ids_count - 1;
    let first = Caller { other: None, hello, pace: first };
    let mut first = Machine::new(L::of(first, ids_count), config)?;
    let second = Caller { other: Some(first.address().clone()), hello, pace: second };
    let second = Machine::new(L::of(second, ids_count), config)?;
    first.handler_mut().caller_mut().other = Some(second.address().clone());
    Ok([first, second])
}

/// Talks to many, each of which has told its place in `clients` as its name.
#[derive(Debug)]
pub struct Server<P> {
    /// Whom it serves.
    pub clients: Vec<Address<Beat>>,
    /// How it goes on.
    pub pace: P,
}

impl<P: Pace> Server<P> {
    #[inline]
    fn hear(&mut self, from: u64, number: u64, cx: &mut Context<'_, Beat>) {
        let next = self.pace.received(number);
        self.answer(next, from, number, cx);
    }
}

impl<P: Pace> Speaker for Server<P> {
    speaks_beats!();

    #[inline]
    fn say(&mut self, to: u64, number: u64, cx: &mut Context<'_, Beat>) -> bool {
        let Some(client) = self.clients.get(to as usize) else { return false };
        cx.pass_to(client, Beat::Hello { from: 0, number }).is_ok()
    }
}

impl<P: Pace> Handler for Server<P> {
    hears_beats!();
}

/// Messages that may wait for a client: it is sent one at a time.
const CLIENT_INBOX: u32 = 8;

/// A server's configuration: each client may have a message there.
fn for_server(config: Config, clients_count: usize) -> Config {
    let least = u32::try_from(clients_count).unwrap_or(u32::MAX).saturating_add(CLIENT_INBOX);
    Config { inbox_messages_max: config.inbox_messages_max.max(least), ..config }
}

fn for_client(config: Config) -> Config {
    Config { inbox_messages_max: CLIENT_INBOX, ..config }
}

/// A machine that serves, and those that it serves.
pub type Served<H, K> = (Machine<H>, Vec<Machine<K>>);

/// A machine that serves, and a client for each of the paces. Clients open; a server answers a
/// hello with one of the same number.
///
/// # Errors
/// As [`Machine::new`].
pub fn served<S: Pace, C: Pace>(
    pace: S,
    clients: impl IntoIterator<Item = C>,
    config: Config,
) -> Result<Served<Server<S>, Player<C>>, MachineError> {
    let paces: Vec<C> = clients.into_iter().collect();
    let server = Server { clients: Vec::with_capacity(paces.len()), pace };
    let mut server = Machine::new(server, for_server(config, paces.len()))?;
    let mut machines = Vec::with_capacity(paces.len());
    for (name, pace) in (0..).zip(paces) {
        let client = Player { other: Some(server.address().clone()), name, pace };
        let client = Machine::new(client, for_client(config))?;
        server.handler_mut().clients.push(client.address().clone());
        machines.push(client);
    }
    Ok((server, machines))
}

/// Talks to all who have subscribed, once each of them has said hello.
#[derive(Debug)]
pub struct Announcer<P> {
    publisher: Publisher<u64>,
    subscribers_count: u64,
    gathered: u64,
    /// How many hellos to all it has said.
    posted: u64,
    /// How it goes on.
    pub pace: P,
}

/// Values of a topic that may be in use: the one that is being read, and the next.
const VALUES_MAX: u32 = 8;

impl<P: Pace> Announcer<P> {
    /// One that waits for so many each time.
    #[must_use]
    pub fn new(topic: &Topic<u64>, subscribers_count: u64, pace: P) -> Self {
        let publisher = topic.publisher(VALUES_MAX);
        Self { publisher, subscribers_count, gathered: 0, posted: 0, pace }
    }

    #[inline]
    fn hear(&mut self, _from: u64, number: u64, cx: &mut Context<'_, Beat>) {
        self.gathered += 1;
        if self.gathered < self.subscribers_count {
            self.pace.gathered(number);
            return;
        }
        self.gathered = 0;
        let next = self.pace.received(number);
        self.answer(next, 0, self.posted + 1, cx);
    }
}

impl<P: Pace> Speaker for Announcer<P> {
    speaks_beats!();

    #[inline]
    fn say(&mut self, _to: u64, number: u64, cx: &mut Context<'_, Beat>) -> bool {
        self.posted = number;
        cx.post(&mut self.publisher, number).is_ok_and(|posted| posted.refused == 0)
    }
}

impl<P: Pace> Handler for Announcer<P> {
    hears_beats!();
}

/// Hears what is posted, and answers the announcer alone.
#[derive(Debug)]
pub struct Listener<P> {
    /// Who hears it.
    pub announcer: Address<Beat>,
    /// What it says it is.
    pub name: u32,
    /// How it goes on.
    pub pace: P,
}

impl<P: Pace> Speaker for Listener<P> {
    type Message = Heard;
    type Pace = P;
    const QUIT: fn() -> Heard = || Heard::Quit;

    #[inline]
    fn pace(&mut self) -> &mut P {
        &mut self.pace
    }

    #[inline]
    fn say(&mut self, _to: u64, number: u64, cx: &mut Context<'_, Heard>) -> bool {
        cx.pass_to(&self.announcer, Beat::Hello { from: self.name.into(), number }).is_ok()
    }

    fn idle(_to: u64, number: u64) -> Heard {
        Heard::Idle { number }
    }
}

impl<P: Pace> Handler for Listener<P> {
    type Message = Heard;

    fn started(&mut self, cx: &mut Context<'_, Heard>) {
        self.open(cx);
    }

    #[inline]
    fn handle(&mut self, heard: Heard, cx: &mut Context<'_, Heard>) {
        match heard {
            Heard::News(number) => {
                let number = *number; // the share goes back before the answer is on its way
                let next = self.pace.received(number);
                self.answer(next, 0, number + 1, cx);
            }
            Heard::Idle { number } => self.end_pause(0, number, cx),
            Heard::Quit => self.end(cx),
        }
    }
}

/// A machine that posts to a topic, and a subscriber for each of the paces, which answers it. The
/// subscribers open.
///
/// # Errors
/// As [`Machine::new`].
pub fn served_by_topic<S: Pace, C: Pace>(
    pace: S,
    subscribers: impl IntoIterator<Item = C>,
    config: Config,
) -> Result<Served<Announcer<S>, Listener<C>>, MachineError> {
    let paces: Vec<C> = subscribers.into_iter().collect();
    let topic = Topic::new();
    let announcer = Announcer::new(&topic, paces.len() as u64, pace);
    let announcer = Machine::new(announcer, for_server(config, paces.len()))?;
    let mut machines = Vec::with_capacity(paces.len());
    for (name, pace) in (0..).zip(paces) {
        let listener = Listener { announcer: announcer.address().clone(), name, pace };
        let listener = Machine::new(listener, for_client(config))?;
        topic.subscribe(listener.address(), Heard::News);
        machines.push(listener);
    }
    Ok((announcer, machines))
}
