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
    /// Time of the next attempt, in ns: on the same Unix socket, or on the next address of the
    /// host.
    pub(crate) retry_at_ns: u64,
    /// Time at which the connection must be established, in ns.
    deadline_ns: u64,
}

impl ConnectAttempt {
    /// Creates a connection attempt, which has time until `deadline_ns`; [`advance`](Self::advance)
    /// starts it.
    ///
    /// # Blocking
    /// Blocks for the lookup of a host's name; a numeric address needs none.
    pub(crate) fn new(address: &Address, deadline_ns: u64) -> Result<Self, EndpointError> {
        if !address.is_complete() {
            return Err(EndpointError::IncompleteAddress(address.clone()));
        }
        let hosts = match address {
            Address::Tcp(host) | Address::Tls(host) | Address::Ucx(host) => {
                let unresolved =
                    |error| EndpointError::HostUnresolved { address: host.clone(), error };
                host.to_socket_addrs().map_err(unresolved)?.collect()
            }
            Address::Sm(_) | Address::Uds(_) => Vec::new(),
        };
        Ok(Self {
            address: address.clone(),
            hosts: hosts.into_iter(),
            socket: None,
            last_error: Errno::ADDRNOTAVAIL,
            retry_at_ns: 0,
            deadline_ns,
        })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Continues the attempt; returns the socket once it is connected, and `None` before. The
    /// socket is in the epoll set as `source`.
    pub(crate) fn advance(
        &mut self,
        poll: &Poll,
        source: EventSource,
        now_ns: u64,
    ) -> Result<Option<OwnedFd>, EndpointError> {
        let advanced = match &self.address {
            Address::Tcp(_) | Address::Tls(_) | Address::Ucx(_) => {
                self.advance_tcp(poll, source, now_ns)
            }
            Address::Sm(_) | Address::Uds(_) if now_ns < self.retry_at_ns => Ok(None),
            Address::Sm(_) | Address::Uds(_) => self.connect_unix(poll, source, now_ns),
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

    /// Connects to the host's addresses one after another, until one accepts the connection. Each
    /// has an equal part of the time that is left. Returns the socket; `None` while connecting.
    fn advance_tcp(
        &mut self,
        poll: &Poll,
        source: EventSource,
        now_ns: u64,
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
                        if now_ns < self.retry_at_ns {
                            self.socket = Some(fd);
                            return Ok(None);
                        }
                    }
                    Err(errno) => self.last_error = errno,
                }
                // A child of this process may have inherited the socket.
                let _ = poll.remove(fd);
            }
            let Some(host) = self.hosts.next() else {
                return Err(failed_call("connect")(self.last_error));
            };
            self.retry_at_ns = match self.hosts.len() as u64 {
                0 => u64::MAX,
                others => now_ns + self.deadline_ns.saturating_sub(now_ns) / (others + 1),
            };
            let family = if host.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let fd = match net::socket_with(family, SocketType::STREAM, flags, None) {
                Ok(fd) => fd,
                // This machine has no IPv6, for example.
                Err(errno @ Errno::AFNOSUPPORT) => {
                    self.last_error = errno;
                    continue;
                }
                Err(errno) => return Err(failed_call("socket")(errno)),
            };
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
///
/// A socket that is connected to itself counts as refused. The kernel may connect it so if nobody
/// listens at a port of this machine and it has chosen this port for the socket (RFC 9293, section
/// 3.5: simultaneous open).
fn is_connected(fd: &OwnedFd) -> Result<bool, Errno> {
    sockopt::socket_error(fd)??;
    match net::getpeername(fd) {
        Ok(peer) if peer.is_some() && peer == net::getsockname(fd).ok() => Err(Errno::CONNREFUSED),
        Ok(_) => Ok(true),
        Err(Errno::NOTCONN) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn socket() -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket")
    }

    #[test]
    fn next_address_is_tried_while_the_first_does_not_answer() {
        const DEADLINE_NS: u64 = 1_000;
        // A listener whose queue is full does not answer.
        let full = socket();
        net::bind(&full, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("bind");
        net::listen(&full, 0).expect("listen");
        let silent = net::getsockname(&full).expect("its address");
        let fillers: Vec<OwnedFd> = (0..4)
            .map(|_| {
                let filler = socket();
                let _ = net::connect(&filler, &silent); // fails or goes on once the queue is full
                filler
            })
            .collect();
        let silent = SocketAddr::try_from(silent).expect("an address of IP");
        let other = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = Address::Tcp("localhost:1".into());
        let mut attempt = ConnectAttempt::new(&address, DEADLINE_NS).expect("an attempt");
        attempt.hosts = vec![silent, other.local_addr().expect("its address")].into_iter();
        let (poll, source) = (Poll::new().expect("epoll"), EventSource::Handshake(0));
        assert!(attempt.advance(&poll, source, 0).expect("no error").is_none());
        assert_eq!(attempt.retry_at_ns, DEADLINE_NS / 2);
        let before = attempt.retry_at_ns - 1;
        assert!(attempt.advance(&poll, source, before).expect("no error").is_none());
        let connected = std::iter::repeat_with(|| attempt.advance(&poll, source, DEADLINE_NS / 2))
            .find_map(Result::transpose)
            .expect("it is connected in time")
            .expect("no error");
        assert_eq!(
            net::getpeername(&connected).ok().flatten().map(SocketAddr::try_from),
            Some(Ok(other.local_addr().expect("its address")))
        );
        drop(fillers);
    }

    #[test]
    fn socket_that_is_connected_to_itself_counts_as_refused() {
        let fd = socket();
        net::bind(&fd, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("bind");
        let own = net::getsockname(&fd).expect("its address");
        assert!(matches!(net::connect(&fd, &own), Ok(()) | Err(Errno::INPROGRESS)));
        assert_eq!(is_connected(&fd), Err(Errno::CONNREFUSED));
    }
}
