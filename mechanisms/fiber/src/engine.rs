//! What can be decided without a clock, a thread or a system call: who runs next, and how often to look at
//! the time.

mod lead;
mod pace;
mod ready;

pub(crate) use lead::Lead;
pub(crate) use pace::Pace;
pub(crate) use ready::Ready;
