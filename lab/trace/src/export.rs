//! Export of traces to the formats of other tools. Output is written while the trace is read:
//! memory holds only one chunk of a thread and the names.

mod chrome;
mod csv;
mod flamegraph;
mod folded;
mod perfetto;
mod sink;

use crate::names::SiteNames;
use crate::traces::Traces;
use crate::tree::{CallTree, TreeGrouping};
use crate::walk::{WalkCounts, walk};
use handover_probe::read::ReadAt;
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

/// Format in which a trace is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExportFormat {
    /// Perfetto's protobuf, for <https://ui.perfetto.dev> and `trace_processor`.
    Perfetto,
    /// JSON for `chrome://tracing`, which many tools read. It is many times as large as Perfetto's
    /// format.
    Chrome,
    /// Text with one line per call stack, for `flamegraph.pl` and similar tools. A line has the
    /// self time of the stack's last function, in ns.
    Folded,
    /// Flame graph: an SVG page that a browser shows.
    Flamegraph,
    /// CSV with one line per recorded event, ordered by time. Starts without an end and ends
    /// without a start are included.
    Csv,
}

impl ExportFormat {
    /// All formats.
    pub const ALL: &[ExportFormat] = &[
        ExportFormat::Perfetto,
        ExportFormat::Chrome,
        ExportFormat::Folded,
        ExportFormat::Flamegraph,
        ExportFormat::Csv,
    ];

    /// Returns the usual file extension of the format, without the dot.
    #[must_use]
    pub fn file_extension(self) -> &'static str {
        match self {
            ExportFormat::Perfetto => "pftrace",
            ExportFormat::Chrome => "json",
            ExportFormat::Folded => "folded",
            ExportFormat::Flamegraph => "svg",
            ExportFormat::Csv => "csv",
        }
    }
}

impl fmt::Display for ExportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ExportFormat::Perfetto => "perfetto",
            ExportFormat::Chrome => "chrome",
            ExportFormat::Folded => "folded",
            ExportFormat::Flamegraph => "flamegraph",
            ExportFormat::Csv => "csv",
        })
    }
}

/// Error for an unknown format name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the format must be perfetto, chrome, folded, flamegraph or csv")]
pub struct ExportFormatError;

impl FromStr for ExportFormat {
    type Err = ExportFormatError;
    fn from_str(text: &str) -> Result<Self, ExportFormatError> {
        Self::ALL.iter().find(|format| format.to_string() == text).copied().ok_or(ExportFormatError)
    }
}

/// Writes traces in the format `format`, and returns the counts of their events. All formats but
/// CSV repair unpaired events as [`walk`] does.
///
/// # Errors
/// If `out` cannot be written.
///
/// # Cost
/// Tens of ns per event. Memory does not grow with the number of events; folded stacks and flame
/// graphs take some for each distinct stack.
pub fn export<S: ReadAt>(
    traces: &Traces<S>,
    names: &SiteNames,
    format: ExportFormat,
    grouping: TreeGrouping,
    out: impl Write,
) -> io::Result<WalkCounts> {
    let mut sink = sink::ExportBuffer::new(out);
    let found = match format {
        ExportFormat::Perfetto => {
            let mut perfetto = perfetto::PerfettoWriter::new(names, &mut sink);
            let found = walk(traces, names, &mut perfetto)?;
            perfetto.finish()?;
            found
        }
        ExportFormat::Chrome => {
            let mut chrome = chrome::ChromeWriter::start_document(names, &mut sink)?;
            let found = walk(traces, names, &mut chrome)?;
            chrome.finish_document()?;
            found
        }
        ExportFormat::Folded | ExportFormat::Flamegraph => {
            let mut tree = CallTree::new(grouping);
            let found = walk(traces, names, &mut tree)?;
            match format {
                ExportFormat::Folded => folded::write_folded(&tree, names, &mut sink)?,
                _ => flamegraph::write_flamegraph(&tree, names, &mut sink)?,
            }
            found
        }
        ExportFormat::Csv => csv::write_csv(traces, names, &mut sink)?,
    };
    sink.finish()?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_parses_from_its_display() {
        for format in ExportFormat::ALL {
            assert_eq!(format.to_string().parse(), Ok(*format));
            assert!(!format.file_extension().is_empty());
        }
        assert!("ctf".parse::<ExportFormat>().unwrap_err().to_string().contains("perfetto"));
    }
}
