//! Error types: one enum for each operation that can fail.

use std::io;
use std::time::Duration;

/// Error of validating a [`Config`](crate::Config).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The value of a field is outside its range.
    #[error(transparent)]
    OutOfRange(#[from] handover_base::range::OutOfRange),
    /// The value of a field is not a power of two.
    #[error("{field}={value}: must be a power of two")]
    NoPowerOfTwo {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
}

/// Error of starting a timer: `timers_max` timers are running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{timers_max} timers are running: raise timers_max, or cancel some")]
pub struct TimersFull {
    /// Maximum number of timers, as configured.
    pub timers_max: u32,
}

/// Error of decoding a frame. A peer that sends such bytes is disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The header has an unknown frame kind.
    #[error("the frame kind {0} is unknown")]
    Kind(u8),
    /// The peer sent a value that the protocol does not allow. Reserved bits are not zero, for
    /// example, or a file is unsuitable for shared memory.
    #[error("the peer sent a value that the protocol does not allow")]
    InvalidValue,
    /// The body of the frame is longer than the agreed maximum.
    #[error("the body of a frame has {bytes} bytes, the agreed maximum is {bytes_max}")]
    TooLong {
        /// Length of the body according to the header, in bytes.
        bytes: u64,
        /// Agreed maximum length of a body, in bytes.
        bytes_max: u64,
    },
    /// The peer sent an invalid message about a bulk transfer.
    #[error("the peer sent an invalid message about a bulk transfer")]
    Bulk,
    /// The first bytes of the connection are not those of this protocol.
    #[error("the peer does not speak the protocol of handover-rpc")]
    Magic,
    /// The peer uses another version of the protocol.
    #[error(
        "the peer uses protocol version {peer}, this endpoint {own}: run the same version on both"
    )]
    Version {
        /// Protocol version of the peer.
        peer: u16,
        /// Protocol version of this endpoint.
        own: u16,
    },
    /// One end of the connection was given a `ucx://` address, and the other end a `tcp://`
    /// address.
    #[error(
        "one end of the connection uses ucx://, the other one tcp://: give both the same address"
    )]
    OtherTransport,
    /// The header of a message in shared memory refers to bytes outside of the shared buffer.
    #[error(
        "a body of {bytes} bytes at offset {offset} lies outside of the shared buffer of {shared_bytes} bytes"
    )]
    Outside {
        /// Offset of the body, in bytes.
        offset: u64,
        /// Length of the body, in bytes.
        bytes: u64,
        /// Size of the buffer for long bodies, in bytes.
        shared_bytes: u64,
    },
}

/// Error of a system call. Cloning and comparing use the error's number, or else its kind.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {error}")]
#[non_exhaustive]
pub struct SystemCallError {
    /// Name of the system call.
    pub call: &'static str,
    /// Error that the system call returned.
    pub error: io::Error,
}

impl Clone for SystemCallError {
    fn clone(&self) -> Self {
        let number = self.error.raw_os_error();
        let error = number.map_or_else(|| self.error.kind().into(), io::Error::from_raw_os_error);
        Self { call: self.call, error }
    }
}

impl PartialEq for SystemCallError {
    fn eq(&self, other: &Self) -> bool {
        let compared = |it: &Self| (it.call, it.error.raw_os_error(), it.error.kind());
        compared(self) == compared(other)
    }
}

impl Eq for SystemCallError {}

/// Returns a converter from errors of the system call `call`.
pub(crate) fn failed_call<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> SystemCallError {
    move |error| SystemCallError { call, error: error.into() }
}

