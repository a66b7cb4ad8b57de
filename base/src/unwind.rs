//! Payloads of caught panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the message of a caught panic; `None` if the payload is not a string. The payload of
/// `panic!` with a format string is one.
///
/// ```
/// use handover_base::unwind::panic_message;
/// let payload = std::panic::catch_unwind(|| panic!("{} is odd", 7)).unwrap_err();
/// assert_eq!(panic_message(&*payload), Some("7 is odd"));
/// ```
#[must_use]
pub fn panic_message(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Drops the payload of a caught panic, and ignores a panic of its destructor, which is foreign
/// code.
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
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
        // Its destructor might panic again, unless it is a text.
        && panic_message(&*next).is_none()
    {
        std::mem::forget(next);
    }
}
