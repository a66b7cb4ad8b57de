//! Many connections, opened and held open.

use crate::load::engine::{Client, MessageQuota};
use crate::load::error::Fault;
use crate::load::secure::ClientTls;
use crate::load::socket;
use crate::load::wire::{Lengths, MessageText};
use handover_base::clock;
use handover_base::epoll::{Epoll, Flags};
use handover_base::sync::shared::{AtomicBool, AtomicU64, Ordering};
use handover_net::engine::TlsState;
use handover_net::tls::{SetupError, TlsError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of connections that are being established at a time.
const PENDING_MAX: u64 = 64;
/// Maximum number of connections from one source address. An address has some 28,000 ports, and the
/// kernel's search for the last free ones takes long.
const CONNECTIONS_PER_SOURCE: u64 = 10_000;
/// First source port of the connections from an explicit source address. The kernel's own choice of
/// a port takes longer the more connections there are, regardless of their addresses: 8 us for the
/// first and 23 us for the 750,000th, where an explicit port takes 5 to 9 us.
const FIRST_PORT: u16 = 20_000;
/// Size of the read buffer for TLS handshakes, in bytes.
const READ_BYTES: usize = 1 << 14;
/// Number of letters in the message that tests an open connection.
const SAMPLE_LETTERS: u32 = 10;
/// Maximum number of events taken from epoll at a time.
const EVENTS_MAX: usize = 256;

/// Options of [`HeldConnections::open`].
#[derive(Clone)]
pub struct HoldOptions {
    /// Address of the server.
    pub address: SocketAddr,
    /// Number of connections to open.
    pub count: u64,
    /// Index of the first connection among the connections of all processes. The source address
    /// depends on it.
    pub first: u64,
    /// Time limit for opening the next connection.
    pub timeout: Duration,
    /// TLS setup of the connections; `None` without TLS. A connection with TLS is open once
    /// messages may be sent.
    pub encryption: Option<Arc<ClientTls>>,
}

handover_base::debug_struct!(HoldOptions as it {
    address: it.address,
    count: it.count,
    first: it.first
});

/// Reason why no further connection was opened: a limit that was reached, or an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenFailure {
    /// The process has reached its limit of descriptors.
    #[error("this process has no file descriptor left")]
    ProcessDescriptors,
    /// The machine has reached its limit of descriptors.
    #[error("this machine has no file descriptor left")]
    SystemDescriptors,
    /// No port is free for a further connection from the same address.
    #[error("no port is left to connect from")]
    Ports,
    /// The kernel has no memory for a further connection.
    #[error("the kernel has no memory for more connections")]
    Memory,
    /// No server listens at the address.
    #[error("no server listens at the address")]
    Refused,
    /// The server does not answer: it does not accept connections, or not fast enough.
    #[error("the server does not answer: it no longer accepts connections")]
    Unanswered,
    /// The server closes connections as soon as it has accepted them, as it has reached its limit.
    #[error("the server closes new connections: it has reached its limit")]
    ClosedByServer,
    /// TLS failed on a connection.
    #[error("TLS failed on a connection: {0}")]
    Tls(TlsError),
    /// The TLS state of a connection could not be created.
    #[error("TLS failed on a connection: {0}")]
    TlsSetup(SetupError),
    /// A system call failed with another error.
    #[error("{0}")]
    Other(Errno),
}

impl From<Errno> for OpenFailure {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::MFILE => Self::ProcessDescriptors,
            Errno::NFILE => Self::SystemDescriptors,
            Errno::ADDRNOTAVAIL | Errno::ADDRINUSE => Self::Ports,
            Errno::NOBUFS | Errno::NOMEM => Self::Memory,
            Errno::CONNREFUSED => Self::Refused,
            Errno::TIMEDOUT => Self::Unanswered,
            Errno::CONNRESET => Self::ClosedByServer,
            other => Self::Other(other),
        }
    }
}

/// State of a connection that is opened or held.
enum HeldConnection {
    /// The TCP connection is being established.
    Connecting(OwnedFd),
    /// The TCP connection is established, and the TLS handshake is in progress.
    Securing(OwnedFd),
    /// The connection is open, and messages may be sent.
    Open(OwnedFd),
    /// The connection was closed, or could not be opened.
    Closed,
}

