#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]
// The models in tests/model.rs include the one file that they need.
#![cfg(not(handover_loom))]

mod address;
mod clock;
mod config;
mod drive;
pub mod engine;
mod error;
mod mailbox;
#[allow(unsafe_code)]
mod raw;
#[cfg(test)]
mod simulation;
mod stage;
#[cfg(doctest)]
mod variance;

#[cfg(feature = "tls")]
pub use rustls;

pub use address::{ADDRESS_NAME_BYTES_MAX, Address, AddressError, Transport};
pub use config::{
    AccessConfig, BulkConfig, Config, ConnectionsConfig, LogLevel, PoolConfig, SharedMemoryConfig,
    TlsFiles, UdsPeers,
};
#[cfg(feature = "monitoring")]
pub use drive::call_monitor::{CallOutcome, CallRole};
#[cfg(feature = "monitoring")]
pub use drive::monitor::{CallReport, ObservedCall, Quantiles};
pub use drive::{
    bulk::{Bulk, BulkMemory, BulkPart, BulkPath, BulkStats, Transfer},
    calling::{Call, Calling},
    dump::{Dump, PeerDump, Stats},
    endpoint::{Context, Endpoint, Peer, Stopper},
    event_loop::CallbackContext,
    progress::{Caller, PendingCall, Progress},
    timers::Timer,
    timing::Timing,
};
pub use engine::{BulkHandle, Method, Rights};
pub use error::{
    AuthenticationError, BulkError, BulkRefusal, CallError, CloseReason, ConfigError,
    EndpointError, Failure, FrameError, MemoryError, RegisterError, SystemCallError, TimersFull,
    WithdrawError,
};
