//! Tests of the API, and of the contract of the lock.
#![cfg(not(handover_loom))]

mod api;
mod contract;
#[path = "../support/exclusion.rs"]
mod exclusion;
