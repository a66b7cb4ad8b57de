//! Workers, sleep, and the primitives that fibers wait on.

mod barrier;
mod channel;
mod condition;
mod descriptor;
mod eventual;
#[cfg(feature = "async")]
mod futures;
mod handle;
mod mutex;
mod readiness;
mod runtime;
mod spawn;
pub(crate) mod state;
mod this_fiber;
pub(crate) mod wait;
mod waitlist;
pub(crate) mod worker;

pub use barrier::Barrier;
pub use channel::{
    Receiver, RecvError, RecvTimeoutError, SendError, SendTimeoutError, Sender, TryRecvError,
    TrySendError, channel,
};
pub use condition::Condition;
pub use descriptor::{readable, readable_timeout, writable, writable_timeout};
pub use eventual::Eventual;
#[cfg(feature = "async")]
pub use futures::{EventualFuture, block_on};
pub use handle::{Handle, Pool};
pub use mutex::{Mutex, MutexGuard};
pub use runtime::{Runtime, Stats};
pub use spawn::{Builder, JoinHandle, spawn, spawn_detached, spawn_local};
pub use this_fiber::{
    current_id, current_worker, is_fiber, sleep, sleep_until, sleep_until_ns, yield_now,
};
