//! Faults during a run: it is killed, interrupted, locked out, short of space, of descriptors and
//! of threads, and its output is not read. What was measured is kept, what was stored stays, and
//! nothing hangs.

mod common;
#[path = "faults/ends.rs"]
mod ends;
#[path = "faults/limits.rs"]
mod limits;
#[path = "faults/readers.rs"]
mod readers;
#[path = "faults/store.rs"]
mod store;
