//! Credentials of the process at the other end of a Unix socket.

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads an option of a socket into `value`.
///
/// # Safety
/// Every bit pattern is a valid `T`.
pub(super) unsafe fn read_socket_option<T>(
    fd: BorrowedFd<'_>,
    option: libc::c_int,
    value: &mut T,
) -> Result<(), Errno> {
    let mut bytes = size_of::<T>() as libc::socklen_t; // A few bytes.
    let (fd, value) = (fd.as_raw_fd(), (&raw mut *value).cast());
    // SAFETY: the descriptor is open, and the kernel writes at most `bytes` bytes to `value`, for
    // which every value is valid, as the caller promises, and the written length to `bytes`.
    match unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, value, &raw mut bytes) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

/// Returns the process id and the user id of the other end of a Unix socket. The process id is
/// `None` if the process is not visible in this pid namespace.
pub(crate) fn peer_credentials(fd: BorrowedFd<'_>) -> Result<(Option<i32>, u32), Errno> {
    // rustix has this call, but cannot represent the id 0 that the kernel reports for a process of
    // another namespace.
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    // SAFETY: three integers, for which every value is valid.
    unsafe { read_socket_option(fd, libc::SO_PEERCRED, &mut credentials) }?;
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
