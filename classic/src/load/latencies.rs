//! Latency statistics.

use super::schedule::Schedule;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Histogram with buckets of a fixed width.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinearHistogram {
    /// Width of a bucket, in ns.
    pub bucket_ns: u64,
    /// Number of values in each bucket; the last bucket includes all greater values.
    pub counts: Vec<u64>,
}

/// Maximum number of buckets; greater values are counted in the last.
const BUCKETS_MAX: usize = 1 << 20;

impl LinearHistogram {
    /// Creates an empty histogram with buckets of that width.
    #[must_use]
    pub fn new(bucket_ns: u64) -> Self {
        Self { bucket_ns: bucket_ns.max(1), counts: Vec::new() }
    }

    /// Adds `n` latencies of `ns` nanoseconds.
    pub fn record(&mut self, ns: u64, n: u64) {
        let step = usize::try_from(ns / self.bucket_ns).unwrap_or(usize::MAX).min(BUCKETS_MAX - 1);
        if step >= self.counts.len() {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += n;
    }

    /// Returns the lower bound in ns and the count of each non-empty bucket.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let begins = (0..).map(|index: u64| index * self.bucket_ns);
        begins.zip(self.counts.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// Adds the counts of another histogram with the same width.
    pub fn add(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (own, its) in self.counts.iter_mut().zip(&other.counts) {
            *own += its;
        }
    }
}

/// Messages of the slowest, the fastest and all connections that stayed open. Each connection sends
/// as fast as it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConnectionShares {
    /// Number of connections.
    pub connections_count: u64,
    /// Number of messages of all connections.
    pub messages_count: u64,
    /// Number of messages of the connection with the fewest messages.
    pub least_count: u64,
    /// Number of messages of the connection with the most messages.
    pub most_count: u64,
}

impl ConnectionShares {
    /// Adds a connection on which `messages_count` messages were echoed.
    pub fn record(&mut self, messages_count: u64) {
        let connections_count = 1;
        let (least_count, most_count) = (messages_count, messages_count);
        self.add(Self { connections_count, messages_count, least_count, most_count });
    }

    /// Adds the connections of another thread or process.
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

    /// Returns the shares of the slowest and the fastest connection, relative to an equal share.
    /// Returns `None` with fewer than two connections, or without messages.
    #[must_use]
    pub fn slowest_and_fastest(&self) -> Option<(f64, f64)> {
        let mean = self.messages_count as f64 / self.connections_count.max(1) as f64;
        let is_comparable = self.connections_count > 1 && self.messages_count > 0;
        is_comparable.then(|| (self.least_count as f64 / mean, self.most_count as f64 / mean))
    }
}

/// Histograms of the latencies of messages, in ns, with three significant digits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyHistograms {
    /// Latencies from the time of sending.
    #[serde(with = "as_base64")]
    pub raw: Histogram<u64>,
    /// Latencies from the due time, as a user observes them. Empty without a schedule.
    #[serde(with = "as_base64")]
    pub corrected: Histogram<u64>,
    /// Delays of sending that the load generator caused. Empty without a schedule.
    #[serde(with = "as_base64")]
    pub late: Histogram<u64>,
    /// Histogram of the latencies in `raw` with buckets of a fixed width, if requested.
    pub linear: Option<LinearHistogram>,
    /// Sum of the latencies in `raw`.
    pub sum_ns: u64,
}

impl LatencyHistograms {
    /// Creates empty histograms.
    #[must_use]
    pub fn new(linear_bucket_ns: Option<u64>) -> Self {
        Self {
            raw: empty_histogram(),
            corrected: empty_histogram(),
            late: empty_histogram(),
            linear: linear_bucket_ns.map(LinearHistogram::new),
            sum_ns: 0,
        }
    }

    /// Adds `n` messages with the latency `ns` from the time of sending.
    #[inline]
    pub fn record(&mut self, ns: u64, n: u64) {
        self.raw.saturating_record_n(ns, n);
        self.sum_ns = self.sum_ns.saturating_add(ns.saturating_mul(n));
        if let Some(linear) = &mut self.linear {
            linear.record(ns, n);
        }
    }

