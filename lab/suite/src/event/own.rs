//! Messages that a thread sends to itself.

use super::drive::{
    KindMessage, LinearHandlerTable, MachineMessage, PairHandler, Reaction, ReplyPolicy,
    SelfMessage, SelfSendHandler, SendMethod, new_self_sender,
};
use crate::channels::Queue;
use crate::common::check_counts;
use handover_event::{Config, Context, HandleFn, Handler, HandlerTable, Machine, Pool, PoolArc};
use handover_harness::{Fault, Samples, Setup, Workload};
use handover_record::{Spec, args};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Capacity of a queue, in messages.
const SLOTS: u32 = 1024;

/// Policy that answers hellos until it has received `left` of them. It counts the hellos received
/// out of order.
#[derive(Clone, Copy, Default)]
pub(super) struct CountingPolicy {
    /// Number of hellos that are still to be received.
    pub left: u64,
    /// Number of the last hello received.
    pub last: u64,
    /// Number of hellos received out of order.
    pub wrong: u64,
}

impl ReplyPolicy for CountingPolicy {
    #[inline]
    fn received(&mut self, number: u64) -> Reaction {
        self.left -= 1;
        self.wrong += u64::from(number != self.last + 1);
        self.last = number;
        if self.left == 0 { Reaction::Stop } else { Reaction::Answer }
    }
}

/// Constructor and accessors of a machine that sends messages to itself.
pub(super) trait SelfSender: 'static {
    type Handler: Handler;
    /// Creates the machine.
    fn machine() -> Result<Machine<Self::Handler>, Fault>;
    /// Creates the message with this number.
    fn message(number: u64) -> <Self::Handler as Handler>::Message;
    /// Returns the policy that the handler contains.
    fn policy(handler: &mut Self::Handler) -> &mut CountingPolicy;
}

/// Machine that sends plain numbers to itself, as the compared implementations do. It sends by
/// [`Context::send`] if `PASS`, otherwise by [`Context::send_quiet`].
pub(super) struct NumberSender<const PASS: bool>(CountingPolicy);

impl<const PASS: bool> Handler for NumberSender<PASS> {
    type Message = u64;

    #[inline]
    fn handle(&mut self, number: u64, cx: &mut Context<'_, u64>) {
        let sent = match self.0.received(number) {
            Reaction::Stop => return cx.stop(),
            _ if PASS => cx.send(number + 1),
            _ => cx.send_quiet(number + 1),
        };
        if sent.is_err() {
            cx.stop(); // the self-test finds the missing messages
        }
    }
}

impl<const PASS: bool> SelfSender for NumberSender<PASS> {
    type Handler = Self;

    fn machine() -> Result<Machine<Self>, Fault> {
        Machine::new(NumberSender(CountingPolicy::default()), Config::default())
            .map_err(Fault::from_error)
    }
    fn message(number: u64) -> u64 {
        number
    }
    fn policy(handler: &mut Self) -> &mut CountingPolicy {
        &mut handler.0
    }
}

/// Machine that sends itself the hellos of the classic program `hello1`, by
/// [`Context::send_quiet`].
pub(super) enum ClassicHello {}

impl SelfSender for ClassicHello {
    type Handler = SelfSendHandler<CountingPolicy>;

    fn machine() -> Result<Machine<SelfSendHandler<CountingPolicy>>, Fault> {
        new_self_sender(SendMethod::Call, CountingPolicy::default(), Config::default())
            .map_err(Fault::from_error)
    }
    fn message(number: u64) -> SelfMessage {
        SelfMessage::Hello(number)
    }
    fn policy(handler: &mut SelfSendHandler<CountingPolicy>) -> &mut CountingPolicy {
        &mut handler.policy
    }
}

/// Machine that sends to its own address by [`Context::send_to`].
pub(super) enum SendByAddress {}

impl SelfSender for SendByAddress {
    type Handler = PairHandler<CountingPolicy>;

