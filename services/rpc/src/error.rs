//! Error types: one enum for each operation that can fail.

use rustix::io::Errno;

/// Error of validating a [`Config`](crate::Config).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number is outside its range.
    #[error(transparent)]
    OutOfRange(#[from] handover_base::range::OutOfRange),
    /// A field that must be a power of two is not.
    #[error("{field}={value}: must be a power of two")]
    NoPowerOfTwo {
        /// The field's name.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
}

/// Error of starting a timer: `timers_max` timers are running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{timers_max} timers are running: raise timers_max, or cancel some")]
pub struct TimersFull {
    /// Configured maximum number of timers.
    pub timers_max: u32,
}

/// Error of decoding a frame. A peer that sends such bytes is disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The kind of the frame is unknown.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// Reserved bits are not zero.
    #[error("reserved bits of a frame are set")]
    Reserved,
    /// The body is longer than was agreed.
    #[error("a frame has {bytes} bytes, the agreed maximum is {bytes_max}")]
    TooLong {
        /// Body length in the header.
        bytes: u64,
        /// Maximum body length.
        bytes_max: u64,
    },
    /// A bulk message that cannot be decoded, or a bulk transfer rule that was broken.
    #[error("invalid bulk message")]
    Bulk,
    /// The first bytes of the connection are not those of this protocol.
    #[error("the peer does not speak this protocol")]
    Magic,
    /// The peer speaks another version.
    #[error("the peer uses protocol version {its}, this side {ours}")]
    Version {
        /// The peer's version.
        its: u16,
        /// This side's version.
        ours: u16,
    },
    /// The body lies outside of the shared memory.
    #[error(
        "a body of {bytes} bytes at offset {offset} lies outside of the {shared_bytes} shared bytes"
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

/// Reason for the end of a connection. Every call that was under way on the connection returns it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Gone {
    /// The peer closed the connection, or the peer's process has ended.
    #[error("the peer has closed the connection")]
    HungUp,
    /// The peer broke the protocol.
    #[error("the peer was disconnected: {0}")]
    Refused(#[from] FrameError),
    /// A system call on the connection failed.
    #[error("the connection failed: {call}: {errno}")]
    Broken {
        /// The system call.
        call: &'static str,
        /// Error number of the call.
        errno: Errno,
    },
    /// This side closed the connection.
    #[error("closed by this side")]
    Closed,
    /// The peer did not complete the handshake in time.
    #[error("handshake timed out")]
    Silent,
    /// The peer began a message and did not finish it in time.
    #[error("the peer was disconnected: it did not complete a message in time")]
    Stalled,
    /// The peer keeps sending requests and does not read its answers.
    #[error("the peer was disconnected: it does not read its answers")]
    Flooded,
    /// Authentication failed on one of the sides.
    #[error("authentication failed: {0}")]
    Unauthenticated(#[from] AuthenticationError),
    /// TLS failed: a missing or untrusted certificate, an alert of the peer, or a truncated stream.
    #[error("TLS failed: {0}")]
    Tls(Box<str>),
}

/// Reason for which authentication failed. The peer is told as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthenticationError {
    /// The peer has no shared secret, and this side requires one.
    #[error("the peer has no shared secret, this side requires one")]
    NoSecret,
    /// The peer requires a shared secret, and this side has none.
    #[error("the peer requires a shared secret, this side has none: set secret_file")]
    SecretWanted,
    /// The two sides have different secrets.
    #[error("the shared secrets of the two sides differ")]
    WrongSecret,
    /// The process at the other end of a Unix socket runs as a user that is not allowed.
    #[error("the peer runs as user {uid}, who is not allowed")]
    User {
        /// Effective user id of the peer process when it connected or listened.
        uid: u32,
    },
}

impl Gone {
    /// Returns a function that maps the error number of `call` to the reason for the connection's
    /// end.
    pub(crate) fn of(call: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| match errno {
            Errno::PIPE | Errno::CONNRESET => Gone::HungUp,
            errno => Gone::Broken { call, errno },
        }
    }
}

/// Error of creating an endpoint, listening, connecting or serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address has a transport but no host, path or name.
    #[error("{0}: the address has a transport but no host, path or name")]
    Incomplete(crate::Address),
    /// The host is unknown, or has no address.
    #[error("{place}: {error}")]
    Unresolved {
        /// Host and port that were looked up.
        place: String,
        /// Error of the resolver.
        error: std::io::Error,
    },
    /// A system call failed.
    #[error("{call} for {place} failed: {errno}")]
    Refused {
        /// The system call.
        call: &'static str,
        /// Address for which the call was made.
        place: String,
        /// Error number of the call.
        errno: Errno,
    },
    /// The listening process runs as a user that is not allowed.
    #[error("{place}: the listening process runs as user {uid}, who is not allowed")]
    Stranger {
        /// The address.
        place: String,
        /// User id of the listening process.
        uid: u32,
    },
    /// The handshake with the peer failed.
    #[error("handshake with {place} failed: {why}")]
    Handshake {
        /// The address.
        place: String,
        /// Reason of the failure.
        why: Gone,
    },
    /// The peer did not complete the handshake in time.
    #[error("handshake with {place} timed out after {timeout_ms} ms")]
    Silent {
        /// The address.
        place: String,
        /// Time limit, in ms.
        timeout_ms: u32,
    },
    /// The maximum number of peers is connected.
    #[error("{peers_max} peers are connected: raise peers_max")]
    Full {
        /// Configured maximum number of peers.
        peers_max: u32,
    },
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(std::io::Error),
    /// A secret, a key or a certificate is missing or cannot be used.
    #[error("{place}: {why}")]
    Security {
        /// The file or the address.
        place: String,
        /// Description of the problem.
        why: String,
    },
}

