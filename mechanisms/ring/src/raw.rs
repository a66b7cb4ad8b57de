//! The crate's only home of `unsafe`: the memory, and the three algorithms upon it.

mod look;
pub(crate) mod mailbox;
pub(crate) mod mpsc;
mod rows;
pub(crate) mod spsc;
