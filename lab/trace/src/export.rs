//! Traces in the formats of other tools. Each is written as the trace is read: memory for one stretch of
//! a thread, and for the names.

mod chrome;
mod csv;
mod folded;
mod perfetto;
mod sink;

use crate::names::Names;
use crate::traces::Traces;
use crate::tree::{CallTree, Grouping};
use crate::walk::{Found, walk};
use handover_probe::read::ReadAt;
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Perfetto's protobuf, for <https://ui.perfetto.dev> and `trace_processor`.
    Perfetto,
    /// The JSON of `chrome://tracing`, which many tools read; ten times as large.
    Chrome,
    /// A line a stack, with the ns in its last function alone, for `flamegraph.pl` and its kind.
    Folded,
    /// A line an event, in the order of time, as it was recorded: ends without beginnings too.
    Csv,
}

impl Format {
    /// All of them.
    pub const ALL: &[Format] = &[Format::Perfetto, Format::Chrome, Format::Folded, Format::Csv];

    /// What a file in this format is usually called behind its dot.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Format::Perfetto => "pftrace",
            Format::Chrome => "json",
            Format::Folded => "folded",
            Format::Csv => "csv",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Format::Perfetto => "perfetto",
            Format::Chrome => "chrome",
            Format::Folded => "folded",
            Format::Csv => "csv",
        })
    }
}

/// The text names no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write perfetto, chrome, folded or csv")]
pub struct FormatError;

impl FromStr for Format {
    type Err = FormatError;
    fn from_str(text: &str) -> Result<Self, FormatError> {
        Self::ALL.iter().find(|format| format.to_string() == text).copied().ok_or(FormatError)
    }
}

/// Writes traces in another format. What of them does not pair is counted in what is returned; in all
/// formats but CSV it is put right as [`walk`] does.
///
/// # Errors
/// When `out` cannot be written.
///
/// # Cost
/// Tens of ns an event. Memory does not grow with the events; folded stacks take some for each stack that
/// is different.
pub fn export<S: ReadAt>(
    traces: &Traces<S>,
    names: &Names,
    format: Format,
    grouping: Grouping,
    out: impl Write,
) -> io::Result<Found> {
    let mut sink = sink::Sink::new(out);
    let found = match format {
        Format::Perfetto => walk(traces, names, &mut perfetto::Perfetto::new(names, &mut sink))?,
        Format::Chrome => {
            let mut chrome = chrome::Chrome::begin(names, &mut sink)?;
            let found = walk(traces, names, &mut chrome)?;
            chrome.end()?;
            found
        }
        Format::Folded => {
            let mut tree = CallTree::new(grouping);
            let found = walk(traces, names, &mut tree)?;
            folded::write(&tree, names, &mut sink)?;
            found
        }
        Format::Csv => csv::write(traces, names, &mut sink)?,
    };
    sink.finish()?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_parse_as_they_print() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(*format));
            assert!(!format.extension().is_empty());
        }
        assert!("ctf".parse::<Format>().unwrap_err().to_string().contains("perfetto"));
    }
}
