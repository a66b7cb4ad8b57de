//! Decision to spin or not before sleeping.

/// Policy of spinning before a sleep. A wait spins while recent spins have found work, and
/// otherwise only from time to time, to find out if spinning pays again.
#[derive(Debug, Clone, Copy)]
pub struct SpinPolicy {
    spin_ns_max: u64,
    /// Number of waits that sleep without spinning before the next one that spins.
    sleeps_before_spin: u32,
    /// Next value of `sleeps_before_spin`; doubled after each spin that fails.
    next_sleeps_before_spin: u32,
}

/// Maximum number of waits without spinning between two waits that spin.
const SLEEPS_BEFORE_SPIN_MAX: u32 = 64;

impl SpinPolicy {
    /// Creates a policy that spins at most `spin_ns_max` ns per wait; 0 never spins.
    #[must_use]
    pub const fn new(spin_ns_max: u64) -> Self {
        Self { spin_ns_max, sleeps_before_spin: 0, next_sleeps_before_spin: 0 }
    }

    /// Returns the time, in ns, for which the wait that starts now should spin. 0 means to sleep at
    /// once.
    pub fn next_spin_ns(&mut self) -> u64 {
        if self.sleeps_before_spin > 0 {
            self.sleeps_before_spin -= 1;
            return 0;
        }
        self.spin_ns_max
    }

    /// Records whether a wait that spun has found work.
    pub fn record_spin(&mut self, has_found_work: bool) {
        if has_found_work {
            self.next_sleeps_before_spin = 0;
        } else {
            // From the second failure in a row on, each one halves the rate of spinning waits.
            self.sleeps_before_spin = self.next_sleeps_before_spin;
            self.next_sleeps_before_spin =
                (self.next_sleeps_before_spin * 2).clamp(1, SLEEPS_BEFORE_SPIN_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_without_success_drops_to_one_wait_in_65() {
        let mut spin = SpinPolicy::new(10);
        let mut spun = 0;
        for _ in 0..65_000 {
            if spin.next_spin_ns() > 0 {
                spun += 1;
                spin.record_spin(false);
            }
        }
        assert!((990..1_020).contains(&spun), "{spun} of 65,000 waits spun");
        spin.sleeps_before_spin = 0;
        spin.record_spin(true);
        assert_eq!(spin.next_spin_ns(), 10);
    }

    #[test]
    fn zero_never_spins() {
        assert_eq!(SpinPolicy::new(0).next_spin_ns(), 0);
    }
}
