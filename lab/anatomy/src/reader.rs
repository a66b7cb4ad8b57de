//! From the events of traces to what they say of hand-offs.

use crate::course::{Course, Mark};
use crate::follow::Told;
use handover_probe::read::{Event, Trace};
use std::collections::HashMap;
use std::fs::File;

/// Reads the events of one round.
#[derive(Debug)]
pub(crate) struct Reader {
    /// What the sites of each trace say, by their number.
    marks: Vec<HashMap<u32, Mark>>,
    /// Where the threads of each trace are among all.
    firsts: Vec<u32>,
    /// From then on every thread's events are there: what was before was overwritten by newer ones.
    begin_ticks: u64,
    /// From the first batch on: before, everything is cold.
    is_warm: bool,
    has_batches: bool,
    /// The kernel's number of each.
    pub threads: Vec<u64>,
}

impl Reader {
    pub fn new(course: &Course, traces: &[Trace<File>]) -> Self {
        let mut reader = Self {
            marks: Vec::new(),
            firsts: Vec::new(),
            begin_ticks: 0,
            is_warm: false,
            has_batches: course.has_batches(),
            threads: Vec::new(),
        };
        for trace in traces {
            let marks = trace.sites().into_iter().filter_map(|site| {
                let mark = course.mark(&site.name)?;
                Some((site.number, mark))
            });
            reader.marks.push(marks.collect());
            reader.firsts.push(reader.threads.len() as u32);
            for (index, thread) in trace.threads().iter().enumerate() {
                reader.threads.push(thread.tid);
                if thread.missing.overwritten > 0
                    && let Some(first) = trace.events(index).next()
                {
                    reader.begin_ticks = reader.begin_ticks.max(first.ticks);
                    // The first batches are among what was overwritten.
                    reader.is_warm = true;
                }
            }
        }
        reader
    }

    /// What an event says of a hand-off, if it does.
    pub fn told(&mut self, trace: usize, event: &Event) -> Option<Told> {
        let mark = *self.marks.get(trace)?.get(&event.site)?;
        self.is_warm |= mark == Mark::Break;
        if event.ticks < self.begin_ticks || (self.has_batches && !self.is_warm) {
            return None;
        }
        let mut values = [0; 2];
        values.iter_mut().zip(event.values()).for_each(|(to, value)| *to = *value);
        Some(Told {
            mark,
            ticks: event.ticks,
            thread: self.firsts[trace] + event.thread as u32,
            values,
            process: trace as u32,
        })
    }
}
