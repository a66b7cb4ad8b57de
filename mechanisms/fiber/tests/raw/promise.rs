//! The unsafe promise that these tests make.

use handover_fiber::{Config, Runtime};

/// Makes a runtime of two workers that steal suspended fibers from each other.
pub fn two_stealing_workers() -> Runtime {
    // SAFETY: the fibers of these tests hold no thread-bound data across a suspension.
    unsafe { Runtime::stealing_suspended(Config::workers(2)) }.unwrap()
}
