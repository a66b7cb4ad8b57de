//! Version, error texts and clock of the library.

pub use super::handle::HANDOVER_FOREVER;
use super::handle::guard;
use crate::status::{handover_status, last_error};
use std::ffi::c_char;

/// Major version of this header; compare it with `handover_version()`.
pub const HANDOVER_VERSION_MAJOR: u32 = 0;
/// Minor version of this header. While the major version is 0, another minor version is not
/// compatible.
pub const HANDOVER_VERSION_MINOR: u32 = 1;
/// Patch version of this header.
pub const HANDOVER_VERSION_PATCH: u32 = 0;

/// Returns the version of the library: `major << 16 | minor << 8 | patch`.
///
/// Threads: any. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_version() -> u32 {
    HANDOVER_VERSION_MAJOR << 16 | HANDOVER_VERSION_MINOR << 8 | HANDOVER_VERSION_PATCH
}

/// Returns the text of a status: a constant string, never null. `status` is a `handover_status`; an
/// unknown number has a text too.
///
/// Threads: any. Blocking: never. Ownership: the string belongs to the library, and is always
/// valid.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_strerror(status: i32) -> *const c_char {
    let status = usize::try_from(status).ok().and_then(|at| handover_status::TEXTS.get(at));
    status.map_or(c"unknown status", |(_, text)| text).as_ptr()
}

/// Returns the detailed message of the last error of this thread: with the argument, the value and
/// the reason; an empty string if there was none, never null.
///
/// A function that succeeds does not change it. Neither do the expected outcomes `HANDOVER_FULL`,
/// `HANDOVER_EMPTY`, `HANDOVER_CLOSED`, `HANDOVER_TIMED_OUT` and `HANDOVER_BUSY` of functions that
/// say so.
///
/// Threads: any; each has its own. Blocking: never. Ownership: the string belongs to the library,
/// and is valid until the next error of this thread, or its end.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_last_error() -> *const c_char {
    last_error()
}

/// Returns the time in ns on `CLOCK_MONOTONIC`, the clock of `handover_event` and `handover_fiber`.
/// It also suits `handover_timer`.
///
/// Threads: any. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_now_ns() -> u64 {
    let mut now_ns = 0;
    guard(|| {
        now_ns = handover_base::clock::now_ns();
        Ok(())
    });
    now_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_the_package() {
        let version = [HANDOVER_VERSION_MAJOR, HANDOVER_VERSION_MINOR, HANDOVER_VERSION_PATCH];
        let text = version.map(|it| it.to_string()).join(".");
        assert_eq!(text, env!("CARGO_PKG_VERSION"));
    }
}
