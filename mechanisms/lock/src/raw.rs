//! The crate's only home of `unsafe`: the guarded cell, and the C library's locks.

pub(crate) mod cell;
pub(crate) mod posix;
