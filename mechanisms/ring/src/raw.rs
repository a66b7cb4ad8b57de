//! All of this crate's `unsafe`: the memory, and the four algorithms on it.

pub(crate) mod mailbox;
pub(crate) mod mpmc;
pub(crate) mod mpsc;
mod poll;
mod rows;
pub(crate) mod spsc;
