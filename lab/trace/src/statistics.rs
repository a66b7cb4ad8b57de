//! Cost of each function: calls, total and self time, and the distribution of durations.

use crate::names::{NameId, SiteNames};
use crate::walk::{CallEnding, CompletedCall, EventPosition, ThreadInfo, TraceVisitor};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::io;
use std::str::FromStr;

/// Number of significant digits in the histograms of durations. With two, the errors of p50 and p99
/// are below 1 %, and ten thousand functions fit into memory.
const SIGNIFICANT_DIGITS: u8 = 2;
/// Maximum duration in a histogram, in ns. Only a damaged trace has longer calls.
const DURATION_NS_MAX: u64 = u64::MAX / 4;

/// Statistics of a function or a mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FunctionStatistics {
    /// Name of the function or mark.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// Number of marks (events without duration) of this name.
    pub marks: u64,
    /// Number of threads that recorded a call or mark of this name.
    pub threads: u64,
    /// Time in the function and its callees. A call nested in a call of the same name is not
    /// counted again.
    pub total_ns: u64,
    /// Time in the function without its callees. The sum over all functions is the time of the
    /// outermost calls.
    pub self_ns: u64,
    /// Number of calls without a recorded end. They count in `total_ns` and `self_ns`, but not in
    /// `durations`.
    pub cut: u64,
    /// `true` if a thread that called the function has lost events. The self time may then include
    /// lost calls.
    pub has_losses: bool,
    /// Durations of complete calls; `None` if there are none.
    pub durations: Option<DurationDistribution>,
}

/// Distribution of the durations of a function's complete calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DurationDistribution {
    /// Shortest duration.
    pub min_ns: u64,
    /// Median duration, within 1 %.
    pub p50_ns: u64,
    /// 99th percentile of durations, within 1 %.
    pub p99_ns: u64,
    /// Longest duration.
    pub max_ns: u64,
}

/// Order in which functions are sorted: by name, or by a value in descending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum SortOrder {
    Total,
    #[default]
    SelfTime,
    Calls,
    Min,
    P50,
    P99,
    Max,
    Name,
}

impl SortOrder {
    /// All sort orders, with the names from which they are parsed.
    pub const ALL_WITH_NAMES: &[(&str, SortOrder)] = &[
        ("self", SortOrder::SelfTime),
        ("total", SortOrder::Total),
        ("calls", SortOrder::Calls),
        ("min", SortOrder::Min),
        ("p50", SortOrder::P50),
        ("p99", SortOrder::P99),
        ("max", SortOrder::Max),
        ("name", SortOrder::Name),
    ];
}

/// Error for an unknown sort order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sort order must be self, total, calls, min, p50, p99, max or name")]
pub struct SortOrderError;

impl FromStr for SortOrder {
    type Err = SortOrderError;
    fn from_str(text: &str) -> Result<Self, SortOrderError> {
        let named = Self::ALL_WITH_NAMES.iter().find(|(name, _)| *name == text);
        named.map(|(_, order)| *order).ok_or(SortOrderError)
    }
}

/// Sums over the calls and marks of one name.
#[derive(Debug, Default)]
struct FunctionSums {
    calls: u64,
    marks: u64,
    /// Number of threads that recorded a call or mark.
    threads: u64,
    /// Number, from 1, of the thread that was last counted in `threads`.
    thread: u64,
    /// Time in the function and its callees.
    total_ns: u64,
    /// Time in the function without its callees.
    self_ns: u64,
    /// Number of calls without a recorded end.
    cut: u64,
    /// `true` if a thread that called the function has lost events.
    has_losses: bool,
    /// Duration of the longest complete call.
    max_ns: u64,
    /// Duration of the shortest complete call.
    min_ns: u64,
    /// Distribution of the durations; `None` until the first complete call.
    histogram: Option<Histogram<u64>>,
}

/// Visitor that adds up the calls of a [`walk`](crate::walk).
#[derive(Debug, Default)]
pub struct CallStatistics {
    /// Sums over the calls and marks of each name, by the name's id.
    sums: Vec<FunctionSums>,
    /// Number of threads visited so far.
    threads: u64,
    /// `true` if the current thread has lost events.
    has_losses: bool,
}

