//! The events of several threads, and of several processes, in the order of time.

use super::{Event, Events, ReadAt, Trace};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The events of all threads of a trace; see [`Trace::merged`].
///
/// Of events with the same time stamp, that of the thread that began earlier comes first.
#[derive(Debug)]
pub struct Merged<'a, S>(MergedOf<'a, S>);

impl<'a, S: ReadAt> Merged<'a, S> {
    pub(super) fn new(trace: &'a Trace<S>) -> Self {
        Self(MergedOf::new(std::slice::from_ref(trace)))
    }
}

impl<S: ReadAt> Iterator for Merged<'_, S> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.0.next().map(|(_, event)| event)
    }
}

/// The events of several processes; see [`merge`].
#[derive(Debug)]
pub struct MergedOf<'a, S> {
    sources: Vec<(usize, Events<'a, S>, Option<Event>)>,
    /// The next event's time of each source that has one.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

/// Time stamps of these traces do not belong to one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "trace {index} was recorded by another clock, or before or after a restart: it has no place on the time line of the first"
)]
pub struct Incomparable {
    /// Which differs from the first.
    pub index: usize,
}

/// The events of several processes on one time line, each with the index of its trace.
///
/// # Errors
/// When they were not recorded on one machine without a restart between, by the same clock.
pub fn merge<S: ReadAt>(traces: &[Trace<S>]) -> Result<MergedOf<'_, S>, Incomparable> {
    let differs = |trace: &Trace<S>| trace.time_line() != traces[0].time_line();
    match traces.iter().position(differs) {
        Some(index) => Err(Incomparable { index }),
        None => Ok(MergedOf::new(traces)),
    }
}

impl<'a, S: ReadAt> MergedOf<'a, S> {
    fn new(traces: &'a [Trace<S>]) -> Self {
        let mut merged = Self { sources: Vec::new(), next: BinaryHeap::new() };
        for (index, trace) in traces.iter().enumerate() {
            for thread in 0..trace.threads().len() {
                merged.sources.push((index, trace.events(thread), None));
                merged.advance(merged.sources.len() - 1);
            }
        }
        merged
    }

    fn advance(&mut self, source: usize) -> Option<Event> {
        let (_, events, next) = &mut self.sources[source];
        let event = std::mem::replace(next, events.next());
        if let Some(next) = next {
            self.next.push(Reverse((next.ticks, source)));
        }
        event
    }
}

impl<S: ReadAt> Iterator for MergedOf<'_, S> {
    type Item = (usize, Event);

    fn next(&mut self) -> Option<(usize, Event)> {
        let Reverse((_, source)) = self.next.pop()?;
        let event = self.advance(source)?;
        Some((self.sources[source].0, event))
    }
}
