//! The exported functions, a module for each mechanism. Types and functions have their C names.

#![allow(non_camel_case_types)]

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
