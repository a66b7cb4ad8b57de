//! Handshake of a connection: agreement on the protocol version, message lengths and shared memory,
//! and authentication.
//!
//! The connector sends its [`Hello`] first, and with it, for shared memory, passes the segment's
//! file. The acceptor checks it, and answers with its own. If a shared secret is configured, each
//! end also sends a random number, and then proves that it knows the secret, the connector first:
//!
//! ```text
//!  connector                       acceptor
//!  Hello, nonce  ────────────────▶
//!                ◀────────────────  Hello, nonce
//!  proof         ────────────────▶
//!                ◀────────────────  proof, or zeros
//! ```

use super::link::AnyLink;
use super::random::fill_with_random;
use super::security::{Security, check_peer_user};
use super::sm::SharedMemoryLink;
use super::socket::{self, ReadResult};
use super::stream::StreamLink;
use super::ucx::UcxDriver;
use super::wire::Wire;
use crate::config::{MESSAGE_BYTES_LIMIT_MIN, SHARED_BYTES_LIMIT, SLOTS_COUNT_LIMIT};
use crate::engine::{
    HELLO_BYTES, HandshakeRole, Hello, NO_PROOF, NONCE_BYTES, PROOF_BYTES, Secret,
};
use crate::error::failed_call;
use crate::raw::Segment;
use crate::{
    Address, AuthenticationError, CloseReason, Config, EndpointError, FrameError,
    SharedMemoryConfig, SystemCallError, Transport,
};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Length of a hello and its nonce, in bytes.
const OPENING_BYTES: usize = HELLO_BYTES + NONCE_BYTES;
/// Maximum number of bytes that each end sends before its first frame.
const HANDSHAKE_BYTES: usize = OPENING_BYTES + PROOF_BYTES;
/// Maximum number of consecutive reads from a refused connection before it is closed.
const DISCARDS_MAX: usize = 16;

/// Connection whose handshake is under way.
#[derive(Debug)]
pub(crate) struct Handshake {
    wire: Wire,
    address: Address,
    /// Shared memory segment that this end has created. It is `None` for an acceptor.
    segment: Option<Segment>,
    role: HandshakeRole,
    /// Encoded [`Hello`] and nonce that this end has sent.
    own_opening: [u8; OPENING_BYTES],
    /// Buffer for the bytes from the peer.
    received: [u8; HANDSHAKE_BYTES],
    /// Number of bytes received from the peer so far.
    received_bytes: usize,
    /// Number of bytes that the peer must have sent in total to complete the current stage.
    needed_bytes: usize,
    /// Descriptor of the shared memory segment, if the peer has sent it.
    received_fds: Vec<OwnedFd>,
    /// Reason of a refusal that was sent to the peer. The socket stays open so that the peer can
    /// read it.
    refused: Option<CloseReason>,
}

/// Connection whose handshake has succeeded: its link, and the agreed maximum length of messages.
#[derive(Debug)]
pub(crate) struct HandshakeResult {
    pub(crate) link: AnyLink,
    pub(crate) message_bytes_max: u32,
}

/// Returns the hello that this endpoint sends on a connection at `address`.
fn hello(config: &Config, address: &Address, security: &Security) -> Hello {
    let is_sm = address.transport() == Transport::Sm;
    Hello {
        message_bytes_max: config.connections.message_bytes_max,
        slots_count: if is_sm { config.shared_memory.slots_count } else { 0 },
        shared_bytes: if is_sm { config.shared_memory.shared_bytes } else { 0 },
        spins: config.spin_forever,
        has_secret: security.secret_for_address(address).is_some(),
        uses_ucx: address.transport() == Transport::Ucx,
    }
}

