#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[cfg(not(handover_loom))]
mod config;
#[cfg(not(handover_loom))]
mod drive;
mod engine;
#[cfg(not(handover_loom))]
mod error;
#[allow(unsafe_code)]
mod raw;
#[cfg(doctest)]
mod variance;

#[cfg(not(handover_loom))]
pub use config::{Config, PoolConfig, Stealing};
#[cfg(not(handover_loom))]
pub use drive::{
    Barrier, Builder, Condition, Eventual, Handle, JoinHandle, Mutex, MutexGuard, Pool, Receiver,
    RecvError, RecvTimeoutError, Runtime, SendError, SendTimeoutError, Sender, Stats, TryRecvError,
    TrySendError, channel, current_id, current_worker, is_fiber, sleep, sleep_until_ns, spawn,
    spawn_detached, spawn_local, yield_now,
};
#[cfg(not(handover_loom))]
pub use error::{AlreadySet, ConfigError, Panicked, SpawnError, StackError, StartError};

/// Internal types for the loom models.
#[cfg(handover_loom)]
pub mod model {
    pub use crate::engine::counts::{FiberCounts, alive_count, have_all_ended};
    pub use crate::raw::{
        Biased, Gate, Inbox, Link, Linked, List, Node, PreviousState, Race, Withdrawals,
    };
}
