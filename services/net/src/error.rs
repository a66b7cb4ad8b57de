//! Error types: one enum per operation that can fail. A refusal returns the value.

use crate::engine::{
    CodecError, MessageTooLongError, QueueError, SendQueueOverflow, TimeoutError,
    TruncatedMessageError,
};
use crate::tls::{SetupError, TlsError};
use std::io;

/// Error of validating a [`Config`](crate::Config).
pub type ConfigError = handover_base::range::OutOfRange;

/// Error of starting or running an event-loop thread, or of adding a connection to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// A field of the configuration is outside its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A system call failed; contains its name and error.
    #[error("the system call {call} failed: {error}")]
    SystemCall {
        /// Name of the system call.
        call: &'static str,
        /// Error of the system call.
        error: io::Error,
    },
    /// The queue of commands could not be allocated.
    #[error("cannot allocate the command queue: {0}; lower commands_max")]
    Commands(handover_ring::CapacityError),
    /// The descriptor through which other threads wake this one could not be opened.
    #[error("cannot open the wake-up descriptor: {0}")]
    Wake(handover_notify::PairError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The thread has its maximum number of open connections.
    #[error("cannot open a connection: {connections_max} are open; raise connections_max")]
    Full {
        /// Value of `connections_max`, the thread's maximum number of connections.
        connections_max: u32,
    },
    /// The thread has its maximum number of open connections from this peer address.
    #[error(
        "cannot open a connection: {connections_per_address_max} from {address} are open; raise \
         connections_per_address_max"
    )]
    AddressFull {
        /// Address of the peer.
        address: std::net::IpAddr,
        /// Maximum number of connections from one address.
        connections_per_address_max: u32,
    },
    /// The thread is stopping, and opens no more connections.
    #[error("cannot open a connection: the thread is stopping")]
    Stopping,
    /// The TLS configuration cannot be used.
    #[error(transparent)]
    Tls(#[from] SetupError),
    /// The thread has exited, or its command queue is full.
    #[error(
        "cannot send a command: the reactor's thread has exited, or its queue is full (retry, or raise commands_max)"
    )]
    ThreadUnavailable,
}

/// Error of writing to a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The connection is closed or being closed.
    #[error("cannot write: the connection is closed")]
    Closed,
    /// More bytes would be queued than `queued_bytes_max` allows; the connection is closed.
    #[error(transparent)]
    Overflow(#[from] SendQueueOverflow),
    /// The message is longer than the codec allows.
    #[error(transparent)]
    TooLong(#[from] MessageTooLongError),
    /// The bytes could not be encrypted; the connection is closed.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Error of sending a command to an event-loop thread; contains the bytes to be written. The
/// thread's queue is full, or the thread has exited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// Too many commands, or too many bytes in them, are queued for the connection's thread.
    #[error(
        "the thread's command queue is full: retry, or raise commands_max or commands_bytes_max"
    )]
    Full(Vec<u8>),
    /// The connection's thread has exited.
    #[error("cannot send a command: the reactor's thread has exited")]
    ThreadExited(Vec<u8>),
}

/// Reason why a connection was closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed the connection between messages, and all bytes queued for it were sent.
    #[error("the peer closed the connection")]
    Peer,
    /// This program closed the connection.
    #[error("this program closed the connection")]
    Local,
    /// The connection was closed because its thread was stopped.
    #[error("the connection was closed because its thread was stopped")]
    Stopped,
    /// The peer closed the connection in the middle of a message.
    #[error(transparent)]
    Truncated(#[from] TruncatedMessageError),
    /// The codec found bytes that are not a message.
    #[error(transparent)]
    InvalidMessage(#[from] CodecError),
    /// The kernel reported an error of the connection, usually ECONNRESET or EPIPE.
    #[error("the connection failed: {0}")]
    Reset(io::Error),
    /// The connection could not be established.
    #[error("cannot connect: {0}")]
    ConnectFailed(io::Error),
    /// The peer does not read fast enough: the connection's send queue would exceed its limit.
    #[error(transparent)]
    SlowReader(#[from] SendQueueOverflow),
    /// The connection has exceeded its time limit for a message, for sending or for the TLS
    /// handshake.
    #[error(transparent)]
    TimedOut(#[from] TimeoutError),
    /// TLS failed, in the handshake or in a record.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The peer sent no byte for `idle_timeout`.
    #[error("the peer sent nothing for idle_timeout")]
    Idle,
    /// The handler panicked when it was called for the connection.
    #[error("the connection was closed because its handler panicked")]
    Panicked,
}

/// Name of a failed system call, and its error.
pub(crate) type FailedSystemCall<E = io::Error> = (&'static str, E);

impl<E: Into<io::Error>> From<FailedSystemCall<E>> for NetError {
    fn from((call, error): FailedSystemCall<E>) -> Self {
        Self::SystemCall { call, error: error.into() }
    }
}

impl From<QueueError> for CloseReason {
    fn from(why: QueueError) -> Self {
        match why {
            QueueError::Overflow(overflow) => overflow.into(),
            QueueError::Tls(error) => error.into(),
        }
    }
}

impl From<QueueError> for WriteError {
    fn from(why: QueueError) -> Self {
        match why {
            QueueError::Overflow(overflow) => overflow.into(),
            QueueError::Tls(error) => error.into(),
        }
    }
}
