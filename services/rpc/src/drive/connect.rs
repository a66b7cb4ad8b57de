//! Connecting without blocking; only the lookup of a host's name blocks.

use super::listen::{open_unix_socket, system_call_error, unix_address};
use super::poll::{EventSource, Poll};
use super::socket;
use crate::error::failed_call;
use crate::{Address, EndpointError, SystemCallError};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};

/// Interval, in ns, of attempts to connect to a Unix listener whose queue is full. Epoll does not
/// report space in the queue.
const CONNECT_RETRY_NS: u64 = 1_000_000;

/// Connection that is being established, before its handshake.
#[derive(Debug)]
pub(crate) struct ConnectAttempt {
    address: Address,
    /// Addresses of the host that were not tried yet; empty for a Unix socket.
    hosts: std::vec::IntoIter<SocketAddr>,
    /// TCP socket that is connecting to one of the host's addresses.
    socket: Option<OwnedFd>,
    /// Error number of the last attempt.
    last_error: Errno,
    /// Time of the next attempt on a Unix socket, in ns. It is `u64::MAX` for TCP.
    pub(crate) retry_at_ns: u64,
}

impl ConnectAttempt {
    /// Creates a connection attempt; [`advance`](Self::advance) starts it.
    ///
    /// # Blocking
    /// Blocks for the lookup of a host's name; a numeric address needs none.
    pub(crate) fn new(address: &Address) -> Result<Self, EndpointError> {
        if !address.is_complete() {
            return Err(EndpointError::IncompleteAddress(address.clone()));
        }
        let (hosts, retry_at_ns) = match address {
            Address::Tcp(host) | Address::Tls(host) | Address::Ucx(host) => {
                let unresolved =
                    |error| EndpointError::HostUnresolved { address: host.clone(), error };
                (host.to_socket_addrs().map_err(unresolved)?.collect(), u64::MAX)
            }
            Address::Sm(_) | Address::Uds(_) => (Vec::new(), 0),
        };
        let (address, hosts) = (address.clone(), hosts.into_iter());
        Ok(Self { address, hosts, socket: None, last_error: Errno::ADDRNOTAVAIL, retry_at_ns })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Continues the attempt; returns the socket once it is connected, and `None` before. The socket is in the epoll
    /// set as `source`.
    pub(crate) fn advance(
        &mut self,
        poll: &Poll,
        source: EventSource,
        now_ns: u64,
    ) -> Result<Option<OwnedFd>, EndpointError> {
        let advanced = match self.retry_at_ns {
            u64::MAX => self.advance_tcp(poll, source),
            at_ns if now_ns < at_ns => Ok(None),
            _ => self.connect_unix(poll, source, now_ns),
        };
        advanced.map_err(|failed| system_call_error(failed.call, &self.address)(failed.error))
    }

    /// Tries once to connect to a Unix listener; returns `None` if the listener's queue is full.
    fn connect_unix(
        &mut self,
        poll: &Poll,
        source: EventSource,
        now_ns: u64,
    ) -> Result<Option<OwnedFd>, SystemCallError> {
        let fd = open_unix_socket().map_err(failed_call("socket"))?;
        let at = unix_address(&self.address).map_err(failed_call("connect"))?;
        match net::connect(&fd, &at) {
            Ok(()) => {
                poll.add(&fd, source).map_err(failed_call("epoll_ctl"))?;
                Ok(Some(fd))
            }
            // The listener's queue is full.
            Err(Errno::AGAIN) => {
                self.last_error = Errno::AGAIN;
                self.retry_at_ns = now_ns + CONNECT_RETRY_NS;
                Ok(None)
            }
            Err(errno) => Err(failed_call("connect")(errno)),
        }
    }

    /// Connects to the host's addresses one after another, until one accepts the connection.
    /// Returns its socket; `None` while connecting.
    fn advance_tcp(
        &mut self,
        poll: &Poll,
        source: EventSource,
    ) -> Result<Option<OwnedFd>, SystemCallError> {
        loop {
            if let Some(fd) = self.socket.take() {
                match is_connected(&fd) {
                    Ok(true) => {
                        socket::set_socket_options(fd.as_fd());
                        return Ok(Some(fd));
                    }
                    Ok(false) => {
                        self.last_error = Errno::TIMEDOUT;
                        self.socket = Some(fd);
                        return Ok(None);
                    }
                    Err(errno) => self.last_error = errno,
                }
                // A child of this process may have inherited the socket.
                let _ = poll.remove(fd);
            }
            let Some(host) = self.hosts.next() else {
                return Err(failed_call("connect")(self.last_error));
            };
            let family = if host.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let fd = net::socket_with(family, SocketType::STREAM, flags, None)
                .map_err(failed_call("socket"))?;
            match net::connect(&fd, &host) {
                Ok(()) | Err(Errno::INPROGRESS) => {
                    poll.add(&fd, source).map_err(failed_call("epoll_ctl"))?;
                    self.socket = Some(fd);
                }
                Err(errno) => self.last_error = errno,
            }
        }
    }

    /// Returns the error of the last attempt, for a connection that was not established in time.
    pub(crate) fn timeout_error(&self) -> EndpointError {
        system_call_error("connect", &self.address)(self.last_error)
    }
}

/// Returns `true` if the socket is connected, and `false` while it is connecting.
fn is_connected(fd: &OwnedFd) -> Result<bool, Errno> {
    sockopt::socket_error(fd)??;
    match net::getpeername(fd) {
        Ok(_) => Ok(true),
        Err(Errno::NOTCONN) => Ok(false),
        Err(errno) => Err(errno),
    }
}
