//! API and contract of every lock.
#![cfg(not(handover_loom))]

mod api;
mod contract;
