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

pub use address::{Address, NAME_MAX_BYTES, Transport};
pub use config::{Config, LogLevel, TlsFiles, UdsPeers};
pub use drive::{
    bulk::{Bulk, BulkMemory, BulkPart, BulkPath, BulkStats, Transfer},
    calling::{Call, Calling},
    dump::{Dump, PeerDump},
    endpoint::{Context, Endpoint, Peer, Stats, Stopper},
    monitor::{CallReport, Ending, Observed, Quantiles, Side},
    progress::{Caller, Pending, Progress},
    timing::{Moment, Timer, Timing},
};
pub use engine::{BulkHandle, BulkRefusal, Method, Rights};
pub use error::{
    AddressError, AuthenticationError, BulkError, CallError, ConfigError, EndpointError, Failure,
    FrameError, Gone, MemoryError, RegisterError, TimersFull, WithdrawError,
};
