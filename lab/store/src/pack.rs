//! A record as the row that is kept: JSON, deflated, and the histogram beside it as bytes.
//!
//! The JSON is the truth, since it alone reads back to the byte (SQLite drops the sign of -0.0 and
//! knows no u64). The columns beside it are there to be asked for, and are never read back.

use crate::error::StoreError;
use crate::finite;
use crate::lines::LINE_BYTES_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use handover_record::{Record, Run};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};

/// What a line of an export holds besides the run or record: type, run id, schema.
const ENVELOPE_BYTES_MAX: usize = 256;

/// A run, ready for its row.
pub(crate) struct PackedRun<'a> {
    pub run: &'a Run,
    pub body: Vec<u8>,
}

impl<'a> PackedRun<'a> {
    /// Refuses what could not be asked for, exported or read again.
    pub fn new(run: &'a Run) -> Result<PackedRun<'a>, StoreError> {
        check_id(&run.id)?;
        let what = || format!("run {}", run.id);
        if let Some((field, value)) = finite::in_run(run) {
            return Err(StoreError::NotFinite { what: what(), field, value });
        }
        Ok(PackedRun { run, body: deflate(run, 0, what)? })
    }
}

/// A record, ready for its row.
pub(crate) struct PackedRecord<'a> {
    pub record: &'a Record,
    pub body: Vec<u8>,
    pub histogram: Histogram<'a>,
}

impl<'a> PackedRecord<'a> {
    /// Refuses what could not be exported or read again.
    pub fn new(record: &'a Record) -> Result<PackedRecord<'a>, StoreError> {
        let what = || format!("{} of {}", record.id, record.contender);
        if let Some((field, value)) = finite::in_record(record) {
            return Err(StoreError::NotFinite { what: what(), field, value });
        }
        let bare = Record { histogram: String::new(), ..record.clone() };
        // Base64 needs no escapes; other text might need six bytes for each of its own.
        let histogram_bytes_max = match Histogram::of(&record.histogram) {
            Histogram::Bytes(_) => record.histogram.len(),
            Histogram::Text(text) => text.len().saturating_mul(6),
        };
        let body = deflate(&bare, histogram_bytes_max, what)?;
        Ok(PackedRecord { record, body, histogram: Histogram::of(&record.histogram) })
    }
}

/// A histogram: bytes where its text is the base64 of them and of nothing else, otherwise as it came.
pub(crate) enum Histogram<'a> {
    Bytes(Vec<u8>),
    Text(&'a str),
}

impl<'a> Histogram<'a> {
    fn of(text: &'a str) -> Histogram<'a> {
        match STANDARD.decode(text) {
            Ok(bytes) if STANDARD.encode(&bytes) == text => Histogram::Bytes(bytes),
            _ => Histogram::Text(text),
        }
    }
}

impl rusqlite::ToSql for Histogram<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Histogram::Bytes(bytes) => ValueRef::Blob(bytes),
            Histogram::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// The run of a row, or what is wrong with the row.
pub(crate) fn unpack_run(body: &[u8]) -> Result<Run, String> {
    inflate(body)
}

/// The arguments of a record's row, if it can be read.
pub(crate) fn unpack_args(body: &[u8]) -> Option<BTreeMap<String, u64>> {
    #[derive(Deserialize)]
    struct Part {
        args: BTreeMap<String, u64>,
    }
    inflate(body).ok().map(|part: Part| part.args)
}

/// The record of a row, or what is wrong with the row.
pub(crate) fn unpack_record(body: &[u8], histogram: Value) -> Result<Record, String> {
    let mut record: Record = inflate(body)?;
    record.histogram = match histogram {
        Value::Blob(bytes) => STANDARD.encode(bytes),
        Value::Text(text) => text,
        other => return Err(format!("a histogram is {:?}", other.data_type())),
    };
    Ok(record)
}

fn deflate<T: Serialize>(
    value: &T,
    beside_bytes: usize,
    what: impl Fn() -> String,
) -> Result<Vec<u8>, StoreError> {
    let unwritable = |why: String| StoreError::Unwritable { path: what().into(), why };
    let json = serde_json::to_vec(value).map_err(|refused| unwritable(refused.to_string()))?;
    let bytes = json.len().saturating_add(beside_bytes).saturating_add(ENVELOPE_BYTES_MAX);
    if bytes > LINE_BYTES_MAX {
        return Err(StoreError::TooLong { what: what(), bytes, bytes_max: LINE_BYTES_MAX });
    }
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed
        .write_all(&json)
        .and_then(|()| packed.finish())
        .map_err(|refused| unwritable(refused.to_string()))
}

fn inflate<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let mut json = Vec::new();
    // A file from elsewhere may hold a few bytes that inflate to gigabytes.
    let mut bounded = ZlibDecoder::new(body).take(LINE_BYTES_MAX as u64 + 1);
    bounded.read_to_end(&mut json).map_err(|refused| format!("a body: {refused}"))?;
    if json.len() > LINE_BYTES_MAX {
        return Err(format!("a body inflates to more than {LINE_BYTES_MAX} bytes"));
    }
    serde_json::from_slice(&json).map_err(|refused| format!("a body: {refused}"))
}

/// An id must be fit for a command line, beside `last`, `-1` and prefixes.
pub(crate) fn check_id(id: &str) -> Result<(), StoreError> {
    const ID_BYTES_MAX: usize = 64;
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = (1..=ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(fit)
        && id.as_bytes()[0].is_ascii_alphanumeric()
        && id != "last";
    if fits { Ok(()) } else { Err(StoreError::BadRunId { id: shortened(id) }) }
}

/// Whether runs may have this name: 1 to 64 letters, digits, `-`, `_`, `.`, `/`, `+` or `@`, the first a
/// letter, and not `last`. It is then fit for a command line beside ids, `last` and `-1`, and for a page.
///
/// # Errors
/// [`StoreError::BadTag`].
pub fn check_tag(name: &str) -> Result<(), StoreError> {
    const NAME_BYTES_MAX: usize = 64;
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./+@".contains(&byte);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(fit)
        && name.as_bytes()[0].is_ascii_alphabetic()
        && name != "last";
    if fits { Ok(()) } else { Err(StoreError::BadTag { name: shortened(name) }) }
}

/// Enough of a text from elsewhere to recognise it by.
pub(crate) fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 64;
    if text.chars().nth(CHARS_MAX).is_none() {
        return text.to_string();
    }
    let mut start: String = text.chars().take(CHARS_MAX).collect();
    start.push('…');
    start
}
