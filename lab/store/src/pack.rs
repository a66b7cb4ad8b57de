//! Rows of runs and records: deflated JSON, with a record's rounds and histogram in columns of
//! their own.
//!
//! Only these three are read back, as only they preserve every byte (SQLite drops the sign of -0.0
//! and has no u64). The other columns exist for queries.
//!
//! Up to schema 2 the rounds were part of the JSON, which was deflated without a dictionary (a zlib
//! stream, whose first byte is never [`FORM`]), and the histogram was stored as written by
//! HdrHistogram. Such rows can still be read; [`vacuum`](crate::Store::vacuum) repacks them.

mod dictionary;
mod histogram;
mod rounds;

use crate::checksum::{RecordFields, RunFields};
use crate::error::StoreError;
use crate::finite;
use crate::lines::LINE_BYTES_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use handover_record::{Record, Run};
use rusqlite::Row;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

/// First byte of a body that was deflated with the dictionary, and whose rounds and packed
/// histogram are in columns of their own.
pub(crate) const FORM: u8 = 1;

/// Maximum size of an export line's fields besides the run or record: type, run id, schema.
const ENVELOPE_BYTES_MAX: usize = 256;

/// Run with the columns of its row.
pub(crate) struct PackedRun<'a> {
    pub run: &'a Run,
    pub body: Vec<u8>,
}

impl PackedRun<'_> {
    pub fn checksum(&self) -> i64 {
        RunFields {
            id: &self.run.id,
            started_unix_ns: self.run.started_unix_ns,
            profile: &self.run.profile,
            host: &self.run.host.name,
            version: &self.run.version,
            built_from: &self.run.commit,
            complete: self.run.complete,
            body: &self.body,
        }
        .checksum()
    }
}

impl<'a> PackedRun<'a> {
    /// Packs a run; refuses one that could not be looked up, exported or read again.
    pub fn new(run: &'a Run) -> Result<PackedRun<'a>, StoreError> {
        check_id(&run.id)?;
        let names = [
            ("profile", &run.profile),
            ("version", &run.version),
            ("commit", &run.commit),
            ("host.name", &run.host.name),
        ];
        let what = || format!("run {}", run.id);
        check_names(&what(), names)?;
        if let Some((field, value)) = finite::in_run(run) {
            return Err(StoreError::NotFinite { what: what(), field, value });
        }
        let json = json(run, 0, what)?;
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        let body = packed.write_all(&json).and_then(|()| packed.finish());
        Ok(PackedRun { run, body: body.map_err(|refused| unwritable(what(), refused))? })
    }
}

/// Record with the columns of its row.
pub(crate) struct PackedRecord<'a> {
    pub record: &'a Record,
    pub body: Vec<u8>,
    pub rounds: Vec<u8>,
    pub histogram: Histogram<'a>,
}

impl<'a> PackedRecord<'a> {
    /// Returns the checksum of the record's row at `place` of `run`.
    pub fn checksum(&self, run: &str, place: i64) -> i64 {
        RecordFields {
            run,
            place,
            id: &self.record.id,
            contender: &self.record.contender,
            kind: &self.record.kind.to_string(),
            body: &self.body,
            rounds: Some(&self.rounds),
            histogram: self.histogram.as_value(),
        }
        .checksum()
    }