    fn machine() -> Result<Machine<PairHandler<CountingPolicy>>, Fault> {
        let player = PairHandler { other: None, index: 0, policy: CountingPolicy::default() };
        let mut machine = Machine::new(player, Config::default()).map_err(Fault::from_error)?;
        machine.handler_mut().other = Some(machine.address().clone());
        Ok(machine)
    }
    fn message(number: u64) -> MachineMessage {
        MachineMessage::Hello { from: 0, number }
    }
    fn policy(handler: &mut PairHandler<CountingPolicy>) -> &mut CountingPolicy {
        &mut handler.policy
    }
}

/// Declaration of the benchmark of messages that a machine or thread sends to itself.
const CALL_SPEC: Spec =
    Spec::new("event/call", "typed message that a machine sends to itself and handles")
        .floor("event/array")
        .classic("hello1 -l")
        .ladder();

/// Queue of a floor or a compared implementation, through which one thread sends numbers to itself.
pub(super) trait SelfQueue: Sized {
    const SPEC: Spec;
    fn new() -> Result<Self, Fault>;
    /// Sends `count` numbers, each after the previous one was handled.
    fn send_and_handle(&mut self, count: u64);
    fn policy(&self) -> CountingPolicy;
}

/// Workload: numbers that a thread sends to itself through a queue.
pub(super) struct SelfQueueLoop<Q>(Q);

impl<Q: SelfQueue> Workload for SelfQueueLoop<Q> {
    type Args = ();
    const SPEC: Spec = Q::SPEC;

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        Q::new().map(SelfQueueLoop)
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        self.0.send_and_handle(1000);
        let CountingPolicy { left, last, wrong } = self.0.policy();
        check_counts("numbers left, the last one, wrong", [left, last, wrong], [0, 1000, 0])
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| self.0.send_and_handle(n));
    }
}

/// Workload: messages that a machine sends to itself.
pub(super) struct HelloLoop<T: SelfSender>(Machine<T::Handler>);

impl<T: SelfSender> HelloLoop<T> {
    /// Sends the machine the next hello, and runs the machine until it has handled `count` hellos.
    #[inline]
    fn send_and_handle(&mut self, count: u64) -> Result<(), Fault> {
        let policy = T::policy(self.0.handler_mut());
        policy.left = count;
        let number = policy.last + 1;
        self.0.context().send_quiet(T::message(number)).map_err(Fault::from_error)?;
        self.0.run().map_err(Fault::from_error)?;
        Ok(())
    }
}

impl<T: SelfSender> Workload for HelloLoop<T> {
    type Args = ();
    const SPEC: Spec = CALL_SPEC;

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        T::machine().map(HelloLoop)
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        self.send_and_handle(10)?;
        self.send_and_handle(1000)?;
        let handled = self.0.stats().handled;
        let CountingPolicy { left, last, wrong } = *T::policy(self.0.handler_mut());
        check_counts(
            "hellos handled, left, the last one's number, wrong",
            [handled, left, last, wrong],
            [1010, 0, 1010, 0],
        )
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| self.send_and_handle(n).expect("cannot queue a message"));
    }
}

/// Counts a received number; returns the next number to send, or `None` after the last one.
fn handle_number(policy: &mut CountingPolicy, number: u64) -> Option<u64> {
    match policy.received(number) {
        Reaction::Stop => None,
        _ => Some(number + 1),
    }
}

/// Message in the queue of [`DequeLoop`]: a numbered hello, or a request to stop.
enum Message {
    Hello(u64),
    Quit,
}

/// Compared implementation: a `VecDeque` of messages and a `match`, the hand-written solution on
/// one thread.
pub(super) struct DequeLoop {
    queue: VecDeque<Message>,
    policy: CountingPolicy,
}

impl SelfQueue for DequeLoop {
    const SPEC: Spec = CALL_SPEC;

    fn new() -> Result<Self, Fault> {
        let queue = VecDeque::with_capacity(SLOTS as usize);
        Ok(DequeLoop { queue, policy: CountingPolicy::default() })
    }

