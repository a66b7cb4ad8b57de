//! Storage and retrieval of runs and their records.

use crate::checksum::{self, add_to_parts_checksum};
use crate::error::StoreError;
use crate::file::{self, duration_to_ms};
use crate::names::truncated_for_error;
use crate::pack::{self, PackedRecord, PackedRun, RecordRow};
use crate::row::RunRow;
use crate::tags::TagRow;
use handover_record::{Document, Record, Run};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum time to wait for a write by another process. Such a write takes milliseconds.
const WRITE_WAIT: Duration = Duration::from_secs(10);

/// Maximum number of ids suggested in an error message.
const SUGGESTIONS_MAX: usize = 5;

/// Store of runs and their records in one SQLite file.
///
/// ```
/// # fn main() -> Result<(), handover_store::StoreError> {
/// # let folder = tempfile::tempdir().expect("create a temporary folder");
/// # let path = folder.path().join("results.db");
/// use handover_store::Store;
///
/// let store = Store::open(&path)?;
/// assert!(store.runs()?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Store {
    pub(crate) connection: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens a store for reading and writing. Creates the file and its folder if they do not exist.
    /// On return the file has its tables, its write lock was free, and a journal could be created:
    /// every condition for storing a run that can be checked in advance holds.
    ///
    /// # Errors
    /// If the file is not a store or has another schema, the path or folder cannot be written, or a
    /// lock is held for 2 s. An existing file is then unchanged, and no other file was created.
    ///
    /// # Blocking
    /// Up to 2 s for a lock.
    pub fn open(path: impl AsRef<Path>) -> Result<Store, StoreError> {
        let (connection, path) = file::open_for_writing(path.as_ref())?;
        let store = Store { connection, path };
        store.connection.busy_timeout(WRITE_WAIT).map_err(|error| store.sqlite_error(error))?;
        Ok(store)
    }

    /// Opens an existing store for reading, even if the file or its file system is read-only.
    ///
    /// # Errors
    /// Those of [`open`](Store::open); also if the file does not exist or contains no run.
    ///
    /// # Blocking
    /// Up to 2 s for a lock.
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Store, StoreError> {
        let (connection, path) = file::open_for_reading(path.as_ref())?;
        Ok(Store { connection, path })
    }

    /// Creates a store in memory. It is lost when it is dropped.
    ///
    /// # Errors
    /// If SQLite cannot allocate memory.
    pub fn open_in_memory() -> Result<Store, StoreError> {
        let (connection, path) = file::open_in_memory()?;
        Ok(Store { connection, path })
    }

    /// Returns the absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores a run at its start. Its records follow with
    /// [`insert_records`](Store::insert_records).
    ///
    /// # Errors
    /// If a run with this id exists, its id is not valid, a number in it is not finite, or the file
    /// cannot be written.
    pub fn begin_run(&mut self, run: &Run) -> Result<(), StoreError> {
        let packed = PackedRun::new(run)?;
        let (transaction, failed) = self.begin_write_transaction()?;
        if find_run_key(&transaction, &run.id).map_err(&failed)?.is_some() {
            return Err(StoreError::Duplicate { id: run.id.clone() });
        }
        insert_run(&transaction, &packed).map_err(&failed)?;
        transaction.commit().map_err(failed)
    }

    /// Stores the records of one benchmark: all or, on failure, none.
    ///
    /// On return they are durable: they survive the end of the process and a power failure.
    ///
    /// # Errors
    /// If there is no such run, a number is not finite, a record is too long, or the file cannot be
    /// written; everything stored before is unchanged.
    ///
    /// # Blocking
    /// Up to 10 s for another process's write; some milliseconds for the disk.
    pub fn insert_records(&mut self, run_id: &str, records: &[Record]) -> Result<(), StoreError> {
        self.write_records(run_id, records, false)
    }

    /// Stores the records of one benchmark, and replaces those with the same id, contender and
    /// arguments. Other records are added as by [`insert_records`](Store::insert_records). On
    /// failure, nothing is stored.
    ///
    /// # Errors
    /// Those of [`insert_records`](Store::insert_records).
    ///
    /// # Blocking
    /// The time of [`insert_records`](Store::insert_records).
    pub fn insert_or_replace_records(
        &mut self,
        run_id: &str,
        records: &[Record],
    ) -> Result<(), StoreError> {
        self.write_records(run_id, records, true)
    }

    /// Replaces the description of a run at its end. The new one has `complete` set and the results
    /// of the whole run.
    ///
    /// # Errors
    /// If there is no such run, a number is not finite, or the file cannot be written.
    pub fn finish_run(&mut self, run: &Run) -> Result<(), StoreError> {
        let packed = PackedRun::new(run)?;
        let (transaction, failed) = self.begin_write_transaction()?;
        let update = "UPDATE main.runs SET started_unix_ns = ?2, profile = ?3, host = ?4,
            version = ?5, built_from = ?6, complete = ?7, body = ?8, checksum = ?9 WHERE id = ?1";
        let changed = write_run(&transaction, update, &packed).map_err(&failed)?;
        if changed == 0 {
            drop(transaction);
            return Err(self.unknown_run_error(&run.id)?);
        }
        transaction.commit().map_err(failed)
    }

    /// Stores records in one transaction. With `should_replace`, they replace those with the same
    /// id, contender and arguments.
    fn write_records(
        &mut self,
        run_id: &str,
        records: &[Record],
        should_replace: bool,
    ) -> Result<(), StoreError> {
        let packed: Vec<_> = records.iter().map(PackedRecord::new).collect::<Result<_, _>>()?;
        let (transaction, failed) = self.begin_write_transaction()?;
        let Some(run) = find_run_key(&transaction, run_id).map_err(&failed)? else {
            drop(transaction);
            return Err(self.unknown_run_error(run_id)?);
        };
        let mut places = Vec::new();
        for record in &packed {
            let place = if should_replace {
                remove_record(&transaction, run, record).map_err(&failed)?
            } else {
                None
            };
            places.push(place);
        }
        let mut parts = 0;
        let next_place = "SELECT coalesce(max(place) + 1, 0) FROM main.records WHERE run = ?";
        let mut next: i64 =
            transaction.query_one(next_place, [run], |row| row.get(0)).map_err(&failed)?;
        next = places.iter().flatten().fold(next, |next, place| next.max(place + 1));
        for (place, record) in places.into_iter().zip(&packed) {
            let at = place.unwrap_or(next);
            parts += insert_record(&transaction, (run, run_id), at, record).map_err(&failed)?;
            next += i64::from(place.is_none());
        }
        add_to_parts_checksum(&transaction, run, parts).map_err(&failed)?;
        transaction.commit().map_err(failed)
    }

    /// Returns descriptions of all runs, in order of their start times. A damaged run is among
    /// them, with a description of its damage.
    ///
    /// # Errors
    /// If the file cannot be read, or is damaged beyond the content of runs.
    pub fn runs(&self) -> Result<Vec<RunRow>, StoreError> {
        let query = format!(
            "SELECT {}, (SELECT count(*) FROM main.records WHERE records.run = runs.run)
                FROM main.runs ORDER BY started_unix_ns, run",
            StoredRun::QUERY_COLUMNS
        );
        let mut tags: BTreeMap<String, Vec<TagRow>> = BTreeMap::new();
        for tag in self.tag_rows()? {
            tags.entry(tag.run_id.clone()).or_default().push(tag);
        }
        let failed = |error| self.sqlite_error(error);
        let mut statement = self.connection.prepare_cached(&query).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        let mut listed = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let (stored, count) = StoredRun::from_row(row)
                .and_then(|run| Ok((run, row.get::<_, i64>(StoredRun::QUERY_COLUMNS_COUNT)?)))
                .map_err(failed)?;
            let run = stored.unpack();
            let mut row = stored.row;
            row.records_count = u64::try_from(count).unwrap_or(0);
            let tags = tags.remove(&row.id).unwrap_or_default();
            row.damage = tags.iter().find_map(|tag| tag.check().err());
            row.tags = tags.into_iter().map(|tag| tag.name).collect();
            row.tags.sort_unstable();
            match run {
                Ok(run) => row.command = run.command,
                Err(reason) => row.damage = Some(reason),
            }
            listed.push(row);
        }
        Ok(listed)
    }

    /// Loads a run with its records, in the order of their insertion. `selector` is an id, a unique
    /// prefix of an id, a name (for the latest run with that name), `last`, or a position from the
    /// end: `-1` is the last run, `-2` the one before.
    ///
    /// # Errors
    /// If there is no such run (with the most similar ids), the prefix is ambiguous, the store is
    /// empty, or the file cannot be read or is damaged.
    pub fn load_run(&self, selector: &str) -> Result<Document, StoreError> {
        let id = self.resolve_run_id(selector)?;
        self.load_run_with_id(&id)
    }

    /// Loads the run that started last, with its records.
    ///
    /// # Errors
    /// Those of [`load_run`](Store::load_run).
    pub fn load_latest_run(&self) -> Result<Document, StoreError> {
        self.load_run("last")
    }

    /// Returns `true` if the store has a run with this id.
    pub(crate) fn has_run(&self, id: &str) -> Result<bool, StoreError> {
        let key = find_run_key(&self.connection, id).map_err(|error| self.sqlite_error(error))?;
        Ok(key.is_some())
    }

    /// Returns the id of the run that `selector` denotes. [`load_run`](Store::load_run) explains
    /// selectors.
    ///
    /// # Errors
    /// Those of [`load_run`](Store::load_run).
    pub fn resolve_run_id(&self, selector: &str) -> Result<String, StoreError> {
        // Without listing all ids, for callers that load many runs.
        if self.has_run(selector)? {
            return Ok(selector.to_string());
        }
        let mut ids = self.run_ids()?;
        if ids.is_empty() {
            return Err(StoreError::Empty { path: self.path.clone() });
        }
        let from_end = match selector {
            "last" => Some(1),
            _ => selector.strip_prefix('-').and_then(|places| places.parse::<usize>().ok()),
        };
        if let Some(places) = from_end {
            let place = ids.len().checked_sub(places).filter(|_| places > 0);
            return match place {
                Some(place) => Ok(ids.swap_remove(place)),
                None => Err(unknown_run_among(selector, &ids)),
            };
        }
        if let Some(latest) = self.ids_with_tag(selector)?.pop() {
            return Ok(latest);
        }
        let mut matching_ids: Vec<String> = ids
            .iter()
            .filter(|id| !selector.is_empty() && id.starts_with(selector))
            .cloned()
            .collect();
        match matching_ids.len() {
            0 => Err(self.unknown_run_error(selector)?),
            1 => Ok(matching_ids.remove(0)),
            count => {
                // The latest run is the most likely one.
                matching_ids.reverse();
                matching_ids.truncate(SUGGESTIONS_MAX);
                let selector = truncated_for_error(selector);
                Err(StoreError::Ambiguous { selector, count, candidates: matching_ids })
            }
        }
    }

    /// Checks the file with SQLite, and checks every row. Each row must be readable and match its
    /// checksum.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] or [`StoreError::DamagedRun`] with the first error found.
    ///
    /// # Cost
    /// Reads the whole file.
    pub fn check_integrity(&self) -> Result<(), StoreError> {
        let report: String = self
            .connection
            .query_one("PRAGMA integrity_check(1)", [], |row| row.get(0))
            .map_err(|error| self.sqlite_error(error))?;
        if report != "ok" {
            return Err(self.damaged_error(report));
        }
        for id in self.run_ids()? {
            self.load_run_with_id(&id)?;
        }
        self.tags_by_run_id().map(drop)
    }

    /// Returns the ids of all runs, in order of their start times.
    pub(crate) fn run_ids(&self) -> Result<Vec<String>, StoreError> {
        let query = "SELECT id FROM main.runs NOT INDEXED ORDER BY started_unix_ns, run";
        let ids: Vec<String> = self
            .connection
            .prepare_cached(query)
            .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect())
            .map_err(|error| self.sqlite_error(error))?;
        self.check_row_count("runs")?;
        Ok(ids)
    }

    /// Checks that a table and its index have the same number of rows.
    pub(crate) fn check_row_count(&self, table: &str) -> Result<(), StoreError> {
        let query = format!(
            "SELECT (SELECT count(*) FROM main.{table} NOT INDEXED),
                (SELECT count(*) FROM main.{table} INDEXED BY sqlite_autoindex_{table}_1)"
        );
        let (count, indexed): (i64, i64) = self
            .connection
            .prepare_cached(&query)
            .and_then(|mut query| query.query_one([], |row| Ok((row.get(0)?, row.get(1)?))))
            .map_err(|error| self.sqlite_error(error))?;
        match count == indexed {
            true => Ok(()),
            false => Err(self.damaged_error(format!(
                "the table `{table}` has {count} rows, and its index {indexed}"
            ))),
        }
    }

    /// Loads the run with this id and its records, in one read transaction.
    pub(crate) fn load_run_with_id(&self, id: &str) -> Result<Document, StoreError> {
        let transaction =
            self.connection.unchecked_transaction().map_err(|error| self.sqlite_error(error))?;
        match find_document(&transaction, &self.path, id)? {
            Some(document) => Ok(document),
            None => Err(self.unknown_run_error(id)?),
        }
    }

    /// Starts a write transaction. Also returns a function that converts SQLite's errors.
    pub(crate) fn begin_write_transaction(
        &mut self,
    ) -> Result<(Transaction<'_>, impl Fn(rusqlite::Error) -> StoreError + use<>), StoreError> {
        let path = self.path.clone();
        let failed = move |error| StoreError::from_sqlite(&path, duration_to_ms(WRITE_WAIT), error);
        match self.connection.transaction_with_behavior(TransactionBehavior::Immediate) {
            Ok(transaction) => Ok((transaction, failed)),
            Err(error) => Err(failed(error)),
        }
    }

    /// Converts an error of SQLite to an error of the store.
    pub(crate) fn sqlite_error(&self, error: rusqlite::Error) -> StoreError {
        StoreError::from_sqlite(&self.path, duration_to_ms(WRITE_WAIT), error)
    }

    /// Creates the error for an inconsistent store.
    pub(crate) fn damaged_error(&self, reason: String) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), reason }
    }

    /// Creates the error for a damaged run.
    pub(crate) fn damaged_run_error(&self, run: &str, reason: String) -> StoreError {
        StoreError::DamagedRun { path: self.path.clone(), run: run.to_string(), reason }
    }

    /// Creates the error for an unknown run. It suggests ids and names. Fails if these cannot be
    /// read.
    pub(crate) fn unknown_run_error(&self, selector: &str) -> Result<StoreError, StoreError> {
        let mut known = self.run_ids()?;
        let mut names: Vec<String> = self.tags_by_run_id()?.into_values().flatten().collect();
        names.sort_unstable();
        names.dedup();
        known.extend(names);
        Ok(unknown_run_among(selector, &known))
    }
}

