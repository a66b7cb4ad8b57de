//! Configuration of adaptive receivers: spin duration, and retries of spinning.

use crate::ConfigError;
use handover_base::range;
use std::time::Duration;

/// Greatest valid value of [`Config::spin_max`]. For longer spins, write a loop of your own.
const SPIN_LIMIT: Duration = Duration::from_millis(1);
/// Greatest valid value of [`Config::spin_per_sleep`].
const SPIN_PER_SLEEP_LIMIT: u32 = 1000;
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
    /// This is only a bound. Below it, a receiver spins for
    /// [`spin_per_sleep`](Self::spin_per_sleep) times the cost of a sleep on this machine, and only
    /// while spinning pays. Lower it where CPU time matters more than latency.
    pub spin_max: Duration,
    /// Maximum time that one wait spins, as a multiple of the cost of a sleep on this machine. A
    /// receiver measures that cost: 1 to 30 µs from the sender's wake until it runs. Default 2.
    ///
    /// With more than 2, longer waits are answered sooner, and take more CPU time; see
    /// [`low_latency`](Self::low_latency). With 1, two threads that notify each other in turn may
    /// both sleep in each wait, and never spin again: each waits for the other's wake-up as well as
    /// its own.
    pub spin_per_sleep: u32,
    /// Maximum number of consecutive waits that sleep without spinning. The next wait spins, to
    /// find out if spinning pays again. Default 1024.
    ///
    /// If no notification comes soon, one wait in `quiet_waits_max + 1` spins without success. A
    /// sleep of at most three quarters of the longest spin is followed by a spin at once, whatever
    /// the value.
    pub quiet_waits_max: u32,
}

handover_base::setters!(Config { spin_max: Duration, spin_per_sleep: u32, quiet_waits_max: u32 });

impl Default for Config {
    fn default() -> Self {
        Self { spin_max: Duration::from_micros(50), spin_per_sleep: 2, quiet_waits_max: 1024 }
    }
}

impl Config {
    /// Returns a configuration that never spins. Each wait that finds nothing pending sleeps, and
    /// senders wake the receiver only while it sleeps.
    #[must_use]
    pub fn never_spin() -> Self {
        Self::default().spin_max(Duration::ZERO)
    }

    /// Returns a configuration for a receiver that has a CPU to itself: a wait spins for up to 16
    /// times the cost of a sleep, and at most 1 ms.
    ///
    /// A spin occupies a CPU for the whole wait, but finds the notification within half a
    /// microsecond, where a woken thread needs 4 to 30 µs. On two virtual machines the product of
    /// mean latency and CPU time was less than that of a sleep for waits of up to 32 µs, and about
    /// as great for waits of 64 µs. Where waits are longer than 16 times the cost of a sleep, the
    /// receiver sleeps at once.
    #[must_use]
    pub fn low_latency() -> Self {
        Self::default().spin_max(SPIN_LIMIT).spin_per_sleep(16)
    }

    /// Checks that each field is within its range.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        range::check("spin_max", self.spin_max, Duration::ZERO, SPIN_LIMIT)?;
        range::check("spin_per_sleep", self.spin_per_sleep, 1, SPIN_PER_SLEEP_LIMIT)?;
        range::check("quiet_waits_max", self.quiet_waits_max, 1, QUIET_WAITS_LIMIT)
    }
}
