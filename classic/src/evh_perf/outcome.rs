//! Result of a load, as the program judges and prints it.

use super::options::LatencyBounds;
use super::printer::{Printer, format_micros, format_seconds, format_with_commas};
use crate::load::{LinearHistogram, LoadReport};
use handover_base::units::format_ns;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::io;

/// Percentiles that are reported, with their names.
pub const PERCENTILES: [(f64, &str); 7] = [
    (50.0, "p50"),
    (90.0, "p90"),
    (99.0, "p99"),
    (99.9, "p99.9"),
    (99.99, "p99.99"),
    (99.999, "p99.999"),
    (100.0, "max"),
];

impl LoadReport {
    /// Returns the latencies from the due times or, in a closed loop, from the times of sending.
    pub fn judged_latencies(&self) -> &Histogram<u64> {
        match self.latencies.corrected.is_empty() {
            true => &self.latencies.raw,
            false => &self.latencies.corrected,
        }
    }

    /// Returns `true` if every expected echo was received and no connection failed. Also returns
    /// `true` if the load was stopped early.
    pub fn is_complete(&self) -> bool {
        self.is_stopped || self.lost_count == 0 && self.faults_count == 0
    }

    /// Describes each latency bound that was exceeded, with the measured value. Without a measured
    /// message, the bounds count as exceeded.
    pub fn describe_exceeded_bounds(&self, slo: &LatencyBounds) -> Vec<String> {
        let judged = self.judged_latencies();
        if judged.is_empty() {
            return vec!["no message was measured; measure for longer (--duration)".to_string()];
        }
        let over = slo.bounds.iter().filter_map(|&(percentile, bound_ns)| {
            let measured_ns = judged.value_at_percentile(percentile);
            (measured_ns > bound_ns).then(|| {
                let (measured, bound) = (format_ns(measured_ns as f64), format_ns(bound_ns as f64));
                format!("p{percentile} is {measured}, above the bound of {bound}")
            })
        });
        over.collect()
    }

    /// Describes missing messages and failed connections; `None` if there are none.
    pub fn describe_missing(&self) -> Option<String> {
        if self.is_complete() {
            return None;
        }
        let (lost, all) = (self.lost_count, self.lost_count + self.received_count);
        let first_fault = self.faults.first().map(|fault| format!(": {fault}")).unwrap_or_default();
        let connections = match self.faults_count {
            1 => "1 connection".to_string(),
            count => format!("{} connections", format_with_commas(count)),
        };
        if all == 0 {
            return Some(format!("no message was echoed; {connections} failed{first_fault}"));
        }
        let (lost, all) = (format_with_commas(lost), format_with_commas(all));
        Some(format!("{lost} of {all} messages are missing; {connections} failed{first_fault}"))
    }

    /// Prints the result as the last block of the classic program's output.
    pub fn print_result(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.print_rule()?;
        match self.describe_missing() {
            _ if self.is_stopped => {
                printer.print_info(format_args!("Perf test was interrupted."))?
            }
            None => printer.print_info(format_args!("Perf test completed successfully!"))?,
            Some(missing) => printer.print_error(format_args!("Perf test failed: {missing}"))?,
        }
        let (received, elapsed) =
            (format_with_commas(self.received_count), format_seconds(self.elapsed_ns));
        printer.print_info(format_args!("total_messages=[{received}],elapsed_time=[{elapsed}]"))?;
        let warming_up = self.received_count.saturating_sub(self.latencies.count());
        if warming_up > 0 {
            printer.print_info(format_args!(
                "of these [{}] were for warming up, and are in no figure below",
                format_with_commas(warming_up)
            ))?;
        }
        printer.print_info(format_args!(
            "messages_per_second=[{}],average_latency=[{}]",
            format_with_commas(self.per_second().round() as u64),
            format_micros(self.latencies.mean_ns())
        ))
    }

    /// Prints the histogram in the format of the classic program.
    pub fn print_histogram(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let Some(linear) = &self.latencies.linear else { return Ok(()) };
        let all: u64 = linear.counts.iter().sum();
        // As wide as the bounds of the last bucket.
        let (step_us, steps_count) = (linear.bucket_ns / 1000, linear.counts.len() as u64);
        let width = |us: u64| format!("{us}µs").chars().count();
        let low_width = width(steps_count.saturating_sub(1) * step_us);
        let high_width = width(steps_count * step_us);
        printer.print_rule()?;
        printer.print_plain(format_args!("Latency Histogram"))?;
        printer.print_rule()?;
        for (from_ns, count) in linear.buckets() {
            let [low, high] =
                [from_ns, from_ns + linear.bucket_ns].map(|ns| format!("{}µs", ns / 1000));
            let percent = count as f64 * 100.0 / all.max(1) as f64;
            // At most 100 characters.
            let bar = "=".repeat(percent.round() as usize);
            let count = format_with_commas(count);
            printer.print_plain(format_args!(
                "[{low:<low_width$} - {high:<high_width$}]{bar}> {count} ({percent:.2}%)"
            ))?;
        }
        printer.print_rule()
    }

    /// Prints latency percentiles, and the rates of the slowest and the fastest connection. The
    /// original program does not print them.
    pub fn print_percentiles(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.latencies.raw.is_empty() && self.latencies.corrected.is_empty() {
            return Ok(());
        }
        let is_open = !self.latencies.corrected.is_empty();
        let name = if is_open { "latency from when sent" } else { "latency" };
        printer.print_info(format_args!("{name}: {}", format_percentiles(&self.latencies.raw)))?;
        if is_open {
            printer.print_info(format_args!(
                "latency from when due: {}",
                format_percentiles(&self.latencies.corrected)
            ))?;
            printer.print_info(format_args!(
                "sent late by: {}",
                format_percentiles(&self.latencies.late)
            ))?;
        }
        if let Some((slowest, fastest)) = self.shares.slowest_and_fastest() {
            printer.print_info(format_args!(
                "connections: the slowest had {slowest:.2} of the mean rate, the fastest {fastest:.2}"
            ))?;
        }
        Ok(())
    }
}

