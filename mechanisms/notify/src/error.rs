//! What can go wrong: one enum per operation that can fail.

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

/// Why a sender and a receiver could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// The kernel refused; most often EMFILE: too many open files (`ulimit -n`).
    #[error("{call} failed: {errno}")]
    Refused {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Why memory could not be shared with another process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The kernel refused.
    #[error("{call} failed: {errno}")]
    Refused {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The file is shorter than what should lie in it.
    #[error("the file holds {bytes} bytes, {needed_bytes} are needed: was it made by create()?")]
    TooSmall {
        /// Its length.
        bytes: u64,
        /// The length that is needed.
        needed_bytes: u64,
    },
    /// The file may still shrink, and touching a page that went away kills the process.
    #[error("the file is not sealed against shrinking: was it made by create()?")]
    NotSealed,
}
