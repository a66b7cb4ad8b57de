//! The time-stamp counter by three instructions, and the C library's clocks.

use core::arch::x86_64::{__cpuid, __rdtscp, _mm_lfence, _rdtsc};
use core::mem::MaybeUninit;

/// Reads the time-stamp counter.
#[inline(always)]
pub(crate) fn rdtsc() -> u64 {
    // SAFETY: every x86_64 processor has RDTSC; it touches no memory.
    unsafe { _rdtsc() }
}

/// Reads the time-stamp counter after all earlier instructions have executed.
#[inline(always)]
pub(crate) fn rdtscp() -> u64 {
    let mut cpu = 0;
    // SAFETY: `cpu` is writable; on a processor without RDTSCP the instruction traps, and accesses
    // no memory.
    unsafe { __rdtscp(&mut cpu) }
}

pub(crate) fn has_rdtscp() -> bool {
    const EXTENDED_MAX: u32 = 0x8000_0000;
    const EXTENDED_FEATURES: u32 = 0x8000_0001;
    const RDTSCP_EDX: u32 = 1 << 27;
    __cpuid(EXTENDED_MAX).eax >= EXTENDED_FEATURES
        && __cpuid(EXTENDED_FEATURES).edx & RDTSCP_EDX != 0
}

/// Reads the time-stamp counter after all earlier loads have completed.
#[inline(always)]
pub(crate) fn lfence_rdtsc() -> u64 {
    load_fence();
    rdtsc()
}

/// Delays all later instructions until earlier loads have completed.
///
/// Between two polls of a line that another CPU is about to write, it keeps a processor from having
/// many loads in flight, of which some are too early and are repeated while the other side waits:
/// a round trip takes 0.6 to 0.9 times as long with it on AMD Zen 4, and the same time on Intel
/// Sapphire Rapids (2026-11). A PAUSE takes longer on both.
#[inline(always)]
pub(crate) fn load_fence() {
    // SAFETY: every x86_64 processor has SSE2 and with it LFENCE, which touches no memory.
    unsafe { _mm_lfence() };
}

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
    // SAFETY: `now` is writable memory for a timeval for the time of the call, and is not read; the zone
    // may be null.
    unsafe { libc::gettimeofday(now.as_mut_ptr(), core::ptr::null_mut()) };
}
