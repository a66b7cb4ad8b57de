//! Lines of an export; the input is not trusted.

use crate::error::ImportError;
use crate::names::{check_tag, truncated_for_error};
use handover_record::{JSON_SCHEMA_VERSION, Record, Run};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::{BufRead, Read};

/// Maximum length of a line of an export, in bytes. It also limits a stored run or record, and is
/// some 200 times the usual length.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// Line of an export that contains a run. The lines of its records follow.
#[derive(Serialize)]
#[serde(tag = "type", rename = "run")]
pub(crate) struct RunLine<'a> {
    /// Version of the JSON form.
    pub schema: u32,
    #[serde(flatten)]
    pub run: &'a Run,
    /// Names of the run.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub tags: &'a [String],
}

/// Line of an export that contains a record of the preceding run.
#[derive(Serialize)]
#[serde(tag = "type", rename = "record")]
pub(crate) struct RecordLine<'a> {
    /// Id of the record's run.
    pub run: &'a str,
    #[serde(flatten)]
    pub record: &'a Record,
}

/// Parsed line of an export: a run with its names, or a record.
pub(crate) enum ExportLine {
    Run(Box<Run>, Vec<String>),
    Record(Box<Record>),
}

/// Fields of a line that identify its content. Other fields are skipped without allocating.
#[derive(Deserialize)]
struct Envelope<'a> {
    /// Type of the export's line: `run` or `record`.
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    /// Version of the JSON form, in an export's line with a run.
    schema: Option<u32>,
    /// Id of the record's run, in an export's line with a record.
    #[serde(borrow)]
    run: Option<Cow<'a, str>>,
    /// Names of the run, in an export's line with a run.
    #[serde(default)]
    tags: Vec<String>,
}

/// Reader of an export's lines. It checks that each record belongs to the preceding run.
pub(crate) struct ExportLineReader<'a> {
    input: &'a mut dyn BufRead,
    /// Bytes of the line read last.
    buffer: Vec<u8>,
    /// Number of the line read last, from 1.
    pub number: u64,
    /// Id of the run that was read last; `None` before the first.
    run: Option<String>,
}

impl<'a> ExportLineReader<'a> {
    pub fn new(input: &'a mut dyn BufRead) -> ExportLineReader<'a> {
        ExportLineReader { input, buffer: Vec::new(), number: 0, run: None }
    }

    /// Reads and parses the next line that is not blank; `None` at the end of the input.
    pub fn read_line(&mut self) -> Result<Option<ExportLine>, ImportError> {
        loop {
            self.number += 1;
            self.buffer.clear();
            let line_and_newline_bytes_max = LINE_BYTES_MAX as u64 + 1;
            (&mut *self.input)
                .take(line_and_newline_bytes_max)
                .read_until(b'\n', &mut self.buffer)
                .map_err(ImportError::Read)?;
            if self.buffer.is_empty() {
                return Ok(None);
            }
            if self.buffer.last() == Some(&b'\n') {
                self.buffer.pop();
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(ImportError::TooLong { line: self.number, bytes_max: LINE_BYTES_MAX });
            }
            if !self.buffer.trim_ascii().is_empty() {
                let parsed = parse(&self.buffer, self.run.as_deref())
                    .map_err(|reason| ImportError::BadLine { line: self.number, reason })?;
                if let ExportLine::Run(run, _) = &parsed {
                    self.run = Some(run.id.clone());
                }
                return Ok(Some(parsed));
            }
        }
    }
}

/// Parses a line of an export. `open_run` is the id of the run whose records are being read.
fn parse(line: &[u8], open_run: Option<&str>) -> Result<ExportLine, String> {
    std::str::from_utf8(line).map_err(|error| {
        format!("invalid UTF-8 after byte {offset}", offset = error.valid_up_to())
    })?;
    let envelope: Envelope<'_> = serde_json::from_slice(line).map_err(message_with_column)?;
    match envelope.kind.as_deref() {
        Some("run") => match envelope.schema {
            Some(JSON_SCHEMA_VERSION) => {
                let run = Box::new(Run::from_json(line).map_err(message_with_column)?);
                for tag in &envelope.tags {
                    check_tag(tag).map_err(|error| error.to_string())?;
                }
                Ok(ExportLine::Run(run, envelope.tags))
            }
            Some(other) => Err(format!(
                "unknown schema {other}; this handover reads schema {JSON_SCHEMA_VERSION}"
            )),
            None => Err(format!("a run without \"schema\":{JSON_SCHEMA_VERSION}")),
        },
        Some("record") => match (envelope.run.as_deref(), open_run) {
            (Some(named), Some(open)) if named == open => {
                let record = Record::from_json(line).map_err(message_with_column)?;
                Ok(ExportLine::Record(Box::new(record)))
            }
            (Some(named), Some(open)) => Err(format!(
                "record of run {} among the records of run {open}",
                truncated_for_error(named)
            )),
            (Some(_), None) => Err("record before the first run".to_string()),
            (None, _) => Err("record without the field \"run\"".to_string()),
        },
        Some(other) => Err(format!(
            "\"type\" is {:?}, and must be \"run\" or \"record\"",
            truncated_for_error(other)
        )),
        None => Err("missing \"type\"; it must be \"run\" or \"record\"".to_string()),
    }
}

/// Returns the message of a JSON error with the column, but without the line number.
fn message_with_column(error: serde_json::Error) -> String {
    let column = error.column();
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((reason, _)) => {
            format!("{message} (column {column})", message = truncated_for_error(reason))
        }
        None => text,
    }
}
