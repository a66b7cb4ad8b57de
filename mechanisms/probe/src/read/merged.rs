//! The events of several threads or processes in time order.

use super::events::{Event, Events};
use super::source::ReadAt;
use super::trace::Trace;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Iterator over the events of all threads of a trace; see [`Trace::merged_events`].
///
/// Among events with the same time stamp, the event of the thread that began earlier comes first.
#[derive(Debug)]
pub struct MergedEvents<'a, S>(MergedTraces<'a, S>);

impl<S: ReadAt> Trace<S> {
    /// Returns an iterator over the events of all threads, in time order.
    ///
    /// # Cost
    /// Memory for one chunk or block of each thread, some 200 kB.
    pub fn merged_events(&self) -> MergedEvents<'_, S> {
        MergedEvents(MergedTraces::new(std::slice::from_ref(self)))
    }
}

impl<S: ReadAt> Iterator for MergedEvents<'_, S> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.0.next().map(|(_, event)| event)
    }
}

/// Iterator over the events of several processes in time order; see [`merge`].
#[derive(Debug)]
pub struct MergedTraces<'a, S> {
    /// Threads of all traces: index of the trace, iterator over events, and next event.
    sources: Vec<(usize, Events<'a, S>, Option<Event>)>,
    /// Heap of the time of each source's next event, with the source's index. The current source,
    /// and sources without further events, are not in it.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    /// Index of the source of the latest event. The next event is mostly from the same source.
    current: Option<usize>,
}

/// Error of [`merge`]: the traces' time stamps are not comparable. They are of different clocks or
/// boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "trace {index} was recorded by another clock, or before or after a restart: its times cannot be compared with those of trace 0"
)]
pub struct MergeError {
    /// Index of the first trace whose clock or boot differs from those of trace 0.
    pub index: usize,
}

/// Returns an iterator over the events of several traces in time order. Each event comes with the
/// index of its trace.
///
/// # Errors
/// If they were not recorded on one machine, by the same clock, without a reboot in between.
pub fn merge<S: ReadAt>(traces: &[Trace<S>]) -> Result<MergedTraces<'_, S>, MergeError> {
    let differs = |trace: &Trace<S>| !trace.has_time_line_of(&traces[0]);
    match traces.iter().position(differs) {
        Some(index) => Err(MergeError { index }),
        None => Ok(MergedTraces::new(traces)),
    }
}

impl<'a, S: ReadAt> MergedTraces<'a, S> {
    fn new(traces: &'a [Trace<S>]) -> Self {
        let mut merged = Self { sources: Vec::new(), next: BinaryHeap::new(), current: None };
        for (index, trace) in traces.iter().enumerate() {
            for thread in 0..trace.threads().len() {
                let mut events = trace.events(thread);
                let first = events.next();
                if let Some(first) = &first {
                    merged.next.push(Reverse((first.ticks, merged.sources.len())));
                }
                merged.sources.push((index, events, first));
            }
        }
        merged
    }

    /// Returns the number of threads that lack events because a file was truncated while it was
    /// open.
    #[must_use]
    pub fn truncated_threads_count(&self) -> u64 {
        self.sources.iter().map(|(_, events, _)| u64::from(events.is_truncated())).sum()
    }

    /// Returns the index of the source with the earliest event; `None` if there are no more events.
    #[inline]
    fn earliest(&mut self) -> Option<usize> {
        let current = self.current.and_then(|current| {
            self.sources[current].2.as_ref().map(|event| (event.ticks, current))
        });
        let source = match (current, self.next.peek()) {
            (Some(current), Some(Reverse(other))) if *other < current => {
                let Reverse((_, other)) = self.next.pop()?;
                self.next.push(Reverse(current));
                other
            }
            (Some((_, current)), _) => current,
            (None, _) => self.next.pop()?.0.1,
        };
        self.current = Some(source);
        Some(source)
    }
}

impl<S: ReadAt> Iterator for MergedTraces<'_, S> {
    type Item = (usize, Event);

    fn next(&mut self) -> Option<(usize, Event)> {
        let source = self.earliest()?;
        let (trace, events, next) = &mut self.sources[source];
        let event = std::mem::replace(next, events.next())?;
        Some((*trace, event))
    }
}
