//! API, contract, the reference model and the arbiter.
#![cfg(not(handover_loom))]

mod api;
mod changes;
mod contract;
#[cfg(all(target_os = "linux", not(handover_portable)))]
mod drive;
#[cfg(all(target_os = "linux", not(handover_portable)))]
mod drive_lanes;
mod lone;
mod oracle;
