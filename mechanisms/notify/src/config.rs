//! Configuration of adaptive receivers: spin duration, and retries of spinning.

use crate::ConfigError;
use handover_base::range;

/// Greatest valid value of [`Config::spin_ns_max`]: 1 ms. For longer spins, write a loop of your own.
const SPIN_NS_LIMIT: u32 = 1_000_000;
/// Greatest valid value of [`Config::quiet_waits_max`].
const QUIET_WAITS_LIMIT: u32 = 65_536;

/// Configuration of a receiver that spins adaptively before it sleeps.
///
/// ```
/// use handover_notify::Config;
/// let config = Config { spin_ns_max: 20_000, ..Config::default() };
/// config.validate()?;
/// assert_eq!(
///     Config { spin_ns_max: 2_000_000, ..config }.validate().unwrap_err().to_string(),
///     "spin_ns_max=2000000: must lie in 0..=1000000",
/// );
/// # Ok::<(), handover_notify::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Maximum time in ns that one wait spins before it sleeps; 0 never spins. Default 50,000.
    ///
    /// This is only a bound. Below it, a receiver spins for twice the cost of a sleep on this machine, which it
    /// measures (1 to 20 µs), and only while spinning pays. Lower it where CPU time matters more than latency.
    pub spin_ns_max: u32,
    /// Maximum number of consecutive waits that sleep without spinning. The next wait spins, to
    /// find out if spinning pays again. Default 64.
    ///
    /// If no notification comes soon, one wait in `quiet_waits_max + 1` spins without success. A
    /// greater value wastes less, a smaller one detects sooner that notifications come sooner.
    pub quiet_waits_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { spin_ns_max: 50_000, quiet_waits_max: 64 }
    }
}

impl Config {
    /// Returns a configuration that never spins. Each wait that finds nothing pending sleeps, and senders wake the
    /// receiver only while it sleeps.
    #[must_use]
    pub fn never_spin() -> Self {
        Self { spin_ns_max: 0, ..Self::default() }
    }

    /// Checks that `spin_ns_max` and `quiet_waits_max` are within their ranges.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        range::check("spin_ns_max", self.spin_ns_max, 0, SPIN_NS_LIMIT)?;
        range::check("quiet_waits_max", self.quiet_waits_max, 1, QUIET_WAITS_LIMIT)
    }
}
