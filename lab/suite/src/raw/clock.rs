//! The processor's counter by three instructions, and the C library's clocks.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
use core::mem::MaybeUninit;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

/// Returns the result of the C library's `clock_gettime`: seconds and nanoseconds.
#[inline(always)]
pub(crate) fn clock_gettime(clock: libc::clockid_t) -> (i64, i64) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a writable timespec for the duration of the call.
    unsafe { libc::clock_gettime(clock, &mut now) };
    (now.tv_sec, now.tv_nsec)
}

/// Calls `clock_gettime` and discards the time. Reading it would add 3 ns, as much as a coarse
/// clock takes.
#[inline(always)]
pub(crate) fn call_clock_gettime(clock: libc::clockid_t) {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `now` is writable memory for a timespec for the time of the call, and is not read.
    unsafe { libc::clock_gettime(clock, now.as_mut_ptr()) };
}

/// Returns the result of the C library's `gettimeofday`: seconds and microseconds.
#[inline(always)]
pub(crate) fn gettimeofday() -> (i64, i64) {
    let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: `now` is a writable timeval for the duration of the call, and the time zone may be
    // null.
    unsafe { libc::gettimeofday(&mut now, core::ptr::null_mut()) };
    (now.tv_sec, now.tv_usec)
}

/// Calls `gettimeofday` and discards the time.
#[inline(always)]
pub(crate) fn call_gettimeofday() {
    let mut now = MaybeUninit::<libc::timeval>::uninit();
    // SAFETY: `now` is writable memory for a timeval for the time of the call, and is not read; the
    // zone may be null.
    unsafe { libc::gettimeofday(now.as_mut_ptr(), core::ptr::null_mut()) };
}
