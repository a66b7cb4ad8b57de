#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[cfg(not(handover_loom))]
mod config;
#[cfg(not(handover_loom))]
mod drive;
#[cfg_attr(handover_loom, allow(dead_code))]
mod engine;
#[cfg(not(handover_loom))]
mod error;
#[cfg(not(handover_loom))]
mod event;
mod pool_error;
#[allow(unsafe_code)]
mod raw;
#[cfg(not(handover_loom))]
mod stage;
#[cfg(not(handover_loom))]
mod stats;
#[cfg(not(handover_loom))]
mod table;
#[cfg(doctest)]
mod variance;
#[cfg(not(handover_loom))]
mod verbosity;

#[cfg(not(handover_loom))]
pub use config::{Config, OnPanic, ParkOn, ThreadConfig, WakeWhen, WhenFull};
#[cfg(all(feature = "async", not(handover_loom)))]
pub use drive::sending::Sending;
#[cfg(not(handover_loom))]
pub use drive::{
    address::{Address, Stopper, WeakAddress},
    context::Context,
    group::{Group, GroupMember},
    machine::{ClosedMachine, Machine},
    member::{FnHandler, Handler, handler},
    reply::{PendingReply, Reply},
    signals::Signals,
    spawn::ThreadHandle,
    topic::{PostCounts, Publisher, Topic},
};
#[cfg(handover_loom)] // for the models
pub use engine::{
    inbox::{Inbox, InboxSender, drop_oldest_inbox, ring_inbox as inbox},
    incoming::IncomingMessages,
    ready::{ReadyFlag, ReadyQueue, ReadySender, ready_queue},
    reply_slot::ReplySlot,
    waiting_senders::WaitingSenders,
};
#[cfg(not(handover_loom))]
pub use error::{
    ConfigError, MachineError, NoReplyError, ReplyError, RunError, SendError, SignalError,
    SpawnError, TimersFull, WatchError,
};
#[cfg(not(handover_loom))]
pub use event::{EndReason, Interest, Ready, RoundResult, WatchId};
#[cfg(not(handover_loom))]
pub use handover_timer::TimerId;
pub use pool_error::PoolFull;
pub use raw::pool::{Pool, PoolArc, PoolArcs, PoolBox};
#[cfg(not(handover_loom))]
pub use stats::Stats;
#[cfg(not(handover_loom))]
pub use table::{HandleFn, HandlerTable, KIND_MAX, MessageKind};
#[cfg(not(handover_loom))]
pub use verbosity::{Verbosity, VerbosityError};
