//! Tests of the API, and of the contract of every lock.
#![cfg(not(handover_loom))]

mod api;
mod contract;
