//! System calls on sockets; none of them blocks.

use crate::Config;
use crate::config::to_ns;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::net::{ipproto, sockopt};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Maximum number of connections in the kernel's accept queue; `net.core.somaxconn` also limits it.
pub(crate) const LISTEN_BACKLOG: i32 = 4096;

fn open_stream_socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

/// Opens a listening socket; if `shared`, other sockets may listen at the same address
/// (`SO_REUSEPORT`).
pub(crate) fn listen(address: SocketAddr, shared: bool) -> Result<OwnedFd, (&'static str, Errno)> {
    let fd = open_stream_socket(address).map_err(|errno| ("socket", errno))?;
    sockopt::set_socket_reuseaddr(&fd, true).map_err(|errno| ("setsockopt", errno))?;
    if shared {
        sockopt::set_socket_reuseport(&fd, true).map_err(|errno| ("setsockopt", errno))?;
    }
    net::bind(&fd, &address).map_err(|errno| ("bind", errno))?;
    net::listen(&fd, LISTEN_BACKLOG).map_err(|errno| ("listen", errno))?;
    Ok(fd)
}

/// Opens a socket and starts to connect it to `address`, from `source` if that is `Some`.
pub(crate) fn connect(
    address: SocketAddr,
    source: Option<SocketAddr>,
    config: &Config,
) -> Result<OwnedFd, (&'static str, Errno)> {
    let fd = open_stream_socket(address).map_err(|errno| ("socket", errno))?;
    if let Some(source) = source {
        net::bind(&fd, &source).map_err(|errno| ("bind", errno))?;
    }
    set_socket_options(fd.as_fd(), config);
    match net::connect(&fd, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(errno) => Err(("connect", errno)),
    }
}

/// Returns the socket's pending error as `Err`, and clears it.
pub(crate) fn take_socket_error(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    sockopt::socket_error(fd)?
}

/// Returns `true` if the socket is connected, and `false` while it is connecting.
///
/// A socket that is connected to itself counts as refused. The kernel may connect it so if nobody
/// listens at a port of this machine and the socket has this port (RFC 9293, section 3.5:
/// simultaneous open).
pub(crate) fn is_connected(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    take_socket_error(fd)?;
    match peer_address(fd) {
        Ok(peer) if local_address(fd) == Ok(peer) => Err(Errno::CONNREFUSED),
        Ok(_) => Ok(true),
        Err(Errno::NOTCONN) => Ok(false),
        Err(errno) => Err(errno),
    }
}

pub(crate) fn accept(fd: BorrowedFd<'_>) -> Result<(OwnedFd, Option<SocketAddr>), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (fd, peer) = net::acceptfrom_with(fd, flags)?;
    Ok((fd, peer.and_then(|peer| SocketAddr::try_from(peer).ok())))
}

/// Number of unanswered keepalive probes after which the kernel resets a connection.
const PROBES_MAX: u32 = 4;

/// Disables Nagle's algorithm, and enables keepalive if configured. Sockets other than TCP reject
/// these options and do not need them.
pub(crate) fn set_socket_options(fd: BorrowedFd<'_>, config: &Config) {
    if sockopt::set_tcp_nodelay(fd, true).is_err() || config.keepalive.is_zero() {
        return;
    }
    // The kernel counts whole seconds, at least one.
    let silence = Duration::from_secs(to_ns(config.keepalive).div_ceil(1_000_000_000));
    let interval = Duration::from_secs((silence.as_secs() / u64::from(PROBES_MAX)).max(1));
    // `keepalive` is limited below the kernel's bound of nine hours.
    let _ = sockopt::set_tcp_keepidle(fd, silence);
    let _ = sockopt::set_tcp_keepintvl(fd, interval);
    let _ = sockopt::set_tcp_keepcnt(fd, PROBES_MAX);
    let _ = sockopt::set_socket_keepalive(fd, true);
    // While sent bytes are unacknowledged, the kernel sends no probes.
    let unacknowledged = (silence + PROBES_MAX * interval).as_millis();
    let _ = sockopt::set_tcp_user_timeout(fd, u32::try_from(unacknowledged).unwrap_or(u32::MAX));
}

pub(crate) fn local_address(fd: BorrowedFd<'_>) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(net::getsockname(fd)?)
}

pub(crate) fn peer_address(fd: BorrowedFd<'_>) -> Result<SocketAddr, Errno> {
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

/// Returns the number of received bytes that were not read yet; 0 if it is unknown.
pub(crate) fn received_bytes(fd: BorrowedFd<'_>) -> u64 {
    rustix::io::ioctl_fionread(fd).unwrap_or(0)
}

/// Returns 1 if there is a byte to read, without reading it. Returns 0 at the end of the stream.
pub(crate) fn peek(fd: BorrowedFd<'_>) -> Result<usize, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    net::recv(fd, &mut [0_u8; 1][..], flags).map(|(bytes_count, _)| bytes_count)
}

/// Sends bytes; returns the number that the kernel accepted, 0 if the socket's buffer is full.
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

pub(crate) fn shut_down_sending(fd: BorrowedFd<'_>) {
    // Fails if the peer has disconnected; the next read reports it.
    let _ = net::shutdown(fd, Shutdown::Write);
}
