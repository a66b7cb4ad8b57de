//! Bodies of runs and records: deflated JSON.
//!
//! Only bodies are read back in full, as only they preserve every byte (SQLite drops the sign of
//! -0.0 and has no u64). The other columns exist for lists and queries.

use crate::checksum;
use crate::error::StoreError;
use crate::finite;
use crate::lines::LINE_BYTES_MAX;
use crate::names::{check_names, check_run_id};
use crate::row::RunRow;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use handover_record::{Record, Run};
use rusqlite::Row;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};

/// Maximum size in bytes of the fields that an export line has besides its run or record. They are
/// its type, run id and schema.
const ENVELOPE_BYTES_MAX: usize = 256;

/// Run in its stored form. It has the columns of its row, and its compressed JSON.
pub(crate) struct PackedRun {
    /// Columns of the run's row.
    pub row: RunRow,
    /// Run as compressed JSON.
    pub body: Vec<u8>,
}

impl PackedRun {
    /// Converts a run to its stored form. Fails if its id, a name or a number is invalid, or the
    /// run is too long.
    pub fn new(run: &Run) -> Result<PackedRun, StoreError> {
        check_run_id(&run.id)?;
        let names = [
            ("profile", &run.profile),
            ("version", &run.version),
            ("commit", &run.commit),
            ("host.name", &run.host.name),
        ];
        let subject = format!("run {}", run.id);
        check_names(&subject, names)?;
        if let Some((field, value)) = finite::non_finite_in_run(run) {
            return Err(StoreError::NotFinite { subject, field, value });
        }
        let row = RunRow {
            id: run.id.clone(),
            started_unix_ns: run.started_unix_ns,
            profile: run.profile.clone(),
            host: run.host.name.clone(),
            version: run.version.clone(),
            command: run.command.clone(),
            commit: run.commit.clone(),
            records_count: 0,
            complete: run.complete,
            tags: Vec::new(),
            damage: None,
        };
        Ok(PackedRun { row, body: deflate(run, subject)? })
    }
}

/// Record in its stored form.
pub(crate) struct PackedRecord<'a> {
    pub record: &'a Record,
    /// Record as compressed JSON.
    pub body: Vec<u8>,
}

impl<'a> PackedRecord<'a> {
    /// Converts a record to its stored form. Fails if a name or a number in it is invalid, or the
    /// record is too long.
    pub fn new(record: &'a Record) -> Result<PackedRecord<'a>, StoreError> {
        let names = [("id", &record.id), ("spec", &record.spec), ("contender", &record.contender)];
        let keys = record.args.keys().chain(record.counters.keys());
        let keys = keys.map(|name| ("args or counters", name));
        check_names("a record", names.into_iter().chain(keys))?;
        let subject = format!("{id} of {contender}", id = record.id, contender = record.contender);
        if let Some((field, value)) = finite::non_finite_in_record(record) {
            return Err(StoreError::NotFinite { subject, field, value });
        }
        Ok(PackedRecord { record, body: deflate(record, subject)? })
    }
}

/// Decompresses the arguments of a record; `None` if the record is damaged.
pub(crate) fn unpack_args(body: &[u8]) -> Option<BTreeMap<String, u64>> {
    /// Record of which only the arguments are parsed.
    #[derive(Deserialize)]
    struct ArgsOnly {
        args: BTreeMap<String, u64>,
    }
    fn from_json(json: &[u8]) -> serde_json::Result<ArgsOnly> {
        serde_json::from_slice(json)
    }
    inflate(body, from_json).ok().map(|part| part.args)
}

/// Row of a record, as read from the database.
pub(crate) struct RecordRow {
    /// Number of the record within its run, from 0.
    place: i64,
    /// Id of the figure.
    id: String,
    /// Name of the contender.
    contender: String,
    /// Kind of the contender.
    kind: String,
    /// Record as compressed JSON.
    body: Vec<u8>,
    /// Stored checksum of the row.
    pub checksum: i64,
}

impl RecordRow {
    /// Columns of a query that [`from_row`](RecordRow::from_row) reads, in this order.
    pub const QUERY_COLUMNS: &str = "records.place, records.id, records.contender, records.kind, \
        records.body, records.checksum";
    /// Number of columns in [`QUERY_COLUMNS`](RecordRow::QUERY_COLUMNS).
    pub const QUERY_COLUMNS_COUNT: usize = 6;

