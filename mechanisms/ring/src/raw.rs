//! All of this crate's `unsafe`: the memory, and the three algorithms on it.

pub(crate) mod mailbox;
pub(crate) mod mpsc;
mod poll;
mod rows;
pub(crate) mod spsc;
