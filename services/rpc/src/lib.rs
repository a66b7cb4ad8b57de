#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod address;
mod config;
mod drive;
pub mod engine;
mod error;
#[allow(unsafe_code)]
mod raw;

pub use address::{Address, NAME_MAX_BYTES, Transport};
pub use config::Config;
pub use drive::{
    bulk::{Bulk, BulkMemory, BulkPart, BulkPath, BulkStats, Transfer},
    calling::{Call, Calling},
    endpoint::{Context, Endpoint, Peer, Stats, Stopper},
};
pub use engine::{BulkHandle, BulkRefusal, Method, Rights};
pub use error::{
    AddressError, BulkError, CallError, ConfigError, EndpointError, Failure, FrameError, Gone,
    MemoryError, RegisterError, WithdrawError,
};
