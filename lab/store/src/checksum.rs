//! Checksums of rows, which detect data that has changed on the disk.
//!
//! The CRC-32 of a row covers the columns that are read back and the id of its run. A run's row
//! also stores the sum of the checksums of its records and names (`parts`), which detects rows that
//! were lost or moved to another run.

use crate::row::RunRow;
use flate2::Crc;
use rusqlite::{Connection, params};

/// Returns the checksum of a run's row, computed from its columns and its compressed JSON.
pub(crate) fn run_checksum(row: &RunRow, body: &[u8]) -> i64 {
    let RunRow { id, started_unix_ns, profile, host, version, commit, complete, .. } = row;
    let texts = [id, profile, host, version, commit].map(|text| text.as_bytes());
    let others = [&started_unix_ns.to_le_bytes()[..], &[u8::from(*complete)], body];
    checksum_of_fields(texts.into_iter().chain(others))
}

/// Returns the checksum of a record's row. It is record number `place` of the run with the id
/// `run`. `texts` are the record's id, contender and kind.
pub(crate) fn record_checksum(run: &str, place: i64, texts: [&str; 3], body: &[u8]) -> i64 {
    let others = [run.as_bytes(), &place.to_le_bytes(), body];
    checksum_of_fields(texts.into_iter().map(str::as_bytes).chain(others))
}

/// Returns the checksum of the row of a run's name. `run` is the run's id, `tag` the name.
pub(crate) fn tag_checksum(run: &str, tag: &str) -> i64 {
    checksum_of_fields([run.as_bytes(), tag.as_bytes()])
}

/// Adds `difference` to the stored sum of the checksums of a run's records and names. It may be
/// negative.
pub(crate) fn add_to_parts_checksum(
    connection: &Connection,
    run: i64,
    difference: i64,
) -> rusqlite::Result<()> {
    let update = "UPDATE main.runs SET parts = parts + ?2 WHERE run = ?1";
    connection.prepare_cached(update)?.execute(params![run, difference]).map(drop)
}

/// Returns a checksum of fields and their lengths. Moving bytes between fields thus changes it.
fn checksum_of_fields<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> i64 {
    let mut sum = Crc::new();
    for field in fields {
        sum.update(&(field.len() as u64).to_le_bytes());
        sum.update(field);
    }
    i64::from(sum.sum())
}
