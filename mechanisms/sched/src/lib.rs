#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[cfg(all(target_os = "linux", not(handover_portable)))]
pub mod drive;
pub mod engine;
mod error;
pub mod fairness;

pub use engine::{
    Algorithm, AnyScheduler, Config, ConfigError, DropPolicy, EnqueueOutcome, EnqueueResult,
    FlowSpec, Packet, Scheduler, Totals, UnknownAlgorithm,
};
pub use error::{EnqueueError, FlowError, Refusal};
