//! Translation of trace events to the marks of a benchmark's hand-offs.

use crate::benchmark::{HandoffMark, InstrumentedBenchmark};
use crate::error::AnatomyError;
use crate::follow::MarkedEvent;
use handover_probe::read::{Event, Trace};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// Opens a recorded trace.
pub(crate) fn open_trace(path: &Path) -> Result<Trace, AnatomyError> {
    Trace::open(path).map_err(|source| AnatomyError::Read { path: path.to_owned(), source })
}

/// Translator of trace events to events with a meaning within hand-offs.
#[derive(Debug)]
pub(crate) struct MarkedEventReader {
    /// For each trace, the meaning of a site's events by the site's number.
    marks: Vec<HashMap<u32, HandoffMark>>,
    /// Index of each trace's first thread in `threads`.
    first_threads: Vec<u32>,
    /// Time after which no thread has lost events by overwriting. Earlier events are ignored.
    begin_ticks: u64,
    /// `true` once the first batch has started. The code is cold before.
    is_warm: bool,
    has_batches: bool,
    /// Kernel thread ids of all traces' threads.
    pub threads: Vec<u64>,
}

impl MarkedEventReader {
    pub fn new(benchmark: &InstrumentedBenchmark, traces: &[Trace<File>]) -> Self {
        let mut reader = Self {
            marks: Vec::new(),
            first_threads: Vec::new(),
            begin_ticks: 0,
            is_warm: false,
            has_batches: benchmark.has_batches(),
            threads: Vec::new(),
        };
        for trace in traces {
            let marks = trace.sites().into_iter().filter_map(|site| {
                let mark = benchmark.mark_of_site(&site.name)?;
                Some((site.number, mark))
            });
            reader.marks.push(marks.collect());
            reader.first_threads.push(reader.threads.len() as u32);
            for (index, thread) in trace.threads().iter().enumerate() {
                reader.threads.push(thread.tid);
                if thread.missing.overwritten > 0
                    && let Some(first) = trace.events(index).next()
                {
                    reader.begin_ticks = reader.begin_ticks.max(first.ticks);
                    // The first batches are among the overwritten events.
                    reader.is_warm = true;
                }
            }
        }
        reader
    }

    /// Returns the event's mark with its time, thread and values. Returns `None` if the site has no
    /// mark or the event precedes the evaluated time.
    pub fn marked_event(&mut self, trace: usize, event: &Event) -> Option<MarkedEvent> {
        let mark = *self.marks.get(trace)?.get(&event.site)?;
        self.is_warm |= mark == HandoffMark::Interrupt;
        if event.ticks < self.begin_ticks || (self.has_batches && !self.is_warm) {
            return None;
        }
        let mut values = [0; 2];
        values.iter_mut().zip(event.values()).for_each(|(to, value)| *to = *value);
        Some(MarkedEvent {
            mark,
            ticks: event.ticks,
            thread: self.first_threads[trace] + event.thread as u32,
            values,
            process: trace as u32,
        })
    }
}
