//! Decision whether to spin before sleeping.

/// Adaptive decision, for each wait, whether to spin: yes while spinning has found work lately,
/// otherwise from time to time as a probe.
#[derive(Debug, Clone, Copy)]
pub struct Spin {
    spin_ns_max: u64,
    /// Number of waits that do not spin before the next one that does.
    quiet_waits: u32,
    /// Previous value of `quiet_waits`, doubled after each failure.
    quiet_before: u32,
}

/// Maximum number of waits between two that spin.
const QUIET_WAITS_MAX: u32 = 64;

impl Spin {
    /// Creates a decision that spins for `spin_ns_max` ns per wait at most; 0 never spins.
    #[must_use]
    pub const fn new(spin_ns_max: u64) -> Self {
        Self { spin_ns_max, quiet_waits: 0, quiet_before: 0 }
    }

    /// Returns the time for which the wait that begins now should spin, in ns; 0 is not at all.
    pub fn begin(&mut self) -> u64 {
        if self.quiet_waits > 0 {
            self.quiet_waits -= 1;
            return 0;
        }
        self.spin_ns_max
    }

    /// Records the result of a wait that did spin: `paid` if it found work.
    pub fn ended(&mut self, paid: bool) {
        if paid {
            self.quiet_before = 0;
        } else {
            // From the second failure in a row on, each one halves the rate of spinning waits.
            self.quiet_waits = self.quiet_before;
            self.quiet_before = (self.quiet_before * 2).clamp(1, QUIET_WAITS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_without_success_drops_to_one_wait_in_65() {
        let mut spin = Spin::new(10);
        let mut spun = 0;
        for _ in 0..65_000 {
            if spin.begin() > 0 {
                spun += 1;
                spin.ended(false);
            }
        }
        assert!((990..1_020).contains(&spun), "{spun} of 65,000 waits spun");
        spin.quiet_waits = 0;
        spin.ended(true);
        assert_eq!(spin.begin(), 10);
    }

    #[test]
    fn zero_never_spins() {
        assert_eq!(Spin::new(0).begin(), 0);
    }
}