    #[inline]
    fn send_and_handle(&mut self, count: u64) {
        self.policy.left = count;
        self.queue.push_back(Message::Hello(self.policy.last + 1));
        while let Some(message) = self.queue.pop_front() {
            match message {
                Message::Quit => break,
                Message::Hello(number) => {
                    self.queue.push_back(match self.policy.received(number) {
                        Reaction::Stop => Message::Quit,
                        _ => Message::Hello(number + 1),
                    })
                }
            }
        }
    }

    fn policy(&self) -> CountingPolicy {
        self.policy
    }
}

/// Floor: an array with two indices and an inlined handler. It is the least code that queues a
/// number and handles it.
pub(super) struct ArrayLoop {
    slots: Box<[u64; SLOTS as usize]>,
    head: usize,
    tail: usize,
    policy: CountingPolicy,
}

impl ArrayLoop {
    #[inline(always)]
    fn push(&mut self, number: u64) {
        self.slots[self.tail % SLOTS as usize] = number;
        self.tail += 1;
    }
}

impl SelfQueue for ArrayLoop {
    const SPEC: Spec = Spec::new(
        "event/array",
        "number stored in an array, loaded, and handled by an inlined function",
    )
    .floor("floor/empty");

    fn new() -> Result<Self, Fault> {
        let slots = Box::new([0; SLOTS as usize]);
        Ok(ArrayLoop { slots, head: 0, tail: 0, policy: CountingPolicy::default() })
    }

    #[inline]
    fn send_and_handle(&mut self, count: u64) {
        self.policy.left = count;
        self.push(self.policy.last + 1);
        while self.head < self.tail {
            let number = self.slots[self.head % SLOTS as usize];
            self.head += 1;
            if self.policy.received(number) != Reaction::Stop {
                self.push(number + 1);
            }
        }
    }

    fn policy(&self) -> CountingPolicy {
        self.policy
    }
}

/// Item in the queue of a compared implementation. It is a number, or an allocated payload that
/// contains the number.
pub(super) trait QueueItem: Send + 'static {
    const SPEC: Spec;
    fn from_number(number: u64) -> Self;
    fn into_number(self) -> u64;
}

impl QueueItem for u64 {
    const SPEC: Spec = CALL_SPEC;

    #[inline]
    fn from_number(number: u64) -> u64 {
        number
    }
    #[inline]
    fn into_number(self) -> u64 {
        self
    }
}

/// Allocates the item, and frees it when it is read.
impl QueueItem for Arc<Payload32> {
    const SPEC: Spec = POOLED_SPEC;

    #[inline]
    fn from_number(number: u64) -> Self {
        Arc::new(new_payload32(number))
    }
    #[inline]
    fn into_number(self) -> u64 {
        self[0]
    }
}

/// Compared implementation: a queue with both ends on one thread.
pub(super) struct QueueLoop<Q: Queue, T: QueueItem> {
    ends: (Q::Sender<T>, Q::Receiver<T>),
    runtime: Q::Runtime,
    policy: CountingPolicy,
}

impl<Q: Queue, T: QueueItem> SelfQueue for QueueLoop<Q, T> {
    const SPEC: Spec = T::SPEC;

    fn new() -> Result<Self, Fault> {
        Ok(QueueLoop {
            ends: Q::pair(SLOTS),
            runtime: Q::runtime()?,
            policy: CountingPolicy::default(),
        })
    }

    #[inline]
    fn send_and_handle(&mut self, count: u64) {
        let Self { ends: (sender, receiver), runtime, policy } = self;
        policy.left = count;
        Q::run(runtime, async {
            Q::send(sender, T::from_number(policy.last + 1)).await;
            while let Some(sent) = Q::receive(receiver).await {
                match handle_number(policy, sent.into_number()) {
                    Some(next) => Q::send(sender, T::from_number(next)).await,
                    None => break,
                };
            }
        });
    }

    fn policy(&self) -> CountingPolicy {
        self.policy
    }
}

#[cfg(feature = "peers")]
mod local {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::{LocalSet, spawn_local};

    /// Compared implementation: a task for each message on tokio's `LocalSet`. Programs post work
    /// to one thread in this way.
    pub(crate) struct LocalSetLoop {
        runtime: Runtime,
        policy: Rc<RefCell<CountingPolicy>>,
    }

