//! The promise that a test makes.

use handover_fiber::Config;

/// Two workers that take suspended fibers from each other.
pub fn two_that_steal() -> Config {
    // SAFETY: the fibers of these tests hold nothing of their thread across a suspension.
    unsafe { Config::workers(2).steal_suspended() }
}