/// Creates the error for an unknown run. It suggests the most similar of `ids`.
fn unknown_run_among(selector: &str, ids: &[String]) -> StoreError {
    StoreError::UnknownRun {
        selector: truncated_for_error(selector),
        nearest_names: nearest_names(selector, ids),
    }
}

/// Returns the names most similar to `selector`, the most similar first. Of equally similar names,
/// the last one comes first.
pub(crate) fn nearest_names(selector: &str, names: &[String]) -> Vec<String> {
    // Comparing takes time proportional to the product of both lengths.
    let selector = &truncated_for_error(selector);
    let mut by_similarity: Vec<_> =
        names.iter().map(|name| (strsim::normalized_levenshtein(selector, name), name)).collect();
    by_similarity.reverse();
    by_similarity.sort_by(|a, b| b.0.total_cmp(&a.0));
    by_similarity.into_iter().take(SUGGESTIONS_MAX).map(|(_, name)| name.clone()).collect()
}

/// Row of a run, as read from the database.
pub(crate) struct StoredRun {
    /// Key of the run in the database.
    pub key: i64,
    /// Description of the run. `command`, `records_count`, `tags` and `damage` are unset.
    pub row: RunRow,
    /// Run as compressed JSON.
    pub body: Vec<u8>,
    /// Stored checksum of the row.
    checksum: i64,
    /// Stored sum of the checksums of the run's records and names.
    parts_checksum: i64,
}

