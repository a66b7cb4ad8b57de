//! The exported functions, a module for each mechanism. Types and functions have their C names.

// C's names. The safety of each function is stated in its description, for C: in the sections
// Threads and Ownership.
#![allow(non_camel_case_types, clippy::missing_safety_doc)]

#[cfg(feature = "full")]
pub mod event;
#[cfg(feature = "full")]
pub mod fiber;
#[cfg_attr(not(feature = "full"), allow(dead_code))]
mod handle;
pub mod library;
#[cfg(feature = "full")]
pub mod lock;
#[cfg(feature = "full")]
pub mod notify;
#[cfg(feature = "full")]
pub mod probe;
pub mod ring;
#[cfg(feature = "full")]
pub mod rpc;
#[cfg(feature = "full")]
pub mod sched;
#[cfg(feature = "full")]
pub mod timer;

// What the header allows any number of threads to use at the same time.
#[cfg(feature = "full")]
const _: () = {
    const fn is_sync<T: Sync + Send>() {}
    is_sync::<event::handover_event_address>();
    is_sync::<event::handover_event_machine>();
    is_sync::<fiber::handover_fiber>();
    is_sync::<fiber::handover_fiber_eventual>();
    is_sync::<fiber::handover_fiber_runtime>();
    is_sync::<lock::handover_lock>();
    is_sync::<notify::handover_notify_receiver>();
    is_sync::<notify::handover_notify_sender>();
    is_sync::<rpc::handover_rpc_endpoint>();
    is_sync::<rpc::handover_rpc_memory>();
};
