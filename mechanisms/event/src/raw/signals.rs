//! Blocking signals and reading them from a descriptor: rustix has neither.

use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Blocks `signals` for the calling thread and those it starts from now on, and gives a descriptor
/// that they are read from. The call that failed comes with its errno.
pub(crate) fn block(signals: &[i32]) -> Result<OwnedFd, (&'static str, Errno)> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset writes a whole set through the pointer.
    let answer = unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    check("sigemptyset", answer)?;
    for &signal in signals {
        // SAFETY: the set is initialised; a number that is no signal is refused.
        let answer = unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        check("sigaddset", answer)?;
    }
    // SAFETY: initialised by sigemptyset() above.
    let set = unsafe { set.assume_init() };
    // The descriptor first: if it cannot be had, nothing is blocked.
    // SAFETY: reads the set; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    check("signalfd", fd)?;
    // SAFETY: a new descriptor, which nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: reads the set; the old mask is not asked for.
    let errno =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if errno != 0 {
        return Err(("pthread_sigmask", Errno::from_raw_os_error(errno)));
    }
    Ok(fd)
}

/// The next signal that has come, if one has.
pub(crate) fn next(fd: &OwnedFd) -> Option<i32> {
    const BYTES: usize = size_of::<libc::signalfd_siginfo>();
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    // SAFETY: `info` is writable, and BYTES long.
    let read = unsafe { libc::read(fd.as_raw_fd(), info.as_mut_ptr().cast(), BYTES) };
    if usize::try_from(read) != Ok(BYTES) {
        return None; // EAGAIN: none; a signalfd gives whole records only
    }
    // SAFETY: it consists of integers, filled by the kernel over zeroes.
    let info = unsafe { info.assume_init() };
    i32::try_from(info.ssi_signo).ok()
}

fn check(call: &'static str, answer: i32) -> Result<(), (&'static str, Errno)> {
    if answer < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
        return Err((call, Errno::from_raw_os_error(errno)));
    }
    Ok(())
}
