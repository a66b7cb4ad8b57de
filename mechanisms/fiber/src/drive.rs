//! Workers, sleep, and the primitives that fibers wait on.

mod barrier;
mod channel;
mod condition;
mod eventual;
mod here;
mod mutex;
pub(crate) mod post;
mod runtime;
mod spawn;
pub(crate) mod waiter;
mod waitlist;
pub(crate) mod worker;

pub use barrier::Barrier;
pub use channel::{
    Receiver, RecvError, RecvTimeoutError, SendError, SendTimeoutError, Sender, TryRecvError,
    TrySendError, channel,
};
pub use condition::Condition;
pub use eventual::Eventual;
pub use here::{current_id, current_worker, is_fiber, sleep, sleep_until_ns, yield_now};
pub use mutex::{Mutex, MutexGuard};
pub use runtime::{Handle, Pool, Runtime, Stats};
pub use spawn::{Builder, JoinHandle, spawn, spawn_detached, spawn_local};