    /// Posts a task that handles `number` and then posts the next number.
    fn post(policy: Rc<RefCell<CountingPolicy>>, number: u64) {
        spawn_local(async move {
            let next = policy.borrow_mut().received(number);
            if next != Reaction::Stop {
                post(policy, number + 1);
            }
        });
    }

    impl SelfQueue for LocalSetLoop {
        const SPEC: Spec = CALL_SPEC;

        fn new() -> Result<Self, Fault> {
            let runtime = Builder::new_current_thread().build()?;
            Ok(LocalSetLoop { runtime, policy: Rc::default() })
        }

        fn send_and_handle(&mut self, count: u64) {
            let number = {
                let mut policy = self.policy.borrow_mut();
                policy.left = count;
                policy.last + 1
            };
            let (tasks, policy) = (LocalSet::new(), Rc::clone(&self.policy));
            tasks.block_on(&self.runtime, async { post(policy, number) });
            self.runtime.block_on(tasks);
        }

        fn policy(&self) -> CountingPolicy {
            *self.policy.borrow()
        }
    }
}

#[cfg(feature = "peers")]
pub(super) use local::LocalSetLoop;

/// Payload of 32 bytes, for messages that are allocated or have several readers.
pub(super) type Payload32 = [u64; 4];

pub(super) fn new_payload32(number: u64) -> Payload32 {
    [number; 4]
}

/// Declaration of the benchmark of messages from a pool.
const POOLED_SPEC: Spec = Spec::new(
    "event/pooled",
    "32-byte message from a shared pool: created, sent to oneself, read, released",
)
.floor("event/array");

/// Capacity of the pool, in payloads.
const PAYLOADS_MAX: u32 = 64;

/// Workload: a machine that sends payloads of a pool to itself.
pub(super) struct PooledPayloads(Machine<PayloadWriter>);

/// Handler that reads a payload and sends the next one to its own machine.
pub(super) struct PayloadWriter {
    pool: Pool<Payload32>,
    policy: CountingPolicy,
}

impl Handler for PayloadWriter {
    type Message = PoolArc<Payload32>;

    #[inline]
    fn handle(&mut self, payload: PoolArc<Payload32>, cx: &mut Context<'_, PoolArc<Payload32>>) {
        let number = payload[0];
        drop(payload);
        match self.policy.received(number) {
            Reaction::Stop => cx.stop(),
            _ => self.send_payload(number + 1, cx),
        }
    }
}

impl PayloadWriter {
    #[inline]
    fn send_payload(&mut self, number: u64, cx: &mut Context<'_, PoolArc<Payload32>>) {
        let written =
            self.pool.put(new_payload32(number)).map(|parcel| cx.send_quiet(parcel.share()));
        if !matches!(written, Ok(Ok(()))) {
            cx.stop(); // the self-test finds the missing messages
        }
    }
}

impl PooledPayloads {
    #[inline]
    fn send_and_handle(&mut self, count: u64) -> Result<(), Fault> {
        let writer = self.0.handler_mut();
        writer.policy.left = count;
        let parcel =
            writer.pool.put(new_payload32(writer.policy.last + 1)).map_err(Fault::from_error)?;
        self.0.context().send_quiet(parcel.share()).map_err(Fault::from_error)?;
        self.0.run().map_err(Fault::from_error)?;
        match self.0.handler().policy.left {
            0 => Ok(()),
            left => Err(Fault::new(format!("{left} of {count} messages were not sent"))),
        }
    }
}

impl Workload for PooledPayloads {
    type Args = ();
    const SPEC: Spec = POOLED_SPEC;

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        let writer =
            PayloadWriter { pool: Pool::new(PAYLOADS_MAX), policy: CountingPolicy::default() };
        Machine::new(writer, Config::default()).map(PooledPayloads).map_err(Fault::from_error)
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        self.send_and_handle(1000)?;
        let PayloadWriter { pool, policy } = self.0.handler();
        let said = [policy.last, policy.wrong, pool.in_use_count() as u64];
        check_counts("last payload, wrong payloads, payloads never freed", said, [1000, 0, 0])
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| self.send_and_handle(n).expect("cannot send the payloads"));
    }
}

