//! All of this crate's `unsafe`: the sites' instructions and their section, patching of code that
//! runs, mapped rings, the handler of SIGBUS for files that are cut short, signal masks, each
//! thread's writer, and the entry point before `main`.

pub(crate) mod code;
pub(crate) mod current;
pub(crate) mod hooks;
pub(crate) mod mapping;
pub(crate) mod section;
pub(crate) mod sigbus;
pub(crate) mod signals;
pub mod site;
pub(crate) mod start;
pub(crate) mod switching;
