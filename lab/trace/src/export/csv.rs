//! Comma-separated values: one line per event, ordered by time, as recorded.
//!
//! Source: RFC 4180, except that lines end with a line feed alone.

use super::sink::{ExportBuffer, push_decimal, push_signed_decimal};
use crate::names::SiteNames;
use crate::traces::Traces;
use crate::walk::WalkCounts;
use handover_probe::read::{EventKind, ReadAt};
use std::io::{self, Write};

/// First line of the file: the names of the columns.
const HEADER: &[u8] = b"time_ns,pid,tid,thread,event,name,value,value_2\n";

/// Writes the events with selected names as CSV in time order, and returns their counts.
pub fn write_csv<S: ReadAt, W: Write>(
    traces: &Traces<S>,
    names: &SiteNames,
    sink: &mut ExportBuffer<W>,
) -> io::Result<WalkCounts> {
    let mut found = WalkCounts::default();
    let fields: Vec<String> = names.iter().map(|(_, name)| csv_field(name)).collect();
    let place = |trace: &handover_probe::read::Trace<S>| -> Vec<String> {
        let threads = trace.threads().iter();
        threads.map(|one| format!("{},{},{}", trace.pid(), one.tid, csv_field(&one.name))).collect()
    };
    let places: Vec<Vec<String>> = traces.as_slice().iter().map(place).collect();
    sink.buffer_mut().extend_from_slice(HEADER);
    let mut events = traces.merged_events();
    for (process, event) in events.by_ref() {
        let name = names.id_of_site(process, event.site);
        if !names.is_selected(name) {
            continue;
        }
        found.events += 1;
        let kind: &[u8] = match event.kind {
            EventKind::Enter => b",enter,",
            EventKind::Leave => b",leave,",
            _ => b",mark,",
        };
        let to = sink.buffer_mut();
        push_signed_decimal(to, traces.as_slice()[process].ns_from_ticks(event.ticks));
        to.push(b',');
        to.extend_from_slice(places[process][event.thread].as_bytes());
        to.extend_from_slice(kind);
        to.extend_from_slice(fields[name.index()].as_bytes());
        for index in 0..2 {
            to.push(b',');
            if let Some(value) = event.values().get(index) {
                push_decimal(to, *value);
            }
        }
        to.push(b'\n');
        sink.flush_if_full()?;
    }
    found.cut_short = events.truncated_threads_count();
    Ok(found)
}

/// Returns the text as a field of CSV, in quotes if necessary.
fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_separators_are_quoted() {
        assert_eq!(csv_field("a::b<c>"), "a::b<c>");
        assert_eq!(csv_field("f(int, \"x\")"), "\"f(int, \"\"x\"\")\"");
    }
}
