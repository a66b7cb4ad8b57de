//! All code of this crate that needs `unsafe`: instructions, C functions, shared objects. Its
//! functions are safe to call from the rest of the crate.

pub(crate) mod bulk;
pub(crate) mod calls;
pub(crate) mod capi;
pub(crate) mod clock;
pub(crate) mod library;
pub(crate) mod locks;
pub(crate) mod mapped;
#[cfg(feature = "mpi")]
pub(crate) mod mpi;
#[cfg(feature = "peers")]
pub(crate) mod peers;
pub(crate) mod posix;
pub(crate) mod shared;
pub(crate) mod usdt;
