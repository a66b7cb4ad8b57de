//! Estimate of a recording's cost per function, to choose functions to exclude from the next one.
//!
//! Source: scorep-score of Score-P (Knüpfer et al. 2012), which does this for its traces.

use crate::names::{NameId, SiteNames};
use crate::traces::Traces;
use crate::walk::{CallEnding, CompletedCall, EventPosition, TraceVisitor};
use handover_probe::lane::{BLOCK_HEADER_WORDS, BLOCK_WORDS};
use handover_probe::read::ReadAt;
use serde::Serialize;
use std::io;

/// Number and size of the events of one function or mark. A mark is an event without duration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FunctionCost {
    /// Name of the function or mark.
    pub name: String,
    /// Number of events. A call has two, a mark one.
    pub events: u64,
    /// Size of the events in a stream, in bytes.
    pub stream_bytes: u64,
    /// Size of the events in a ring, in bytes. Times are not packed there.
    pub ring_bytes: u64,
    /// Number of complete calls.
    pub calls: u64,
    /// Mean duration of a complete call; `None` without complete calls.
    pub mean_ns: Option<u64>,
    /// `true` if the suggested filter excludes the function from the next recording.
    pub is_left_out: bool,
}

/// Thresholds for the exclusion of a function from tracing. An excluded function has many events,
/// from calls so short that the probes are most of their duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExclusionLimits {
    /// Minimum share of all events, in per cent. A function with a smaller share is not excluded.
    pub share_percent_min: f64,
    /// Maximum mean duration of a call, in ns. A function with longer calls is not excluded.
    pub mean_ns_max: u64,
}

impl Default for ExclusionLimits {
    /// Returns 1 % of the events and 1 µs per call, as in scorep-score.
    fn default() -> Self {
        Self { share_percent_min: 1.0, mean_ns_max: 1_000 }
    }
}

/// Number and size of a recording's events, in all and with the suggested filter.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CostEstimate {
    /// All functions and marks, in descending order of their number of events.
    pub shares: Vec<FunctionCost>,
    /// Number of all events.
    pub events: u64,
    /// Size of all events in a stream, in bytes.
    pub stream_bytes: u64,
    /// Size of all events in a ring, in bytes.
    pub ring_bytes: u64,
    /// Suggested filter, a pattern for the next recording; `None` if no function should be
    /// excluded.
    pub filter: Option<String>,
    /// Number of events that remain with the suggested filter.
    pub events_left: u64,
    /// Approximate size of the remaining events in a stream, in bytes. It is approximate because
    /// the times between them grow.
    pub stream_bytes_left: u64,
}

/// Sums over all events of one name.
#[derive(Debug, Clone, Default)]
struct EventSums {
    events: u64,
    stream_bytes: u64,
    ring_bytes: u64,
    /// Number of complete calls.
    calls: u64,
    /// Total duration of the complete calls.
    total_ns: u64,
}

/// Number of words of a block of a ring without its header.
const BLOCK_EVENT_WORDS: u64 = BLOCK_WORDS - BLOCK_HEADER_WORDS;
/// Number of bits of the time and of the code of a packed event.
const PACKED_HALF_BITS: u32 = 16;
/// Size in bytes of a packed event.
const PACKED_BYTES: u64 = 4;

/// Event of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockEvent {
    name: NameId,
    /// Number of words of the event in a ring.
    words: u64,
    /// Size of the event in bytes as varints.
    varint_bytes: u64,
}

/// Events of one block of a ring. A stream has all of them packed, or all as varints: see
/// [`handover_probe::chunk`].
#[derive(Debug, Default)]
struct Block {
    events: Vec<BlockEvent>,
    /// Number of words of the events.
    words: u64,
    /// `true` if an event cannot be packed.
    has_varints: bool,
}

impl Block {
    /// Adds an event of the site `site`, `since` ticks after the event before.
    fn push(&mut self, name: NameId, since: u64, site: u32, values: &[u64]) {
        // The event's kind is in the two bits below the site's number.
        let code = u64::from(site) << 2;
        let values_bytes: u64 = values.iter().map(|value| varint_bytes(*value)).sum();
        let varint_bytes = varint_bytes(since) + varint_bytes(code) + values_bytes;
        let words = 1 + values.len() as u64;
        self.events.push(BlockEvent { name, words, varint_bytes });
        self.words += words;
        self.has_varints |= !values.is_empty() || (since | code) >> PACKED_HALF_BITS != 0;
    }

    /// Calls `add` with each event and its size in a stream, and starts the next block.
    fn finish(&mut self, mut add: impl FnMut(BlockEvent, u64)) {
        let has_varints = std::mem::take(&mut self.has_varints);
        self.words = 0;
        for event in self.events.drain(..) {
            add(event, if has_varints { event.varint_bytes } else { PACKED_BYTES });
        }
    }
}

/// Visitor that adds the durations of calls to the sums.
struct DurationSums<'a>(&'a mut [EventSums]);

impl TraceVisitor for DurationSums<'_> {
    fn leave_call(&mut self, _: &EventPosition, call: &CompletedCall) -> io::Result<()> {
        if call.ending == CallEnding::Returned {
            let sums = &mut self.0[call.name.index()];
            sums.calls += 1;
            sums.total_ns = sums.total_ns.saturating_add(call.total_ns);
        }
        Ok(())
    }
}