/// Reason why a connection was closed. Every call that was under way on the connection returns it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed the connection, or the peer's process exited.
    #[error("the peer has closed the connection")]
    ClosedByPeer,
    /// The peer violated the protocol.
    #[error("the peer was disconnected: {0}")]
    Protocol(FrameError),
    /// A system call on the connection's socket or shared memory failed.
    #[error("the connection failed: {0}")]
    SystemCall(SystemCallError),
    /// This endpoint closed the connection.
    #[error("this endpoint closed the connection")]
    ClosedLocally,
    /// The peer did not complete the handshake within `handshake_timeout`.
    #[error("the peer did not complete the handshake in time")]
    HandshakeTimeout,
    /// The peer started a message and did not complete it within `message_timeout`.
    #[error("the peer was disconnected: it did not complete a message in time")]
    MessageTimeout,
    /// The peer does not read the answers to its requests.
    #[error("the peer was disconnected: it does not read its answers")]
    AnswersUnread,
    /// Authentication failed, here or at the peer.
    #[error("authentication failed: {0}")]
    Authentication(AuthenticationError),
    /// TLS failed, for example because a certificate is missing or not trusted.
    #[error("TLS failed: {0}")]
    Tls(Box<str>),
    /// UCX failed, for example to connect to the peer.
    #[error("UCX failed: {0}")]
    Ucx(Box<str>),
}

/// Reason why authentication failed. It is sent to the peer as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthenticationError {
    /// The peer has no shared secret, and this endpoint requires one.
    #[error("the peer has no shared secret, this endpoint requires one")]
    NoSecret,
    /// The peer requires a shared secret, and this endpoint has none.
    #[error("the peer requires a shared secret, this endpoint has none: set secret_file")]
    SecretRequired,
    /// The two endpoints have different secrets.
    #[error("the shared secrets of the two endpoints differ: set the same secret_file on both")]
    WrongSecret,
    /// The peer's process on a Unix socket runs as a user who is not allowed.
    #[error("the peer runs as user {uid}, who is not allowed by uds_peers")]
    User {
        /// Effective user id of the peer process when it connected or listened.
        uid: u32,
    },
}

impl From<FrameError> for CloseReason {
    fn from(error: FrameError) -> Self {
        Self::Protocol(error)
    }
}

impl CloseReason {
    /// Returns a converter from errors of the system call `call` to close reasons.
    pub(crate) fn from_system_call<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> Self {
        move |error| {
            let error: io::Error = error.into();
            match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::ClosedByPeer,
                _ => Self::SystemCall(SystemCallError { call, error }),
            }
        }
    }
}

/// Error of creating an endpoint, listening, connecting, or starting a thread.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address has a transport but no host, path or name.
    #[error("{0}: the address has a transport but no host, path or name")]
    IncompleteAddress(crate::Address),
    /// The host name of the address cannot be resolved.
    #[error("cannot resolve {address}: {error}")]
    HostUnresolved {
        /// Host and port to be looked up.
        address: String,
        /// Error of the system's resolver.
        error: io::Error,
    },
    /// A system call for an address, the endpoint or a signal failed.
    #[error("{call} for {subject} failed: {error}")]
    SystemCall {
        /// Name of the system call.
        call: &'static str,
        /// Address for which the call was made, or `an endpoint` or `a signal`.
        subject: String,
        /// Error that the system call returned.
        error: io::Error,
    },
    /// The listening process runs as a user that is not allowed.
    #[error("{address}: the listening process runs as user {uid}, who is not allowed by uds_peers")]
    UserNotAllowed {
        /// Address of the listening process.
        address: String,
        /// User id of the listening process.
        uid: u32,
    },
    /// The handshake with the peer failed.
    #[error("handshake with {address} failed: {why}")]
    Handshake {
        /// Address of the peer.
        address: String,
        /// Reason why the handshake failed.
        why: CloseReason,
    },
    /// The peer did not complete the handshake in time.
    #[error("handshake with {address} timed out after {timeout:?}")]
    HandshakeTimeout {
        /// Address of the peer.
        address: String,
        /// Time limit of the handshake.
        timeout: Duration,
    },
    /// The maximum number of peers is already connected.
    #[error("the maximum of {peers_max} peers is connected: raise peers_max")]
    TooManyPeers {
        /// Maximum number of peers, as configured.
        peers_max: u32,
    },
    /// UCX cannot be used, for example because its library is missing.
    #[error("{address}: UCX cannot be used: {why}")]
    Ucx {
        /// Address for which UCX was needed.
        address: crate::Address,
        /// Reason that the library, or its loader, gives.
        why: String,
    },
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(io::Error),
    /// A secret, a key or a certificate is missing or cannot be used.
    #[error("{subject}: {why}")]
    Security {
        /// File or address that the error is about.
        subject: String,
        /// Description of what is wrong.
        why: String,
    },
}

