//! Tests of the API, and of the contract of every lock.
#![cfg(not(handover_loom))]

mod api;
#[cfg(all(target_os = "linux", not(handover_portable)))]
mod contract;
