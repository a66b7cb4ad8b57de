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
use handover_harness::{Bench, benches};

#[cfg(feature = "peers")]
use own::LocalSetLoop;
use own::{
    ArrayLoop, ClassicHello, DequeLoop, Dispatch, HashMapLookup, HelloLoop, Letter, Loop,
    MatchLookup, PooledLetters, QueueLoop, SendByAddress, SendNumber,
};
use pair::{
    DefaultWait, DescriptorWait, MachinePair, MessageStream, NotificationPair, ParkingWait,
    PollingWait, QueuePair, ThreadStream,
};
#[cfg(feature = "peers")]
use serve::TokioGroup;
use serve::{MachineServer, QueueServer, ServerGroup};
use std::sync::Arc;
#[cfg(feature = "peers")]
use topic::Broadcast;
use topic::{TopicDeques, TopicGroup};

/// Message that several receivers may hold, as peers send it.
type SharedLetter = Arc<Letter>;

/// All benchmarks of the event machine.
pub const ALL: &[Bench] = benches! {
    one floor "array": Loop<ArrayLoop>;
    one ours "handover": HelloLoop<SendNumber<false>>;
    one peer "VecDeque": Loop<DequeLoop>;
    one ours "handover-pass": HelloLoop<SendNumber<true>>;
    one ours "handover-pass-to": HelloLoop<SendByAddress>;
    one ours "handover-hello": HelloLoop<ClassicHello>;
    one peer "std": Loop<QueueLoop<Std, u64>>;
    one peer "crossbeam": Loop<QueueLoop<Crossbeam, u64>>, if feature = "peers";
    one peer "kanal": Loop<QueueLoop<Kanal, u64>>, if feature = "peers";
    one peer "flume": Loop<QueueLoop<Flume, u64>>, if feature = "peers";
    one peer "tokio": Loop<QueueLoop<Tokio, u64>>, if feature = "peers";
    one peer "tokio-local".allocates(): Loop<LocalSetLoop>, if feature = "peers";
    one ours "handover": PooledLetters;
    one peer "std".allocates(): Loop<QueueLoop<Std, SharedLetter>>;
    one peer "crossbeam".allocates(): Loop<QueueLoop<Crossbeam, SharedLetter>>, if feature = "peers";
    one peer "kanal".allocates(): Loop<QueueLoop<Kanal, SharedLetter>>, if feature = "peers";
    one peer "flume".allocates(): Loop<QueueLoop<Flume, SharedLetter>>, if feature = "peers";
    one peer "tokio".allocates(): Loop<QueueLoop<Tokio, SharedLetter>>, if feature = "peers";
    one ours "handover": Dispatch<handover_event::HandlerTable<own::KindState, drive::KindMessage>>;
    one peer "search": Dispatch<drive::LinearSearch<own::KindState, drive::KindMessage>>;
    one peer "HashMap": Dispatch<HashMapLookup>;
    one peer "match": Dispatch<MatchLookup>;
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
    many ours "handover" SpinThenSleep: MachineServer;
    many peer "std" SpinThenSleep: QueueServer<Std>;
    many peer "crossbeam" SpinThenSleep: QueueServer<Crossbeam>, if feature = "peers";
    many peer "kanal" SpinThenSleep: QueueServer<Kanal>, if feature = "peers";
    many peer "flume" Sleep: QueueServer<Flume>, if feature = "peers";
    many peer "tokio" Sleep: QueueServer<Tokio>, if feature = "peers";
    many peer "tokio-multi" Sleep: QueueServer<TokioMulti>, if feature = "peers";
    one ours "handover": ServerGroup;
    one peer "tokio": TokioGroup, if feature = "peers";
    one ours "handover": TopicGroup;
    one peer "std".allocates(): TopicDeques;
    one peer "tokio".allocates(): Broadcast, if feature = "peers";
};
