//! API, names, refusals and transfer of the store.

mod api;
mod names;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
mod transfer;
