//! What can go wrong: one type per operation that can fail.

use std::{error, fmt};

/// Why a [`Config`](crate::Config) is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A bound is outside its range.
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

/// No timer was started: `timers_max` of them are outstanding. Here is what was to be handed over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as many timers are outstanding as timers_max allows")
    }
}

impl<T> error::Error for Full<T> {}
