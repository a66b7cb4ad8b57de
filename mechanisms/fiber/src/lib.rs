#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

// Layers, each of which depends only on those above it:
// - `error`, `config`, and `engine` but `engine::ready_queue`: plain data and decisions;
// - `raw::{queue, race, gate, task, biased, kernel, regions, stack, switch}`: lists, locks, memory
//   of stacks, and the switch between them;
// - `raw::{control, waiter}`: a fiber, the switches to and from it, and participants that wait; a
//   fiber's end is waited for by other participants, so these two know each other;
// - `engine::ready_queue`, `drive::state`: the state of a worker and of a runtime;
// - `raw::{home, owner}`: the way from a fiber to its worker's state, and the worker's own access;
//   `drive::readiness`: the descriptors for which a worker's fibers wait;
// - `drive::worker`; `raw::{current, overflow}`: a worker, and the worker of this thread;
// - `drive::{this_fiber, wait}`, `raw::{timed_wait, cell}`: yielding, waiting and waking;
//   `drive::descriptor`: waiting for a descriptor;
// - `drive::waitlist`, then `drive::{mutex, condition, barrier, channel, eventual}`: primitives to
//   wait on; `raw::mutex_value` is the mutex's value; `drive::futures` awaits them;
// - `drive::{handle, spawn, runtime}`: spawning, and starting and stopping workers.

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
    TrySendError, channel, current_id, current_worker, is_fiber, readable, readable_timeout, sleep,
    sleep_until, sleep_until_ns, spawn, spawn_detached, spawn_local, writable, writable_timeout,
    yield_now,
};
#[cfg(all(feature = "async", not(handover_loom)))]
pub use drive::{EventualFuture, block_on};
#[cfg(not(handover_loom))]
pub use error::{ConfigError, FiberPanic, SetError, SpawnError, StackError, StartError};

/// Internal types for the loom models.
#[cfg(handover_loom)]
pub mod model {
    pub use crate::engine::counts::{FiberCounts, alive_count, have_all_finished};
    pub use crate::engine::offers::{IdleCount, Offers};
    pub use crate::raw::{
        BiasedLock, Gate, Inbox, Linked, List, ListLink, PreviousState, WaitNode, WakeRace,
        Withdrawals,
    };
    #[cfg(feature = "async")]
    pub use crate::raw::{TaskWait, TaskWaiter, Waiters};
}