impl Handshake {
    /// Starts the handshake of a connection; an acceptor waits for the connector's hello.
    pub(crate) fn new(
        wire: Wire,
        address: Address,
        role: HandshakeRole,
        config: &Config,
        security: &Security,
    ) -> Result<Self, CloseReason> {
        check_peer_user(wire.fd(), &address, &config.access.uds_peers)?;
        let mut own_opening = [0; OPENING_BYTES];
        let (own_hello, own_nonce) = own_opening.split_at_mut(HELLO_BYTES);
        own_hello.copy_from_slice(&hello(config, &address, security).encode());
        if security.secret_for_address(&address).is_some() {
            fill_with_random(own_nonce).map_err(CloseReason::from_system_call("getrandom"))?;
        }
        Ok(Self {
            wire,
            address,
            segment: None,
            role,
            own_opening,
            received: [0; HANDSHAKE_BYTES],
            received_bytes: 0,
            needed_bytes: HELLO_BYTES,
            received_fds: Vec::new(),
            refused: None,
        })
    }

    /// Starts the handshake of a connection to that address, and sends the hello.
    pub(crate) fn new_connector(
        wire: Wire,
        address: Address,
        config: &Config,
        security: &Security,
    ) -> Result<Self, EndpointError> {
        let peer = address.to_string();
        let refused = |failed: SystemCallError| {
            let SystemCallError { call, error } = failed;
            EndpointError::SystemCall { call, subject: peer.clone(), error }
        };
        let failed = |why| match why {
            CloseReason::Authentication(AuthenticationError::User { uid }) => {
                EndpointError::UserNotAllowed { address: peer.clone(), uid }
            }
            CloseReason::SystemCall(failed) => refused(failed),
            why => EndpointError::Handshake { address: peer.clone(), why },
        };
        let is_sm = address.transport() == Transport::Sm;
        let role = HandshakeRole::Connector;
        let mut handshake = Self::new(wire, address, role, config, security).map_err(failed)?;
        if is_sm {
            let SharedMemoryConfig { slots_count, shared_bytes } = config.shared_memory;
            let (segment, file) = Segment::create(slots_count, shared_bytes).map_err(refused)?;
            handshake.segment = Some(segment);
            let own = &handshake.own_opening[..HELLO_BYTES];
            match socket::send_fds(handshake.fd(), own, &[file.as_fd()]) {
                Ok(HELLO_BYTES) => {}
                Ok(_) => return Err(refused(failed_call("sendmsg")(Errno::NOBUFS))),
                Err(errno) => return Err(refused(failed_call("sendmsg")(errno))),
            }
        } else {
            handshake.send_opening(security).map_err(failed)?;
        }
        Ok(handshake)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wire.fd()
    }

    /// Handles received bytes, and replies to them. Returns `true` if the handshake is complete,
    /// `false` if more bytes are needed.
    pub(crate) fn advance(
        &mut self,
        config: &Config,
        security: &Security,
    ) -> Result<bool, CloseReason> {
        if self.refused.is_none() {
            match self.receive_and_run_stages(config, security) {
                // Only these reasons are explained, and only by the acceptor: the connector's
                // application gets the error.
                Err(why @ (CloseReason::Authentication(_) | CloseReason::Tls(_)))
                    if self.role == HandshakeRole::Acceptor =>
                {
                    // An error means that the peer has already closed the connection.
                    let _ = self.wire.flush();
                    let _ = shutdown(self.fd(), Shutdown::Write);
                    self.refused = Some(why);
                }
                other => return other,
            }
        }
        self.discard()
    }

    /// Discards the bytes of a refused connection. Returns `false` until the peer has closed the
    /// connection, and then the reason of the refusal as the error. Closing the socket with unread
    /// bytes would reset the connection, and the peer could not read the reason.
    fn discard(&mut self) -> Result<bool, CloseReason> {
        match socket::discard(self.fd(), DISCARDS_MAX) {
            Err(Errno::AGAIN) => Ok(false),
            _ => Err(self.take_failure()),
        }
    }

    /// Returns the reason for which this connection has failed. It is the refusal that was sent to
    /// the peer, or else the handshake timeout.
    pub(crate) fn take_failure(&mut self) -> CloseReason {
        self.refused.take().unwrap_or(CloseReason::HandshakeTimeout)
    }

