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
    /// The kind of the frame is unknown.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// Reserved bits are not zero.
    #[error("reserved bits of a frame are set")]
    Reserved,
    /// The body is longer than the agreed maximum.
    #[error("a frame has {bytes} bytes, the agreed maximum is {bytes_max}")]
    TooLong {
        /// Length of the body according to the header, in bytes.
        bytes: u64,
        /// Agreed maximum length of a body, in bytes.
        bytes_max: u64,
    },
    /// A bulk message cannot be decoded, or violates a rule of bulk transfers.
    #[error("the peer sent an invalid message about a bulk transfer")]
    Bulk,
    /// The first bytes of the connection are not those of this protocol.
    #[error("the peer does not speak this protocol")]
    Magic,
    /// The peer uses another version of the protocol.
    #[error(
        "the peer uses protocol version {its}, this endpoint {ours}: run the same version on both"
    )]
    Version {
        /// Protocol version of the peer.
        its: u16,
        /// Protocol version of this endpoint.
        ours: u16,
    },
    /// The body is outside of the shared memory.
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

/// Reason why a connection was closed. Every call that was under way on the connection returns it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Gone {
    /// The peer closed the connection, or the peer's process exited.
    #[error("the peer has closed the connection")]
    HungUp,
    /// The peer violated the protocol.
    #[error("the peer was disconnected: {0}")]
    Refused(#[from] FrameError),
    /// A system call on the connection failed.
    #[error("the connection failed: {call}: {errno}")]
    Broken {
        /// Name of the system call.
        call: &'static str,
        /// Error number of the system call.
        errno: Errno,
    },
    /// This endpoint closed the connection.
    #[error("this endpoint closed the connection")]
    Closed,
    /// The peer did not complete the handshake in time.
    #[error("handshake timed out")]
    Silent,
    /// The peer started a message and did not finish it in time.
    #[error("the peer was disconnected: it did not complete a message in time")]
    Stalled,
    /// The peer keeps sending requests and does not read its answers.
    #[error("the peer was disconnected: it does not read its answers")]
    Flooded,
    /// Authentication failed, here or at the peer.
    #[error("authentication failed: {0}")]
    Unauthenticated(#[from] AuthenticationError),
    /// TLS failed: a missing or untrusted certificate, an alert of the peer, or a truncated stream.
    #[error("TLS failed: {0}")]
    Tls(Box<str>),
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
    SecretWanted,
    /// The two endpoints have different secrets.
    #[error("the shared secrets of the two endpoints differ")]
    WrongSecret,
    /// The process at the other end of a Unix socket runs as a user that is not allowed.
    #[error("the peer runs as user {uid}, who is not allowed")]
    User {
        /// Effective user id of the peer process when it connected or listened.
        uid: u32,
    },
}

impl Gone {
    /// Returns a function that maps the error number of the system call `call` to the reason of the disconnection.
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
    /// The host name cannot be resolved.
    #[error("cannot resolve {place}: {error}")]
    Unresolved {
        /// Host and port to be looked up.
        place: String,
        /// Error of the system's resolver.
        error: std::io::Error,
    },
    /// A system call failed.
    #[error("{call} for {place} failed: {errno}")]
    Refused {
        /// Name of the system call.
        call: &'static str,
        /// Address for which the call was made.
        place: String,
        /// Error number of the system call.
        errno: Errno,
    },
    /// The listening process runs as a user that is not allowed.
    #[error("{place}: the listening process runs as user {uid}, who is not allowed")]
    Stranger {
        /// Address of the listening process.
        place: String,
        /// User id of the listening process.
        uid: u32,
    },
    /// The handshake with the peer failed.
    #[error("handshake with {place} failed: {why}")]
    Handshake {
        /// Address of the peer.
        place: String,
        /// Reason why the handshake failed.
        why: Gone,
    },
    /// The peer did not complete the handshake in time.
    #[error("handshake with {place} timed out after {timeout_ms} ms")]
    Silent {
        /// Address of the peer.
        place: String,
        /// Time limit of the handshake, in ms.
        timeout_ms: u32,
    },
    /// The maximum number of peers is connected.
    #[error("{peers_max} peers are connected: raise peers_max")]
    Full {
        /// Maximum number of peers, as configured.
        peers_max: u32,
    },
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(std::io::Error),
    /// A secret, a key or a certificate is missing or cannot be used.
    #[error("{place}: {why}")]
    Security {
        /// File or address that the error is about.
        place: String,
        /// Description of what is wrong.
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
        /// Name of the procedure.
        name: String,
        /// Provider number of the procedure.
        provider: u16,
    },
    /// Two names have the same hash: one of them must be renamed.
    #[error("`{name}` and `{other}` have the same hash: rename one")]
    HashCollision {
        /// The name that was to be registered.
        name: String,
        /// Name that is already registered.
        other: String,
    },
}

/// Error of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The deadline passed before the result arrived. It is not known whether the peer has run, is
    /// running or will run the handler.
    #[error("the deadline of the call passed")]
    Deadline,
    /// The connection was closed. It is not known whether the peer has run the handler.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// The peer has no procedure of that name and provider. No handler ran.
    #[error("the peer has registered no procedure of that name and provider")]
    Unknown,
    /// The peer could not decode the arguments. No handler ran.
    #[error("the peer cannot decode the arguments: do caller and handler use the same type?")]
    BadArguments,
    /// The peer's handler panicked.
    #[error("the peer's handler panicked")]
    Panicked,
    /// The handler returned an error.
    #[error("the peer's handler failed: {0}")]
    Failed(Failure),
    /// The result could not be decoded.
    #[error("the result of the call cannot be decoded: do caller and handler use the same type?")]
    BadResult,
    /// The arguments, or the result, are longer than the agreed maximum.
    #[error(
        "the message has {bytes} bytes, the agreed maximum is {bytes_max}: raise message_bytes_max, or use bulk"
    )]
    TooLong {
        /// Length of the message, in bytes.
        bytes: usize,
        /// Agreed maximum length of a message, in bytes.
        bytes_max: usize,
    },
    /// The result is longer than the agreed maximum. The handler has run.
    #[error("the result exceeds the agreed maximum: raise message_bytes_max, or use bulk")]
    ResultTooLong,
    /// The handler has run, and the peer dropped its result: more than the peer's
    /// `queued_bytes_max` waited for this endpoint to read.
    #[error("the peer dropped the result: too many results waited for this endpoint to read them")]
    ResultUnsent,
    /// The maximum number of requests waits at the peer. No handler ran.
    #[error("too many requests wait at the peer")]
    PeerFull,
    /// The maximum number of calls is under way, or the maximum number of bytes is queued.
    #[error("too many calls or bytes are under way: wait for some calls to end")]
    Full,
    /// The thread that drove the endpoint has exited ([`Caller`](crate::Caller)). It is not known
    /// whether the peer has run the handler.
    #[error("the endpoint's thread has exited")]
    Ended,
    /// The peer was disconnected, or the result of the call was already taken.
    #[error("the peer is disconnected, or the result of the call was already taken")]
    Stale,
}

