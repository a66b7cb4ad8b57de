#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[cfg(not(handover_loom))]
mod address;
#[cfg(not(handover_loom))]
mod clock;
#[cfg(not(handover_loom))]
mod config;
#[cfg(not(handover_loom))]
mod drive;
#[cfg(not(handover_loom))]
pub mod engine;
#[cfg(not(handover_loom))]
mod error;
mod mailbox;
#[cfg(not(handover_loom))]
#[allow(unsafe_code)]
mod raw;
#[cfg(all(test, not(handover_loom)))]
mod simulation;
#[cfg(not(handover_loom))]
mod stage;
#[cfg(doctest)]
mod variance;

#[cfg(all(feature = "tls", not(handover_loom)))]
pub use rustls;

#[cfg(not(handover_loom))]
pub use address::{ADDRESS_NAME_BYTES_MAX, Address, AddressError, Transport};
#[cfg(not(handover_loom))]
pub use config::{Config, LogLevel, TlsFiles, UdsPeers};
#[cfg(all(feature = "monitoring", not(handover_loom)))]
pub use drive::call_monitor::{CallOutcome, CallRole};
#[cfg(all(feature = "monitoring", not(handover_loom)))]
pub use drive::monitor::{CallReport, ObservedCall, Quantiles};
#[cfg(not(handover_loom))]
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
#[cfg(not(handover_loom))]
pub use engine::{BulkHandle, Method, Rights};
#[cfg(not(handover_loom))]
pub use error::{
    AuthenticationError, BulkError, BulkRefusal, CallError, CloseReason, ConfigError,
    EndpointError, Failure, FrameError, MemoryError, RegisterError, TimersFull, WithdrawError,
};
#[cfg(handover_loom)] // for the models
pub use mailbox::{Mailbox, PostError, ReceiverState};
