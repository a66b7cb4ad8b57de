//! Error types: one enum per operation that can fail. A refusal returns the value.

use crate::engine::{CodecError, Overflow, QueueError, TimeoutError, TooLongError, TruncatedError};
use crate::tls::{SetupError, TlsError};
use rustix::io::Errno;

/// Error of a [`Config`](crate::Config) that is invalid.
pub type ConfigError = handover_base::range::OutOfRange;

/// Error of starting or running an event-loop thread, or of adding a connection to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A system call failed.
    #[error("{call} failed: {errno}")]
    SystemCall {
        /// Name of the system call.
        call: &'static str,
        /// Error number of the system call.
        errno: Errno,
    },
    /// The queue of commands could not be allocated.
    #[error("cannot allocate the command queue: {0}; lower commands_max")]
    Commands(#[from] handover_ring::CapacityError),
    /// The descriptor through which other threads wake this one could not be opened.
    #[error("cannot open the wake-up descriptor: {0}")]
    Wake(#[from] handover_notify::PairError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The thread holds its maximum number of connections.
    #[error("{connections_max} connections are open: raise connections_max")]
    Full {
        /// Maximum number of connections.
        connections_max: u32,
    },
    /// The thread holds its maximum number of connections from this address.
    #[error(
        "{address} has {connections_per_address_max} connections open: raise \
         connections_per_address_max"
    )]
    AddressFull {
        /// Address of the peer.
        address: std::net::IpAddr,
        /// Maximum number of connections from one address.
        connections_per_address_max: u32,
    },
    /// The thread is stopping.
    #[error("cannot open a connection: the thread is stopping")]
    Stopping,
    /// The TLS configuration is not usable.
    #[error(transparent)]
    Tls(#[from] SetupError),
    /// The thread has exited, or its command queue is full.
    #[error(
        "cannot send a command: the thread has exited, or its queue is full (retry, or raise commands_max)"
    )]
    ThreadUnavailable,
}

/// Error of writing to a connection: no byte was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The connection is closed or being closed.
    #[error("cannot write: the connection is closed")]
    Closed,
    /// More bytes would be queued than `queued_bytes_max` allows; the connection is closed.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// The message is longer than the codec allows.
    #[error(transparent)]
    TooLong(#[from] TooLongError),
    /// The bytes could not be encrypted; the connection is closed.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Error of sending a command to an event-loop thread; returns the bytes that were to be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// Too many commands, or too many bytes in them, are queued for that thread.
    #[error(
        "the thread's command queue is full: retry, or raise commands_max or commands_bytes_max"
    )]
    Full(Vec<u8>),
    /// The thread has exited.
    #[error("cannot send a command: the thread has exited")]
    ThreadExited(Vec<u8>),
}

/// Reason why a connection was closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed the connection between messages, and the bytes queued for it were sent.
    #[error("the peer closed the connection")]
    Peer,
    /// The program closed the connection.
    #[error("this program closed the connection")]
    Local,
    /// The thread was stopped.
    #[error("the connection was closed because its thread was stopped")]
    Stopped,
    /// The peer closed the connection in the middle of a message.
    #[error(transparent)]
    Truncated(#[from] TruncatedError),
    /// The codec found bytes that are not a message.
    #[error(transparent)]
    InvalidMessage(#[from] CodecError),
    /// The kernel reported an error, usually ECONNRESET or EPIPE.
    #[error("the connection failed: {0}")]
    Reset(Errno),
    /// The connection could not be established.
    #[error("cannot connect: {0}")]
    ConnectFailed(Errno),
    /// The peer does not read, and more bytes would be queued than allowed.
    #[error(transparent)]
    SlowReader(#[from] Overflow),
    /// A time limit was exceeded.
    #[error(transparent)]
    TimedOut(#[from] TimeoutError),
    /// TLS failed, in the handshake or in a record.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No byte was received for `idle_timeout_ms`.
    #[error("no byte received for idle_timeout_ms")]
    Idle,
    /// The handler panicked.
    #[error("the connection was closed because its handler panicked")]
    Panicked,
}

/// Failed system call and its error number.
pub(crate) type FailedCall = (&'static str, Errno);

impl From<FailedCall> for NetError {
    fn from((call, errno): FailedCall) -> Self {
        Self::SystemCall { call, errno }
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