impl EndpointError {
    /// Creates a [`Security`](Self::Security) error about `subject`, a file or an address.
    pub(crate) fn new_security(subject: &str, why: impl Into<String>) -> Self {
        Self::Security { subject: subject.into(), why: why.into() }
    }
}

/// Error of registering a procedure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// A procedure of that name and provider is already registered.
    #[error("`{name}` of provider {provider} is already registered")]
    Taken {
        /// Name of the procedure.
        name: String,
        /// Provider number of the procedure.
        provider: u16,
    },
    /// Two procedure names have the same hash, so one of them must be renamed.
    #[error("`{name}` and `{other}` have the same hash: rename one")]
    HashCollision {
        /// Name that was not registered.
        name: String,
        /// Name that was registered before.
        other: String,
    },
}

/// Error of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The deadline of the call passed before its result arrived. It is not known whether the peer
    /// has run, is running or will run the handler.
    #[error("the deadline of the call passed before its result arrived")]
    Deadline,
    /// The connection was closed during the call. It is not known whether the peer has run the
    /// handler.
    #[error(transparent)]
    Disconnected(#[from] CloseReason),
    /// The peer has no procedure of that name and provider. No handler ran.
    #[error("the peer has registered no procedure of that name and provider")]
    Unknown,
    /// The peer could not decode the arguments, or this endpoint could not encode them. No handler
    /// ran.
    #[error("the peer cannot decode the arguments: do caller and handler use the same type?")]
    BadArguments,
    /// The peer's handler panicked. The same error is returned if its result could not be encoded.
    #[error("the peer's handler panicked")]
    Panicked,
    /// The handler returned an error.
    #[error("the peer's handler failed: {0}")]
    Failed(Failure),
    /// The result of the call could not be decoded.
    #[error("the result of the call cannot be decoded: do caller and handler use the same type?")]
    BadResult,
    /// The arguments of the call are longer than the agreed maximum. Nothing was sent.
    #[error(
        "the message has {bytes} bytes, the agreed maximum is {bytes_max}: raise message_bytes_max, or use a bulk transfer"
    )]
    TooLong {
        /// Length of the message, in bytes.
        bytes: usize,
        /// Agreed maximum length of a message, in bytes.
        bytes_max: usize,
    },
    /// The result of the call is longer than the agreed maximum. The handler has run.
    #[error(
        "the result exceeds the agreed maximum: raise message_bytes_max, or use a bulk transfer"
    )]
    ResultTooLong,
    /// The handler has run, but the peer dropped the result. More bytes than the peer's
    /// `queued_bytes_max` waited for this endpoint to read them.
    #[error("the peer dropped the result: too many results waited for this endpoint to read them")]
    ResultUnsent,
    /// The peer refused the call, as too many requests wait there. No handler ran.
    #[error("the peer refused the call: too many requests wait there; try again later")]
    PeerFull,
    /// This endpoint has too many calls under way, or too many bytes queued for the peer.
    #[error("too many calls or bytes are under way: wait for some calls to end")]
    Full,
    /// The endpoint's thread has exited. Only calls through a [`Caller`](crate::Caller) return this
    /// error. It is not known whether the peer has run the handler.
    #[error("the endpoint's thread has exited")]
    EndpointStopped,
    /// The peer was already disconnected, or the result of the call was already returned.
    #[error("the peer is disconnected, or the result of the call was already returned")]
    Stale,
}

/// Error that a handler returns instead of a result: a number and a text of its choice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{message} ({code})")]
pub struct Failure {
    /// Error number, chosen by the handler.
    pub code: i32,
    /// Error text, chosen by the handler.
    pub message: String,
}

