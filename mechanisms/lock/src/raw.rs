//! All of this crate's `unsafe`: the guarded cell.

pub(crate) mod cell;
