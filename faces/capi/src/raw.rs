//! The exported functions, a module for each mechanism. Types and functions have their C names.

// C's names. The safety of each function is stated in its description, for C: in the sections Threads and Ownership.
#![allow(non_camel_case_types, clippy::missing_safety_doc)]

pub mod event;
pub mod fiber;
mod handle;
pub mod library;
pub mod lock;
pub mod notify;
pub mod probe;
pub mod ring;
pub mod rpc;
pub mod sched;
pub mod timer;