/// Error that a handler returns in place of a result: a number and a text, both chosen by the
/// handler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{words} ({code})")]
pub struct Failure {
    /// Error number, chosen by the handler.
    pub code: i32,
    /// Error text, chosen by the handler.
    pub words: String,
}

impl Failure {
    /// Creates an error from a number and a text.
    pub fn new(code: i32, words: impl Into<String>) -> Self {
        Self { code, words: words.into() }
    }
}

/// Reason why the owner of a memory refuses a transfer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, thiserror::Error,
)]
#[non_exhaustive]
pub enum BulkRefusal {
    /// No memory with that handle is registered, or it was withdrawn.
    #[error("no such memory is registered at its owner")]
    Unknown,
    /// The handle does not include the required right.
    #[error("the handle does not include the right to this access")]
    Rights,
    /// The range extends beyond the end of the memory.
    #[error("the range extends beyond the end of the owner's memory")]
    Outside,
    /// The maximum number of transfers is under way at the owner, or descriptors have run out.
    #[error("too many transfers are under way at the owner")]
    Full,
}

/// Error of a bulk transfer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// The deadline passed. Part of the transfer may have been done.
    #[error("the deadline of the transfer passed")]
    Deadline,
    /// The connection was closed. Part of the transfer may have been done.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// The owner of the remote memory refused the transfer. Nothing was transferred.
    #[error("the owner of the memory refused the transfer: {0}")]
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
    /// The kernel refused to map or to copy memory.
    #[error("cannot access memory: {call}: {errno}")]
    Memory {
        /// Name of the system call.
        call: &'static str,
        /// Error number of the system call.
        errno: Errno,
    },
    /// The maximum number of transfers is under way.
    #[error("too many transfers are under way: wait for some to end")]
    Full,
    /// The peer was disconnected, or the result of the transfer was already taken.
    #[error("the peer is disconnected, or the result of the transfer was already taken")]
    Stale,
    /// Both peers were to copy one half, and the handle for the peer's half does not refer to the
    /// local memory. Nothing was transferred.
    #[error("the handle for the peer's half does not refer to the local memory")]
    ForeignHandle,
}

/// Error of allocating or registering memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The kernel refused to allocate memory.
    #[error("cannot allocate {bytes} bytes: {call}: {errno}")]
    Refused {
        /// Requested size, in bytes.
        bytes: usize,
        /// Name of the system call.
        call: &'static str,
        /// Error number of the system call.
        errno: Errno,
    },
    /// The memory has too many segments.
    #[error("memory of {segments_count} segments: at most {segments_max} are possible")]
    Segments {
        /// Number of segments of the memory.
        segments_count: usize,
        /// Maximum number of segments of a memory.
        segments_max: usize,
    },
    /// The maximum number of memories is registered.
    #[error("{memories_max} memories are registered: raise memories_max, or withdraw some")]
    Full {
        /// Maximum number of registered memories, as configured.
        memories_max: u32,
    },
    /// The kernel returned no random number, without which a handle could be guessed.
    #[error("the kernel returned no random number for a handle: {0}")]
    Random(std::io::ErrorKind),
}

/// Error of withdrawing a memory's registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WithdrawError {
    /// This endpoint has registered no such memory.
    #[error("no such memory is registered at this endpoint")]
    Unknown,
    /// Peers have not confirmed in time that they no longer use the memory. It stays registered,
    /// and refuses new uses.
    #[error("{peers_count} peers may still use the memory: try again later")]
    InUse {
        /// Number of peers that have not confirmed.
        peers_count: usize,
    },
}