/// Counts events and bytes of each function, and suggests a filter.
///
/// # Errors
/// Only those of [`walk`](crate::walk), which returns a `Result`.
pub fn estimate<S: ReadAt>(
    traces: &Traces<S>,
    names: &SiteNames,
    limits: &ExclusionLimits,
) -> io::Result<CostEstimate> {
    let mut sums = vec![EventSums::default(); names.count()];
    for (process, trace) in traces.as_slice().iter().enumerate() {
        for thread in 0..trace.threads().len() {
            let mut last_ticks = None;
            let mut block = Block::default();
            let mut add = |event: BlockEvent, stream_bytes| {
                if names.is_selected(event.name) {
                    let sums = &mut sums[event.name.index()];
                    sums.events += 1;
                    sums.stream_bytes += stream_bytes;
                    sums.ring_bytes += 8 * event.words;
                }
            };
            for event in trace.events(thread) {
                let since = event.ticks.saturating_sub(last_ticks.unwrap_or(event.ticks));
                last_ticks = Some(event.ticks);
                let name = names.id_of_site(process, event.site);
                block.push(name, since, event.site, event.values());
                if block.words >= BLOCK_EVENT_WORDS {
                    block.finish(&mut add);
                }
            }
            block.finish(&mut add);
        }
    }
    crate::walk::walk(traces, names, &mut DurationSums(&mut sums))?;
    Ok(estimate_from(&sums, names, limits))
}

/// Computes the estimate from the sums over each name.
fn estimate_from(sums: &[EventSums], names: &SiteNames, limits: &ExclusionLimits) -> CostEstimate {
    let sum = |of: fn(&EventSums) -> u64| sums.iter().map(of).sum::<u64>();
    let events = sum(|sums| sums.events);
    let share = |(id, name): (NameId, &str)| {
        let sums = &sums[id.index()];
        let mean_ns = sums.total_ns.checked_div(sums.calls);
        let is_many = sums.events as f64 * 100.0 >= limits.share_percent_min * events as f64;
        let is_short = mean_ns.is_some_and(|mean_ns| mean_ns <= limits.mean_ns_max);
        (sums.events > 0).then(|| FunctionCost {
            name: name.to_owned(),
            events: sums.events,
            stream_bytes: sums.stream_bytes,
            ring_bytes: sums.ring_bytes,
            calls: sums.calls,
            mean_ns,
            is_left_out: is_many && is_short,
        })
    };
    let mut shares: Vec<FunctionCost> = names.iter().filter_map(share).collect();
    shares.sort_by(|one, other| {
        other.events.cmp(&one.events).then_with(|| one.name.cmp(&other.name))
    });
    let left_out: Vec<&FunctionCost> = shares.iter().filter(|share| share.is_left_out).collect();
    let patterns: Vec<String> = left_out.iter().map(|share| exclusion_of(&share.name)).collect();
    let (stream_bytes, ring_bytes) = (sum(|sums| sums.stream_bytes), sum(|sums| sums.ring_bytes));
    let out = |of: fn(&FunctionCost) -> u64| left_out.iter().map(|share| of(share)).sum::<u64>();
    CostEstimate {
        events,
        stream_bytes,
        ring_bytes,
        filter: (!patterns.is_empty()).then(|| patterns.join(",")),
        events_left: events - out(|share| share.events),
        stream_bytes_left: stream_bytes - out(|share| share.stream_bytes),
        shares,
    }
}

/// Returns a pattern that excludes `name`. Other special characters match themselves; a comma,
/// which would separate patterns, is replaced by `?`.
fn exclusion_of(name: &str) -> String {
    let plain = |c: char| if c == ',' { '?' } else { c };
    format!("-{}", name.chars().map(plain).collect::<String>())
}

/// Returns the length in bytes of a number encoded with 7 bits per byte.
fn varint_bytes(number: u64) -> u64 {
    u64::from((64 - (number | 1).leading_zeros()).div_ceil(7))
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_probe::matches;

    #[test]
    fn varint_length_is_one_byte_per_seven_bits() {
        for (number, bytes) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3)] {
            assert_eq!(varint_bytes(number), bytes, "{number}");
        }
        assert_eq!(varint_bytes(u64::MAX), 10);
    }

    #[test]
    fn events_of_a_block_are_packed_unless_one_does_not_fit() {
        let sizes = |last_since, last_values: &[u64]| {
            let mut block = Block::default();
            block.push(NameId(1), 5, 1, &[]);
            block.push(NameId(1), last_since, 1, last_values);
            let mut sizes = Vec::new();
            block.finish(|_, bytes| sizes.push(bytes));
            sizes
        };
        assert_eq!(sizes((1 << 16) - 1, &[]), [4, 4]);
        assert_eq!(sizes(1 << 16, &[]), [2, 4]);
        assert_eq!(sizes(5, &[1 << 7]), [2, 4]);
    }

    #[test]
    fn exclusion_pattern_excludes_exactly_its_name() {
        for name in ["a::b", "f(int, char*)", "operator*", "x?y", "-z"] {
            assert!(!matches(&exclusion_of(name), name), "{name}");
            assert!(matches(&exclusion_of(name), "other"), "{name}");
        }
    }
}