/// Connections that are held open.
pub struct HeldConnections {
    epoll: Epoll,
    connections: Vec<HeldConnection>,
    /// TLS states of the connections; empty without TLS.
    tls_states: Vec<Option<Box<TlsState>>>,
    encryption: Option<Arc<ClientTls>>,
    buffers: HandshakeBuffers,
    address: SocketAddr,
    /// Time that opening the connections took.
    pub open_duration: Duration,
    /// Reason why fewer connections than requested were opened, or the first one that was lost.
    pub failure: Option<OpenFailure>,
}

/// Buffers of a TLS handshake: bytes read, decrypted and encrypted.
#[derive(Default)]
struct HandshakeBuffers {
    read: Vec<u8>,
    decrypted: Vec<u8>,
    encrypted: Vec<u8>,
}

impl HandshakeBuffers {
    /// Starts a TLS handshake, or continues it with received bytes. Returns `true` once the
    /// handshake is complete.
    fn continue_handshake(
        &mut self,
        fd: &OwnedFd,
        secure: &mut TlsState,
        is_first: bool,
    ) -> Result<bool, OpenFailure> {
        let (mut is_done, mut has_begun) = (false, !is_first);
        while !is_done {
            let received_bytes = match std::mem::replace(&mut has_begun, true) {
                false => 0,
                true => match socket::read(fd, &mut self.read) {
                    Ok(0) => return Err(OpenFailure::ClosedByServer),
                    Ok(count) => count,
                    Err(Errno::AGAIN) => break,
                    Err(errno) => return Err(errno.into()),
                },
            };
            self.decrypted.clear();
            self.encrypted.clear();
            let opened = secure.open_records(
                &mut self.read[..received_bytes],
                &mut self.decrypted,
                &mut self.encrypted,
            );
            // Some hundred bytes, which fit into the socket buffer. Sent even if the handshake
            // failed, so that the server learns the reason.
            let sent_bytes = socket::send(fd, &self.encrypted)?;
            opened.map_err(OpenFailure::Tls)?;
            is_done = secure.is_handshake_complete();
            if sent_bytes < self.encrypted.len() {
                return Err(OpenFailure::Memory);
            }
        }
        Ok(is_done)
    }
}

/// Numbers of events handled by one poll, and of connections that were opened or failed.
#[derive(Default)]
struct PollResult {
    events_count: usize,
    connected_count: u64,
    failed_count: u64,
}

/// Returns the source address for the connection with index `number`. Returns `None` if the kernel
/// is to choose it. Loopback has 16 million addresses.
fn source_address(address: SocketAddr, number: u64) -> Option<SocketAddr> {
    let SocketAddr::V4(to) = address else { return None };
    let block =
        u32::try_from(number / CONNECTIONS_PER_SOURCE).ok().filter(|block| *block < 1 << 23)?;
    if !to.ip().is_loopback() || block == 0 {
        return None;
    }
    // From 127.0.1.0 on, away from the usual addresses of servers.
    let source = Ipv4Addr::from_bits(u32::from_be_bytes([127, 0, 1, 0]) + block);
    // Both terms together are less than 2^16.
    let port = FIRST_PORT + (number % CONNECTIONS_PER_SOURCE) as u16;
    Some(SocketAddr::new(IpAddr::V4(source), port))
}

impl HeldConnections {
    /// Opens connections until there are as many as requested, one fails, or `stop` is
    /// set. Updates `opened` meanwhile.
    ///
    /// # Errors
    /// Fails with [`Fault::Refused`] if the kernel does not provide epoll.
    pub fn open(
        wanted: &HoldOptions,
        stop: &AtomicBool,
        opened: &AtomicU64,
    ) -> Result<Self, Fault> {
        let epoll = Epoll::new(EVENTS_MAX).map_err(|error| Fault::Refused {
            call: "epoll_create",
            errno: socket::errno(&error),
        })?;
        let mut held = Self {
            epoll,
            connections: Vec::with_capacity(wanted.count.min(1 << 24) as usize),
            tls_states: Vec::new(),
            encryption: wanted.encryption.clone(),
            buffers: HandshakeBuffers::default(),
            address: wanted.address,
            open_duration: Duration::ZERO,
            failure: None,
        };
        if wanted.encryption.is_some() {
            held.buffers.read = vec![0; READ_BYTES];
        }
        let start_ns = clock::now_ns();
        let timeout_ns = wanted.timeout.as_nanos() as u64;
        let mut last_ns = start_ns;
        let mut pending = 0;
        loop {
            // Relaxed: the flag and the count publish no other data.
            let is_stopped = stop.load(Ordering::Relaxed);
            while !is_stopped
                && held.failure.is_none()
                && (held.connections.len() as u64) < wanted.count
                && pending < PENDING_MAX
            {
                match held.start_connecting(wanted.first + held.connections.len() as u64) {
                    Ok(()) => pending += 1,
                    Err(failure) => held.failure = Some(failure),
                }
            }
            if pending == 0 || is_stopped {
                break;
            }
            let polled = held.poll(20)?;
            let now_ns = clock::now_ns();
            if polled.connected_count + polled.failed_count > 0 {
                last_ns = now_ns;
            } else if now_ns - last_ns > timeout_ns {
                held.failure.get_or_insert(OpenFailure::Unanswered);
                break;
            }
            pending -= polled.connected_count + polled.failed_count;
            opened.fetch_add(polled.connected_count, Ordering::Relaxed);
        }
        held.open_duration = Duration::from_nanos(clock::now_ns() - start_ns);
        Ok(held)
    }