    /// Adds lower bounds of the latencies of unsent messages to `corrected`: the time from when
    /// each was due until now. The messages that fall into one bucket of the histogram are added
    /// together.
    pub(crate) fn record_unsent(&mut self, schedule: &Schedule, unsent: Range<u64>, now_ns: u64) {
        let mut index = unsent.start;
        while index < unsent.end {
            let latency_ns_min = now_ns.saturating_sub(schedule.due_ns(index));
            let bucket_ns = self.corrected.lowest_equivalent(latency_ns_min);
            let due_count = schedule.due_count(now_ns.saturating_sub(bucket_ns));
            let bucket_end = due_count.clamp(index + 1, unsent.end);
            self.corrected.saturating_record_n(latency_ns_min, bucket_end - index);
            index = bucket_end;
        }
    }

    /// Adds the latencies of another thread or process.
    pub fn add(&mut self, other: &Self) {
        for (own, its) in [
            (&mut self.raw, &other.raw),
            (&mut self.corrected, &other.corrected),
            (&mut self.late, &other.late),
        ] {
            // Cannot fail: all have the same bounds.
            let _ = own.add(its);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        match (&mut self.linear, &other.linear) {
            (Some(own), Some(its)) => own.add(its),
            (own @ None, Some(its)) => *own = Some(its.clone()),
            _ => {}
        }
    }

    /// Returns the number of messages whose latency was measured.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.raw.len()
    }

    /// Returns the mean latency; 0 without messages.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.count().max(1) as f64
    }
}

/// Serialisation of a histogram in the HdrHistogram format, encoded in base64.
mod as_base64 {
    use super::*;

    pub fn serialize<S: serde::Serializer>(
        histogram: &Histogram<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        // Writing to memory cannot fail.
        let _ = V2Serializer::new().serialize(histogram, &mut bytes);
        serializer.serialize_str(&BASE64.encode(bytes))
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Histogram<u64>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(text).map_err(D::Error::custom)?;
        Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(D::Error::custom)
    }
}

/// Maximum latency in the histograms: an hour. Greater latencies count as an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Creates an empty histogram with three significant digits. Its memory is touched only where
/// values are counted.
fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .expect("cannot create a histogram of 1 ns to 1 h with three digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_relative_to_an_equal_share() {
        let mut shares = ConnectionShares::default();
        assert_eq!(shares.slowest_and_fastest(), None);
        shares.record(30);
        assert_eq!(shares.slowest_and_fastest(), None);
        let mut others = ConnectionShares::default();
        others.record(10);
        others.record(20);
        shares.add(others);
        shares.add(ConnectionShares::default());
        assert_eq!(shares.slowest_and_fastest(), Some((0.5, 1.5)));
    }

    #[test]
    fn counts_of_two_threads_add_up() {
        let mut one = LatencyHistograms::new(Some(10_000));
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
    fn unsent_messages_are_recorded_like_one_by_one() {
        for (step_ns, now_ns) in [(1.0, 100_000), (7.3, 1_000_000), (1e9 / 3.0, 60_000_000_000)] {
            let schedule = Schedule::new(1000, step_ns).with_end_ns(now_ns / 2);
            let unsent = 5..schedule.due_count(now_ns);
            let mut expected = LatencyHistograms::new(None);
            for index in unsent.clone() {
                expected.corrected.saturating_record(now_ns - schedule.due_ns(index));
            }
            let mut latencies = LatencyHistograms::new(None);
            latencies.record_unsent(&schedule, unsent, now_ns);
            assert_eq!(latencies, expected, "{step_ns}");
        }
    }

    #[test]
    fn billions_of_unsent_messages_are_recorded_at_once() {
        let (schedule, now_ns) = (Schedule::new(0, 1.0), 600_000_000_000);
        let mut latencies = LatencyHistograms::new(None);
        latencies.record_unsent(&schedule, 0..schedule.due_count(now_ns), now_ns);
        assert_eq!(latencies.corrected.len(), now_ns + 1);
    }

    #[test]
    fn latency_beyond_the_last_bucket_is_counted_in_it() {
        let mut linear = LinearHistogram::new(1);
        linear.record(u64::MAX, 1);
        assert_eq!((linear.counts.len(), linear.counts[BUCKETS_MAX - 1]), (BUCKETS_MAX, 1));
    }
}