    /// Reads a record from a row that begins with [`QUERY_COLUMNS`](RecordRow::QUERY_COLUMNS).
    pub fn from_row(row: &Row<'_>) -> rusqlite::Result<RecordRow> {
        Ok(RecordRow {
            place: row.get(0)?,
            id: row.get(1)?,
            contender: row.get(2)?,
            kind: row.get(3)?,
            body: row.get(4)?,
            checksum: row.get(5)?,
        })
    }

    /// Returns `true` if the row's checksum matches its content and its run.
    pub fn has_valid_checksum(&self, run: &str) -> bool {
        let RecordRow { place, id, contender, kind, body, checksum } = self;
        *checksum == checksum::record_checksum(run, *place, [id, contender, kind], body)
    }

    /// Decompresses the record. The error describes the damage of its row.
    pub fn unpack(&self) -> Result<Record, String> {
        inflate(&self.body, Record::from_json)
    }
}

/// Converts a run or a record to compressed JSON. Fails if its line in an export would be too long.
fn deflate(value: &impl Serialize, subject: String) -> Result<Vec<u8>, StoreError> {
    let unwritable = |error: std::io::Error| StoreError::Unwritable {
        path: subject.clone().into(),
        reason: error.to_string(),
    };
    let json = serde_json::to_vec(value).map_err(|error| unwritable(error.into()))?;
    let bytes = json.len() + ENVELOPE_BYTES_MAX;
    if bytes > LINE_BYTES_MAX {
        return Err(StoreError::TooLong { subject, bytes, bytes_max: LINE_BYTES_MAX });
    }
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&json).and_then(|()| packed.finish()).map_err(unwritable)
}

/// Decompresses the JSON of a run or a record, and parses it with `from_json`. The error describes
/// the damage.
pub(crate) fn inflate<T>(
    body: &[u8],
    from_json: fn(&[u8]) -> serde_json::Result<T>,
) -> Result<T, String> {
    let mut json = Vec::new();
    // A few bytes from an untrusted file may inflate to gigabytes.
    let mut bounded = ZlibDecoder::new(body).take(LINE_BYTES_MAX as u64 + 1);
    bounded
        .read_to_end(&mut json)
        .map_err(|error| format!("cannot decompress the stored JSON: {error}"))?;
    if json.len() > LINE_BYTES_MAX {
        return Err(format!("the stored JSON inflates to more than {LINE_BYTES_MAX} bytes"));
    }
    from_json(&json).map_err(|error| format!("cannot parse the stored JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    fn from_json<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
        serde_json::from_slice(json)
    }

    #[test]
    fn truncated_changed_or_oversized_body_is_refused() {
        let body = deflate(&[1.5, -0.0], String::new()).expect("compress the text");
        assert_eq!(inflate::<Vec<f64>>(&body, from_json), Ok(vec![1.5, -0.0]));
        for end in 0..body.len() {
            assert!(
                inflate::<Value>(&body[..end], from_json).is_err(),
                "inflated a body cut to {end} of {} bytes",
                body.len()
            );
        }
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&vec![b' '; LINE_BYTES_MAX + 1]).expect("compress the text");
        let body = packed.finish().expect("compress the text");
        let error = inflate::<Value>(&body, from_json).expect_err("too long");
        assert!(error.contains("inflates to more than"), "{error}");
    }

    proptest! {
        #[test]
        fn random_bytes_are_unpacked_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            text in ".*",
        ) {
            let _ = inflate(&bytes, Run::from_json);
            let _ = inflate(&bytes, Record::from_json);
            let _ = unpack_args(&bytes);
            for json in [&bytes[..], text.as_bytes()] {
                let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
                let body = packed.write_all(json).and_then(|()| packed.finish()).expect("compress the text");
                let _ = inflate(&body, Run::from_json);
                let _ = inflate(&body, Record::from_json);
                let _ = unpack_args(&body);
            }
        }
    }
}