    /// Starts to establish a connection. Its index `number` determines the source address.
    fn start_connecting(&mut self, number: u64) -> Result<(), OpenFailure> {
        let mut source = source_address(self.address, number);
        let mut connected = socket::connect(self.address, source);
        if let (Some(source), Err(("bind", Errno::ADDRINUSE))) = (&mut source, &connected) {
            // The port is in use: lets the kernel choose another.
            source.set_port(0);
            connected = socket::connect(self.address, Some(*source));
        }
        let fd = connected.map_err(|(_, errno)| OpenFailure::from(errno))?;
        let index = self.connections.len() as u64;
        let added = self.epoll.add(&fd, index, socket::WATCHED_EVENTS);
        added.map_err(|error| socket::errno(&error))?;
        if let Some(encryption) = &self.encryption {
            let state = encryption.begin().map_err(OpenFailure::TlsSetup)?;
            self.tls_states.push(Some(state));
        }
        self.connections.push(HeldConnection::Connecting(fd));
        Ok(())
    }

    /// Handles pending events of all connections. Returns the numbers of connections that were
    /// opened and that failed.
    fn poll(&mut self, timeout_ms: u64) -> Result<PollResult, Fault> {
        let mut events = Vec::new();
        let waited = self.epoll.wait(Some(timeout_ms * 1_000_000), |at, flags| {
            // The value was stored from a usize.
            events.push((at as usize, flags));
        });
        waited
            .map_err(|error| Fault::Refused { call: "epoll_wait", errno: socket::errno(&error) })?;
        let mut polled = PollResult { events_count: events.len(), ..PollResult::default() };
        for (at, flags) in events {
            let Some(connection) = self.connections.get_mut(at) else { continue };
            let has_ended = flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR);
            let was_open = matches!(connection, HeldConnection::Open(_));
            let is_first = matches!(connection, HeldConnection::Connecting(_));
            let secure = self.tls_states.get_mut(at).and_then(Option::as_deref_mut);
            let next = match (std::mem::replace(connection, HeldConnection::Closed), secure) {
                (HeldConnection::Connecting(fd), _) if has_ended => {
                    match socket::connect_result(&fd) {
                        Ok(()) => Err(OpenFailure::ClosedByServer),
                        Err(errno) => Err(errno.into()),
                    }
                }
                (HeldConnection::Connecting(fd), None) => Ok(HeldConnection::Open(fd)),
                (HeldConnection::Connecting(fd) | HeldConnection::Securing(fd), Some(secure)) => {
                    match self.buffers.continue_handshake(&fd, secure, is_first) {
                        Ok(true) => Ok(HeldConnection::Open(fd)),
                        Ok(false) if has_ended => Err(OpenFailure::ClosedByServer),
                        Ok(false) => Ok(HeldConnection::Securing(fd)),
                        Err(failure) => Err(failure),
                    }
                }
                (HeldConnection::Open(_), _) if has_ended => Err(OpenFailure::ClosedByServer),
                (unchanged, _) => Ok(unchanged),
            };
            match next {
                Ok(next) => {
                    *connection = next;
                    polled.connected_count +=
                        u64::from(!was_open && matches!(connection, HeldConnection::Open(_)));
                }
                Err(failure) => {
                    polled.failed_count += u64::from(!was_open);
                    self.failure.get_or_insert(failure);
                    if let Some(secure) = self.tls_states.get_mut(at) {
                        *secure = None;
                    }
                }
            }
        }
        Ok(polled)
    }

    /// Returns the number of open connections. Events that were not handled yet do not count.
    #[must_use]
    pub fn open_count(&self) -> u64 {
        let is_open = |it: &&HeldConnection| matches!(it, HeldConnection::Open(_));
        self.connections.iter().filter(is_open).count() as u64
    }

    /// Handles all pending events, and returns the number of connections that the server has
    /// closed.
    ///
    /// # Errors
    /// Fails with [`Fault::Refused`] if epoll fails.
    pub fn count_closed(&mut self) -> Result<u64, Fault> {
        let before = self.open_count();
        while self.poll(0)?.events_count > 0 {}
        Ok(before - self.open_count())
    }

    /// Sends a message over each of `count` connections in turn, and checks the echo. The
    /// connections are spread evenly. Passes the latency of each echo, in ns, to `on_echo`.
    ///
    /// # Errors
    /// Fails with the [`Fault`] of the first missing or wrong echo.
    pub fn sample(
        &mut self,
        count: u64,
        timeout: Duration,
        on_echo: &mut dyn FnMut(u64),
    ) -> Result<(), Fault> {
        let is_open = |at: &usize| matches!(self.connections[*at], HeldConnection::Open(_));
        let open: Vec<usize> = (0..self.connections.len()).filter(is_open).collect();
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(open.len());
        let letters = MessageText::new(SAMPLE_LETTERS);
        for one in 0..count {
            let at = open[one * open.len() / count];
            if let HeldConnection::Open(fd) = &self.connections[at] {
                let secure = self.tls_states.get_mut(at).and_then(Option::as_deref_mut);
                on_echo(measure_echo_ns(fd, secure, &letters, timeout)?);
            }
        }
        Ok(())
    }
}

