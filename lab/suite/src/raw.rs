//! Everything in this crate that the compiler cannot vouch for: instructions, C functions, shared
//! objects. Safe to call from the rest of the crate.

pub(crate) mod bulk;
pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod library;
#[cfg(feature = "mpi")]
pub(crate) mod mpi;
pub(crate) mod shared;
pub(crate) mod usdt;