    /// Packs a record; refuses one that could not be exported or read again.
    pub fn new(record: &'a Record) -> Result<PackedRecord<'a>, StoreError> {
        let names = [("id", &record.id), ("spec", &record.spec), ("contender", &record.contender)];
        let keys = record.args.keys().chain(record.counters.keys());
        let keys = keys.map(|name| ("args or counters", name));
        check_names("a record", names.into_iter().chain(keys))?;
        let what = || format!("{} of {}", record.id, record.contender);
        if let Some((field, value)) = finite::in_record(record) {
            return Err(StoreError::NotFinite { what: what(), field, value });
        }
        let bare = Record { histogram: String::new(), rounds: Vec::new(), ..record.clone() };
        let failed = |refused| unwritable(what(), refused);
        let rounds_bytes =
            serde_json::to_vec(&record.rounds).map_err(|refused| failed(refused.into()))?.len();
        // Base64 needs no escapes; another text may take six bytes per byte.
        let histogram = Histogram::of(&record.histogram);
        let histogram_bytes_max = match &histogram {
            Histogram::Bytes(_) => record.histogram.len(),
            Histogram::Text(text) => text.len().saturating_mul(6),
        };
        // The body contains the two brackets of the empty rounds.
        let beside_bytes = (rounds_bytes - 2).saturating_add(histogram_bytes_max);
        let json = json(&bare, beside_bytes, what)?;
        let mut body = vec![FORM];
        dictionary::deflate(&json, &mut body).map_err(failed)?;
        let rounds = rounds::pack(&record.rounds).map_err(failed)?;
        Ok(PackedRecord { record, body, rounds, histogram: histogram.packed() })
    }
}

/// Histogram: its bytes if its text is exactly their base64, otherwise the text.
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

impl Histogram<'_> {
    fn packed(self) -> Self {
        match self {
            Histogram::Bytes(bytes) => Histogram::Bytes(histogram::pack(&bytes)),
            text => text,
        }
    }

    fn as_value(&self) -> ValueRef<'_> {
        match self {
            Histogram::Bytes(bytes) => ValueRef::Blob(bytes),
            Histogram::Text(text) => ValueRef::Text(text.as_bytes()),
        }
    }
}

impl rusqlite::ToSql for Histogram<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.as_value()))
    }
}

/// Unpacks a run, or returns a description of the row's error.
pub(crate) fn unpack_run(body: &[u8]) -> Result<Run, String> {
    inflate(body)
}

/// Unpacks the arguments of a record, if its body can be read.
pub(crate) fn unpack_args(body: &[u8]) -> Option<BTreeMap<String, u64>> {
    #[derive(Deserialize)]
    struct Part {
        args: BTreeMap<String, u64>,
    }
    unpack_body(body).ok().map(|part: Part| part.args)
}

/// Row of a record.
pub(crate) struct Packed {
    place: i64,
    id: String,
    contender: String,
    kind: String,
    body: Vec<u8>,
    rounds: Option<Vec<u8>>,
    histogram: Value,
    /// Checksum of the row; `None` for rows of schemas up to 3.
    pub checksum: Option<i64>,
}

impl Packed {
    /// Columns in the order in which [`of`](Packed::of) reads them.
    pub const COLUMNS: &str = "records.place, records.id, records.contender, records.kind, \
        records.body, records.rounds, records.histogram, records.checksum";
    pub const COUNT: usize = 8;

    /// Reads a row that begins with [`COLUMNS`](Packed::COLUMNS).
    pub fn of(row: &Row<'_>) -> rusqlite::Result<Packed> {
        Ok(Packed {
            place: row.get(0)?,
            id: row.get(1)?,
            contender: row.get(2)?,
            kind: row.get(3)?,
            body: row.get(4)?,
            rounds: row.get(5)?,
            histogram: row.get(6)?,
            checksum: row.get(7)?,
        })
    }

    /// Returns `true` if the row has no checksum, or one that matches its content and its run.
    pub fn is_sound(&self, run: &str) -> bool {
        let fields = RecordFields {
            run,
            place: self.place,
            id: &self.id,
            contender: &self.contender,
            kind: &self.kind,
            body: &self.body,
            rounds: self.rounds.as_deref(),
            histogram: (&self.histogram).into(),
        };
        self.checksum.is_none_or(|checksum| checksum == fields.checksum())
    }

    /// Unpacks the record without its histogram, or returns a description of the row's error.
    pub fn unpack_bare(self) -> Result<Record, String> {
        Packed { histogram: Value::Text(String::new()), ..self }.unpack()
    }

    /// Unpacks the record without its histogram and its rounds, or returns a description of the
    /// row's error.
    pub fn unpack_figure(&self) -> Result<Record, String> {
        let record: Record = unpack_body(&self.body)?;
        Ok(Record { rounds: Vec::new(), ..record })
    }

