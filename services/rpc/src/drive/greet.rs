//! Two sides agree: on the protocol, on lengths, on the memory that they share, and on who they are.
//!
//! Who connects says so first, and with it, for shared memory, passes the segment; who accepts looks at all
//! of it, and answers. Where there is a shared secret, each side sends a random number with its greeting, and
//! then proves that it knows the secret, the connector first:
//!
//! ```text
//!  connector                       acceptor
//!  Hello, nonce  ────────────────▶
//!                ◀────────────────  Hello, nonce
//!  proof         ────────────────▶
//!                ◀────────────────  proof, or zeros
//! ```

use super::link::AnyLink;
use super::random::random_bytes;
use super::security::{Security, check_user};
use super::sm::Sm;
use super::socket;
use super::stream::Stream;
use super::wire::{Received, Wire};
use crate::config::{MESSAGE_BYTES_LEAST, SHARED_BYTES_LIMIT, SLOTS_LIMIT};
use crate::engine::{HELLO_BYTES, Hello, NO_PROOF, NONCE_BYTES, PROOF_BYTES, Role};
use crate::raw::{Segment, SegmentError};
use crate::{Address, AuthenticationError, Config, EndpointError, FrameError, Gone, Transport};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A greeting with its nonce.
const OPENING_BYTES: usize = HELLO_BYTES + NONCE_BYTES;
/// All that a side may say before the first frame.
const GREETING_BYTES: usize = OPENING_BYTES + PROOF_BYTES;
/// Reads of a connection that was refused, of [`DISCARDED_BYTES`] each, before it is closed all the same.
const DISCARDS_MAX: usize = 16;
const DISCARDED_BYTES: usize = 4096;

/// A connection that is not agreed upon yet.
#[derive(Debug)]
pub(crate) struct Greeting {
    wire: Wire,
    address: Address,
    /// What this side, which has connected, shares.
    segment: Option<Segment>,
    role: Role,
    /// The greeting of this side, and its nonce.
    own: [u8; OPENING_BYTES],
    came: [u8; GREETING_BYTES],
    came_bytes: usize,
    wanted_bytes: usize,
    came_fds: Vec<OwnedFd>,
    /// Set when the peer has been told that it is refused, and is to read that before the socket is closed.
    refused: Option<Gone>,
    pub(crate) deadline_ns: u64,
}

/// What was agreed upon.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) link: AnyLink,
    pub(crate) message_bytes_max: u32,
}

/// Next step of a handshake.
enum Step {
    /// So many more bytes of the peer are needed.
    Wants(usize),
    Done,
}

/// What this side says.
fn hello(config: &Config, address: &Address, security: &Security) -> Hello {
    let is_sm = address.transport() == Transport::Sm;
    Hello {
        message_bytes_max: config.message_bytes_max,
        slots_count: if is_sm { config.slots_count } else { 0 },
        shared_bytes: if is_sm { config.shared_bytes } else { 0 },
        spins: config.spin_forever,
        has_secret: security.secret(address).is_some(),
    }
}

impl Greeting {
    /// A connection that was accepted at that address.
    pub(crate) fn accepted(
        wire: Wire,
        address: Address,
        config: &Config,
        security: &Security,
        deadline_ns: u64,
    ) -> Result<Self, Gone> {
        Self::new(wire, address, Role::Acceptor, config, security, deadline_ns)
    }

    fn new(
        wire: Wire,
        address: Address,
        role: Role,
        config: &Config,
        security: &Security,
        deadline_ns: u64,
    ) -> Result<Self, Gone> {
        check_user(wire.fd(), &address, config)?;
        let mut own = [0; OPENING_BYTES];
        let (its_hello, its_nonce) = own.split_at_mut(HELLO_BYTES);
        its_hello.copy_from_slice(&hello(config, &address, security).encode());
        if security.secret(&address).is_some() {
            random_bytes(its_nonce).map_err(Gone::of("getrandom"))?;
        }
        Ok(Self {
            wire,
            address,
            segment: None,
            role,
            own,
            came: [0; GREETING_BYTES],
            came_bytes: 0,
            wanted_bytes: HELLO_BYTES,
            came_fds: Vec::new(),
            refused: None,
            deadline_ns,
        })
    }

