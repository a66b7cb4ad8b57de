//! System calls, threads and clocks around the engine.

pub(crate) mod bulk;
pub(crate) mod calling;
pub(crate) mod dump;
pub(crate) mod endpoint;
pub(crate) mod greet;
pub(crate) mod link;
pub(crate) mod listen;
pub(crate) mod monitor;
pub(crate) mod poll;
pub(crate) mod pool;
pub(crate) mod progress;
pub(crate) mod random;
pub(crate) mod security;
pub(crate) mod sm;
pub(crate) mod socket;
pub(crate) mod state;
pub(crate) mod stream;
pub(crate) mod timing;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod wire;
