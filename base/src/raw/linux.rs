//! Calls of Linux that rustix lacks: `prctl`, `getrusage`, and `epoll_pwait2`, for which rustix
//! calls `epoll_pwait` with the time limit rounded up to milliseconds.

use crate::usage::{Usage, UsageScope};
use core::mem::MaybeUninit;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Waits for events of an epoll set, for at most `timeout`. Returns the events that the kernel has
/// written to `buffer`.
pub(crate) fn epoll_pwait2<'buffer>(
    set: BorrowedFd<'_>,
    buffer: &'buffer mut [MaybeUninit<epoll::Event>],
    timeout: &Timespec,
) -> Result<&'buffer [epoll::Event], Errno> {
    // The kernel's structure, of two 64-bit integers on every architecture.
    let timeout = [timeout.tv_sec, timeout.tv_nsec];
    // SAFETY: the kernel writes at most `buffer.len()` events, whose layout epoll::Event has;
    // `timeout` is valid during the call. Without a signal mask, its length is not read.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            set.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len() as libc::c_int,
            timeout.as_ptr(),
            core::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    if count < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    let written = &buffer[..count as usize];
    // SAFETY: the kernel has written these events.
    Ok(unsafe { core::slice::from_raw_parts(written.as_ptr().cast(), written.len()) })
}

/// Returns the resource usage that `getrusage` reports. Under Miri, returns zeroes.
pub(crate) fn read_usage(scope: UsageScope) -> Usage {
    if cfg!(miri) {
        return Usage::default();
    }
    let target = match scope {
        UsageScope::Thread => libc::RUSAGE_THREAD,
        UsageScope::Process => libc::RUSAGE_SELF,
        UsageScope::Children => libc::RUSAGE_CHILDREN,
    };
    let mut out = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `out` is a writable rusage during the call.
    let answer = unsafe { libc::getrusage(target, out.as_mut_ptr()) };
    debug_assert_eq!(answer, 0, "getrusage({target}) failed");
    // SAFETY: rusage consists of integers, for which zeroes are a valid value, so that it is
    // initialised even if the kernel wrote nothing.
    let out = unsafe { out.assume_init() };
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
    Usage {
        user_ns: ns(out.ru_utime),
        system_ns: ns(out.ru_stime),
        switches_voluntary: out.ru_nvcsw as u64,
        switches_involuntary: out.ru_nivcsw as u64,
        faults_minor: out.ru_minflt as u64,
        faults_major: out.ru_majflt as u64,
        rss_max_bytes: out.ru_maxrss as u64 * 1024, // Linux counts in KiB.
    }
}

/// Returns `true` if this process has disabled reading of the time-stamp counter.
pub(crate) fn is_timestamp_counter_disabled() -> bool {
    let mut mode: libc::c_int = 0;
    // SAFETY: PR_GET_TSC writes one int through the pointer, which is valid during the call.
    let answer = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) };
    answer == 0 && mode == libc::PR_TSC_SIGSEGV
}
