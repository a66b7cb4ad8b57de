//! What can go wrong: one enum per operation that can fail.

use rustix::io::Errno;

/// Why a text is no [`Address`](crate::Address).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// What stands before `://` is unknown.
    #[error("`{0}`: no transport of that name; there are sm, tcp, tls and uds")]
    Scheme(String),
    /// No port, or none that can be.
    #[error("`{0}`: HOST:PORT is wanted, with a port in 0..=65535")]
    Port(String),
    /// A slash in the name of shared memory, or a control character.
    #[error("an address holds a letter that it may not")]
    Letters,
    /// Longer than a socket's name can be.
    #[error("a name of {bytes} bytes: at most {max} fit a socket's", max = crate::NAME_MAX_BYTES)]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
}

/// Why a [`Config`](crate::Config) is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A knob is outside its range.
    #[error("{knob}={value}: must lie in {min}..={max}")]
    OutOfRange {
        /// The field's name.
        knob: &'static str,
        /// What it was set to.
        value: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
    /// What must be a power of two is none.
    #[error("{knob}={value}: must be a power of two")]
    NoPowerOfTwo {
        /// The field's name.
        knob: &'static str,
        /// What it was set to.
        value: u64,
    },
    /// The text is no JSON of a configuration: a key that is unknown or there twice, a value of another kind.
    #[error("{said}")]
    Json {
        /// Which key, and where.
        said: String,
    },
}

/// No timer was started: as many run as may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{timers_max} timers are running: raise timers_max, or cancel some")]
pub struct TimersFull {
    /// How many there may be.
    pub timers_max: u32,
}

/// Why bytes are no frame. Who sends such bytes is disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A kind of frame that there is not.
    #[error("a frame of kind {0}, which there is not")]
    Kind(u8),
    /// The bits that must be zero are not.
    #[error("a frame whose reserved bits are set")]
    Reserved,
    /// Its body is longer than was agreed.
    #[error("a frame of {bytes} bytes, where {bytes_max} are agreed")]
    TooLong {
        /// What it says that follows.
        bytes: u64,
        /// What may follow.
        bytes_max: u64,
    },
    /// Something about bulk transfers that cannot be.
    #[error("a word about bulk transfers that makes no sense")]
    Bulk,
    /// The first bytes of a connection are not ours.
    #[error("the peer does not speak this protocol")]
    Magic,
    /// The peer speaks another version.
    #[error("the peer speaks version {its}, this is version {ours}")]
    Version {
        /// The peer's version.
        its: u16,
        /// Ours.
        ours: u16,
    },
    /// A place in shared memory outside of what is shared.
    #[error("a body of {bytes} bytes at {offset}, outside of the {shared_bytes} bytes shared")]
    Outside {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// How much is shared.
        shared_bytes: u64,
    },
}

/// Why a connection ended. It is told to every call that was under way on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Gone {
    /// The peer ended the connection, or the peer's process has ended.
    #[error("the peer is gone")]
    HungUp,
    /// The peer sent what it may not.
    #[error("the peer was disconnected: {0}")]
    Refused(#[from] FrameError),
    /// The kernel refused to send or to receive.
    #[error("the connection broke: {call}: {errno}")]
    Broken {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// This side ended it.
    #[error("disconnected by this side")]
    Closed,
    /// The peer did not say in time who it is.
    #[error("the peer does not greet")]
    Silent,
    /// The peer began a message and did not end it in time.
    #[error("the peer was disconnected: it began a message and did not end it in time")]
    Stalled,
    /// The peer asks on and on and does not read its answers.
    #[error("the peer was disconnected: it does not read its answers")]
    Flooded,
    /// One side did not prove who it is.
    #[error("authentication failed: {0}")]
    Unauthenticated(#[from] AuthenticationError),
    /// TLS failed: a certificate that is missing or not trusted, an alert of the peer, a stream that was cut.
    #[error("TLS failed: {0}")]
    Tls(Box<str>),
}

/// Why a peer is not allowed in. The peer is told, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthenticationError {
    /// The peer has no shared secret, and this side wants it proved.
    #[error("the peer has no shared secret, and this side has one")]
    NoSecret,
    /// The peer wants a shared secret to be proved, and this side has none.
    #[error("the peer has a shared secret, and this side has none: set secret_file")]
    SecretWanted,
    /// The secrets of the two sides differ.
    #[error("the shared secrets of the two sides differ")]
    WrongSecret,
    /// The process at the other end of a Unix socket runs as a user that is not allowed.
    #[error("the peer runs as user {uid}, who is not allowed")]
    User {
        /// Effective user of the process when it connected or listened.
        uid: u32,
    },
}

impl Gone {
    /// What the kernel's refusal of that call says of the connection.
    pub(crate) fn of(call: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| match errno {
            Errno::PIPE | Errno::CONNRESET => Gone::HungUp,
            errno => Gone::Broken { call, errno },
        }
    }
}

/// Why an endpoint cannot listen, connect or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address is only half of one.
    #[error("{0} says how, and not where")]
    Incomplete(crate::Address),
    /// The host is unknown, or has no address.
    #[error("{place}: {error}")]
    Unresolved {
        /// What was asked for.
        place: String,
        /// What the resolver said.
        error: std::io::Error,
    },
    /// The kernel refused.
    #[error("{call} for {place} failed: {errno}")]
    Refused {
        /// The system call.
        call: &'static str,
        /// For which address.
        place: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// Who listens there is another user than may.
    #[error("{place} belongs to user {uid}, who is not allowed")]
    Stranger {
        /// The address.
        place: String,
        /// Whose it is.
        uid: u32,
    },
    /// The peer does not answer as it should.
    #[error("no agreement with {place}: {why}")]
    Handshake {
        /// The address.
        place: String,
        /// What was wrong.
        why: Gone,
    },
    /// The peer did not answer in time.
    #[error("{place} does not answer within {timeout_ms} ms")]
    Silent {
        /// The address.
        place: String,
        /// How long it was given.
        timeout_ms: u32,
    },
    /// As many peers as there may be.
    #[error("{peers_max} peers are connected: raise peers_max")]
    Full {
        /// How many there may be.
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
        /// What is wrong.
        why: String,
    },
}

/// Why a name cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// That name is registered for that provider.
    #[error("`{name}` of provider {provider} is registered already")]
    Taken {
        /// The name.
        name: String,
        /// The provider.
        provider: u16,
    },
    /// Two names share one identity: one of them must be another.
    #[error("`{name}` cannot be told apart from `{other}`: rename one")]
    Alike {
        /// The name that was to be registered.
        name: String,
        /// The name that is.
        other: String,
    },
}

