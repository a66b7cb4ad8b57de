//! All of this crate's `unsafe`: the guarded cell, and the traits of `lock_api`.

pub(crate) mod cell;
#[cfg(all(feature = "lock_api", not(handover_loom)))]
mod lock_api;
