//! API, contract, migration between workers, and timed waits.
#![cfg(not(handover_loom))]

mod api;
mod contract;
mod descriptors;
#[cfg(feature = "async")]
mod futures;
mod migrate;
mod timed;
