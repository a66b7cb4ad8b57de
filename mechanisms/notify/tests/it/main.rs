//! Tests of the API, of every mechanism's contract, of parking, of use across processes, and by
//! tasks.
#![cfg(not(handover_loom))]

mod api;
mod contract;
mod park;
mod process;
#[cfg(feature = "async")]
mod task;
