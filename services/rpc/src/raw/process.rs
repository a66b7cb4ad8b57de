//! The process at the other end of a Unix socket, as a descriptor that cannot come to mean another one.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Socket option of Linux 6.5: a descriptor of the peer's process. libc does not name it yet.
const SO_PEERPIDFD: libc::c_int = 77;

/// A descriptor of the process that has connected, or that listens, at the other end of a Unix socket. It becomes
/// readable when that process ends. `None` where the process has ended already, as of a server whose parent had
/// listened before it forked, or where the kernel gives no descriptor.
pub(crate) fn peer_process(fd: BorrowedFd<'_>, pid: Option<i32>) -> Option<OwnedFd> {
    let process = match socket_process(fd) {
        // Before Linux 6.5 the process id is all that there is.
        Err(Errno::NOPROTOOPT) => pidfd_open(Pid::from_raw(pid?)?, PidfdFlags::empty()),
        other => other,
    };
    let process = process.ok()?;
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&now));
    (ended == Ok(0)).then_some(process)
}

fn socket_process(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut process: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t; // 4.
    // SAFETY: the descriptor is open, and the kernel writes no more than `bytes` bytes to `process`, an integer, and
    // their number to `bytes`.
    let got = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut process).cast(),
            &raw mut bytes,
        )
    };
    if got != 0 || process < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    // SAFETY: the call has succeeded, so the kernel has just opened this descriptor for its caller alone.
    Ok(unsafe { OwnedFd::from_raw_fd(process) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn process_of_a_socket_pair_is_this_one_and_runs() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let pid = i32::try_from(std::process::id()).expect("a process id");
        assert!(peer_process(one.as_fd(), Some(pid)).is_some());
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert!(peer_process(file.as_fd(), Some(pid)).is_none(), "not a socket");
    }
}
