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
use own::Local;
use own::{
    Array, ClassicHello, Deque, Dispatch, Hello, Letter, Loop, Map, Match, Pooled, QueueLoop,
    SendByAddress, SendNumber,
};
use pair::{
    DefaultWait, DescriptorWait, MachinePair, MessageStream, NotificationPair, ParkingWait,
    PollingWait, QueuePair, Stream,
};
#[cfg(feature = "peers")]
use serve::Tasks;
use serve::{Served, ServedBy, ServerGroup};
use std::sync::Arc;
#[cfg(feature = "peers")]
use topic::Broadcast;
use topic::{Deques, TopicGroup};

/// Content of a peer's queue if several may hold a message.
type Written = Arc<Letter>;

/// The benchmarks of the event machine.
pub const ALL: &[Bench] = benches! {
    one floor "array": Loop<Array>;
    one ours "handover": Hello<SendNumber<false>>;
    one peer "VecDeque": Loop<Deque>;
    one ours "handover-pass": Hello<SendNumber<true>>;
    one ours "handover-pass-to": Hello<SendByAddress>;
    one ours "handover-hello": Hello<ClassicHello>;
    one peer "std": Loop<QueueLoop<Std, u64>>;
    one peer "crossbeam": Loop<QueueLoop<Crossbeam, u64>>, if feature = "peers";
    one peer "kanal": Loop<QueueLoop<Kanal, u64>>, if feature = "peers";
    one peer "flume": Loop<QueueLoop<Flume, u64>>, if feature = "peers";
    one peer "tokio": Loop<QueueLoop<Tokio, u64>>, if feature = "peers";
    one peer "tokio-local".allocates(): Loop<Local>, if feature = "peers";
    one ours "handover": Pooled;
    one peer "std".allocates(): Loop<QueueLoop<Std, Written>>;
    one peer "crossbeam".allocates(): Loop<QueueLoop<Crossbeam, Written>>, if feature = "peers";
    one peer "kanal".allocates(): Loop<QueueLoop<Kanal, Written>>, if feature = "peers";
    one peer "flume".allocates(): Loop<QueueLoop<Flume, Written>>, if feature = "peers";
    one peer "tokio".allocates(): Loop<QueueLoop<Tokio, Written>>, if feature = "peers";
    one ours "handover": Dispatch<handover_event::HandlerTable<own::KindState, drive::KindMessage>>;
    one peer "search": Dispatch<drive::LinearSearch<own::KindState, drive::KindMessage>>;
    one peer "HashMap": Dispatch<Map>;
    one peer "match": Dispatch<Match>;
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
    many peer "std" SpinThenSleep: Stream<Std>;
    many peer "crossbeam" SpinThenSleep: Stream<Crossbeam>, if feature = "peers";
    many peer "kanal" SpinThenSleep: Stream<Kanal>, if feature = "peers";
    many peer "flume" Sleep: Stream<Flume>, if feature = "peers";
    many peer "tokio" Sleep: Stream<Tokio>, if feature = "peers";
    many peer "tokio-multi" Sleep: Stream<TokioMulti>, if feature = "peers";
    many ours "handover" SpinThenSleep: Served;
    many peer "std" SpinThenSleep: ServedBy<Std>;
    many peer "crossbeam" SpinThenSleep: ServedBy<Crossbeam>, if feature = "peers";
    many peer "kanal" SpinThenSleep: ServedBy<Kanal>, if feature = "peers";
    many peer "flume" Sleep: ServedBy<Flume>, if feature = "peers";
    many peer "tokio" Sleep: ServedBy<Tokio>, if feature = "peers";
    many peer "tokio-multi" Sleep: ServedBy<TokioMulti>, if feature = "peers";
    one ours "handover": ServerGroup;
    one peer "tokio": Tasks, if feature = "peers";
    one ours "handover": TopicGroup;
    one peer "std".allocates(): Deques;
    one peer "tokio".allocates(): Broadcast, if feature = "peers";
};
