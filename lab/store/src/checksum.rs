//! Checksums of rows, which detect data that has changed on the disk.
//!
//! The CRC-32 of a row covers the columns that are read back and the id of its run. A run has,
//! besides that of its own row, the sum of the checksums of its records and names (`parts`), which
//! detects rows that were lost or moved to another run. Rows of schemas up to 3 have no checksum
//! until the store is vacuumed.

use flate2::Crc;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params};

/// Columns of a run's row that its checksum covers, in order.
pub(crate) struct RunFields<'a> {
    pub id: &'a str,
    pub started_unix_ns: i64,
    pub profile: &'a str,
    pub host: &'a str,
    pub version: &'a str,
    pub built_from: &'a str,
    pub complete: bool,
    pub body: &'a [u8],
}

impl RunFields<'_> {
    pub fn checksum(&self) -> i64 {
        let texts = [self.id, self.profile, self.host, self.version, self.built_from];
        let mut sum = Fields::default();
        texts.iter().for_each(|text| sum.add(text.as_bytes()));
        sum.add(&self.started_unix_ns.to_le_bytes());
        sum.add(&[u8::from(self.complete)]);
        sum.add(self.body);
        sum.end()
    }
}

/// Columns of a record's row that its checksum covers, with the run that the row belongs to.
pub(crate) struct RecordFields<'a> {
    pub run: &'a str,
    pub place: i64,
    pub id: &'a str,
    pub contender: &'a str,
    pub kind: &'a str,
    pub body: &'a [u8],
    pub rounds: Option<&'a [u8]>,
    pub histogram: ValueRef<'a>,
}

impl RecordFields<'_> {
    pub fn checksum(&self) -> i64 {
        let mut sum = Fields::default();
        let texts = [self.run, self.id, self.contender, self.kind];
        texts.iter().for_each(|text| sum.add(text.as_bytes()));
        sum.add(&self.place.to_le_bytes());
        sum.add(self.body);
        sum.add(&[u8::from(self.rounds.is_some())]);
        sum.add(self.rounds.unwrap_or_default());
        let (kind, histogram) = match self.histogram {
            ValueRef::Blob(bytes) => (1, bytes),
            ValueRef::Text(text) => (2, text),
            // Other types are refused when the row is unpacked.
            _ => (0, &[][..]),
        };
        sum.add(&[kind]);
        sum.add(histogram);
        sum.end()
    }
}

/// Returns the checksum of a run's name.
pub(crate) fn of_tag(run: &str, tag: &str) -> i64 {
    let mut sum = Fields::default();
    [run, tag].iter().for_each(|text| sum.add(text.as_bytes()));
    sum.end()
}

/// Adds `more`, which may be negative, to the sum of a run's parts. A run of an earlier schema has
/// no sum and gets none.
pub(crate) fn add_to_parts(connection: &Connection, run: i64, more: i64) -> rusqlite::Result<()> {
    let update = "UPDATE main.runs SET parts = parts + ?2 WHERE run = ?1 AND parts IS NOT NULL";
    connection.prepare_cached(update)?.execute(params![run, more]).map(drop)
}

/// Adds checksums to rows of earlier schemas, for their present content.
pub(crate) fn seal(connection: &Connection) -> rusqlite::Result<()> {
    let unsealed =
        "SELECT run, id, started_unix_ns, profile, host, version, built_from, complete, body
        FROM main.runs WHERE parts IS NULL";
    let mut runs = connection.prepare(unsealed)?;
    let mut rows = runs.query([])?;
    while let Some(row) = rows.next()? {
        let key: i64 = row.get(0)?;
        let id: String = row.get(1)?;
        let (profile, host): (String, String) = (row.get(3)?, row.get(4)?);
        let (version, built_from): (String, String) = (row.get(5)?, row.get(6)?);
        let body: Vec<u8> = row.get(8)?;
        let fields = RunFields {
            id: &id,
            started_unix_ns: row.get(2)?,
            profile: &profile,
            host: &host,
            version: &version,
            built_from: &built_from,
            complete: row.get(7)?,
            body: &body,
        };
        let parts = seal_records(connection, key, &id)? + seal_tags(connection, key, &id)?;
        connection
            .prepare_cached("UPDATE main.runs SET checksum = ?2, parts = ?3 WHERE run = ?1")?
            .execute(params![key, fields.checksum(), parts])?;
    }
    Ok(())
}

/// Adds checksums to the records of a run; returns their sum.
fn seal_records(connection: &Connection, run: i64, run_id: &str) -> rusqlite::Result<i64> {
    let query = "SELECT record, place, id, contender, kind, body, rounds, histogram
        FROM main.records WHERE run = ?";
    let mut records = connection.prepare_cached(query)?;
    let mut rows = records.query([run])?;
    let mut parts = 0;
    while let Some(row) = rows.next()? {
        let (id, contender, kind): (String, String, String) =
            (row.get(2)?, row.get(3)?, row.get(4)?);
        let (body, rounds): (Vec<u8>, Option<Vec<u8>>) = (row.get(5)?, row.get(6)?);
        let histogram: Value = row.get(7)?;
        let fields = RecordFields {
            run: run_id,
            place: row.get(1)?,
            id: &id,
            contender: &contender,
            kind: &kind,
            body: &body,
            rounds: rounds.as_deref(),
            histogram: (&histogram).into(),
        };
        let checksum = fields.checksum();
        connection
            .prepare_cached("UPDATE main.records SET checksum = ?2 WHERE record = ?1")?
            .execute(params![row.get::<_, i64>(0)?, checksum])?;
        parts += checksum;
    }
    Ok(parts)
}

/// Adds checksums to the names of a run; returns their sum.
fn seal_tags(connection: &Connection, run: i64, run_id: &str) -> rusqlite::Result<i64> {
    let mut tags = connection.prepare_cached("SELECT tag FROM main.tags WHERE run = ?")?;
    let mut rows = tags.query([run])?;
    let mut parts = 0;
    while let Some(row) = rows.next()? {
        let tag: String = row.get(0)?;
        let checksum = of_tag(run_id, &tag);
        connection
            .prepare_cached("UPDATE main.tags SET checksum = ?3 WHERE run = ?1 AND tag = ?2")?
            .execute(params![run, tag, checksum])?;
        parts += checksum;
    }
    Ok(parts)
}

/// Checksum of several fields, each preceded by its length, so that fields cannot shift into each
/// other.
#[derive(Default)]
struct Fields(Crc);

impl Fields {
    fn add(&mut self, field: &[u8]) {
        self.0.update(&(field.len() as u64).to_le_bytes());
        self.0.update(field);
    }

    fn end(self) -> i64 {
        i64::from(self.0.sum())
    }
}