impl Failure {
    /// Creates an error from a number and a text.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Reason why the owner of a memory refuses a transfer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, thiserror::Error,
)]
#[non_exhaustive]
pub enum BulkRefusal {
    /// No memory with that handle is registered, or the memory was withdrawn.
    #[error("no such memory is registered at its owner, or it was withdrawn")]
    Unknown,
    /// The handle does not give the right that the transfer needs: to read or to write.
    #[error("the handle does not include the right that the transfer needs (read or write)")]
    Rights,
    /// The range extends beyond the end of the owner's memory.
    #[error("the range extends beyond the end of the owner's memory")]
    Outside,
    /// The owner cannot serve the transfer now. Usually it has too many transfers under way.
    #[error("too many transfers are under way at the owner: try again later")]
    Full,
}

/// Error of a bulk transfer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// The deadline of the transfer passed. Part of the data may have been transferred.
    #[error("the deadline of the transfer passed before it was complete")]
    Deadline,
    /// The connection was closed during the transfer. Part of the data may have been transferred.
    #[error(transparent)]
    Disconnected(#[from] CloseReason),
    /// The owner of the remote memory refused the transfer. Nothing was transferred.
    #[error(transparent)]
    Refused(#[from] BulkRefusal),
    /// The range extends beyond the end of the local memory. Nothing was transferred.
    #[error(
        "{bytes} bytes at offset {offset} extend beyond the local memory of {memory_bytes} bytes"
    )]
    Outside {
        /// Offset of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        bytes: u64,
        /// Length of the local memory, in bytes.
        memory_bytes: u64,
    },
    /// The kernel refused to copy memory between the two processes.
    #[error("cannot access memory: {0}")]
    Memory(SystemCallError),
    /// The maximum number of this endpoint's transfers is under way.
    #[error("too many transfers are under way: wait for some to end")]
    Full,
    /// The peer was already disconnected, or the result of the transfer was already returned.
    #[error("the peer is disconnected, or the result of the transfer was already returned")]
    Stale,
    /// The handle given to [`halved`](crate::BulkPart::halved) does not refer to the local memory
    /// of the transfer. Nothing was transferred.
    #[error("the handle given to halved() does not refer to the local memory of the transfer")]
    ForeignHandle,
}

/// Error of allocating or registering memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The kernel refused to allocate memory.
    #[error("cannot allocate {bytes} bytes: {error}")]
    AllocationFailed {
        /// Requested size, in bytes.
        bytes: usize,
        /// Error of the system call.
        error: SystemCallError,
    },
    /// The joined memory would have too many segments.
    #[error("the memory would have {segments_count} segments, the maximum is {segments_max}")]
    TooManySegments {
        /// Number of segments that the memory would have.
        segments_count: usize,
        /// Maximum number of segments of a memory.
        segments_max: usize,
    },
    /// The maximum number of memories is registered at this endpoint.
    #[error("{memories_max} memories are registered: raise memories_max, or withdraw some")]
    TooManyMemories {
        /// Maximum number of registered memories, as configured.
        memories_max: u32,
    },
    /// The kernel returned no random number for the key of a handle.
    #[error("the kernel returned no random number for a handle: {0}")]
    NoRandomNumber(io::ErrorKind),
}

/// Error of withdrawing a memory's registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WithdrawError {
    /// This endpoint has registered no such memory.
    #[error("no such memory is registered at this endpoint")]
    Unknown,
    /// Peers may still use the memory, as they did not release it in time. The memory stays
    /// registered, and new transfers with it are refused.
    #[error("{peers_count} peers may still use the memory: try again later")]
    InUse {
        /// Number of peers that have not confirmed.
        peers_count: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    #[test]
    fn cause_of_a_closed_connection_is_in_the_message_only() {
        let failed = failed_call("recv")(io::Error::from(io::ErrorKind::NotFound));
        for (why, message) in [
            (CloseReason::SystemCall(failed), "the connection failed: recv: entity not found"),
            (FrameError::Kind(9).into(), "the peer was disconnected: the frame kind 9 is unknown"),
        ] {
            let why = CallError::from(why);
            assert_eq!(why.to_string(), message);
            assert!(why.source().is_none());
        }
    }
}
