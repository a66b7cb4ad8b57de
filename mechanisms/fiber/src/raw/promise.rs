//! Constructor with a safety contract that no compiler checks.

use crate::{Config, Runtime, StartError};

impl Runtime {
    /// Creates a runtime whose workers also steal suspended fibers, whatever [`Config::stealing`]
    /// says. Otherwise like [`new`](Self::new).
    ///
    /// Only `unsafe` code makes such a runtime:
    ///
    /// ```compile_fail,E0133
    /// use handover_fiber::{Config, Runtime};
    /// let runtime = Runtime::stealing_suspended(Config::workers(2));
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Safety
    /// No fiber of the runtime holds thread-bound data across a suspension (a yield, a sleep, any
    /// wait): a reference that `LocalKey::with` has lent, the address of a thread-local variable
    /// that foreign code keeps, a guard of a `std` lock, an `Rc` of which the thread keeps a clone,
    /// a handle that must be closed on its thread. None of these is `Send`, but no compiler checks
    /// the contents of a stack. A function that reads a thread-local variable before and after a
    /// suspension must do so in functions that are never inlined.
    pub unsafe fn stealing_suspended(config: Config) -> Result<Self, StartError> {
        Self::start_workers(config, true)
    }
}
