//! The crate's only home of `unsafe`: the sites' instructions and their section, changing them while
//! they run, mapped rings and what becomes of them when their file is cut short, and each thread's writer.

pub(crate) mod bus;
pub(crate) mod current;
pub(crate) mod flip;
pub(crate) mod hooks;
pub(crate) mod mapping;
pub(crate) mod section;
pub mod site;