impl StoredRun {
    /// Columns of a query that [`from_row`](StoredRun::from_row) reads, in this order.
    pub const QUERY_COLUMNS: &str = "runs.run, runs.id, runs.started_unix_ns, runs.profile, runs.host, \
        runs.version, runs.built_from, runs.complete, runs.body, runs.checksum, runs.parts";
    /// Number of columns in [`QUERY_COLUMNS`](StoredRun::QUERY_COLUMNS).
    pub const QUERY_COLUMNS_COUNT: usize = 11;

    /// Reads a run from a row that starts with [`QUERY_COLUMNS`](StoredRun::QUERY_COLUMNS).
    pub fn from_row(row: &Row<'_>) -> rusqlite::Result<StoredRun> {
        StoredRun::from_row_after_columns(row, 0)
    }

    /// Reads a run from the columns of a row after the first `others`. These are
    /// [`QUERY_COLUMNS`](StoredRun::QUERY_COLUMNS).
    pub fn from_row_after_columns(row: &Row<'_>, others: usize) -> rusqlite::Result<StoredRun> {
        Ok(StoredRun {
            key: row.get(others)?,
            row: RunRow {
                id: row.get(others + 1)?,
                started_unix_ns: row.get(others + 2)?,
                profile: row.get(others + 3)?,
                host: row.get(others + 4)?,
                version: row.get(others + 5)?,
                command: String::new(),
                commit: row.get(others + 6)?,
                complete: row.get(others + 7)?,
                records_count: 0,
                tags: Vec::new(),
                damage: None,
            },
            body: row.get(others + 8)?,
            checksum: row.get(others + 9)?,
            parts_checksum: row.get(others + 10)?,
        })
    }

