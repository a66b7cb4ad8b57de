//! All of this crate's `unsafe`: the guarded cell, and the C library's locks.

pub(crate) mod cell;
