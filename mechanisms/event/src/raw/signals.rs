//! Blocking of signals, and reading them from a descriptor: rustix has neither.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Blocks `signals` for the calling thread and for threads that it starts afterwards. Returns a
/// descriptor from which the signals are read. The error holds the failed call and its error.
pub(crate) fn block_signals(signals: &[i32]) -> Result<OwnedFd, (&'static str, io::Error)> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the whole set through the pointer, which is valid for writes.
    let answer = unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    check("sigemptyset", answer)?;
    for &signal in signals {
        // SAFETY: sigemptyset initialised the set above; sigaddset returns an error for an invalid
        // number.
        let answer = unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        check("sigaddset", answer)?;
    }
    // SAFETY: sigemptyset initialised the set above.
    let set = unsafe { set.assume_init() };
    // The descriptor is made first: if that fails, no signal is blocked.
    // SAFETY: signalfd reads the initialised set; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    check("signalfd", fd)?;
    // SAFETY: signalfd has just returned this descriptor; nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: pthread_sigmask reads the initialised set; a null old mask is allowed.
    let errno =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if errno != 0 {
        return Err(("pthread_sigmask", io::Error::from_raw_os_error(errno)));
    }
    Ok(fd)
}

/// Reads the number of the next pending signal; `None` if no signal is pending.
pub(crate) fn read_signal(fd: &OwnedFd) -> Option<i32> {
    const RECORD_BYTES: usize = size_of::<libc::signalfd_siginfo>();
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    // SAFETY: `info` is writable and RECORD_BYTES long.
    let read = unsafe { libc::read(fd.as_raw_fd(), info.as_mut_ptr().cast(), RECORD_BYTES) };
    if usize::try_from(read) != Ok(RECORD_BYTES) {
        return None; // EAGAIN: no signal is pending; a signalfd returns whole records only
    }
    // SAFETY: the struct has integer fields only; the kernel filled it over zeroes.
    let info = unsafe { info.assume_init() };
    i32::try_from(info.ssi_signo).ok()
}

/// Returns `Err` with the name and the error of the system call `call` if its result `answer` is
/// negative.
fn check(call: &'static str, answer: i32) -> Result<(), (&'static str, io::Error)> {
    if answer < 0 { Err((call, io::Error::last_os_error())) } else { Ok(()) }
}
