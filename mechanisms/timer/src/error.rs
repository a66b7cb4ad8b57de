//! Error types, one for each operation.

use std::fmt;

/// Error of validating a [`Config`](crate::Config).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The value of a field is outside its range.
    #[error("{field}={value}: must lie in {min}..={max}")]
    OutOfRange {
        /// Name of the field.
        field: &'static str,
        /// Invalid value of the field.
        value: u32,
        /// Minimum value of the field.
        min: u32,
        /// Maximum value of the field.
        max: u32,
    },
}

/// Error of starting a timer while `timers_max` timers are running; contains the timer's payload.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot start a timer: timers_max timers are running; cancel one or raise timers_max")]
pub struct WheelFull<T>(pub T);

impl<T> fmt::Debug for WheelFull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WheelFull(..)")
    }
}
