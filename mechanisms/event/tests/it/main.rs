//! API, contract, faults and logging of the event machine.
#![cfg(not(handover_loom))]

mod api;
mod contract;
mod faults;
mod logging;
mod requests;
#[cfg(feature = "async")]
mod tasks;