    /// Checks that the stored checksum of the row matches its content; `Err` with a description if
    /// not.
    pub fn check(&self) -> Result<(), String> {
        match self.checksum == checksum::run_checksum(&self.row, &self.body) {
            true => Ok(()),
            false => Err("its checksum is wrong".to_string()),
        }
    }

    /// Decompresses the run and checks the row; `Err` with a description of the damage.
    fn unpack(&self) -> Result<Run, String> {
        let run = pack::inflate(&self.body, Run::from_json)?;
        self.check()?;
        Ok(run)
    }
}

/// Returns the sum of the stored checksums of a run's names.
fn sum_of_tag_checksums(connection: &Connection, run: i64) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "SELECT coalesce(sum(checksum), 0) FROM main.tags NOT INDEXED WHERE run = ?",
        )?
        .query_one([run], |row| row.get(0))
}

/// Returns the database key of the run with this id; `None` if there is no such run.
pub(crate) fn find_run_key(connection: &Connection, id: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT run FROM main.runs WHERE id = ?")?
        .query_one([id], |row| row.get(0))
        .optional()
}

/// Returns the run with this id and its records; `None` if there is no such run. The connection is
/// within a transaction, and `path` is the path of the store.
pub(crate) fn find_document(
    connection: &Connection,
    path: &Path,
    id: &str,
) -> Result<Option<Document>, StoreError> {
    let failed = |error| StoreError::from_sqlite(path, duration_to_ms(WRITE_WAIT), error);
    let damaged =
        |reason| StoreError::DamagedRun { path: path.into(), run: id.to_string(), reason };
    let query =
        format!("SELECT {columns} FROM main.runs WHERE id = ?", columns = StoredRun::QUERY_COLUMNS);
    let found = connection
        .prepare_cached(&query)
        .and_then(|mut query| query.query_one([id], StoredRun::from_row).optional())
        .map_err(failed)?;
    let Some(stored) = found else { return Ok(None) };
    let run = stored.unpack().map_err(damaged)?;
    let mut parts = sum_of_tag_checksums(connection, stored.key).map_err(failed)?;
    let query = format!(
        "SELECT {} FROM main.records WHERE run = ? ORDER BY place",
        RecordRow::QUERY_COLUMNS
    );
    let mut statement = connection.prepare_cached(&query).map_err(failed)?;
    let mut rows = statement.query([stored.key]).map_err(failed)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let row = RecordRow::from_row(row).map_err(failed)?;
        records.push(row.unpack().map_err(damaged)?);
        if !row.has_valid_checksum(id) {
            let ordinal = records.len();
            return Err(damaged(format!("the checksum of record {ordinal} is wrong")));
        }
        parts = parts.wrapping_add(row.checksum);
    }
    if stored.parts_checksum != parts {
        let reason = "a record or a name is missing, or belongs to another run";
        return Err(damaged(reason.to_string()));
    }
    Ok(Some(Document::new(run, records)))
}