impl EndpointError {
    /// Returns an error about the secret, key or certificate of that file or address.
    pub(crate) fn security(place: &str, why: impl Into<String>) -> Self {
        Self::Security { place: place.into(), why: why.into() }
    }
}

/// Error of registering a procedure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name is already registered for that provider.
    #[error("`{name}` of provider {provider} is registered already")]
    Taken {
        /// The name.
        name: String,
        /// The provider.
        provider: u16,
    },
    /// Two names have the same hash: one of them must be renamed.
    #[error("`{name}` and `{other}` have the same hash: rename one")]
    Alike {
        /// The name that was to be registered.
        name: String,
        /// The registered name.
        other: String,
    },
}

/// Error of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The deadline passed. It is not known whether the peer has run, is running or will run the
    /// handler.
    #[error("the deadline passed")]
    Deadline,
    /// The connection ended. It is not known whether the peer has run the handler.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// The peer has no procedure of that name and provider. No handler ran.
    #[error("the peer has no such procedure")]
    Unknown,
    /// The peer could not decode the arguments. No handler ran.
    #[error("the peer cannot decode the arguments")]
    BadArguments,
    /// The peer's handler panicked.
    #[error("the peer's handler panicked")]
    Panicked,
    /// The handler returned its own error.
    #[error("the peer failed: {0}")]
    Failed(Failure),
    /// The result could not be decoded.
    #[error("the result cannot be decoded")]
    BadResult,
    /// The arguments, or the result, are longer than was agreed when connecting.
    #[error(
        "the message has {bytes} bytes, the agreed maximum is {bytes_max}: raise message_bytes_max, or use bulk"
    )]
    TooLong {
        /// Length, in bytes.
        bytes: usize,
        /// Maximum length, in bytes.
        bytes_max: usize,
    },
    /// The result is longer than was agreed when connecting. The handler has run.
    #[error("the result exceeds the agreed maximum: raise message_bytes_max, or use bulk")]
    ResultTooLong,
    /// The handler has run, and the peer dropped its result: more than the peer's
    /// `queued_bytes_max` waited for this side to read.
    #[error("the result was dropped: too many results waited for this side to read them")]
    ResultUnsent,
    /// The maximum number of requests waits at the peer. No handler ran.
    #[error("too many requests wait at the peer")]
    PeerFull,
    /// The maximum number of calls is under way, or of bytes queued.
    #[error("too many are under way: wait for some of them")]
    Full,
    /// The thread that drove the endpoint has ended ([`Caller`](crate::Caller)). It is not known
    /// whether the peer has run the handler.
    #[error("the endpoint's thread has ended")]
    Ended,
    /// No such peer or call: the peer was disconnected, or the call was waited for before.
    #[error("no such peer or call")]
    Stale,
}

