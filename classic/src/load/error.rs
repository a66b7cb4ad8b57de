//! Error types: one enum per operation that can fail.

use crate::load::wire::MessageError;
use handover_net::tls::{SetupError, TlsError};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::time::Duration;

/// Error of an invalid [`LoadPlan`](crate::load::LoadPlan).
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A number is outside its range.
    #[error(transparent)]
    OutOfRange(#[from] handover_base::range::OutOfRange),
    /// The total number of messages overflows.
    #[error(
        "the number of messages, clients x count x iterations x threads x reconns, overflows 64 bits"
    )]
    TooMany,
    /// The rate is not a positive, finite number.
    #[error("the rate must be a finite number of messages per second, above 0")]
    Rate,
}

/// Error that prevented a load as a whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The plan is not valid.
    #[error(transparent)]
    LoadPlan(#[from] PlanError),
    /// A thread could not be started.
    #[error("cannot start a thread of the load generator: {0}")]
    Thread(std::io::Error),
    /// A thread panicked.
    #[error("a thread of the load generator panicked: see its message above")]
    Panicked,
}

/// Error of a connection that failed before all its echoes were received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The connection could not be made.
    #[error("connect {address}: {errno}; is the server running?")]
    Unconnected {
        /// The server's address.
        address: SocketAddr,
        /// The kernel's error.
        errno: Errno,
    },
    /// The server closed the connection.
    #[error("the server closed a connection before all echoes were received")]
    Closed,
    /// The connection was lost.
    #[error("the connection was lost: {0}")]
    Broken(Errno),
    /// An echo differs from the message that was sent.
    #[error(transparent)]
    ChangedMessage(#[from] MessageError),
    /// TLS failed on a connection.
    #[error("TLS failed on a connection: {0}")]
    Tls(TlsError),
    /// The TLS state of a connection could not be created.
    #[error("TLS failed on a connection: {0}")]
    TlsSetup(SetupError),
    /// No echo was received within the time-out.
    #[error("no echo was received within {0:?}")]
    Silent(Duration),
    /// The kernel refused a resource that the load generator needs.
    #[error("{call} failed: {errno}")]
    Refused {
        /// Name of the system call.
        call: &'static str,
        /// The kernel's error.
        errno: Errno,
    },
}
