//! How many fibers may run between two looks at the clock.

/// A look at the clock costs as much as a few switches; so there are many of those between two looks where
/// fibers run briefly, and one where they run long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    switches_count: u32,
}

/// Between two looks there are to be 2 to 8 µs.
const BETWEEN_NS_MIN: u64 = 2_000;
const BETWEEN_NS_MAX: u64 = 8_000;
const SWITCHES_MAX: u32 = 256;

impl Pace {
    /// Careful at first.
    pub(crate) const fn new() -> Self {
        Self { switches_count: 16 }
    }

    /// How many switches until the next look, as it has taken so long since the last one.
    pub(crate) fn next(&mut self, elapsed_ns: u64) -> u32 {
        if elapsed_ns > BETWEEN_NS_MAX {
            // Not by halves: one long run may stand for many to come.
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
    fn quick_switches_are_timed_rarely_and_long_ones_each() {
        let mut pace = Pace::new();
        for _ in 0..10 {
            pace.next(100);
        }
        assert_eq!(pace.next(100), SWITCHES_MAX);
        assert_eq!(pace.next(10_000_000), 1);
        assert_eq!(pace.next(10_000_000), 1);
        assert_eq!(pace.next(5_000), 1, "as it should be");
        assert_eq!(pace.next(1_000), 2);
    }
}
