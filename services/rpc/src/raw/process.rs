//! Descriptor of the process at the other end of a Unix socket. Unlike a process id, it never
//! refers to another process.

use super::credentials::read_socket_option;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

/// Socket option of Linux 6.5 that returns a descriptor of the peer's process. libc has no constant
/// for it yet.
const SO_PEERPIDFD: libc::c_int = 77;

/// Returns a descriptor of the process at the other end of a Unix socket. This process has
/// connected or called `listen`. The descriptor becomes readable when that process exits. Returns
/// `None` if the process has already exited, such as the parent that called `listen` before it
/// forked a server, or if the kernel returns no descriptor.
pub(crate) fn peer_pidfd(fd: BorrowedFd<'_>, pid: Option<i32>) -> Option<OwnedFd> {
    let process = match socket_peer_pidfd(fd) {
        // Kernels before Linux 6.5 provide only the process id.
        Err(Errno::NOPROTOOPT) => pidfd_open(Pid::from_raw(pid?)?, PidfdFlags::empty()),
        other => other,
    };
    let process = process.ok()?;
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&now));
    (ended == Ok(0)).then_some(process)
}

fn socket_peer_pidfd(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut process: libc::c_int = -1;
    // SAFETY: an integer, for which every value is valid.
    unsafe { read_socket_option(fd, SO_PEERPIDFD, &mut process) }?;
    if process < 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: getsockopt() has succeeded, so the kernel has just opened this descriptor, and
    // nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(process) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn process_of_a_socket_pair_is_this_one_and_runs() {
        let (one, _other) = UnixStream::pair().expect("create a socket pair");
        let pid = i32::try_from(std::process::id()).expect("convert the id");
        assert!(peer_pidfd(one.as_fd(), Some(pid)).is_some());
        let file = std::fs::File::open("/dev/null").expect("open /dev/null");
        assert!(
            peer_pidfd(file.as_fd(), Some(pid)).is_none(),
            "found a peer process of a file that is no socket"
        );
    }
}
