#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod drive;
pub mod engine;
mod error;

pub use engine::{Accepted, DropPolicy, FlowSpec, Packet, Scheduler, Totals};
pub use error::{FlowError, Refusal, Refused};
