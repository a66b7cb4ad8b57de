#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod engine;
mod error;

pub use config::Config;
pub use engine::{Expired, TimerId, Wheel};
pub use error::{ConfigError, Full};
