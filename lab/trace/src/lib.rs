#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod error;
mod traces;

pub use error::TraceError;
pub use traces::{Traces, nearest};