/// Inserts the row of a run that has no records yet.
pub(crate) fn insert_run(connection: &Connection, packed: &PackedRun) -> rusqlite::Result<usize> {
    let insert = "INSERT INTO main.runs
        (id, started_unix_ns, profile, host, version, built_from, complete, body, checksum, parts)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0)";
    write_run(connection, insert, packed)
}

/// Executes a statement with the columns of a run as parameters. Returns the number of changed
/// rows.
fn write_run(
    connection: &Connection,
    statement: &str,
    packed: &PackedRun,
) -> rusqlite::Result<usize> {
    let PackedRun { row, body } = packed;
    connection.prepare_cached(statement)?.execute(params![
        row.id,
        row.started_unix_ns,
        row.profile,
        row.host,
        row.version,
        row.commit,
        row.complete,
        body,
        checksum::run_checksum(row, body),
    ])
}

/// Removes a run's record that has the same id, contender and arguments as `record`. Returns its
/// position, or `None` if there is none.
fn remove_record(
    connection: &Connection,
    run: i64,
    PackedRecord { record, .. }: &PackedRecord<'_>,
) -> rusqlite::Result<Option<i64>> {
    let find = "SELECT place, body, checksum FROM main.records
        WHERE run = ?1 AND id = ?2 AND contender = ?3";
    let mut statement = connection.prepare_cached(find)?;
    let mut rows = statement.query(params![run, record.id, record.contender])?;
    let mut found = None;
    while let Some(row) = rows.next()? {
        // Records of a sweep differ in their arguments only. An unreadable record is taken for this
        // one.
        let body: Vec<u8> = row.get(1)?;
        if pack::unpack_args(&body).is_none_or(|args| args == record.args) {
            found = Some((row.get(0)?, row.get::<_, i64>(2)?));
        }
    }
    drop(rows);
    if let Some((place, checksum)) = found {
        add_to_parts_checksum(connection, run, -checksum)?;
        let delete = "DELETE FROM main.records WHERE run = ?1 AND place = ?2";
        connection.prepare_cached(delete)?.execute(params![run, place])?;
    }
    Ok(found.map(|(place, _)| place))
}

