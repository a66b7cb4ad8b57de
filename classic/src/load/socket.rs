//! Socket calls; none blocks.

use handover_base::epoll::Flags;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{ipproto, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// Epoll events that are watched on a connection, edge-triggered.
pub(crate) const WATCHED_EVENTS: Flags =
    Flags::IN.union(Flags::OUT).union(Flags::RDHUP).union(Flags::ET);

/// Returns the error number of a failed system call.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Starts to connect a new socket, from the address `source` if it is `Some`. An error includes the
/// name of the failed system call.
pub(crate) fn connect(
    address: SocketAddr,
    source: Option<SocketAddr>,
) -> Result<OwnedFd, (&'static str, Errno)> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
        .map_err(|errno| ("socket", errno))?;
    if let Some(source) = source {
        net::bind(&fd, &source).map_err(|errno| ("bind", errno))?;
    }
    sockopt::set_tcp_nodelay(&fd, true).map_err(|errno| ("setsockopt", errno))?;
    match net::connect(&fd, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(errno) => Err(("connect", errno)),
    }
}

/// Returns the result of a finished connection attempt.
pub(crate) fn connect_result(fd: impl AsFd) -> Result<(), Errno> {
    sockopt::socket_error(fd)?
}

/// Reads from a socket without blocking. Returns the number of bytes read; 0 if the peer has
/// closed.
#[inline]
pub(crate) fn read(fd: impl AsFd, into: &mut [u8]) -> Result<usize, Errno> {
    let received = retry_on_intr(|| net::recv(fd.as_fd(), &mut *into, RecvFlags::DONTWAIT));
    received.map(|(bytes_count, _)| bytes_count)
}

/// Sends to a socket without blocking. Returns the number of bytes that the kernel accepted; 0 if
/// the socket buffer is full.
#[inline]
pub(crate) fn send(fd: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match retry_on_intr(|| net::send(fd.as_fd(), bytes, flags)) {
        Err(Errno::AGAIN) => Ok(0),
        sent => sent,
    }
}