    /// Receives bytes, and runs each stage whose bytes have arrived. Returns `true` if the
    /// handshake is complete.
    fn receive_and_run_stages(
        &mut self,
        config: &Config,
        security: &Security,
    ) -> Result<bool, CloseReason> {
        self.wire.flush()?;
        loop {
            while self.received_bytes < self.needed_bytes {
                // Reads no more than the handshake: the bytes after it belong to the link.
                let into = &mut self.received[self.received_bytes..self.needed_bytes];
                let outcome = match &mut self.wire {
                    Wire::Socket(fd) if self.address.transport() == Transport::Sm => {
                        let got = socket::receive_fds(fd.as_fd(), into, &mut self.received_fds);
                        ReadResult::from_result(got, into.len())
                    }
                    wire => wire.receive(into),
                };
                match outcome? {
                    ReadResult::End => return Err(CloseReason::ClosedByPeer),
                    ReadResult::Bytes { count, .. } => self.received_bytes += count,
                    ReadResult::Nothing => return Ok(false),
                }
            }
            match self.run_stage(config, security)? {
                None => return Ok(true),
                Some(bytes) => self.needed_bytes += bytes,
            }
        }
    }

    /// Handles the bytes of the current stage, which have all arrived. Returns the number of
    /// further bytes needed; `None` if the handshake is complete.
    fn run_stage(
        &mut self,
        config: &Config,
        security: &Security,
    ) -> Result<Option<usize>, CloseReason> {
        let is_connector = self.role == HandshakeRole::Connector;
        let secret = security.secret_for_address(&self.address);
        match (self.received_bytes, secret) {
            (HELLO_BYTES, _) => {
                let its = self.peer_hello(config)?;
                match (secret.is_some(), its.has_secret) {
                    (false, false) => Ok(None),
                    (true, true) => Ok(Some(NONCE_BYTES)),
                    (ours, _) => {
                        if !is_connector {
                            self.send_opening(security)?;
                        }
                        Err(CloseReason::Authentication(match ours {
                            true => AuthenticationError::NoSecret,
                            false => AuthenticationError::SecretRequired,
                        }))
                    }
                }
            }
            (OPENING_BYTES, Some(secret)) => {
                match is_connector {
                    true => self.send_proof(secret)?,
                    false => self.send_opening(security)?,
                }
                Ok(Some(PROOF_BYTES))
            }
            (_, Some(secret)) => {
                let mut proof = [0; PROOF_BYTES];
                proof.copy_from_slice(&self.received[OPENING_BYTES..]);
                let [connector, acceptor] = self.openings();
                if secret.is_valid_proof(&proof, self.role.opposite(), connector, acceptor) {
                    return Ok(None);
                }
                if !is_connector {
                    self.send(&NO_PROOF)?;
                }
                Err(CloseReason::Authentication(AuthenticationError::WrongSecret))
            }
            // Without a secret, no bytes beyond the hello are asked for.
            (_, None) => Err(FrameError::InvalidValue.into()),
        }
    }

    /// Decodes the peer's complete [`Hello`]. An acceptor replies to another version or transport
    /// with its own hello.
    fn peer_hello(&mut self, config: &Config) -> Result<Hello, CloseReason> {
        let mut bytes = [0; HELLO_BYTES];
        bytes.copy_from_slice(&self.received[..HELLO_BYTES]);
        let uses_ucx = self.address.transport() == Transport::Ucx;
        let its = Hello::decode(&bytes).and_then(|its| match its.uses_ucx == uses_ucx {
            true => Ok(its),
            false => Err(FrameError::OtherTransport),
        });
        Ok(its.inspect_err(|why| {
            let can_report = matches!(why, FrameError::Version { .. } | FrameError::OtherTransport);
            if can_report && self.role == HandshakeRole::Acceptor {
                // Sends the peer this end's version and transport, so that it can report them; an
                // error means that the peer is disconnected.
                let none = Security::default();
                let _ = self.send(&hello(config, &self.address, &none).encode());
            }
        })?)
    }

    /// Returns the bytes that the connector and the acceptor sent before the proofs.
    fn openings(&self) -> [&[u8]; 2] {
        let (own, its) = (&self.own_opening[..], &self.received[..OPENING_BYTES]);
        match self.role {
            HandshakeRole::Connector => [own, its],
            HandshakeRole::Acceptor => [its, own],
        }
    }