    /// This side has connected to that address, and says so.
    pub(crate) fn connected(
        wire: Wire,
        address: Address,
        config: &Config,
        security: &Security,
        deadline_ns: u64,
    ) -> Result<Self, EndpointError> {
        let place = address.to_string();
        let refused = |call| {
            let place = place.clone();
            move |errno| EndpointError::Refused { call, place, errno }
        };
        let failed = |why| match why {
            Gone::Unauthenticated(AuthenticationError::User { uid }) => {
                EndpointError::Stranger { place: place.clone(), uid }
            }
            Gone::Broken { call, errno } => refused(call)(errno),
            why => EndpointError::Handshake { place: place.clone(), why },
        };
        let is_sm = address.transport() == Transport::Sm;
        let role = Role::Connector;
        let mut greeting =
            Self::new(wire, address, role, config, security, deadline_ns).map_err(failed)?;
        if is_sm {
            let made = Segment::create(config.slots_count, config.shared_bytes);
            let (segment, file) = made.map_err(|why| match why {
                SegmentError::Refused(call, errno) => refused(call)(errno),
                SegmentError::NotSealed => refused("fcntl")(Errno::PERM),
            })?;
            greeting.segment = Some(segment);
            let own = &greeting.own[..HELLO_BYTES];
            match socket::send_fds(greeting.fd(), own, &[file.as_fd()]) {
                Ok(HELLO_BYTES) => {}
                Ok(_) => return Err(refused("sendmsg")(Errno::NOBUFS)),
                Err(errno) => return Err(refused("sendmsg")(errno)),
            }
        } else {
            greeting.send_opening(security).map_err(failed)?;
        }
        Ok(greeting)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wire.fd()
    }

    /// Takes what has come, and answers it. False: there is more to come.
    pub(crate) fn advance(&mut self, config: &Config, security: &Security) -> Result<bool, Gone> {
        if self.refused.is_none() {
            match self.converse(config, security) {
                // Only so much is explained, and to those who have come here: whoever has connected knows.
                Err(why @ (Gone::Unauthenticated(_) | Gone::Tls(_)))
                    if self.role == Role::Acceptor =>
                {
                    // Refused where the peer is gone already.
                    let _ = self.wire.flush();
                    let _ = shutdown(self.fd(), Shutdown::Write);
                    self.refused = Some(why);
                }
                other => return other,
            }
        }
        self.discard()
    }

    /// Reads on until the peer closes a connection that was refused: closing it with bytes unread would
    /// reset it, and the peer would not read why.
    fn discard(&mut self) -> Result<bool, Gone> {
        let mut discarded = [0; DISCARDED_BYTES];
        for _ in 0..DISCARDS_MAX {
            match socket::receive(self.fd(), &mut discarded) {
                Ok(1..) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Ok(0) | Err(_) => break,
            }
        }
        Err(self.why_late())
    }

    /// The reason for which this greeting ends when its time is over.
    pub(crate) fn why_late(&mut self) -> Gone {
        self.refused.take().unwrap_or(Gone::Silent)
    }

    fn converse(&mut self, config: &Config, security: &Security) -> Result<bool, Gone> {
        self.wire.flush()?;
        loop {
            while self.came_bytes < self.wanted_bytes {
                // No more than the greeting: what follows is the link's.
                let into = &mut self.came[self.came_bytes..self.wanted_bytes];
                let received = match &mut self.wire {
                    Wire::Socket(fd) if self.address.transport() == Transport::Sm => {
                        let got = socket::receive_fds(fd.as_fd(), into, &mut self.came_fds);
                        Received::of(got, into.len())
                    }
                    wire => wire.receive(into),
                };
                match received? {
                    Received::End => return Err(Gone::HungUp),
                    Received::Bytes { count, .. } => self.came_bytes += count,
                    Received::Nothing => return Ok(false),
                }
            }
            match self.step(config, security)? {
                Step::Done => return Ok(true),
                Step::Wants(bytes) => self.wanted_bytes += bytes,
            }
        }
    }

    /// Looks at what has come whole.
    fn step(&mut self, config: &Config, security: &Security) -> Result<Step, Gone> {
        let is_connector = self.role == Role::Connector;
        let secret = security.secret(&self.address);
        match (self.came_bytes, secret) {
            (HELLO_BYTES, _) => {
                let its = self.its_hello(config)?;
                match (secret.is_some(), its.has_secret) {
                    (false, false) => Ok(Step::Done),
                    (true, true) => Ok(Step::Wants(NONCE_BYTES)),
                    (ours, _) => {
                        if !is_connector {
                            self.send_opening(security)?;
                        }
                        Err(match ours {
                            true => AuthenticationError::NoSecret.into(),
                            false => AuthenticationError::SecretWanted.into(),
                        })
                    }
                }
            }
            (OPENING_BYTES, Some(secret)) => {
                match is_connector {
                    true => {
                        self.send(&secret.proof(self.role, self.connector(), self.acceptor()))?
                    }
                    false => self.send_opening(security)?,
                }
                Ok(Step::Wants(PROOF_BYTES))
            }
            (_, Some(secret)) => {
                let mut proof = [0; PROOF_BYTES];
                proof.copy_from_slice(&self.came[OPENING_BYTES..]);
                let its = self.role.other();
                if secret.accepts(&proof, its, self.connector(), self.acceptor()) {
                    return Ok(Step::Done);
                }
                if !is_connector {
                    self.send(&NO_PROOF)?;
                }
                Err(AuthenticationError::WrongSecret.into())
            }
            // Nothing but a greeting is asked for where there is no secret.
            (_, None) => Err(FrameError::Reserved.into()),
        }
    }

