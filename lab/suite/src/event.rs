//! The event machine: messages to oneself, to another thread, and from many senders to one.

pub mod drive;
mod own;
mod pair;
mod serve;
mod topic;

use crate::channels::Std;
#[cfg(feature = "peers")]
use crate::channels::{Crossbeam, Flume, Kanal, Tokio, TokioMulti};
use crate::notify::EventFd;
use drive::EqualShares;
use handover_harness::{Bench, benches};

#[cfg(feature = "peers")]
use own::LocalSetLoop;
use own::{
    ArrayLoop, ClassicHello, DequeLoop, DispatchLoop, HashMapLookup, HelloLoop, MatchLookup,
    NumberSender, Payload32, PooledPayloads, QueueLoop, SelfQueueLoop, SendByAddress,
};
use pair::{
    DefaultWait, DescriptorWait, MachinePair, MessageStream, NotificationPair, ParkingWait,
    PollingWait, QueuePair, ThreadStream,
};
#[cfg(feature = "peers")]
use serve::TokioGroup;
use serve::{AnyClients, MachineServer, QueueServer, ServerGroup};
use std::sync::Arc;
#[cfg(feature = "peers")]
use topic::BroadcastGroup;
use topic::{TopicDeques, TopicGroup};

/// Reference-counted payload that the compared implementations send to several receivers.
type SharedPayload32 = Arc<Payload32>;

/// All benchmarks of the event machine.
pub const BENCHES: &[Bench] = benches! {
    one floor "array": SelfQueueLoop<ArrayLoop>;
    one ours "handover": HelloLoop<NumberSender<false>>;
    one peer "VecDeque": SelfQueueLoop<DequeLoop>;
    one ours "handover-pass": HelloLoop<NumberSender<true>>;
    one ours "handover-pass-to": HelloLoop<SendByAddress>;
    one ours "handover-hello": HelloLoop<ClassicHello>;
    one peer "std": SelfQueueLoop<QueueLoop<Std, u64>>;
    one peer "crossbeam": SelfQueueLoop<QueueLoop<Crossbeam, u64>>, if feature = "peers";
    one peer "kanal": SelfQueueLoop<QueueLoop<Kanal, u64>>, if feature = "peers";
    one peer "flume": SelfQueueLoop<QueueLoop<Flume, u64>>, if feature = "peers";
    one peer "tokio": SelfQueueLoop<QueueLoop<Tokio, u64>>, if feature = "peers";
    one peer "tokio-local".allocates(): SelfQueueLoop<LocalSetLoop>, if feature = "peers";
    one ours "handover": PooledPayloads;
    one peer "std".allocates(): SelfQueueLoop<QueueLoop<Std, SharedPayload32>>;
    one peer "crossbeam".allocates(): SelfQueueLoop<QueueLoop<Crossbeam, SharedPayload32>>, if feature = "peers";
    one peer "kanal".allocates(): SelfQueueLoop<QueueLoop<Kanal, SharedPayload32>>, if feature = "peers";
    one peer "flume".allocates(): SelfQueueLoop<QueueLoop<Flume, SharedPayload32>>, if feature = "peers";
    one peer "tokio".allocates(): SelfQueueLoop<QueueLoop<Tokio, SharedPayload32>>, if feature = "peers";
    one ours "handover": DispatchLoop<handover_event::HandlerTable<own::KindState, drive::KindMessage>>;
    one peer "search": DispatchLoop<drive::LinearHandlerTable<own::KindState, drive::KindMessage>>;
    one peer "HashMap": DispatchLoop<HashMapLookup>;
    one peer "match": DispatchLoop<MatchLookup>;
    many ours "handover" SpinThenSleep: MachinePair<DefaultWait>;
    many peer "std" SpinThenSleep: QueuePair<Std, DefaultWait>;
    many peer "crossbeam" SpinThenSleep: QueuePair<Crossbeam, DefaultWait>, if feature = "peers";
    many peer "kanal" SpinThenSleep: QueuePair<Kanal, DefaultWait>, if feature = "peers";
    many peer "flume" Sleep: QueuePair<Flume, DefaultWait>, if feature = "peers";
    many peer "tokio" Sleep: QueuePair<Tokio, DefaultWait>, if feature = "peers";
    many peer "tokio-multi" Sleep: QueuePair<TokioMulti, DefaultWait>, if feature = "peers";
    many ours "handover" Spin: MachinePair<PollingWait>;
    many peer "std" Spin: QueuePair<Std, PollingWait>;
    many peer "crossbeam" Spin: QueuePair<Crossbeam, PollingWait>, if feature = "peers";
    many peer "kanal" Spin: QueuePair<Kanal, PollingWait>, if feature = "peers";
    many peer "flume" Spin: QueuePair<Flume, PollingWait>, if feature = "peers";
    many ours "handover" Sleep: MachinePair<ParkingWait>;
    many ours "handover-eventfd" Sleep: MachinePair<DescriptorWait>;
    many peer "eventfd" Sleep: NotificationPair<EventFd>;
    many ours "handover" SpinThenSleep: MessageStream;
    many peer "std" SpinThenSleep: ThreadStream<Std>;
    many peer "crossbeam" SpinThenSleep: ThreadStream<Crossbeam>, if feature = "peers";
    many peer "kanal" SpinThenSleep: ThreadStream<Kanal>, if feature = "peers";
    many peer "flume" Sleep: ThreadStream<Flume>, if feature = "peers";
    many peer "tokio" Sleep: ThreadStream<Tokio>, if feature = "peers";
    many peer "tokio-multi" Sleep: ThreadStream<TokioMulti>, if feature = "peers";
    many ours "handover" SpinThenSleep: MachineServer<AnyClients>;
    many peer "std" SpinThenSleep: QueueServer<Std, AnyClients>;
    many peer "crossbeam" SpinThenSleep: QueueServer<Crossbeam, AnyClients>, if feature = "peers";
    many peer "kanal" SpinThenSleep: QueueServer<Kanal, AnyClients>, if feature = "peers";
    many peer "flume" Sleep: QueueServer<Flume, AnyClients>, if feature = "peers";
    many peer "tokio" Sleep: QueueServer<Tokio, AnyClients>, if feature = "peers";
    many peer "tokio-multi" Sleep: QueueServer<TokioMulti, AnyClients>, if feature = "peers";
    many ours "handover" SpinThenSleep: MachineServer<EqualShares>;
    many peer "std" SpinThenSleep: QueueServer<Std, EqualShares>;
    many peer "crossbeam" SpinThenSleep: QueueServer<Crossbeam, EqualShares>, if feature = "peers";
    many peer "kanal" SpinThenSleep: QueueServer<Kanal, EqualShares>, if feature = "peers";
    many peer "flume" Sleep: QueueServer<Flume, EqualShares>, if feature = "peers";
    many peer "tokio" Sleep: QueueServer<Tokio, EqualShares>, if feature = "peers";
    many peer "tokio-multi" Sleep: QueueServer<TokioMulti, EqualShares>, if feature = "peers";
    one ours "handover": ServerGroup;
    one peer "tokio": TokioGroup, if feature = "peers";
    one ours "handover": TopicGroup;
    one peer "std".allocates(): TopicDeques;
    one peer "tokio".allocates(): BroadcastGroup, if feature = "peers";
};