    fn send_proof(&mut self, secret: &Secret) -> Result<(), CloseReason> {
        let [connector, acceptor] = self.openings();
        self.send(&secret.compute_proof(self.role, connector, acceptor))
    }

    /// Creates the link of a complete handshake. An acceptor first sends its last message.
    pub(crate) fn complete(
        mut self,
        config: &Config,
        security: &Security,
        ucx: &UcxDriver,
    ) -> Result<HandshakeResult, CloseReason> {
        let its = self.peer_hello(config)?;
        if its.message_bytes_max < MESSAGE_BYTES_LIMIT_MIN {
            return Err(FrameError::InvalidValue.into());
        }
        let message_bytes_max = config.connections.message_bytes_max.min(its.message_bytes_max);
        let is_acceptor = self.role == HandshakeRole::Acceptor;
        let link = match self.address.transport() {
            Transport::Sm => {
                let segment =
                    self.take_or_map_segment(&its, message_bytes_max, config, security)?;
                let own = usize::from(is_acceptor);
                let socket = self.wire.into_socket().ok_or(FrameError::InvalidValue)?;
                let spins = its.spins;
                AnyLink::Sm(SharedMemoryLink::new(segment, own, spins, message_bytes_max, socket))
            }
            transport => {
                match security.secret_for_address(&self.address) {
                    Some(secret) if is_acceptor => self.send_proof(secret)?,
                    None if is_acceptor => self.send_opening(security)?,
                    Some(_) | None => {}
                }
                if transport == Transport::Ucx {
                    let socket = self.wire.into_socket().ok_or(FrameError::InvalidValue)?;
                    ucx.open_link(socket, message_bytes_max)?
                } else {
                    AnyLink::Other(Box::new(StreamLink::new(self.wire, message_bytes_max)))
                }
            }
        };
        Ok(HandshakeResult { link, message_bytes_max })
    }

    /// Returns the shared segment. The connector has created it; the acceptor maps the peer's.
    fn take_or_map_segment(
        &mut self,
        its: &Hello,
        message_bytes_max: u32,
        config: &Config,
        security: &Security,
    ) -> Result<Segment, CloseReason> {
        if let Some(segment) = self.segment.take() {
            return Ok(segment);
        }
        let (slots_count, shared_bytes) = (its.slots_count, its.shared_bytes);
        let fits = slots_count.is_power_of_two()
            && (2..=SLOTS_COUNT_LIMIT).contains(&slots_count)
            && shared_bytes.is_power_of_two()
            && (2 * message_bytes_max..=SHARED_BYTES_LIMIT).contains(&shared_bytes);
        let file = self.received_fds.pop().filter(|_| fits).ok_or(FrameError::InvalidValue)?;
        let segment = Segment::map(&file, slots_count, shared_bytes)
            .map_err(CloseReason::SystemCall)?
            .ok_or(FrameError::InvalidValue)?;
        let hello = Hello { slots_count, shared_bytes, ..hello(config, &self.address, security) };
        self.send(&hello.encode())?;
        Ok(segment)
    }

    /// Sends the hello, with its nonce if there is a secret.
    fn send_opening(&mut self, security: &Security) -> Result<(), CloseReason> {
        let own = self.own_opening;
        match security.secret_for_address(&self.address) {
            Some(_) => self.send(&own),
            None => self.send(&own[..HELLO_BYTES]),
        }
    }

    /// Sends all `bytes`. The send buffer of a new connection has space for them.
    fn send(&mut self, bytes: &[u8]) -> Result<(), CloseReason> {
        match self.wire.send(bytes)? {
            sent if sent == bytes.len() => Ok(()),
            _ => Err(CloseReason::from_system_call("send")(Errno::NOBUFS)),
        }
    }

    /// Returns the address that this endpoint connects to; `None` for an accepted connection.
    pub(crate) fn connected_to(&self) -> Option<&Address> {
        (self.role == HandshakeRole::Connector).then_some(&self.address)
    }
}