handover_base::debug_struct!(HeldConnections as it {
    open: it.open_count(),
    failure: it.failure
});

/// Sends one message and waits for its echo; returns the round-trip time in ns.
fn measure_echo_ns(
    fd: &OwnedFd,
    mut secure: Option<&mut TlsState>,
    letters: &MessageText,
    timeout: Duration,
) -> Result<u64, Fault> {
    let lengths = Lengths::new(0, SAMPLE_LETTERS, SAMPLE_LETTERS);
    let order = MessageQuota::Bursts { count: 1, iterations: 1 };
    let start_ns = clock::now_ns();
    let mut client = Client::new(u128::from(start_ns), lengths, order, 1);
    let (mut bytes, mut encrypted) = (Vec::new(), Vec::new());
    client.send(letters, start_ns, 1, usize::MAX, &mut bytes);
    if let Some(secure) = &mut secure {
        secure.seal_messages(&bytes, &[], &mut encrypted).map_err(Fault::Tls)?;
        bytes = std::mem::take(&mut encrypted);
    }
    if socket::send(fd, &bytes).map_err(Fault::Broken)? < bytes.len() {
        return Err(Fault::Broken(Errno::AGAIN));
    }
    let (mut received, mut read) = (Vec::new(), [0; 1024]);
    loop {
        match socket::read(fd, &mut read) {
            Ok(0) => return Err(Fault::Closed),
            Ok(count) => match &mut secure {
                // Session tickets come before the first message, and are not needed here.
                Some(secure) => {
                    let opened =
                        secure.open_records(&mut read[..count], &mut received, &mut encrypted);
                    opened.map_err(Fault::Tls)?;
                }
                None => received.extend_from_slice(&read[..count]),
            },
            Err(Errno::AGAIN) => {
                let left = timeout.saturating_sub(Duration::from_nanos(clock::now_ns() - start_ns));
                let left = Timespec::try_from(left).unwrap_or_default();
                match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
                    Ok(0) => return Err(Fault::Silent(timeout)),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(Fault::Refused { call: "poll", errno }),
                }
            }
            Err(errno) => return Err(Fault::Broken(errno)),
        }
        if client.receive(letters, &received)?.is_some() {
            return Ok(clock::now_ns() - start_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ten_thousand_connections_have_their_own_source_address() {
        let here: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let at = |number| source_address(here, number).map(|it| it.to_string());
        assert_eq!((at(0), at(9_999)), (None, None));
        assert_eq!(at(10_000).as_deref(), Some("127.0.1.1:20000"));
        assert_eq!(at(19_999).as_deref(), Some("127.0.1.1:29999"));
        assert_eq!(at(2_560_000).as_deref(), Some("127.0.2.0:20000"));
        assert_eq!(source_address("10.0.0.1:80".parse().unwrap(), 50_000), None);
        assert_eq!(source_address("[::1]:80".parse().unwrap(), 50_000), None);
    }
}
