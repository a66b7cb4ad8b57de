//! Payloads of caught panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops the payload of a caught panic, and ignores a panic of its destructor, which is foreign code.
///
/// ```
/// use std::panic::{catch_unwind, panic_any};
/// struct Refusing;
/// impl Drop for Refusing {
///     fn drop(&mut self) {
///         panic!("from the destructor");
///     }
/// }
/// let payload = catch_unwind::<_, ()>(|| panic_any(Refusing)).unwrap_err();
/// handover_base::unwind::drop_payload(payload);
/// ```
pub fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(next); // Its destructor might panic again.
    }
}
