#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

// Layers, each of which depends only on those above it:
// - `status`: status codes, and the last error of each thread;
// - `raw::handle`: null checks, strings and buffers of C, exclusive access, the guard against
//   panics;
// - `raw::{library, ring, notify, lock, timer, event, fiber, sched, rpc, probe}`: the exported
//   functions.

#[allow(unsafe_code)]
mod raw;
mod status;

pub use raw::*;
pub use status::handover_status;