/// Formats the percentiles in one line. Omits percentiles for which there are too few messages.
/// Returns `-` for an empty histogram.
pub fn format_percentiles(histogram: &Histogram<u64>) -> String {
    if histogram.is_empty() {
        return "-".to_string();
    }
    let parts: Vec<String> = percentiles(histogram)
        .map(|(name, ns)| format!("{name} {}", format_ns(ns as f64)))
        .collect();
    parts.join(", ")
}

/// Returns the names and values of the percentiles, and of the maximum. Percentiles above which
/// less than one message lies are omitted.
pub fn percentiles(histogram: &Histogram<u64>) -> impl Iterator<Item = (&'static str, u64)> {
    let beyond = |percentile: f64| histogram.len() as f64 * (100.0 - percentile) / 100.0;
    PERCENTILES
        .into_iter()
        .filter(move |(percentile, _)| *percentile == 100.0 || beyond(*percentile) >= 1.0)
        .map(|(percentile, name)| (name, histogram.value_at_percentile(percentile)))
}

/// Returns a linear histogram as JSON. Each non-empty bucket has its lower bound in ns and its
/// count.
pub fn linear_to_json(linear: &LinearHistogram) -> Value {
    json!({ "step_ns": linear.bucket_ns, "counts": linear.buckets().collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(latencies_us: &[u64]) -> LoadReport {
        let mut report = LoadReport::new(Some(10_000));
        for us in latencies_us {
            report.latencies.record(us * 1000, 1);
        }
        let count = latencies_us.len() as u64;
        (report.sent_count, report.received_count) = (count, count);
        LoadReport { connected_count: 1, elapsed_ns: 130_000_000, busy_share: 0.5, ..report }
    }

    fn printed(f: impl FnOnce(&mut Printer<'_>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        f(&mut Printer::new(&mut out, false)).expect("write to memory");
        String::from_utf8(out).expect("the output is not UTF-8")
    }

    #[test]
    fn histogram_matches_the_documented_one_to_the_column() {
        let mut all = vec![44_295; 1];
        all.extend([105; 2].into_iter().chain([115; 3]).chain([145; 26]));
        let text = printed(|printer| outcome(&all).print_histogram(printer));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "Latency Histogram");
        assert_eq!(lines[3], "[100µs   - 110µs  ]======> 2 (6.25%)");
        assert_eq!(lines[4], "[110µs   - 120µs  ]=========> 3 (9.38%)");
        assert!(lines[5].starts_with("[140µs   - 150µs  ]===="), "{text}");
        assert_eq!(lines[6], "[44290µs - 44300µs]===> 1 (3.12%)");
        // 9.62 % are ten characters, and the columns are no wider than their numbers.
        let mut all = vec![5; 10];
        all.extend([995; 94]);
        let text = printed(|printer| outcome(&all).print_histogram(printer));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[3], "[0µs   - 10µs  ]==========> 10 (9.62%)");
        assert!(lines[4].starts_with("[990µs - 1000µs]==="), "{text}");
    }

    #[test]
    fn report_survives_json_round_trip() {
        let mut one = outcome(&[100, 200, 44_295]);
        one.faults = vec!["a fault".into()];
        let text = serde_json::to_string(&one).expect("serialize to JSON");
        let mut sum: LoadReport = serde_json::from_str(&text).expect("a report");
        assert_eq!(sum, one);
        sum.add(&one);
        assert_eq!((sum.received_count, sum.latencies.count(), sum.faults.len()), (6, 6, 2));
        assert_eq!(sum.latencies.linear.map(|linear| linear.counts[4429]), Some(2));
    }

    #[test]
    fn missing_messages_and_missed_bounds_are_printed_with_their_figures() {
        let mut it = outcome(&[100; 1000]);
        assert_eq!(it.describe_missing(), None);
        let slo: LatencyBounds = "p50=1ms,p99=50us".parse().expect("parse the bounds");
        assert_eq!(
            it.describe_exceeded_bounds(&slo),
            ["p99 is 100 µs, above the bound of 50.0 µs"]
        );
        (it.lost_count, it.faults_count, it.faults) =
            (2000, 1, vec!["the server closed it".into()]);
        let text = "2,000 of 3,000 messages are missing; 1 connection failed: the server closed it";
        assert_eq!(it.describe_missing().as_deref(), Some(text));
        (it.lost_count, it.received_count) = (0, 0);
        let text = "no message was echoed; 1 connection failed: the server closed it";
        assert_eq!(it.describe_missing().as_deref(), Some(text));
        it.is_stopped = true;
        assert_eq!(it.describe_missing(), None);
        let none = outcome(&[]).describe_exceeded_bounds(&slo);
        assert_eq!(none, ["no message was measured; measure for longer (--duration)"]);
    }

    #[test]
    fn percentile_of_the_slowest_message_alone_is_not_printed() {
        let it = outcome(&[100; 150]);
        let names: Vec<_> = percentiles(&it.latencies.raw).map(|(name, _)| name).collect();
        assert_eq!(names, ["p50", "p90", "p99", "max"]);
        assert_eq!(format_percentiles(&outcome(&[]).latencies.raw), "-");
    }
}
