#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod backoff;
#[allow(unsafe_code)]
mod raw;
mod stage;
mod word;

pub use backoff::Backoff;
pub use raw::cell::{TryLock, TryLockGuard};
pub use word::RawTryLock;
