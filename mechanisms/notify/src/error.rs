//! Error types, one for each operation.

use rustix::io::Errno;

/// Error of validating a [`Config`](crate::Config).
pub type ConfigError = handover_base::range::OutOfRange;

/// Error of making a sender and a receiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// The kernel refused a system call; most often EMFILE: too many open files (`ulimit -n`).
    #[error("{call} failed: {errno}")]
    Refused {
        /// Name of the system call.
        call: &'static str,
        /// Error that it returned.
        errno: Errno,
    },
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Error of sharing memory with another process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The kernel refused a system call.
    #[error("{call} failed: {errno}")]
    Refused {
        /// Name of the system call.
        call: &'static str,
        /// Error that it returned.
        errno: Errno,
    },
    /// The file is shorter than the type that should lie in it.
    #[error(
        "the file has {bytes} bytes but {needed_bytes} are needed: was it made by Shared::create()?"
    )]
    TooSmall {
        /// Length of the file.
        bytes: u64,
        /// Length of the type.
        needed_bytes: u64,
    },
    /// The file may still shrink, and access to a page that was cut off would kill the process.
    #[error("the file is not sealed against shrinking: was it made by Shared::create()?")]
    NotSealed,
}
