//! Whether looking again and again is worth while before sleeping.

/// Decides, wait by wait, whether to spin: while that has paid lately, and from time to time to see
/// whether it would again.
#[derive(Debug, Clone, Copy)]
pub struct Spin {
    spin_ns_max: u64,
    /// Waits that go straight to sleep before the next spins.
    quiet_waits: u32,
    /// How many those were last time.
    quiet_before: u32,
}

/// The most waits without a spin.
const QUIET_WAITS_MAX: u32 = 64;

impl Spin {
    /// Spins for so long at most; 0 never spins.
    #[must_use]
    pub const fn new(spin_ns_max: u64) -> Self {
        Self { spin_ns_max, quiet_waits: 0, quiet_before: 0 }
    }

    /// For how long the wait that begins now should spin; 0 is not at all.
    pub fn begin(&mut self) -> u64 {
        if self.quiet_waits > 0 {
            self.quiet_waits -= 1;
            return 0;
        }
        self.spin_ns_max
    }

    /// How a wait that did spin has ended: with something to do, or in vain.
    pub fn ended(&mut self, paid: bool) {
        if paid {
            self.quiet_before = 0;
        } else {
            // In vain twice in a row: half as often each time.
            self.quiet_waits = self.quiet_before;
            self.quiet_before = (self.quiet_before * 2).clamp(1, QUIET_WAITS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_never_pays_one_wait_in_sixty_five_spins() {
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
