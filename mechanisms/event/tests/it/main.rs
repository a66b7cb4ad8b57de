//! API, contract and faults of the event machine.
#![cfg(not(handover_loom))]

mod api;
mod contract;
mod faults;
mod requests;
#[cfg(feature = "async")]
mod tasks;
