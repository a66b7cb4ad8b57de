//! What can go wrong: one enum per operation that can fail. A refusal returns the goods.

use crate::engine::{CodecError, Overflow, TimedOut, TooLong, Truncated, Unqueued};
use crate::tls::{SetupError, TlsError};
use rustix::io::Errno;

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
        value: u32,
        /// The least it may be.
        min: u32,
        /// The most it may be.
        max: u32,
    },
}

/// Why a thread of connections could not be made, or could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel refused.
    #[error("{call} failed: {errno}")]
    Refused {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The memory for commands could not be had.
    #[error("no room for commands: {0}")]
    Commands(#[from] handover_ring::CapacityError),
    /// The descriptor by which other threads wake this one could not be had.
    #[error("no way to be woken: {0}")]
    Wake(#[from] handover_notify::PairError),
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(std::io::Error),
    /// The thread holds as many connections as it may.
    #[error("{connections_max} connections are open: raise connections_max")]
    Full {
        /// How many it may hold.
        connections_max: u32,
    },
    /// TLS does not take its configuration.
    #[error(transparent)]
    Tls(#[from] SetupError),
    /// The other end has ended, or so many commands wait for it already.
    #[error("the thread has ended, or too many commands wait for it")]
    Unreached,
}

/// Why nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The connection is closed, or is being closed.
    #[error("the connection is closed")]
    Closed,
    /// More would wait than `queued_bytes_max` allows; the connection is closed.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// The message is longer than the codec allows.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// It could not be sealed; the connection is closed.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why a command was not taken; what was to be written comes back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// Too many commands wait for that thread, or too many bytes in them.
    #[error("too many commands wait for that thread")]
    Full(Vec<u8>),
    /// The thread has ended.
    #[error("the thread has ended")]
    Ended(Vec<u8>),
}

/// Why a connection was closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer ended it, between messages, and what waited for it was sent.
    #[error("the peer ended it")]
    Peer,
    /// We did.
    #[error("we ended it")]
    Ours,
    /// The thread was stopped.
    #[error("the thread was stopped")]
    Stopped,
    /// The peer ended it in the middle of a message.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// What came was no message.
    #[error(transparent)]
    Broken(#[from] CodecError),
    /// The kernel reports an error; most often ECONNRESET or EPIPE.
    #[error("the connection broke: {0}")]
    Reset(Errno),
    /// It could not be connected.
    #[error("could not connect: {0}")]
    Unconnected(Errno),
    /// The peer does not read, and more waits for it than may.
    #[error(transparent)]
    SlowReader(#[from] Overflow),
    /// Something took too long.
    #[error(transparent)]
    TimedOut(#[from] TimedOut),
    /// Something is wrong with its TLS: no handshake, or no more records.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No byte has come in `idle_timeout_ms`.
    #[error("no byte has come for too long")]
    Idle,
    /// The handler panicked.
    #[error("the handler panicked")]
    Panicked,
}

impl From<Unqueued> for CloseReason {
    fn from(why: Unqueued) -> Self {
        match why {
            Unqueued::Overflow(overflow) => overflow.into(),
            Unqueued::Tls(error) => error.into(),
        }
    }
}

impl From<Unqueued> for WriteError {
    fn from(why: Unqueued) -> Self {
        match why {
            Unqueued::Overflow(overflow) => overflow.into(),
            Unqueued::Tls(error) => error.into(),
        }
    }
}
