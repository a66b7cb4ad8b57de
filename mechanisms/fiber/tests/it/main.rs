//! API, contract, migration between workers, and timed waits.
#![cfg(not(handover_loom))]

mod api;
mod contract;
mod migrate;
mod timed;
