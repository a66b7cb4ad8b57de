//! API and contract of every notification, parking, and use between processes.
#![cfg(not(handover_loom))]

mod api;
mod contract;
mod park;
mod process;