    /// The peer's greeting, whole by now.
    fn its_hello(&mut self, config: &Config) -> Result<Hello, Gone> {
        let mut bytes = [0; HELLO_BYTES];
        bytes.copy_from_slice(&self.came[..HELLO_BYTES]);
        Ok(Hello::decode(&bytes).inspect_err(|why| {
            if matches!(why, FrameError::Version { .. }) && self.role == Role::Acceptor {
                // So that it can say why; refused where it is gone already.
                let none = Security::default();
                let _ = self.send(&hello(config, &self.address, &none).encode());
            }
        })?)
    }

    /// What the connector has sent before the proofs.
    fn connector(&self) -> &[u8] {
        match self.role {
            Role::Connector => &self.own,
            Role::Acceptor => &self.came[..OPENING_BYTES],
        }
    }

    /// What the acceptor has sent before the proofs.
    fn acceptor(&self) -> &[u8] {
        match self.role {
            Role::Connector => &self.came[..OPENING_BYTES],
            Role::Acceptor => &self.own,
        }
    }

    /// Ends a greeting that has come whole, and answers it where that is this side's turn.
    pub(crate) fn agree(mut self, config: &Config, security: &Security) -> Result<Agreed, Gone> {
        let its = self.its_hello(config)?;
        if its.message_bytes_max < MESSAGE_BYTES_LEAST {
            return Err(FrameError::Reserved.into());
        }
        let message_bytes_max = config.message_bytes_max.min(its.message_bytes_max);
        let is_acceptor = self.role == Role::Acceptor;
        let link = match self.address.transport() {
            Transport::Sm => {
                let segment = self.share(&its, message_bytes_max, config, security)?;
                let own = usize::from(is_acceptor);
                let socket = self.wire.into_socket().ok_or(FrameError::Reserved)?;
                AnyLink::Sm(Sm::new(segment, own, its.spins, message_bytes_max, socket))
            }
            Transport::Tcp | Transport::Uds | Transport::Tls => {
                match security.secret(&self.address) {
                    Some(secret) if is_acceptor => {
                        self.send(&secret.proof(self.role, self.connector(), self.acceptor()))?;
                    }
                    None if is_acceptor => self.send_opening(security)?,
                    Some(_) | None => {}
                }
                AnyLink::Other(Box::new(Stream::new(self.wire, message_bytes_max)))
            }
        };
        Ok(Agreed { link, message_bytes_max })
    }

    fn share(
        &mut self,
        its: &Hello,
        message_bytes_max: u32,
        config: &Config,
        security: &Security,
    ) -> Result<Segment, Gone> {
        if let Some(segment) = self.segment.take() {
            return Ok(segment);
        }
        let (slots_count, shared_bytes) = (its.slots_count, its.shared_bytes);
        let fits = slots_count.is_power_of_two()
            && (2..=SLOTS_LIMIT).contains(&slots_count)
            && shared_bytes.is_power_of_two()
            && (2 * message_bytes_max..=SHARED_BYTES_LIMIT).contains(&shared_bytes);
        let file = self.came_fds.pop().filter(|_| fits).ok_or(FrameError::Reserved)?;
        let segment = match Segment::map(&file, slots_count, shared_bytes) {
            Ok(segment) => segment,
            Err(SegmentError::Refused(call, errno)) => return Err(Gone::Broken { call, errno }),
            Err(SegmentError::NotSealed) => return Err(FrameError::Reserved.into()),
        };
        let hello = Hello { slots_count, shared_bytes, ..hello(config, &self.address, security) };
        self.send(&hello.encode())?;
        Ok(segment)
    }

    /// Sends this side's greeting, and its nonce where there is a secret.
    fn send_opening(&mut self, security: &Security) -> Result<(), Gone> {
        let own = self.own;
        match security.secret(&self.address) {
            Some(_) => self.send(&own),
            None => self.send(&own[..HELLO_BYTES]),
        }
    }

    /// A fresh connection has room for so few bytes.
    fn send(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        match self.wire.send(bytes)? {
            sent if sent == bytes.len() => Ok(()),
            _ => Err(Gone::of("send")(Errno::NOBUFS)),
        }
    }

    /// Whether this side has connected.
    pub(crate) fn is_ours(&self) -> bool {
        self.role == Role::Connector
    }
}
