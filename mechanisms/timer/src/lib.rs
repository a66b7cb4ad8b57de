#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod config;
mod engine;
mod error;
#[allow(unsafe_code)]
mod raw;

pub use config::Config;
pub use engine::{ExpiredTimer, TimerId, Wheel};
pub use error::{ConfigError, WheelFull};
