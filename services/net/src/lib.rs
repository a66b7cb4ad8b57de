#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]
// Without the feature `tls`, code after a use of a TLS value cannot be reached.
#![cfg_attr(not(feature = "tls"), allow(unreachable_code))]

mod config;
mod drive;
pub mod engine;
mod error;
#[allow(unsafe_code)]
mod raw;
mod stage;
mod stats;
pub mod tls;
#[cfg(doctest)]
mod variance;

pub use config::{Backend, Config, WhenFull};
pub use drive::{
    conn::{Conn, Connections},
    endpoint::{Dial, Listen},
    handler::Handler,
    inbox::{Handle, Stopper},
    reactor::Reactor,
    service::{Net, Spread},
    slab::{Key, idle_bytes},
};
pub use error::{CloseReason, CommandError, ConfigError, NetError, WriteError};
pub use stats::Stats;
