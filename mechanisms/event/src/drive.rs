//! Modules that use threads, the kernel and the clock.

pub(crate) mod address;
pub(crate) mod context;
pub(crate) mod desk;
pub(crate) mod door;
pub(crate) mod group;
pub(crate) mod home;
pub(crate) mod machine;
pub(crate) mod member;
mod near;
pub(crate) mod reactor;
pub(crate) mod room;
pub(crate) mod signals;
pub(crate) mod spawn;
pub(crate) mod topic;
