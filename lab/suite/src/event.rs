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
    Array, By, ByAddress, Classic, Deque, Dispatch, Hello, Letter, Loop, Looped, Map, Match, Pooled,
};
use pair::{Bare, Beats, Eager, Numbers, OnDescriptor, Parked, Polled, Stream, Streamed};
#[cfg(feature = "peers")]
use serve::Tasks;
use serve::{Grouped, Served, ServedBy};
use std::sync::Arc;
#[cfg(feature = "peers")]
use topic::Broadcast;
use topic::{Deques, Topical};

/// Content of a peer's queue if a message may have several holders.
type Written = Arc<Letter>;

/// The benchmarks of the event machine.
pub const ALL: &[Bench] = benches! {
    one floor "array": Loop<Array>;
    one ours "handover": Hello<By<false>>;
    one peer "VecDeque": Loop<Deque>;
    one ours "handover-pass": Hello<By<true>>;
    one ours "handover-pass-to": Hello<ByAddress>;
    one ours "handover-hello": Hello<Classic>;
    one peer "std": Loop<Looped<Std, u64>>;
    one peer "crossbeam": Loop<Looped<Crossbeam, u64>>, if feature = "peers";
    one peer "kanal": Loop<Looped<Kanal, u64>>, if feature = "peers";
    one peer "flume": Loop<Looped<Flume, u64>>, if feature = "peers";
    one peer "tokio": Loop<Looped<Tokio, u64>>, if feature = "peers";
    one peer "tokio-local".allocates(): Loop<Local>, if feature = "peers";
    one ours "handover": Pooled;
    one peer "std".allocates(): Loop<Looped<Std, Written>>;
    one peer "crossbeam".allocates(): Loop<Looped<Crossbeam, Written>>, if feature = "peers";
    one peer "kanal".allocates(): Loop<Looped<Kanal, Written>>, if feature = "peers";
    one peer "flume".allocates(): Loop<Looped<Flume, Written>>, if feature = "peers";
    one peer "tokio".allocates(): Loop<Looped<Tokio, Written>>, if feature = "peers";
    one ours "handover": Dispatch<handover_event::Table<own::Among, drive::Numbered>>;
    one peer "search": Dispatch<drive::Search<own::Among, drive::Numbered>>;
    one peer "HashMap": Dispatch<Map>;
    one peer "match": Dispatch<Match>;
    many ours "handover" SpinThenSleep: Beats<Eager>;
    many peer "std" SpinThenSleep: Numbers<Std, Eager>;
    many peer "crossbeam" SpinThenSleep: Numbers<Crossbeam, Eager>, if feature = "peers";
    many peer "kanal" SpinThenSleep: Numbers<Kanal, Eager>, if feature = "peers";
    many peer "flume" Sleep: Numbers<Flume, Eager>, if feature = "peers";
    many peer "tokio" Sleep: Numbers<Tokio, Eager>, if feature = "peers";
    many peer "tokio-multi" Sleep: Numbers<TokioMulti, Eager>, if feature = "peers";
    many ours "handover" Spin: Beats<Polled>;
    many peer "std" Spin: Numbers<Std, Polled>;
    many peer "crossbeam" Spin: Numbers<Crossbeam, Polled>, if feature = "peers";
    many peer "kanal" Spin: Numbers<Kanal, Polled>, if feature = "peers";
    many peer "flume" Spin: Numbers<Flume, Polled>, if feature = "peers";
    many ours "handover" Sleep: Beats<Parked>;
    many ours "handover-eventfd" Sleep: Beats<OnDescriptor>;
    many peer "eventfd" Sleep: Bare<EventFd>;
    many ours "handover" SpinThenSleep: Streamed;
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
    one ours "handover": Grouped;
    one peer "tokio": Tasks, if feature = "peers";
    one ours "handover": Topical;
    one peer "std".allocates(): Deques;
    one peer "tokio".allocates(): Broadcast, if feature = "peers";
};
