//! Modules that use threads, the kernel and the clock.

pub(crate) mod address;
pub(crate) mod context;
pub(crate) mod group;
mod local_machines;
pub(crate) mod machine;
pub(crate) mod machine_state;
pub(crate) mod member;
pub(crate) mod reactor;
pub(crate) mod reply;
#[cfg(feature = "async")]
pub(crate) mod sending;
pub(crate) mod shared_thread_state;
pub(crate) mod signals;
pub(crate) mod spawn;
pub(crate) mod thread_state;
pub(crate) mod topic;
pub(crate) mod waiting_senders;
