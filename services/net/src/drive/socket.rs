//! The calls on sockets, none of which blocks.

use crate::Config;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::net::{ipproto, sockopt};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

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
    config: &Config,
) -> Result<OwnedFd, (&'static str, Errno)> {
    let fd = stream(address).map_err(|errno| ("socket", errno))?;
    if let Some(source) = source {
        net::bind(&fd, &source).map_err(|errno| ("bind", errno))?;
    }
    set_options(fd.as_fd(), config);
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

/// Probes without an answer after which the kernel gives a connection up.
const PROBES_MAX: u32 = 4;

/// Sends small messages at once, and has the kernel probe a peer that is silent. A socket that is not TCP refuses all
/// of this, and needs none of it.
pub(crate) fn set_options(fd: BorrowedFd<'_>, config: &Config) {
    if sockopt::set_tcp_nodelay(fd, true).is_err() || config.keepalive_ms == 0 {
        return;
    }
    // The kernel counts whole seconds, at least one.
    let silence = Duration::from_secs(u64::from(config.keepalive_ms.div_ceil(1000)));
    let interval = Duration::from_secs((silence.as_secs() / u64::from(PROBES_MAX)).max(1));
    // Its bounds are below the kernel's, which are nine hours.
    let _ = sockopt::set_tcp_keepidle(fd, silence);
    let _ = sockopt::set_tcp_keepintvl(fd, interval);
    let _ = sockopt::set_tcp_keepcnt(fd, PROBES_MAX);
    let _ = sockopt::set_socket_keepalive(fd, true);
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
