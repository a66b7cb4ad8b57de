//! Error types, one for each operation.

use std::io;

/// Error of validating a [`Config`](crate::Config).
pub type ConfigError = handover_base::range::OutOfRange;

/// Error of creating a connected sender and receiver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// A system call failed; most often with EMFILE, as too many files are open (`ulimit -n`).
    #[error("cannot create a sender and a receiver: {call} failed: {error}")]
    SystemCall {
        /// Name of the system call.
        call: &'static str,
        /// Error that the system call returned.
        error: io::Error,
    },
    /// The configuration has a field outside its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Error of creating or mapping a [`MappedCore`](crate::shared::MappedCore), which processes share.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// A system call failed; contains its name and error.
    #[error("cannot share memory: {call} failed: {error}")]
    SystemCall {
        /// Name of the system call.
        call: &'static str,
        /// Error that the system call returned.
        error: io::Error,
    },
    /// The file is shorter than the core that it should contain.
    #[error(
        "the file has {bytes} bytes but {needed_bytes} are needed: was it made by MappedCore::create()?"
    )]
    TooSmall {
        /// Length of the file in bytes.
        bytes: u64,
        /// Size of the core in bytes.
        needed_bytes: u64,
    },
    /// The file is not sealed against shrinking. If it shrank, an access to the mapping would kill
    /// the process.
    #[error("the file is not sealed against shrinking: was it made by MappedCore::create()?")]
    NotSealed,
    /// The file is not memory of small pages. Huge pages may run out when they are first touched,
    /// which would kill the process.
    #[error("the file is not memory of small pages: was it made by MappedCore::create()?")]
    NotSmallPages,
}
