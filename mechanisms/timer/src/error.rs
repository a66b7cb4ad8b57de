//! Error types, one for each operation.

use std::{error, fmt};

/// Error of validating a [`Config`](crate::Config).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A field of the configuration is outside its range.
    #[error("{knob}={value}: must lie in {min}..={max}")]
    OutOfRange {
        /// Name of the field.
        knob: &'static str,
        /// Invalid value of the field.
        value: u32,
        /// Minimum value of the field.
        min: u32,
        /// Maximum value of the field.
        max: u32,
    },
}

/// Error of starting a timer while `timers_max` timers are running; contains the payload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many timers: timers_max are running; cancel one or raise timers_max")
    }
}

impl<T> error::Error for Full<T> {}
