//! Configuration of adaptive receivers: spin duration, and retries of spinning.

use crate::ConfigError;
use handover_base::range;
use std::time::Duration;

/// Greatest valid value of [`Config::spin_max`]. For longer spins, write a loop of your own.
const SPIN_LIMIT: Duration = Duration::from_millis(1);
/// Greatest valid value of [`Config::quiet_waits_max`].
const QUIET_WAITS_LIMIT: u32 = 65_536;

/// Configuration of a receiver that spins adaptively before it sleeps.
///
/// ```
/// use handover_notify::Config;
/// use std::time::Duration;
/// let config = Config::default().spin_max(Duration::from_micros(20));
/// config.validate()?;
/// assert_eq!(
///     config.spin_max(Duration::from_millis(2)).validate().unwrap_err().to_string(),
///     "spin_max=2ms: must lie in 0ns..=1ms",
/// );
/// # Ok::<(), handover_notify::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Maximum time that one wait spins before it sleeps; zero never spins. Default 50 µs.
    ///
    /// This is only a bound. Below it, a receiver spins for twice the cost of a sleep on this machine, which it
    /// measures (1 to 20 µs), and only while spinning pays. Lower it where CPU time matters more than latency.
    pub spin_max: Duration,
    /// Maximum number of consecutive waits that sleep without spinning. The next wait spins, to
    /// find out if spinning pays again. Default 1024.
    ///
    /// If no notification comes soon, one wait in `quiet_waits_max + 1` spins without success. A sleep that turns out
    /// so short that spinning would have caught the notification is followed by a spin at once, whatever the value.
    pub quiet_waits_max: u32,
}

handover_base::setters!(Config { spin_max: Duration, quiet_waits_max: u32 });

impl Default for Config {
    fn default() -> Self {
        Self { spin_max: Duration::from_micros(50), quiet_waits_max: 1024 }
    }
}

impl Config {
    /// Returns a configuration that never spins. Each wait that finds nothing pending sleeps, and senders wake the
    /// receiver only while it sleeps.
    #[must_use]
    pub fn never_spin() -> Self {
        Self::default().spin_max(Duration::ZERO)
    }

    /// Checks that `spin_max` and `quiet_waits_max` are within their ranges.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        range::check("spin_max", self.spin_max, Duration::ZERO, SPIN_LIMIT)?;
        range::check("quiet_waits_max", self.quiet_waits_max, 1, QUIET_WAITS_LIMIT)
    }
}
