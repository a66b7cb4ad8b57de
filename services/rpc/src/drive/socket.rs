//! The calls on sockets, none of which blocks but [`wait`].

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// How many descriptors a greeting carries: the segment.
pub(crate) const FDS_COUNT: usize = 1;

#[inline]
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match net::recv(fd, &mut *into, RecvFlags::DONTWAIT) {
            Ok((count, _)) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// As [`receive`], and waits until something has come, where the socket was [made to](blocks).
#[inline]
pub(crate) fn wait(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    net::recv(fd, into, RecvFlags::empty()).map(|(count, _)| count)
}

/// From now on, [`wait`] waits; all else here does not, either way.
pub(crate) fn blocks(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = fcntl_getfl(fd)?;
    fcntl_setfl(fd, flags - OFlags::NONBLOCK)
}

/// From now on, [`wait`] is refused with `EAGAIN` when nothing has come for so long.
pub(crate) fn bound_wait(fd: BorrowedFd<'_>, longest: Duration) -> Result<(), Errno> {
    sockopt::set_socket_timeout(fd, sockopt::Timeout::Recv, Some(longest))
}

/// How many bytes the kernel took, 0 where it has no room.
#[inline]
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => return Ok(count),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// As [`send`], of several pieces.
pub(crate) fn send_parts(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    send_with(fd, parts, &mut SendAncillaryBuffer::default())
}

/// As [`send`], with descriptors.
pub(crate) fn send_fds(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_COUNT))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    send_with(fd, &[IoSlice::new(bytes)], &mut control)
}

fn send_with(
    fd: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    control: &mut SendAncillaryBuffer<'_, '_, '_>,
) -> Result<usize, Errno> {
    loop {
        match net::sendmsg(fd, parts, control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => return Ok(count),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// As [`receive`], with the descriptors that came along. More than a greeting carries are closed by the
/// kernel.
pub(crate) fn receive_fds(
    fd: BorrowedFd<'_>,
    into: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_COUNT))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = loop {
        match net::recvmsg(fd, &mut [IoSliceMut::new(into)], &mut control, flags) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            fds.extend(came);
        }
    }
    fds.truncate(FDS_COUNT);
    Ok(got.bytes)
}

/// When nothing has come for so long, the other machine is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(10);
/// How often it is asked, and so many times before it is gone.
const ASKED_EACH: Duration = Duration::from_secs(5);
const ASKED_TIMES: u32 = 3;

/// Small messages go out at once, and a machine that is gone without a word is noticed by and by. What is no
/// TCP socket refuses all of this and needs none of it.
pub(crate) fn prompt(fd: BorrowedFd<'_>) {
    if sockopt::set_tcp_nodelay(fd, true).is_ok() {
        let _ = sockopt::set_socket_keepalive(fd, true);
        let _ = sockopt::set_tcp_keepidle(fd, SILENCE);
        let _ = sockopt::set_tcp_keepintvl(fd, ASKED_EACH);
        let _ = sockopt::set_tcp_keepcnt(fd, ASKED_TIMES);
    }
}

pub(crate) use crate::raw::whose;