impl CallStatistics {
    /// Creates empty statistics.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the statistics of each called function and each recorded mark, in the order `order`.
    #[must_use]
    pub fn functions(&self, names: &SiteNames, order: SortOrder) -> Vec<FunctionStatistics> {
        let function = |(id, name): (NameId, &str)| {
            let sums = self.sums.get(id.index()).filter(|sums| sums.calls + sums.marks > 0)?;
            Some(FunctionStatistics {
                name: name.to_owned(),
                calls: sums.calls,
                marks: sums.marks,
                threads: sums.threads,
                total_ns: sums.total_ns,
                self_ns: sums.self_ns,
                cut: sums.cut,
                has_losses: sums.has_losses,
                durations: sums.histogram.as_ref().map(|histogram| DurationDistribution {
                    min_ns: sums.min_ns,
                    p50_ns: histogram.value_at_quantile(0.5).clamp(sums.min_ns, sums.max_ns),
                    p99_ns: histogram.value_at_quantile(0.99).clamp(sums.min_ns, sums.max_ns),
                    max_ns: sums.max_ns,
                }),
            })
        };
        let mut functions: Vec<FunctionStatistics> = names.iter().filter_map(function).collect();
        functions.sort_by(|one, other| {
            let key = |function: &FunctionStatistics| sort_key(function, order);
            key(other).cmp(&key(one)).then_with(|| one.name.cmp(&other.name))
        });
        functions
    }

    /// Returns the time in all outermost calls. It equals the sum of all self times.
    #[must_use]
    pub fn outermost_calls_time_ns(&self) -> u64 {
        self.sums.iter().fold(0, |sum, sums| sum.saturating_add(sums.self_ns))
    }

    /// Returns the sums of `name`. Counts the current thread in them, unless it is counted.
    #[inline]
    fn sums(&mut self, name: NameId) -> &mut FunctionSums {
        if self.sums.len() <= name.index() {
            self.sums.resize_with(name.index() + 1, FunctionSums::default);
        }
        let sums = &mut self.sums[name.index()];
        if sums.thread != self.threads {
            sums.thread = self.threads;
            sums.threads += 1;
            sums.has_losses |= self.has_losses;
        }
        sums
    }
}

/// Returns the value by which functions are sorted in descending order. It is equal for all if they
/// are sorted by name.
fn sort_key(function: &FunctionStatistics, order: SortOrder) -> (u64, u64) {
    let duration =
        |value: fn(&DurationDistribution) -> u64| function.durations.as_ref().map_or(0, value);
    let first = match order {
        SortOrder::Total => function.total_ns,
        SortOrder::SelfTime => function.self_ns,
        SortOrder::Calls => function.calls,
        SortOrder::Min => duration(|durations| durations.min_ns),
        SortOrder::P50 => duration(|durations| durations.p50_ns),
        SortOrder::P99 => duration(|durations| durations.p99_ns),
        SortOrder::Max => duration(|durations| durations.max_ns),
        SortOrder::Name => return (0, 0),
    };
    (first, function.calls)
}

impl TraceVisitor for CallStatistics {
    fn start_thread(&mut self, _: usize, thread_info: &ThreadInfo<'_>) -> io::Result<()> {
        self.threads += 1;
        self.has_losses = thread_info.has_losses();
        Ok(())
    }

    fn leave_call(&mut self, _: &EventPosition, call: &CompletedCall) -> io::Result<()> {
        let sums = self.sums(call.name);
        sums.calls += 1;
        sums.self_ns = sums.self_ns.saturating_add(call.self_ns);
        if call.is_outermost {
            sums.total_ns = sums.total_ns.saturating_add(call.total_ns);
        }
        if call.ending != CallEnding::Returned {
            sums.cut += 1;
            return Ok(());
        }
        if sums.histogram.is_none() {
            sums.min_ns = u64::MAX;
            sums.histogram = Histogram::new(SIGNIFICANT_DIGITS).ok();
        }
        sums.min_ns = sums.min_ns.min(call.total_ns);
        sums.max_ns = sums.max_ns.max(call.total_ns);
        if let Some(histogram) = &mut sums.histogram {
            // The histogram resizes itself; values beyond its limit were clamped to a century.
            let _ = histogram.record(call.total_ns.min(DURATION_NS_MAX));
        }
        Ok(())
    }

    fn visit_mark(&mut self, _: &EventPosition, name: NameId, _: &[u64]) -> io::Result<()> {
        self.sums(name).marks += 1;
        Ok(())
    }
}
