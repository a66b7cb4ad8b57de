//! Tests of the API, of every mechanism's contract, of parking, and of use across processes.
#![cfg(not(handover_loom))]

mod api;
mod contract;
mod park;
mod process;
