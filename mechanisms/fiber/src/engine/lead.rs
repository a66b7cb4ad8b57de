//! How much earlier than needed the kernel is to be asked to end a sleep.

/// A sleep ends late: the timer's interrupt, the way out of the CPU's idle state (dear in a virtual machine) and
/// the switch to the thread take tens of µs. Who asks for that much earlier is there in time, and spins for what is
/// left. This follows the lateness that a quarter of the sleeps stay below: so most do not spin at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lead {
    ns: u64,
}

/// However late sleeps end: who shares its CPU with others is late by their turns, which no spinning helps.
const LEAD_NS_MAX: u64 = 50_000;
/// What a sleep that ended later adds; one that ended sooner takes off three times as much.
const STEP_NS: u64 = 500;
/// At most such a part of a sleep is spent awake.
const SLEEP_PER_LEAD: u64 = 8;

impl Lead {
    /// Not known yet.
    pub(crate) const fn new() -> Self {
        Self { ns: 0 }
    }

    /// So much earlier, of a sleep that takes so long.
    pub(crate) fn ns(self, sleep_ns: u64) -> u64 {
        self.ns.min(sleep_ns / SLEEP_PER_LEAD)
    }

    /// A sleep has ended so much later than was asked for.
    pub(crate) fn learn(&mut self, late_ns: u64) {
        if late_ns > self.ns {
            self.ns = (self.ns + STEP_NS).min(LEAD_NS_MAX);
        } else {
            self.ns = self.ns.saturating_sub(3 * STEP_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_lateness_that_a_quarter_stays_below() {
        let mut lead = Lead::new();
        for round in 0..10_000 {
            lead.learn(30_000 + (round % 4) * 5_000);
        }
        let ns = lead.ns(u64::MAX);
        assert!((28_000..=36_000).contains(&ns), "{ns}");
    }

    #[test]
    fn neither_long_delays_nor_short_sleeps_make_it_spin_for_long() {
        let mut lead = Lead::new();
        for _ in 0..10_000 {
            lead.learn(10_000_000);
        }
        assert_eq!(lead.ns(u64::MAX), LEAD_NS_MAX);
        assert_eq!(lead.ns(8_000), 1_000);
    }
}
