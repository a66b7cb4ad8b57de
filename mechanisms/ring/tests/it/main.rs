//! Tests of the API, and of the contract and properties of every ring.
#![cfg(not(handover_loom))]

mod api;
mod channel;
mod chunks;
mod contract;
mod mpmc;
mod property;
