//! Who is at the other end of a Unix socket.

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The process, where it can be seen from here, and the user at the other end of a Unix socket.
// rustix has this call, but no number for a process of another namespace, which the kernel tells as 0.
pub(crate) fn whose(fd: BorrowedFd<'_>) -> Result<(Option<i32>, u32), Errno> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t; // 12.
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the descriptor is open, and the kernel writes no more than `bytes` bytes of three integers, which
    // may have any value, to `who`, and how many they are to `bytes`.
    let got = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, (&raw mut who).cast(), &raw mut bytes)
    };
    if got != 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    Ok(((who.pid > 0).then_some(who.pid), who.uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_end_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let user = rustix::process::getuid().as_raw();
        let process = i32::try_from(std::process::id()).expect("a number of a process");
        assert_eq!(whose(one.as_fd()), Ok((Some(process), user)));
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert_eq!(whose(file.as_fd()), Err(Errno::NOTSOCK));
    }
}
