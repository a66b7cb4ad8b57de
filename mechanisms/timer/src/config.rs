//! Configuration of a wheel: maximum number of timers, and preallocation.

use crate::ConfigError;

/// Greatest valid value of [`Config::timers_max`].
const TIMERS_LIMIT: u32 = 1 << 28;

/// Limits of a timer wheel.
///
/// ```
/// use handover_timer::Config;
/// let config = Config::default().timers_max(100);
/// config.validate()?;
/// assert_eq!(
///     config.timers_max(0).validate().unwrap_err().to_string(),
///     "timers_max=0: must lie in 1..=268435456",
/// );
/// # Ok::<(), handover_timer::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Maximum number of running timers; starting another one fails. Default 1,048,576.
    ///
    /// Memory follows the greatest number of timers that ran at once, not this bound: at most 145
    /// bytes for each, with a payload of 8 bytes, and besides at most 5 KiB for each slot in use:
    /// usually two or three hundred, at most 704. A record is used for 2^29 timers at least, and
    /// then retired, and with it its memory: a few bytes for many seconds of starting and
    /// cancelling.
    pub timers_max: u32,
    /// Number of timers for which the wheel allocates memory when it is created. For more timers it
    /// doubles the memory when needed, and does not free it. Default 0.
    ///
    /// Doubling moves the existing timers, which takes milliseconds for a million: set this to the
    /// expected number if such a pause matters. Memory that is allocated and not used yet is
    /// address space only.
    pub timers_reserved: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { timers_max: 1 << 20, timers_reserved: 0 }
    }
}

impl Config {
    /// Sets [`timers_max`](Self#structfield.timers_max).
    #[must_use]
    pub fn timers_max(self, timers_max: u32) -> Self {
        Self { timers_max, ..self }
    }

    /// Sets [`timers_reserved`](Self#structfield.timers_reserved).
    #[must_use]
    pub fn timers_reserved(self, timers_reserved: u32) -> Self {
        Self { timers_reserved, ..self }
    }

    /// Checks that `timers_max` and `timers_reserved` are within their ranges.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let within = |field, value, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError::OutOfRange { field, value, min, max })
            }
        };
        within("timers_max", self.timers_max, 1, TIMERS_LIMIT)?;
        within("timers_reserved", self.timers_reserved, 0, self.timers_max)
    }
}
