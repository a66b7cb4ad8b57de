//! Credentials of the process at the other end of a Unix socket.

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the process id and the user id of the other end of a Unix socket. The process id is
/// `None` if the process is not visible in this pid namespace.
// rustix has this call, but cannot represent the id 0 that the kernel reports for a process of another namespace.
pub(crate) fn peer_credentials(fd: BorrowedFd<'_>) -> Result<(Option<i32>, u32), Errno> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t; // 12 bytes.
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the descriptor is open, and the kernel writes at most `bytes` bytes to `credentials`,
    // three integers for which every value is valid, and the written length to `bytes`.
    let got = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw mut credentials).cast(),
            &raw mut bytes,
        )
    };
    if got != 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    Ok(((credentials.pid > 0).then_some(credentials.pid), credentials.uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn credentials_of_a_socket_pair_are_those_of_this_process() {
        let (one, _other) = UnixStream::pair().expect("create a socket pair");
        let user = rustix::process::getuid().as_raw();
        let process = i32::try_from(std::process::id()).expect("a number of a process");
        assert_eq!(peer_credentials(one.as_fd()), Ok((Some(process), user)));
        let file = std::fs::File::open("/dev/null").expect("open /dev/null");
        assert_eq!(peer_credentials(file.as_fd()), Err(Errno::NOTSOCK));
    }
}
