//! Status codes, and the last error of each thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::fmt;

/// Result of a function: `HANDOVER_OK`, or the reason why the function did nothing.
/// `handover_strerror` returns a text for each value. Later versions may add values.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, clippy::upper_case_acronyms)]
pub enum handover_status {
    /// The function did what its description says.
    HANDOVER_OK = 0,
    /// A pointer that must not be null is null.
    HANDOVER_NULL_ARGUMENT = 1,
    /// An argument is outside its range, misaligned, or not valid UTF-8.
    HANDOVER_INVALID_ARGUMENT = 2,
    /// Memory could not be allocated.
    HANDOVER_OUT_OF_MEMORY = 3,
    /// The queue, table or ring is full; a later attempt can succeed.
    HANDOVER_FULL = 4,
    /// There is no element, packet or notification; a later attempt can succeed.
    HANDOVER_EMPTY = 5,
    /// The other end was closed or destroyed; no later attempt can succeed.
    HANDOVER_CLOSED = 6,
    /// The time limit passed.
    HANDOVER_TIMED_OUT = 7,
    /// The handle is in use by this thread, in a running call or callback. Also returned for a lock
    /// that is held, a notification that is pending, and a recording that is running.
    HANDOVER_BUSY = 8,
    /// The handle is in use by another thread, or this thread may not call the function.
    HANDOVER_WRONG_THREAD = 9,
    /// No timer, flow, procedure, memory or pool has this name or number.
    HANDOVER_NOT_FOUND = 10,
    /// The name is already registered, or the value is already set.
    HANDOVER_ALREADY_EXISTS = 11,
    /// The buffer is too small, or the message is longer than the limit.
    HANDOVER_TOO_LONG = 12,
    /// The kernel refused a system call.
    HANDOVER_SYSTEM = 13,
    /// The connection to the peer ended. It is not known whether a handler has run.
    HANDOVER_DISCONNECTED = 14,
    /// The peer or the scheduler refused the request.
    HANDOVER_REFUSED = 15,
    /// The peer's handler returned an error, which `handover_last_error` contains.
    HANDOVER_HANDLER_FAILED = 16,
    /// The library panicked, which is a defect. The handle can only be destroyed.
    HANDOVER_PANIC = 17,
}

use handover_status::*;

impl handover_status {
    /// All values, in the order of their numbers, each with its text for `handover_strerror`.
    pub(crate) const TEXTS: &[(Self, &CStr)] = &[
        (HANDOVER_OK, c"success"),
        (HANDOVER_NULL_ARGUMENT, c"a pointer that must not be null is null"),
        (HANDOVER_INVALID_ARGUMENT, c"invalid argument"),
        (HANDOVER_OUT_OF_MEMORY, c"out of memory"),
        (HANDOVER_FULL, c"full"),
        (HANDOVER_EMPTY, c"empty"),
        (HANDOVER_CLOSED, c"closed"),
        (HANDOVER_TIMED_OUT, c"timed out"),
        (HANDOVER_BUSY, c"the handle is in use by this thread, or the lock is held"),
        (HANDOVER_WRONG_THREAD, c"the handle is in use by another thread"),
        (HANDOVER_NOT_FOUND, c"not found"),
        (HANDOVER_ALREADY_EXISTS, c"already exists"),
        (HANDOVER_TOO_LONG, c"too long"),
        (HANDOVER_SYSTEM, c"the kernel refused a system call"),
        (HANDOVER_DISCONNECTED, c"the connection ended"),
        (HANDOVER_REFUSED, c"refused"),
        (HANDOVER_HANDLER_FAILED, c"the peer's handler returned an error"),
        (HANDOVER_PANIC, c"the library panicked"),
    ];

    /// Creates an error with this status and a detailed message.
    pub(crate) fn because(self, message: impl fmt::Display) -> Fault {
        Fault { status: self, message: Some(message.to_string()) }
    }
}

/// Error of an exported function.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) status: handover_status,
    /// Detailed message; `None` for expected outcomes, such as an empty queue.
    message: Option<String>,
}

/// An expected outcome, without a message: making one costs as much as returning a number.
impl From<handover_status> for Fault {
    fn from(status: handover_status) -> Self {
        Self { status, message: None }
    }
}

/// Result of the body of an exported function.
pub(crate) type Outcome = Result<(), Fault>;

thread_local! {
    /// Message of the last error of the current thread.
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Stores the message of an error, if any, as the last error of this thread. Returns the status.
pub(crate) fn store_last_error(outcome: Outcome) -> handover_status {
    let Err(fault) = outcome else { return HANDOVER_OK };
    if let Some(message) = fault.message {
        let message = CString::new(message.replace('\0', "?")).unwrap_or_default();
        // While the thread ends there is no place for a message.
        let _ = LAST_ERROR.try_with(|last| {
            if let Ok(mut last) = last.try_borrow_mut() {
                *last = message;
            }
        });
    }
    fault.status
}

/// Returns a pointer to the message of this thread's last error. It is valid until the thread's
/// next error.
pub(crate) fn last_error() -> *const std::ffi::c_char {
    let pointer =
        LAST_ERROR.try_with(|last| last.try_borrow().map_or(c"".as_ptr(), |it| it.as_ptr()));
    pointer.unwrap_or(c"".as_ptr())
}

/// Creates an error from the payload of a caught panic.
pub(crate) fn panic_fault(payload: &(dyn Any + Send)) -> Fault {
    let text = handover_base::unwind::panic_message(payload).unwrap_or("without a text");
    HANDOVER_PANIC.because(format_args!("the library panicked: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_statuses_are_numbered_in_order() {
        for ((status, text), number) in handover_status::TEXTS.iter().zip(0..) {
            assert_eq!(*status as i32, number);
            assert!(!text.is_empty());
        }
        assert_eq!(HANDOVER_PANIC as usize + 1, handover_status::TEXTS.len());
    }

    #[test]
    fn error_message_replaces_the_last_one_and_an_expected_outcome_keeps_it() {
        assert_eq!(
            store_last_error(Err(HANDOVER_SYSTEM.because("socket\0: EMFILE"))),
            HANDOVER_SYSTEM
        );
        assert_eq!(store_last_error(Err(HANDOVER_EMPTY.into())), HANDOVER_EMPTY);
        LAST_ERROR.with_borrow(|last| assert_eq!(last.as_c_str(), c"socket?: EMFILE"));
        assert!(!last_error().is_null());
    }
}
