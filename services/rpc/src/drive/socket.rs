//! System calls on sockets. Only [`receive_blocking`] blocks.

use crate::CloseReason;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Maximum number of descriptors in one message. It is the descriptor of the segment in a
/// handshake, or of a file.
pub(crate) const FDS_PER_MESSAGE_MAX: usize = 1;

/// Result of a read that does not block. It is no bytes now, the end of the stream, or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadResult {
    /// No bytes are available; epoll reports when some arrive.
    Nothing,
    /// The peer has closed the stream.
    End,
    /// `count` bytes, at least one, were read. `drained`: no more bytes are available now, but the
    /// stream may have ended.
    Bytes { count: usize, drained: bool },
}

impl ReadResult {
    /// Converts the result of a `recv` call that had space for `asked` bytes.
    pub(crate) fn from_result(
        result: Result<usize, Errno>,
        asked: usize,
    ) -> Result<Self, CloseReason> {
        match result {
            Ok(0) => Ok(ReadResult::End),
            // A short read means that no more bytes are available, except at the mark of urgent
            // data, and after a descriptor that was sent with the bytes. No peer of this protocol
            // sends one over a stream: to read again for it would cost every message a system call.
            Ok(count) => Ok(ReadResult::Bytes { count, drained: count < asked }),
            Err(Errno::AGAIN) => Ok(ReadResult::Nothing),
            Err(errno) => Err(CloseReason::from_system_call("recv")(errno)),
        }
    }
}

/// Receives bytes without blocking. Fails with `EAGAIN` if there are none, and returns 0 at the end
/// of the stream.
#[inline]
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    retry_on_intr(|| net::recv(fd, &mut *into, RecvFlags::DONTWAIT)).map(|(count, _)| count)
}

/// Receives bytes and discards them, in at most `reads_max` reads of 4 KiB. Returns the result of
/// the last read: `EAGAIN` if no more bytes are available now.
pub(crate) fn discard(fd: BorrowedFd<'_>, reads_max: usize) -> Result<usize, Errno> {
    let mut discarded = [0; 4096];
    for _ in 1..reads_max {
        if receive(fd, &mut discarded)? == 0 {
            return Ok(0);
        }
    }
    receive(fd, &mut discarded)
}

/// Receives bytes; blocks until some arrive if [`set_blocking`] has made the socket blocking.
#[inline]
pub(crate) fn receive_blocking(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    net::recv(fd, into, RecvFlags::empty()).map(|(count, _)| count)
}

/// Makes [`receive_blocking`] block on this socket. The other functions of this module still do not
/// block.
pub(crate) fn set_blocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = fcntl_getfl(fd)?;
    fcntl_setfl(fd, flags - OFlags::NONBLOCK)
}

/// Makes [`receive_blocking`] fail with `EAGAIN` after `longest` without data.
pub(crate) fn set_receive_timeout(fd: BorrowedFd<'_>, longest: Duration) -> Result<(), Errno> {
    sockopt::set_socket_timeout(fd, sockopt::Timeout::Recv, Some(longest))
}

/// Sends bytes without blocking; returns the number that the kernel accepted, 0 if it has no space.
#[inline]
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    match retry_on_intr(|| net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)) {
        Err(Errno::AGAIN) => Ok(0),
        sent => sent,
    }
}

/// Sends several pieces in one system call; see [`send`].
pub(crate) fn send_vectored(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    send_with(fd, parts, &mut SendAncillaryBuffer::default())
}

/// Sends bytes together with descriptors; see [`send`].
pub(crate) fn send_fds(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_PER_MESSAGE_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    send_with(fd, &[IoSlice::new(bytes)], &mut control)
}

/// Sends several pieces and ancillary data in one system call; see [`send`].
fn send_with(
    fd: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    control: &mut SendAncillaryBuffer<'_, '_, '_>,
) -> Result<usize, Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match retry_on_intr(|| net::sendmsg(fd, parts, control, flags)) {
        Err(Errno::AGAIN) => Ok(0),
        sent => sent,
    }
}

/// Receives bytes and the descriptors sent with them; see [`receive`]. The kernel closes
/// descriptors beyond `FDS_PER_MESSAGE_MAX`.
pub(crate) fn receive_fds(
    fd: BorrowedFd<'_>,
    into: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_PER_MESSAGE_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(into)];
    let got = retry_on_intr(|| net::recvmsg(fd, &mut parts, &mut control, flags))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    fds.truncate(FDS_PER_MESSAGE_MAX);
    Ok(got.bytes)
}

/// Idle time after which keepalive probes are sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Time between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Number of unanswered keepalive probes after which the kernel closes the connection.
const KEEPALIVE_PROBES: u32 = 3;

/// Sets the TCP options of a connection. Small messages are sent at once, and an unreachable peer
/// is detected within half a minute. Other sockets reject these options and do not need them.
pub(crate) fn set_socket_options(fd: BorrowedFd<'_>) {
    if sockopt::set_tcp_nodelay(fd, true).is_ok() {
        let _ = sockopt::set_socket_keepalive(fd, true);
        let _ = sockopt::set_tcp_keepidle(fd, KEEPALIVE_IDLE);
        let _ = sockopt::set_tcp_keepintvl(fd, KEEPALIVE_INTERVAL);
        let _ = sockopt::set_tcp_keepcnt(fd, KEEPALIVE_PROBES);
        // While sent bytes are unacknowledged, the kernel sends no probes.
        let unacknowledged = KEEPALIVE_IDLE + KEEPALIVE_PROBES * KEEPALIVE_INTERVAL;
        let _ = sockopt::set_tcp_user_timeout(fd, unacknowledged.as_millis() as u32);
    }
}
