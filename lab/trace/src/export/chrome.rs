//! JSON of `chrome://tracing`: one begin, end or instant event per line.
//!
//! Source: the Trace Event Format of the Chromium project.

use super::sink::{ExportBuffer, push_decimal, push_signed_decimal};
use crate::names::{NameId, SiteNames};
use crate::walk::{CallEnding, CompletedCall, EventPosition, ThreadInfo, TraceVisitor};
use std::io::{self, Write};

/// Writer of the JSON format of `chrome://tracing`.
pub struct ChromeWriter<'a, W> {
    sink: &'a mut ExportBuffer<W>,
    /// JSON string of each name, by id.
    names: Vec<String>,
    /// JSON fields of the current thread: `,"pid":1,"tid":2`.
    thread_fields: Vec<u8>,
    /// Index of the current thread's process.
    process: Option<usize>,
    /// `true` until the first element of the JSON array is written.
    is_first: bool,
}

impl<'a, W: Write> ChromeWriter<'a, W> {
    /// Writes the beginning of the JSON document.
    pub fn start_document(names: &SiteNames, sink: &'a mut ExportBuffer<W>) -> io::Result<Self> {
        sink.buffer_mut().extend_from_slice(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
        let names = names.iter().map(|(_, name)| quoted(name)).collect();
        Ok(Self { sink, names, thread_fields: Vec::new(), process: None, is_first: true })
    }

    /// Writes the end of the JSON document.
    pub fn finish_document(self) -> io::Result<()> {
        self.sink.buffer_mut().extend_from_slice(b"\n]}\n");
        self.sink.flush_if_full()
    }

    /// Writes the name of a process or thread.
    fn write_metadata(&mut self, kind: &str, name: &str) -> io::Result<()> {
        let line =
            format!("{{\"ph\":\"M\",\"name\":\"{kind}\",\"args\":{{\"name\":{}}}", quoted(name));
        self.write_separator();
        let to = self.sink.buffer_mut();
        to.extend_from_slice(line.as_bytes());
        to.extend_from_slice(&self.thread_fields);
        to.push(b'}');
        self.sink.flush_if_full()
    }

    /// Writes a comma before all but the first element of the JSON array.
    #[inline]
    fn write_separator(&mut self) {
        let separator: &[u8] = if self.is_first { b"\n" } else { b",\n" };
        self.is_first = false;
        self.sink.buffer_mut().extend_from_slice(separator);
    }

    /// Writes the fields common to all events: phase, name, process, thread and time.
    #[inline]
    fn write_event_start(&mut self, at: &EventPosition, phase: &[u8], name: NameId) {
        self.write_separator();
        let to = self.sink.buffer_mut();
        to.extend_from_slice(b"{\"ph\":\"");
        to.extend_from_slice(phase);
        to.extend_from_slice(b"\",\"name\":");
        to.extend_from_slice(self.names[name.index()].as_bytes());
        to.extend_from_slice(b",\"ts\":");
        push_microseconds(to, at.ns);
        to.extend_from_slice(&self.thread_fields);
    }

    /// Writes the values of an event, and the end of its JSON object.
    fn write_values_and_end(&mut self, values: &[u64]) -> io::Result<()> {
        let to = self.sink.buffer_mut();
        for (index, value) in values.iter().enumerate() {
            let key: &[u8] = if index == 0 { b",\"args\":{\"value\":" } else { b",\"value 2\":" };
            to.extend_from_slice(key);
            push_signed_decimal(to, *value as i64);
        }
        to.extend_from_slice(if values.is_empty() { b"}" } else { b"}}" });
        self.sink.flush_if_full()
    }
}

impl<W: Write> TraceVisitor for ChromeWriter<'_, W> {
    fn start_thread(&mut self, process: usize, thread_info: &ThreadInfo<'_>) -> io::Result<()> {
        self.thread_fields =
            format!(",\"pid\":{},\"tid\":{}", thread_info.pid, thread_info.thread.tid).into_bytes();
        if self.process != Some(process) {
            self.process = Some(process);
            self.write_metadata(
                "process_name",
                thread_info.program.rsplit('/').next().unwrap_or_default(),
            )?;
        }
        self.write_metadata("thread_name", &thread_info.thread.name)
    }

    fn enter_call(&mut self, at: &EventPosition, name: NameId, values: &[u64]) -> io::Result<()> {
        self.write_event_start(at, b"B", name);
        self.write_values_and_end(values)
    }

    fn leave_call(&mut self, at: &EventPosition, call: &CompletedCall) -> io::Result<()> {
        self.write_event_start(at, b"E", call.name);
        if call.ending != CallEnding::Returned {
            self.sink.buffer_mut().extend_from_slice(b",\"args\":{\"end is missing\":true}");
        }
        self.write_values_and_end(&[])
    }

    fn visit_mark(&mut self, at: &EventPosition, name: NameId, values: &[u64]) -> io::Result<()> {
        self.write_event_start(at, b"i\",\"s\":\"t", name);
        self.write_values_and_end(values)
    }
}

/// Appends the time `ns` in µs, with three decimals.
#[inline]
fn push_microseconds(to: &mut Vec<u8>, ns: i64) {
    if ns < 0 {
        to.push(b'-');
    }
    let ns = ns.unsigned_abs();
    push_decimal(to, ns / 1_000);
    let part = ns % 1_000;
    to.push(b'.');
    for digit in [part / 100, part / 10 % 10, part % 10] {
        to.push(b'0' + digit as u8);
    }
}

/// Returns `text` as a JSON string, with its quotes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