args! {
    /// Arguments of the benchmark of message dispatch by kind.
    pub struct DispatchArgs {
        /// Kinds of message, each with a handler of its own.
        ids_count: u32 = 20 (smoke 20, range 1..=65536),
        /// Number of kinds that are sent, round robin: the last ones registered.
        ids_sent_count: u32 = 1 (smoke 20, range 1..=65536)
    }
}

/// State shared by the handlers of all kinds.
pub(super) struct KindState {
    kinds_count: usize,
    /// Lowest kind that is sent. All higher kinds are sent too.
    first_sent_kind: usize,
    policy: CountingPolicy,
    /// Number of messages dispatched to the wrong handler function.
    misrouted: u64,
}

/// Number of different handler functions; kind `n` uses function `n % HANDLERS_COUNT`. They differ
/// so that the compiler does not merge them.
const HANDLERS_COUNT: usize = 8;

/// Handles a message whose kind is `REMAINDER` modulo [`HANDLERS_COUNT`], and sends the next
/// message.
#[inline(never)]
fn handle_kind<const REMAINDER: usize>(
    kind_state: &mut KindState,
    message: KindMessage,
    cx: &mut Context<'_, KindMessage>,
) {
    kind_state.misrouted += u64::from(message.kind % HANDLERS_COUNT != REMAINDER);
    let next = message.kind + 1;
    let kind = if next == kind_state.kinds_count { kind_state.first_sent_kind } else { next };
    match kind_state.policy.received(message.number) {
        Reaction::Stop => cx.stop(),
        _ => {
            if cx.send_quiet(KindMessage { kind, number: message.number + 1 }).is_err() {
                cx.stop(); // the self-test finds the missing messages
            }
        }
    }
}

const HANDLER_FUNCTIONS: [HandleFn<KindState, KindMessage>; HANDLERS_COUNT] = [
    handle_kind::<0>,
    handle_kind::<1>,
    handle_kind::<2>,
    handle_kind::<3>,
    handle_kind::<4>,
    handle_kind::<5>,
    handle_kind::<6>,
    handle_kind::<7>,
];

/// Machine handler that looks up a function by the kind of a message.
pub(super) trait DispatchLookup: Handler<Message = KindMessage> + 'static {
    fn new(kind_state: KindState) -> Self;
    fn kind_state(&mut self) -> &mut KindState;
}

macro_rules! finds {
    ($finder:ident) => {
        impl DispatchLookup for $finder<KindState, KindMessage> {
            fn new(kind_state: KindState) -> Self {
                let kinds = 0..kind_state.kinds_count;
                kinds.fold($finder::new(kind_state), |it, kind| {
                    it.on(kind, HANDLER_FUNCTIONS[kind % HANDLERS_COUNT])
                })
            }
            fn kind_state(&mut self) -> &mut KindState {
                self.state_mut()
            }
        }
    };
}
finds!(HandlerTable);
finds!(LinearHandlerTable);

/// Compared implementation: lookup of the handler function in a `HashMap`.
pub(super) struct HashMapLookup {
    kind_state: KindState,
    handlers: HashMap<usize, HandleFn<KindState, KindMessage>>,
}

impl Handler for HashMapLookup {
    type Message = KindMessage;

    #[inline]
    fn handle(&mut self, message: KindMessage, cx: &mut Context<'_, KindMessage>) {
        match self.handlers.get(&message.kind) {
            Some(handle) => handle(&mut self.kind_state, message, cx),
            None => cx.unhandled(message.kind, message),
        }
    }
}

impl DispatchLookup for HashMapLookup {
    fn new(kind_state: KindState) -> Self {
        let handlers = (0..kind_state.kinds_count)
            .map(|kind| (kind, HANDLER_FUNCTIONS[kind % HANDLERS_COUNT]))
            .collect();
        HashMapLookup { kind_state, handlers }
    }
    fn kind_state(&mut self) -> &mut KindState {
        &mut self.kind_state
    }
}

