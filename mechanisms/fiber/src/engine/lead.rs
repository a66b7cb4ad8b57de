//! Estimate of how late the kernel ends sleeps, so that they can be requested earlier.

/// Time by which sleeps are requested to end before their deadline. A sleep ends late: the timer
/// interrupt, the exit from the CPU's idle state (expensive in a virtual machine) and the switch to
/// the thread take tens of µs. A thread that requests an end earlier by that time is punctual, and
/// spins for the rest. The lead follows the 25th percentile of the lateness, so that three quarters
/// of the sleeps do not spin at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SleepLead {
    /// Current lead, in ns.
    ns: u64,
}

/// Maximum time, in ns, by which a sleep is requested to end early. (Sleeps end later than this if
/// other threads use the CPU, against which a lead does not help.)
const LEAD_NS_MAX: u64 = 50_000;
/// Increase of the lead, in ns, after a sleep that ended later than the lead allows for. After
/// other sleeps the lead decreases by three times as much.
const STEP_NS: u64 = 500;
/// Minimum ratio of a sleep's duration to the lead of this sleep.
const SLEEP_PER_LEAD: u64 = 8;

impl SleepLead {
    /// Creates a lead of zero, to be used before any lateness was measured.
    pub(crate) const fn new() -> Self {
        Self { ns: 0 }
    }

    /// Returns the time, in ns, by which a sleep of `sleep_ns` is requested to end early.
    pub(crate) fn lead_ns(self, sleep_ns: u64) -> u64 {
        self.ns.min(sleep_ns / SLEEP_PER_LEAD)
    }

    /// Updates the lead after a sleep that was `late_ns` longer than requested.
    pub(crate) fn record_lateness(&mut self, late_ns: u64) {
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
    fn lead_follows_25th_percentile_of_lateness() {
        let mut lead = SleepLead::new();
        for round in 0..10_000 {
            lead.record_lateness(30_000 + (round % 4) * 5_000);
        }
        let ns = lead.lead_ns(u64::MAX);
        assert!((28_000..=36_000).contains(&ns), "{ns}");
    }

    #[test]
    fn lead_is_limited_for_long_delays_and_short_sleeps() {
        let mut lead = SleepLead::new();
        for _ in 0..10_000 {
            lead.record_lateness(10_000_000);
        }
        assert_eq!(lead.lead_ns(u64::MAX), LEAD_NS_MAX);
        assert_eq!(lead.lead_ns(8_000), 1_000);
    }
}
