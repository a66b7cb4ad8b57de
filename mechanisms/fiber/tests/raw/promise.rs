//! The promise that a test makes.

use handover_fiber::{Config, Runtime};

/// Two workers that take suspended fibers from each other.
pub fn two_that_steal() -> Runtime {
    // SAFETY: the fibers of these tests hold nothing of their thread across a suspension.
    unsafe { Runtime::stealing_suspended(Config::workers(2)) }.unwrap()
}
