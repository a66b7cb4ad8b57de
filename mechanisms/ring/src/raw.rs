//! All of this crate's `unsafe`: the memory, and the three algorithms on it.

mod look;
pub(crate) mod mailbox;
pub(crate) mod mpsc;
mod rows;
pub(crate) mod spsc;
