//! System calls, threads and clocks around the engine. Each module uses only modules below it:
//!
//! ```text
//!  endpoint  progress  calling  timing  bulk        interface
//!  event_loop                                       one iteration after another, and waiting
//!  peers  handshakes  promises  bulk::exchange      tables
//!  inbox  pool  timers  call_monitor  dump  signal
//!  handshake  connect  listen                       connections
//!  link  sm  stream  ucx  wire  security  tls       transports
//!  poll  socket  random                             system calls
//! ```

pub(crate) mod bulk;
pub(crate) mod call_monitor;
pub(crate) mod calling;
pub(crate) mod connect;
pub(crate) mod dump;
pub(crate) mod endpoint;
pub(crate) mod event_loop;
pub(crate) mod handshake;
pub(crate) mod handshakes;
pub(crate) mod inbox;
pub(crate) mod link;
pub(crate) mod listen;
#[cfg(feature = "monitoring")]
pub(crate) mod monitor;
pub(crate) mod peers;
pub(crate) mod poll;
pub(crate) mod pool;
pub(crate) mod progress;
pub(crate) mod promises;
pub(crate) mod random;
pub(crate) mod security;
#[cfg(feature = "signal-dump")]
pub(crate) mod signal;
pub(crate) mod sm;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod timers;
pub(crate) mod timing;
#[cfg(feature = "tls")]
pub(crate) mod tls;
#[cfg_attr(not(feature = "ucx"), path = "drive/ucx_off.rs")]
pub(crate) mod ucx;
pub(crate) mod wire;