/// Inserts a record as number `place` of a run, from 0. The run is given by its key and its id.
/// Returns the row's checksum, which the caller adds to the checksum sum of the run.
pub(crate) fn insert_record(
    connection: &Connection,
    (run, run_id): (i64, &str),
    place: i64,
    packed: &PackedRecord<'_>,
) -> rusqlite::Result<i64> {
    let PackedRecord { record, body } = packed;
    let kind = record.kind.to_string();
    let checksum =
        checksum::record_checksum(run_id, place, [&record.id, &record.contender, &kind], body);
    let insert = "INSERT INTO main.records (run, place, id, contender, kind, unit, timing,
        started_unix_ns, median, low, high, p99, rate_per_s, body, checksum)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
    connection.prepare_cached(insert)?.execute(params![
        run,
        place,
        record.id,
        record.contender,
        kind,
        record.unit.to_string(),
        record.summary.timing_kind().to_string(),
        record.started_unix_ns,
        record.summary.median,
        record.summary.low,
        record.summary.high,
        record.summary.quantiles().map(|it| it.p99),
        record.rate_per_s,
        body,
        checksum,
    ])?;
    Ok(checksum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_record::Host;

    #[test]
    fn full_store_is_an_error_and_keeps_its_records() {
        let folder = tempfile::tempdir().expect("create a temporary folder");
        let mut store = Store::open(folder.path().join("results.db")).expect("open a store");
        // Simulates a full disk: the write fails at the same point.
        store.connection.pragma_update(None, "max_page_count", 16).expect("set the pragma");
        let run = |id: String| Run {
            id,
            started_unix_ns: 1,
            version: String::new(),
            commit: String::new(),
            profile: "quick".to_string(),
            command: String::new(),
            host: Host::default(),
            findings: Vec::new(),
            complete: false,
            null_one: None,
            null_several: None,
            seed: 0,
            proofs: Vec::new(),
        };
        let ids = (0..1000).map(|place| format!("run-{place}"));
        let mut kept = Vec::new();
        let error = ids
            .map(|id| store.begin_run(&run(id.clone())).map(|()| kept.push(id)))
            .find_map(Result::err)
            .expect("16 pages did not become full");
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(error.to_string().contains("no space left"));
        store.check_integrity().expect("sound");
        assert!(!kept.is_empty());
        assert_eq!(store.run_ids().expect("ids"), kept);
        store.connection.pragma_update(None, "max_page_count", 4000).expect("set the pragma");
        store.begin_run(&run("later".to_string())).expect("the store is still full");
    }
}
