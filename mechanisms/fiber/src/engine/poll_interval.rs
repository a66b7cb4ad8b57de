//! Number of fiber switches between two clock reads.

/// Adaptive number of fiber switches between two clock reads. A clock read costs as much as a few
/// switches, so it is rare if fibers run briefly, and follows each switch if they run long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PollInterval {
    switches_count: u32,
}

/// Minimum intended time between two clock reads, in ns.
const BETWEEN_NS_MIN: u64 = 2_000;
/// Maximum intended time between two clock reads, in ns.
const BETWEEN_NS_MAX: u64 = 8_000;
/// Maximum number of switches between two clock reads.
const SWITCHES_MAX: u32 = 256;

impl PollInterval {
    /// Creates an interval of 16 switches.
    pub(crate) const fn new() -> Self {
        Self { switches_count: 16 }
    }

    /// Returns the number of switches until the next clock read. `elapsed_ns` is the time since the
    /// last one.
    pub(crate) fn next_switches_count(&mut self, elapsed_ns: u64) -> u32 {
        if elapsed_ns > BETWEEN_NS_MAX {
            // Scaled down at once rather than halved: one long run may be the first of many.
            let fair = u64::from(self.switches_count) * BETWEEN_NS_MAX / elapsed_ns;
            self.switches_count = u32::try_from(fair).unwrap_or(SWITCHES_MAX).max(1);
        } else if elapsed_ns < BETWEEN_NS_MIN {
            self.switches_count = (2 * self.switches_count).min(SWITCHES_MAX);
        }
        self.switches_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_grows_for_short_runs_and_drops_to_one_for_long_runs() {
        let mut poll_interval = PollInterval::new();
        for _ in 0..10 {
            poll_interval.next_switches_count(100);
        }
        assert_eq!(poll_interval.next_switches_count(100), SWITCHES_MAX);
        assert_eq!(poll_interval.next_switches_count(10_000_000), 1);
        assert_eq!(poll_interval.next_switches_count(10_000_000), 1);
        assert_eq!(poll_interval.next_switches_count(5_000), 1, "runs of 5 µs");
        assert_eq!(poll_interval.next_switches_count(1_000), 2);
    }
}