/// Compared implementation: a `match` over the kinds, as in code that knows all kinds at compile
/// time.
pub(super) struct MatchLookup(KindState);

impl Handler for MatchLookup {
    type Message = KindMessage;

    #[inline]
    fn handle(&mut self, message: KindMessage, cx: &mut Context<'_, KindMessage>) {
        if message.kind >= self.0.kinds_count {
            return cx.unhandled(message.kind, message);
        }
        match message.kind % HANDLERS_COUNT {
            0 => handle_kind::<0>(&mut self.0, message, cx),
            1 => handle_kind::<1>(&mut self.0, message, cx),
            2 => handle_kind::<2>(&mut self.0, message, cx),
            3 => handle_kind::<3>(&mut self.0, message, cx),
            4 => handle_kind::<4>(&mut self.0, message, cx),
            5 => handle_kind::<5>(&mut self.0, message, cx),
            6 => handle_kind::<6>(&mut self.0, message, cx),
            _ => handle_kind::<7>(&mut self.0, message, cx),
        }
    }
}

impl DispatchLookup for MatchLookup {
    fn new(kind_state: KindState) -> Self {
        MatchLookup(kind_state)
    }
    fn kind_state(&mut self) -> &mut KindState {
        &mut self.0
    }
}

/// Workload: a machine that sends itself messages of some of its kinds, round robin. It looks up
/// the handler of each.
pub(super) struct DispatchLoop<F: DispatchLookup> {
    machine: Machine<F>,
    /// Kind of the next message.
    kind: usize,
}

impl<F: DispatchLookup> DispatchLoop<F> {
    #[inline]
    fn send_and_handle(&mut self, count: u64) -> Result<(), Fault> {
        let kind_state = self.machine.handler_mut().kind_state();
        kind_state.policy.left = count;
        let number = kind_state.policy.last + 1;
        let kind = self.kind;
        let sent_count = kind_state.kinds_count - kind_state.first_sent_kind;
        let sent_before = (kind - kind_state.first_sent_kind) as u64;
        self.kind =
            kind_state.first_sent_kind + ((sent_before + count) % sent_count as u64) as usize;
        self.machine
            .context()
            .send_quiet(KindMessage { kind, number })
            .map_err(Fault::from_error)?;
        self.machine.run().map_err(Fault::from_error)?;
        match self.machine.handler_mut().kind_state().policy.left {
            0 => Ok(()),
            left => Err(Fault::new(format!("{left} of {count} messages were not handled"))),
        }
    }
}

impl<F: DispatchLookup> Workload for DispatchLoop<F> {
    type Args = DispatchArgs;
    const SPEC: Spec = Spec::new(
        "event/ids",
        "message to oneself, dispatched to the handler of its kind, the last of ids_count",
    )
    .floor("event/array");

    fn setup(args: &DispatchArgs, _: &mut Setup) -> Result<Self, Fault> {
        let kinds_count = args.ids_count as usize;
        let first = kinds_count.saturating_sub(args.ids_sent_count as usize);
        let kind_state = KindState {
            kinds_count,
            first_sent_kind: first,
            policy: CountingPolicy::default(),
            misrouted: 0,
        };
        let machine =
            Machine::new(F::new(kind_state), Config::default()).map_err(Fault::from_error)?;
        Ok(DispatchLoop { machine, kind: first })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        let kinds_count = self.machine.handler_mut().kind_state().kinds_count as u64;
        self.send_and_handle(3)?;
        self.send_and_handle(2 * kinds_count)?;
        let unhandled = self.machine.stats().unhandled;
        let KindState { policy, misrouted, .. } = self.machine.handler_mut().kind_state();
        let said = [policy.last, policy.wrong, *misrouted, unhandled];
        let expected = [3 + 2 * kinds_count, 0, 0, 0];
        check_counts(
            "last message, wrong messages, messages at a wrong handler, messages without handler",
            said,
            expected,
        )
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| self.send_and_handle(n).expect("cannot queue a message"));
    }
}
