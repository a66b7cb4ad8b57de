//! How long to spin, and how soon to try it again.

use crate::ConfigError;

/// The longest spin that may be configured: 1 ms. Beyond it, use a loop of your own.
const SPIN_NS_LIMIT: u32 = 1_000_000;
/// The longest time without spinning that may be configured, in waits.
const QUIET_WAITS_LIMIT: u32 = 65_536;

/// The two knobs of an adaptive receiver.
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
    /// How long one wait may spin at most before it sleeps, in ns; 0 never spins. Default 50,000.
    ///
    /// This is a lid. Below it, a receiver spins for twice what a sleep costs on this machine, which
    /// it measures (1 to 20 µs), and only while spinning pays. Lower it where CPU time is dearer
    /// than latency.
    pub spin_ns_max: u32,
    /// How many waits at most go straight to sleep before one spins again to see whether it would
    /// pay. Default 64.
    ///
    /// Where every notification is far away, one wait in `quiet_waits_max + 1` spins in vain.
    /// Greater wastes less, smaller notices sooner that notifications have come nearer.
    pub quiet_waits_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { spin_ns_max: 50_000, quiet_waits_max: 64 }
    }
}

impl Config {
    /// Never spins: each wait that finds nothing pending sleeps. Senders still wake only a sleeper.
    #[must_use]
    pub fn never_spin() -> Self {
        Self { spin_ns_max: 0, ..Self::default() }
    }

    /// Whether both knobs are within their ranges.
    ///
    /// # Errors
    /// [`ConfigError`] names the knob, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let within = |knob, value, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError::OutOfRange { knob, value, min, max })
            }
        };
        within("spin_ns_max", self.spin_ns_max, 0, SPIN_NS_LIMIT)?;
        within("quiet_waits_max", self.quiet_waits_max, 1, QUIET_WAITS_LIMIT)
    }
}
