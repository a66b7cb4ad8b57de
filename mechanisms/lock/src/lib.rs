#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod backoff;
#[cfg(all(target_os = "linux", not(handover_portable)))]
pub mod contend;
#[allow(unsafe_code)]
mod raw;
mod stage;
mod word;

pub use backoff::Backoff;
pub use raw::cell::{Guard, TryLock};
pub use word::RawTryLock;
