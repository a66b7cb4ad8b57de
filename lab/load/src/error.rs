//! What can go wrong: one enum per operation that can fail.

use crate::wire::Wrong;
use rustix::io::Errno;
use std::net::SocketAddr;
use std::time::Duration;

/// Why a [`Plan`](crate::Plan) is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A number is outside its range.
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
    /// There are more messages than can be counted.
    #[error("clients x count x iterations x threads x reconns is more than can be counted")]
    TooMany,
    /// The rate is no rate.
    #[error("a rate must be a number of messages a second above 0")]
    Rate,
}

/// Why no load could be made at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The plan is not valid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(std::io::Error),
    /// A thread panicked.
    #[error("a thread of the load panicked")]
    Panicked,
}

/// What became of a connection that did not get everything back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It could not be made.
    #[error("no connection to {address}: {errno}")]
    Unconnected {
        /// Where to.
        address: SocketAddr,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The server ended it.
    #[error("the server ended a connection")]
    Ended,
    /// It broke.
    #[error("a connection broke: {0}")]
    Broken(Errno),
    /// What came back is not what was sent.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// It could not be secured.
    #[error("a connection is not secure: {0}")]
    Insecure(#[from] crate::Insecure),
    /// Nothing came back for too long.
    #[error("nothing came back for {0:?}")]
    Silent(Duration),
    /// The kernel refused something that the load needs.
    #[error("{call} failed: {errno}")]
    Refused {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}
