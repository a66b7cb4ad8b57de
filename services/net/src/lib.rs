#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]
// Without the feature `tls`, code after a use of a TLS value cannot be reached.
#![cfg_attr(not(feature = "tls"), allow(unreachable_code))]

#[cfg(not(handover_loom))]
mod config;
#[cfg(not(handover_loom))]
mod drive;
#[cfg(not(handover_loom))]
pub mod engine;
#[cfg(not(handover_loom))]
mod error;
#[cfg(not(handover_loom))]
#[allow(unsafe_code)]
mod raw;
mod reservations;
#[cfg(not(handover_loom))]
mod stage;
#[cfg(not(handover_loom))]
mod stats;
#[cfg(not(handover_loom))]
pub mod tls;
#[cfg(doctest)]
mod variance;

#[cfg(not(handover_loom))]
pub use config::{Config, FullConnectionsPolicy};
#[cfg(not(handover_loom))]
pub use drive::{
    conn::{Conn, Connections},
    endpoint::{ConnectOptions, ListenOptions},
    handler::Handler,
    inbox::{ConnHandle, Stopper},
    reactor::Reactor,
    service::{AcceptPolicy, Net, NetBuilder},
    slab::{ConnKey, idle_connection_bytes},
};
#[cfg(not(handover_loom))]
pub use error::{CloseReason, CommandError, ConfigError, NetError, WriteError};
#[cfg(handover_loom)] // for the models
pub use reservations::Reservations;
#[cfg(not(handover_loom))]
pub use stats::Stats;