    /// Unpacks the record, or returns a description of the row's error.
    pub fn unpack(self) -> Result<Record, String> {
        let mut record: Record = unpack_body(&self.body)?;
        let is_packed = self.body.first() == Some(&FORM);
        if let Some(packed) = self.rounds {
            record.rounds = rounds::unpack(&packed).map_err(|why| format!("rounds: {why}"))?;
        }
        record.histogram = match self.histogram {
            Value::Blob(packed) if is_packed => STANDARD
                .encode(histogram::unpack(&packed).map_err(|why| format!("a histogram: {why}"))?),
            Value::Blob(bytes) => STANDARD.encode(bytes),
            Value::Text(text) => text,
            other => return Err(format!("a histogram is {:?}", other.data_type())),
        };
        Ok(record)
    }
}

fn unwritable(what: String, refused: io::Error) -> StoreError {
    StoreError::Unwritable { path: what.into(), why: refused.to_string() }
}

/// Serializes a value, whose line has `beside_bytes` more bytes; refuses a line beyond the maximum.
fn json<T: Serialize>(
    value: &T,
    beside_bytes: usize,
    what: impl Fn() -> String,
) -> Result<Vec<u8>, StoreError> {
    let json = serde_json::to_vec(value).map_err(|refused| unwritable(what(), refused.into()))?;
    let bytes = json.len().saturating_add(beside_bytes).saturating_add(ENVELOPE_BYTES_MAX);
    match bytes <= LINE_BYTES_MAX {
        true => Ok(json),
        false => Err(StoreError::TooLong { what: what(), bytes, bytes_max: LINE_BYTES_MAX }),
    }
}

/// Unpacks a record's body of either form.
fn unpack_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    match body.split_first() {
        Some((&FORM, packed)) => dictionary::inflate(packed, LINE_BYTES_MAX)
            .and_then(|json| Ok(serde_json::from_slice(&json)?))
            .map_err(|refused| format!("a body: {refused}")),
        _ => inflate(body),
    }
}

fn inflate<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let mut json = Vec::new();
    // A few bytes from an untrusted file may inflate to gigabytes.
    let mut bounded = ZlibDecoder::new(body).take(LINE_BYTES_MAX as u64 + 1);
    bounded.read_to_end(&mut json).map_err(|refused| format!("a body: {refused}"))?;
    if json.len() > LINE_BYTES_MAX {
        return Err(format!("a body inflates to more than {LINE_BYTES_MAX} bytes"));
    }
    serde_json::from_slice(&json).map_err(|refused| format!("a body: {refused}"))
}

/// Checks that an id is valid on a command line and differs from `last` and `-1`.
pub(crate) fn check_id(id: &str) -> Result<(), StoreError> {
    const ID_BYTES_MAX: usize = 64;
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = (1..=ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(fit)
        && id.as_bytes()[0].is_ascii_alphanumeric()
        && id != "last";
    if fits { Ok(()) } else { Err(StoreError::BadRunId { id: shortened(id) }) }
}

/// Checks a name for runs: 1 to 64 letters, digits, `-`, `_`, `.`, `/`, `+` or `@`, the first a
/// letter, and not `last`. It is then valid on a command line, beside ids, `last` and `-1`, and in
/// a page.
///
/// # Errors
/// [`StoreError::BadTag`] if the name is not valid.
pub fn check_tag(name: &str) -> Result<(), StoreError> {
    const NAME_BYTES_MAX: usize = 64;
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./+@".contains(&byte);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(fit)
        && name.as_bytes()[0].is_ascii_alphabetic()
        && name != "last";
    if fits { Ok(()) } else { Err(StoreError::BadTag { name: shortened(name) }) }
}

/// Refuses names that do not fit on a terminal's line, or contain control characters.
fn check_names<'a>(
    what: &str,
    names: impl IntoIterator<Item = (&'static str, &'a String)>,
) -> Result<(), StoreError> {
    const NAME_CHARS_MAX: usize = 200;
    for (field, name) in names {
        let is_short = name.chars().nth(NAME_CHARS_MAX).is_none();
        if !is_short || name.chars().any(char::is_control) {
            return Err(StoreError::BadName {
                what: what.to_string(),
                field,
                name: shortened(name),
            });
        }
    }
    Ok(())
}

/// Returns the beginning of a text from elsewhere, for error messages.
pub(crate) fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 64;
    if text.chars().nth(CHARS_MAX).is_none() {
        return text.to_string();
    }
    let mut start: String = text.chars().take(CHARS_MAX).collect();
    start.push('…');
    start
}
