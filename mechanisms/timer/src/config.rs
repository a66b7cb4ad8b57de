//! How many timers, and how many of them without allocating.

use crate::ConfigError;

/// The most timers that one wheel may be asked to hold: 2^28.
const TIMERS_LIMIT: u32 = 1 << 28;

/// The bounds of a wheel.
///
/// ```
/// use handover_timer::Config;
/// let config = Config { timers_max: 100, ..Config::default() };
/// config.validate()?;
/// assert_eq!(
///     Config { timers_max: 0, ..config }.validate().unwrap_err().to_string(),
///     "timers_max=0: must lie in 1..=268435456",
/// );
/// # Ok::<(), handover_timer::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How many timers may be outstanding at once; one more is refused. Default 1,048,576.
    ///
    /// Memory follows the most timers that ever were outstanding, not this bound: at most 110 bytes
    /// for each, with a payload of 8 bytes, and 400 KiB besides. A place is used for 2^31 timers and
    /// then given up; so is its memory, a few bytes for many seconds of starting and cancelling.
    pub timers_max: u32,
    /// For how many timers memory is set aside at once; the rest is allocated when needed, by
    /// doubling, and kept. Default 0.
    ///
    /// Doubling moves what is there, which takes milliseconds at a million timers: set this to what
    /// you expect where one such pause would hurt. What is set aside and not used yet is address
    /// space only.
    pub timers_reserved: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { timers_max: 1 << 20, timers_reserved: 0 }
    }
}

impl Config {
    /// Whether the bounds are within their ranges.
    ///
    /// # Errors
    /// [`ConfigError`] names the bound, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let within = |knob, value, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError::OutOfRange { knob, value, min, max })
            }
        };
        within("timers_max", self.timers_max, 1, TIMERS_LIMIT)?;
        within("timers_reserved", self.timers_reserved, 0, self.timers_max)
    }
}
