//! I/O layer around the engine: sockets, threads and time.

pub(crate) mod conn;
mod core;
pub(crate) mod endpoint;
pub(crate) mod handler;
pub(crate) mod inbox;
mod poll;
pub(crate) mod reactor;
pub(crate) mod service;
pub(crate) mod slab;
mod socket;
