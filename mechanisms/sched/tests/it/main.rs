//! API, contract, the reference model and the arbiter.
#![cfg(not(handover_loom))]

mod api;
mod contract;
mod drive;
mod drive_lanes;
mod oracle;
