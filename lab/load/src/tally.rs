//! What was measured: how long messages took to come back.

use hdrhistogram::Histogram;

/// Counts by steps of a fixed width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linear {
    /// How wide a step is.
    pub step_ns: u64,
    /// How many there were in each; what is beyond the last step is counted in it.
    pub counts: Vec<u64>,
}

/// The most steps: what is slower is counted in the last.
const STEPS_MAX: usize = 1 << 20;

impl Linear {
    /// Nothing yet, in steps of that width.
    #[must_use]
    pub fn new(step_ns: u64) -> Self {
        Self { step_ns: step_ns.max(1), counts: Vec::new() }
    }

    /// Counts `n` of that length.
    pub fn record(&mut self, ns: u64, n: u64) {
        let step = usize::try_from(ns / self.step_ns).unwrap_or(usize::MAX).min(STEPS_MAX - 1);
        if step >= self.counts.len() {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += n;
    }

    /// Each step that there was something in: where it begins, in ns, and how many.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> {
        let begins = (0..).map(|index: u64| index * self.step_ns);
        begins.zip(self.counts.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// Adds what another of the same width has counted.
    pub fn add(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (own, its) in self.counts.iter_mut().zip(&other.counts) {
            *own += its;
        }
    }
}

/// How evenly connections were served that all wanted as much as they could get: what came back on each, of
/// those that lived until the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shares {
    /// How many connections.
    pub connections_count: u64,
    /// Messages of all of them.
    pub messages_count: u64,
    /// Messages of the one with the fewest.
    pub least_count: u64,
    /// Messages of the one with the most.
    pub most_count: u64,
}

impl Shares {
    /// One more connection, on which so many came back.
    pub fn record(&mut self, messages_count: u64) {
        let connections_count = 1;
        let (least_count, most_count) = (messages_count, messages_count);
        self.add(Self { connections_count, messages_count, least_count, most_count });
    }

    /// Adds those of another thread, or process.
    pub fn add(&mut self, other: Self) {
        self.least_count = match (self.connections_count, other.connections_count) {
            (_, 0) => self.least_count,
            (0, _) => other.least_count,
            _ => self.least_count.min(other.least_count),
        };
        self.most_count = self.most_count.max(other.most_count);
        self.connections_count += other.connections_count;
        self.messages_count += other.messages_count;
    }

    /// What the slowest and the fastest connection got of what each would have, had all got the same; None
    /// where there are not two, or nothing came back.
    #[must_use]
    pub fn slowest_and_fastest(&self) -> Option<(f64, f64)> {
        let mean = self.messages_count as f64 / self.connections_count.max(1) as f64;
        let is_told = self.connections_count > 1 && self.messages_count > 0;
        is_told.then(|| (self.least_count as f64 / mean, self.most_count as f64 / mean))
    }
}

/// How long messages took to come back, in ns, to three digits.
#[derive(Debug, Clone)]
pub struct Tally {
    /// From when they were sent.
    pub raw: Histogram<u64>,
    /// From when they were due: what a user saw who wanted his answer then. Empty without a schedule.
    pub corrected: Histogram<u64>,
    /// How late they were sent although nothing but we ourselves stood in the way. Empty without a
    /// schedule.
    pub late: Histogram<u64>,
    /// `raw` once more, by steps, if that was asked for.
    pub linear: Option<Linear>,
    /// The sum of `raw`.
    pub sum_ns: u64,
}

impl Tally {
    /// Nothing yet.
    #[must_use]
    pub fn new(linear_step_ns: Option<u64>) -> Self {
        Self {
            raw: empty(),
            corrected: empty(),
            late: empty(),
            linear: linear_step_ns.map(Linear::new),
            sum_ns: 0,
        }
    }

    /// `n` messages took that long from when they were sent.
    #[inline]
    pub fn record(&mut self, ns: u64, n: u64) {
        self.raw.saturating_record_n(ns, n);
        self.sum_ns = self.sum_ns.saturating_add(ns.saturating_mul(n));
        if let Some(linear) = &mut self.linear {
            linear.record(ns, n);
        }
    }

    /// Adds what another has measured.
    pub fn add(&mut self, other: &Self) {
        for (own, its) in [
            (&mut self.raw, &other.raw),
            (&mut self.corrected, &other.corrected),
            (&mut self.late, &other.late),
        ] {
            // All have the same bounds.
            let _ = own.add(its);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        match (&mut self.linear, &other.linear) {
            (Some(own), Some(its)) => own.add(its),
            (own @ None, Some(its)) => *own = Some(its.clone()),
            _ => {}
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.raw.len()
    }

    /// Their mean; 0 for none.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.count().max(1) as f64
    }
}

/// The slowest that is told apart, an hour; what is slower counts as that.
const SLOWEST_NS: u64 = 3_600_000_000_000;

/// Three digits; memory that is not counted in is not touched.
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, SLOWEST_NS, 3).expect("an hour in three digits can be had")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_each_would_have_had_if_all_had_had_the_same() {
        let mut shares = Shares::default();
        assert_eq!(shares.slowest_and_fastest(), None);
        shares.record(30);
        assert_eq!(shares.slowest_and_fastest(), None);
        let mut others = Shares::default();
        others.record(10);
        others.record(20);
        shares.add(others);
        shares.add(Shares::default());
        assert_eq!(shares.slowest_and_fastest(), Some((0.5, 1.5)));
    }

    #[test]
    fn what_two_have_counted_adds_up() {
        let mut one = Tally::new(Some(10_000));
        let mut other = one.clone();
        one.record(15_000, 2);
        other.record(44_295_000, 3);
        other.corrected.saturating_record(50);
        one.add(&other);
        assert_eq!((one.count(), one.corrected.len()), (5, 1));
        let linear = one.linear.as_ref().unwrap();
        assert_eq!((linear.counts[1], linear.counts[4429], linear.counts.len()), (2, 3, 4430));
        assert!((one.mean_ns() - 26_583_000.0).abs() < 1.0, "{}", one.mean_ns());
    }

    #[test]
    fn what_is_slower_than_the_last_step_is_in_it() {
        let mut linear = Linear::new(1);
        linear.record(u64::MAX, 1);
        assert_eq!((linear.counts.len(), linear.counts[STEPS_MAX - 1]), (STEPS_MAX, 1));
    }
}