/// Why a call brought no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The deadline passed. Whether the peer has done it, is doing it or will is not known.
    #[error("the deadline passed")]
    Deadline,
    /// The connection ended. Whether the peer has done it is not known.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// The peer knows no procedure of that name and provider. Nothing was done.
    #[error("the peer has no such procedure")]
    Unknown,
    /// The peer could not make sense of the arguments. Nothing was done.
    #[error("the peer cannot read the arguments")]
    BadArguments,
    /// The peer's handler panicked.
    #[error("the peer's handler panicked")]
    Panicked,
    /// The handler said no: its own error.
    #[error("the peer failed: {0}")]
    Failed(Failure),
    /// The result is not what was expected.
    #[error("the result cannot be read")]
    BadResult,
    /// The arguments, or the result, are longer than was agreed when connecting.
    #[error("{bytes} bytes, where {bytes_max} are agreed: raise message_bytes_max, or use bulk")]
    TooLong {
        /// How long.
        bytes: usize,
        /// How long they may be.
        bytes_max: usize,
    },
    /// The result is longer than was agreed when connecting. The peer has done it.
    #[error("the result is longer than was agreed: raise message_bytes_max, or use bulk")]
    ResultTooLong,
    /// The peer has done it, and dropped the result: more than its `queued_bytes_max` waited for this side to read.
    #[error("the result was dropped: too many results waited for this side to read them")]
    ResultUnsent,
    /// As many requests wait at the peer as there may be. Nothing was done.
    #[error("the peer has no room for a request")]
    PeerFull,
    /// As many calls are under way, or bytes waiting, as there may be.
    #[error("too much is under way: wait for some of it")]
    Full,
    /// The thread that drove the endpoint has ended ([`Caller`](crate::Caller)). Whether the peer has done it is
    /// not known.
    #[error("the endpoint's thread has ended")]
    Ended,
    /// There is no such peer, or no such call: it was disconnected, or waited for before.
    #[error("no such peer or call")]
    Stale,
}

/// What a handler answers in place of a result: a number and words, both the handler's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{words} ({code})")]
pub struct Failure {
    /// The handler's number for it.
    pub code: i32,
    /// The handler's words for it.
    pub words: String,
}

impl Failure {
    /// A number and words.
    pub fn new(code: i32, words: impl Into<String>) -> Self {
        Self { code, words: words.into() }
    }
}

/// Why a bulk transfer was not done, or not known to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// The deadline passed. Part of it may have been done.
    #[error("the deadline passed")]
    Deadline,
    /// The connection ended. Part of it may have been done.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// The owner of the other memory refuses. Nothing was done.
    #[error("refused: {0}")]
    Refused(#[from] crate::engine::BulkRefusal),
    /// The place lies outside of this side's memory. Nothing was done.
    #[error("{bytes} bytes at {offset}, in a memory of {memory_bytes}")]
    Outside {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// How long the memory is.
        memory_bytes: u64,
    },
    /// The kernel refuses to map or to copy.
    #[error("{call}: {errno}")]
    Memory {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// As many transfers are under way as there may be.
    #[error("too much is under way: wait for some of it")]
    Full,
    /// There is no such peer, or no such transfer: it was disconnected, or waited for before.
    #[error("no such peer or transfer")]
    Stale,
    /// Both sides are to copy, and the handle for that is of other memory than this side's, or of none that is
    /// registered. Nothing was done.
    #[error("the handle for the peer's half is not of this side's memory")]
    NotOurs,
}

/// Why memory cannot be had or registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The kernel has none.
    #[error("{bytes} bytes: {call}: {errno}")]
    Refused {
        /// How much was asked for.
        bytes: usize,
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// More segments than there may be.
    #[error("{segments_count} segments: at most {max}", max = crate::engine::SEGMENTS_MAX)]
    Segments {
        /// How many there are.
        segments_count: usize,
    },
    /// As many memories are registered as there may be.
    #[error("{memories_max} memories are registered: raise memories_max, or withdraw some")]
    Full {
        /// How many there may be.
        memories_max: u32,
    },
    /// No random number, without which a handle could be guessed.
    #[error("no random number for a handle: {0}")]
    Random(std::io::ErrorKind),
}

/// Why a memory is still registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WithdrawError {
    /// This endpoint has registered no such memory.
    #[error("no such memory is registered here")]
    Unknown,
    /// Peers have not said in time that they do not use it any more. It stays registered, for nobody new.
    #[error("{peers_count} peers may still be using it")]
    InUse {
        /// How many.
        peers_count: usize,
    },
}