/// Error that a handler returns in place of a result: a number and a text, both chosen by the
/// handler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{words} ({code})")]
pub struct Failure {
    /// The handler's error number.
    pub code: i32,
    /// The handler's error text.
    pub words: String,
}

impl Failure {
    /// Creates a failure from a number and a text.
    pub fn new(code: i32, words: impl Into<String>) -> Self {
        Self { code, words: words.into() }
    }
}

/// Reason for which the owner of a memory refuses a transfer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, thiserror::Error,
)]
#[non_exhaustive]
pub enum BulkRefusal {
    /// No memory of that handle is registered, or it was withdrawn.
    #[error("no such memory is registered there")]
    Unknown,
    /// The handle does not give this right.
    #[error("the handle does not give this right")]
    Rights,
    /// The range extends beyond the end of the memory.
    #[error("the range lies outside of the memory")]
    Outside,
    /// The maximum number of transfers is under way, or descriptors have run out.
    #[error("too many transfers are under way there")]
    Full,
}

/// Error of a bulk transfer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// The deadline passed. Part of the transfer may have been done.
    #[error("the deadline passed")]
    Deadline,
    /// The connection ended. Part of the transfer may have been done.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// The owner of the remote memory refused the transfer. Nothing was transferred.
    #[error("refused: {0}")]
    Refused(#[from] BulkRefusal),
    /// The range lies outside of this side's memory. Nothing was transferred.
    #[error("{bytes} bytes at {offset}, in a memory of {memory_bytes}")]
    Outside {
        /// Offset of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        bytes: u64,
        /// Length of the memory, in bytes.
        memory_bytes: u64,
    },
    /// The kernel refused to map or to copy.
    #[error("{call}: {errno}")]
    Memory {
        /// The system call.
        call: &'static str,
        /// Error number of the call.
        errno: Errno,
    },
    /// The maximum number of transfers is under way.
    #[error("too many are under way: wait for some of them")]
    Full,
    /// No such peer or transfer: the peer was disconnected, or the transfer was waited for before.
    #[error("no such peer or transfer")]
    Stale,
    /// Both sides were to copy a half, and the handle for the peer's half is not one of this side's
    /// memory. Nothing was transferred.
    #[error("the handle for the peer's half is not of this side's memory")]
    NotOurs,
}

/// Error of allocating or registering memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The kernel refused to allocate memory.
    #[error("{bytes} bytes: {call}: {errno}")]
    Refused {
        /// Requested size, in bytes.
        bytes: usize,
        /// The system call.
        call: &'static str,
        /// Error number of the call.
        errno: Errno,
    },
    /// The memory has too many segments.
    #[error("{segments_count} segments: at most {segments_max}")]
    Segments {
        /// Number of segments.
        segments_count: usize,
        /// Maximum number of segments.
        segments_max: usize,
    },
    /// The maximum number of memories is registered.
    #[error("{memories_max} memories are registered: raise memories_max, or withdraw some")]
    Full {
        /// Configured maximum number of memories.
        memories_max: u32,
    },
    /// The kernel returned no random number, without which a handle could be guessed.
    #[error("no random number for a handle: {0}")]
    Random(std::io::ErrorKind),
}

/// Error of withdrawing a memory, which stays registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WithdrawError {
    /// This endpoint has registered no such memory.
    #[error("no such memory is registered here")]
    Unknown,
    /// Peers have not confirmed in time that they no longer use the memory. It stays registered,
    /// and refuses new uses.
    #[error("{peers_count} peers may still be using it")]
    InUse {
        /// Number of peers that have not confirmed.
        peers_count: usize,
    },
}
