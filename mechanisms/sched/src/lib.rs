#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod drive;
pub mod engine;
mod error;
pub mod fairness;
#[allow(unsafe_code)]
mod raw;

pub use engine::{
    Accepted, Algorithm, AnyScheduler, Config, ConfigError, DropPolicy, FlowSpec, Packet,
    Scheduler, Totals, UnknownAlgorithm,
};
pub use error::{FlowError, Refusal, Refused};
