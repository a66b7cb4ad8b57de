#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod address;
mod clock;
mod config;
mod drive;
pub mod engine;
mod error;
#[allow(unsafe_code)]
mod raw;
#[cfg(test)]
mod simulation;
mod stage;
#[cfg(doctest)]
mod variance;

#[cfg(feature = "tls")]
pub use rustls;

pub use address::{Address, AddressError, NAME_MAX_BYTES, Transport};
pub use config::{Config, LogLevel, TlsFiles, UdsPeers};
#[cfg(feature = "monitoring")]
pub use drive::hooks::{Ending, Side};
#[cfg(feature = "monitoring")]
pub use drive::monitor::{CallReport, Observed, Quantiles};
pub use drive::{
    bulk::{Bulk, BulkMemory, BulkPart, BulkPath, BulkStats, Transfer},
    calling::{Call, Calling},
    dump::{Dump, PeerDump, Stats},
    endpoint::{Context, Endpoint, Peer, Stopper},
    event_loop::Moment,
    progress::{Caller, Pending, Progress},
    timers::Timer,
    timing::Timing,
};
pub use engine::{BulkHandle, Method, Rights};
pub use error::{
    AuthenticationError, BulkError, BulkRefusal, CallError, ConfigError, EndpointError, Failure,
    FrameError, Gone, MemoryError, RegisterError, TimersFull, WithdrawError,
};
