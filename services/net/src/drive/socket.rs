//! The calls on sockets, none of which blocks.

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::net::{ipproto, sockopt};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How many connections the kernel may hold that are not accepted; it has a lid of its own.
pub(crate) const BACKLOG: i32 = 4096;

fn stream(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

/// A socket that listens; with `shared`, others of this process may listen beside it.
pub(crate) fn listen(address: SocketAddr, shared: bool) -> Result<OwnedFd, (&'static str, Errno)> {
    let fd = stream(address).map_err(|errno| ("socket", errno))?;
    sockopt::set_socket_reuseaddr(&fd, true).map_err(|errno| ("setsockopt", errno))?;
    if shared {
        sockopt::set_socket_reuseport(&fd, true).map_err(|errno| ("setsockopt", errno))?;
    }
    net::bind(&fd, &address).map_err(|errno| ("bind", errno))?;
    net::listen(&fd, BACKLOG).map_err(|errno| ("listen", errno))?;
    Ok(fd)
}

/// A socket that is being connected, from `source` if that is given.
pub(crate) fn connect(
    address: SocketAddr,
    source: Option<SocketAddr>,
) -> Result<OwnedFd, (&'static str, Errno)> {
    let fd = stream(address).map_err(|errno| ("socket", errno))?;
    if let Some(source) = source {
        net::bind(&fd, &source).map_err(|errno| ("bind", errno))?;
    }
    prompt(fd.as_fd());
    match net::connect(&fd, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(errno) => Err(("connect", errno)),
    }
}

/// What is wrong with it, if anything is; of one that is being connected, whether that came to a good end.
pub(crate) fn is_well(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    sockopt::socket_error(fd)?
}

pub(crate) fn accept(fd: BorrowedFd<'_>) -> Result<(OwnedFd, Option<SocketAddr>), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (fd, peer) = net::acceptfrom_with(fd, flags)?;
    Ok((fd, peer.and_then(|peer| SocketAddr::try_from(peer).ok())))
}

/// Small messages go out at once. What is no TCP socket has no such delay.
pub(crate) fn prompt(fd: BorrowedFd<'_>) {
    let _ = sockopt::set_tcp_nodelay(fd, true);
}

pub(crate) fn address(fd: BorrowedFd<'_>) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(net::getsockname(fd)?)
}

pub(crate) fn peer(fd: BorrowedFd<'_>) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(net::getpeername(fd)?.ok_or(Errno::NOTCONN)?)
}

#[inline]
pub(crate) fn read(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match net::recv(fd, &mut *into, RecvFlags::DONTWAIT) {
            Ok((bytes_count, _)) => return Ok(bytes_count),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Whether there is something to read, which stays there: 0 where the stream has ended.
pub(crate) fn peek(fd: BorrowedFd<'_>) -> Result<usize, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    net::recv(fd, &mut [0_u8; 1][..], flags).map(|(bytes_count, _)| bytes_count)
}

/// How many bytes the kernel took, 0 where it has no room.
#[inline]
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(bytes_count) => return Ok(bytes_count),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Nothing more will be sent.
pub(crate) fn end(fd: BorrowedFd<'_>) {
    // Refused where the peer is gone already, which reading tells.
    let _ = net::shutdown(fd, Shutdown::Write);
}
