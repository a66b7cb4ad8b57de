//! Export to JSON Lines and import from it, without loss.

use crate::checksum::add_to_parts_checksum;
use crate::error::{ExportError, ImportError, StoreError};
use crate::file;
use crate::lines::{ExportLine, ExportLineReader, RecordLine, RunLine};
use crate::pack::{self, PackedRecord, PackedRun, RecordRow};
use crate::store::{Store, find_document, find_run_key, insert_record, insert_run};
use crate::tags::{insert_tag, is_id_prefix};
use handover_record::{Document, JSON_SCHEMA_VERSION, Run};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use serde::Serialize;
use std::io::{BufRead, Write};
use std::path::Path;

/// Name of the temporary file of an import in errors.
const TEMPORARY_FILE: &str = "(temporary file)";

/// Numbers of runs and records that an export wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Number of exported runs.
    pub runs: u64,
    /// Number of exported records.
    pub records: u64,
}

/// Numbers of runs and records that an import added or skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// Number of new runs.
    pub runs: u64,
    /// Number of new records.
    pub records: u64,
    /// Number of skipped runs. The store already had them with the same content.
    pub skipped: u64,
}

impl Store {
    /// Writes runs and their records as JSON Lines. One line for each run is followed by one for
    /// each of its records. Each of `selectors` is resolved as by
    /// [`matching_ids`](Store::matching_ids), and each run is written once; if `selectors` is
    /// empty, all runs are written, the earliest first.
    ///
    /// Each run is read in one transaction. No lock is held while the output blocks.
    ///
    /// # Errors
    /// If there is no such run (found before anything is written), the file cannot be read, or the
    /// output fails: see [`ExportError::Write`] for a closed pipe.
    pub fn export(
        &self,
        selectors: &[String],
        out: &mut dyn Write,
    ) -> Result<ExportCounts, ExportError> {
        let ids =
            if selectors.is_empty() { self.run_ids()? } else { self.all_matching_ids(selectors)? };
        let tags = self.tags_by_run_id()?;
        let mut exported = ExportCounts::default();
        for id in ids {
            let document = self.load_run_with_id(&id)?;
            let (run, tags) = (&document.run, tags.get(&id).map_or(&[][..], |it| it));
            write_line(out, &RunLine { schema: JSON_SCHEMA_VERSION, run, tags })?;
            for record in &document.records {
                write_line(out, &RecordLine { run: &run.id, record })?;
                exported.records += 1;
            }
            exported.runs += 1;
        }
        out.flush().map_err(ExportError::Write)?;
        Ok(exported)
    }

    /// Imports runs in the format of [`export`](Store::export), from untrusted input. A run that
    /// the store already has with the same content is skipped. Blank lines are ignored.
    ///
    /// Imports everything or nothing: the input is read to its end into a temporary file before
    /// this store is locked, so that a slow or endless input blocks no other process.
    ///
    /// # Errors
    /// For the first line that is not a run or record of schema 1, with its number; an input
    /// without a run; a run that is in the store with other content, or is damaged there; an input
    /// that cannot be read; a store that cannot be written.
    pub fn import(&mut self, input: &mut dyn BufRead) -> Result<ImportCounts, ImportError> {
        self.merge(&StagedImport::read(input)?)
    }

    /// Imports runs into the store at `path`. Creates the store if it does not exist and the input
    /// is valid. An existing store is opened, or rejected, before anything is read.
    ///
    /// # Errors
    /// Those of [`import`](Store::import) and [`open`](Store::open).
    ///
    /// # Blocking
    /// The time of [`open`](Store::open), and until the input ends.
    pub fn import_into(
        path: impl AsRef<Path>,
        input: &mut dyn BufRead,
    ) -> Result<ImportCounts, ImportError> {
        let path = path.as_ref();
        if file::is_path_absent(path) {
            let staged = StagedImport::read(input)?;
            return Store::open(path)?.merge(&staged);
        }
        Store::open(path)?.import(input)
    }

    /// Adds the imported runs and names that the store lacks, in one transaction.
    fn merge(&mut self, staged: &StagedImport) -> Result<ImportCounts, ImportError> {
        let mut ids = self.run_ids()?;
        ids.extend(staged.runs.iter().map(|run| run.id.clone()));
        for StagedRun { line, tags, .. } in &staged.runs {
            if let Some(name) = tags.iter().find(|name| is_id_prefix(name, &ids)) {
                let reason = StoreError::TagIsId { name: name.clone() }.to_string();
                return Err(ImportError::BadLine { line: *line, reason });
            }
        }
        let path = self.path().to_path_buf();
        let (transaction, failed) = self.begin_write_transaction()?;
        let mut imported = ImportCounts::default();
        for StagedRun { key, id, line, tags } in &staged.runs {
            match find_document(&transaction, &path, id)? {
                Some(stored) => {
                    if let Some(reason) = staged.describe_difference(*key, &stored)? {
                        return Err(ImportError::Differs { line: *line, id: id.clone(), reason });
                    }
                    imported.skipped += 1;
                }
                None => {
                    imported.records += staged.copy(*key, &transaction).map_err(&failed)?;
                    imported.runs += 1;
                }
            }
            if let Some(here) = find_run_key(&transaction, id).map_err(&failed)? {
                for tag in tags {
                    insert_tag(&transaction, (here, id), tag).map_err(&failed)?;
                }
            }
        }
        transaction.commit().map_err(failed)?;
        Ok(imported)
    }
}

/// Imports bytes into an empty store in memory, and returns an export of the store. It tests the
/// path of untrusted input. Applied to its own result it returns the same bytes.
///
/// # Errors
/// Those of [`Store::import`].
pub fn import_and_reexport(mut bytes: &[u8]) -> Result<Vec<u8>, ImportError> {
    let mut store = Store::open_in_memory()?;
    store.import(&mut bytes)?;
    let mut exported = Vec::new();
    match store.export(&[], &mut exported) {
        Ok(_) => Ok(exported),
        Err(ExportError::Store(error)) => Err(error.into()),
        Err(ExportError::Write(error)) => Err(ImportError::Read(error)),
    }
}

/// Writes a line of JSON.
fn write_line(out: &mut dyn Write, line: &impl Serialize) -> Result<(), ExportError> {
    let mut text = serde_json::to_vec(line).map_err(|error| ExportError::Write(error.into()))?;
    text.push(b'\n');
    out.write_all(&text).map_err(ExportError::Write)
}

/// Parsed input of an import, in a temporary file. It is copied to the store once the input has
/// ended.
struct StagedImport {
    /// Temporary database with the runs and records.
    connection: Connection,
    /// Imported runs, in the order of the input.
    runs: Vec<StagedRun>,
}

/// Run of an import that is stored in the temporary file.
struct StagedRun {
    /// Key of the run in the temporary file.
    key: i64,
    /// Id of the run.
    id: String,
    /// Number of the line that contains the run.
    line: u64,
    /// Names of the run.
    tags: Vec<String>,
}

impl StagedImport {
    /// Parses the whole input. Fails at the first invalid line.
    fn read(input: &mut dyn BufRead) -> Result<StagedImport, ImportError> {
        let connection = file::open_temporary()?;
        let failed =
            |error| ImportError::from(StoreError::from_sqlite(Path::new(TEMPORARY_FILE), 0, error));
        let mut staged = StagedImport { connection, runs: Vec::new() };
        let transaction = staged.connection.unchecked_transaction().map_err(failed)?;
        let mut lines = ExportLineReader::new(input);
        let mut place = 0;
        while let Some(parsed) = lines.read_line()? {
            let line = lines.number;
            let bad = |error: StoreError| ImportError::BadLine { line, reason: error.to_string() };
            match parsed {
                ExportLine::Run(run, tags) => {
                    let packed = PackedRun::new(&run).map_err(bad)?;
                    if find_run_key(&transaction, &run.id).map_err(failed)?.is_some() {
                        let reason = format!("run {id} occurs twice in the input", id = run.id);
                        return Err(ImportError::BadLine { line, reason });
                    }
                    insert_run(&transaction, &packed).map_err(failed)?;
                    let key = transaction.last_insert_rowid();
                    staged.runs.push(StagedRun { key, id: run.id, line, tags });
                    place = 0;
                }
                ExportLine::Record(record) => {
                    let Some(run) = staged.runs.last() else {
                        let reason = "record before the first run".to_string();
                        return Err(ImportError::BadLine { line, reason });
                    };
                    let packed = PackedRecord::new(&record).map_err(bad)?;
                    let checksum = insert_record(&transaction, (run.key, &run.id), place, &packed)
                        .map_err(failed)?;
                    add_to_parts_checksum(&transaction, run.key, checksum).map_err(failed)?;
                    place += 1;
                }
            }
        }
        transaction.commit().map_err(failed)?;
        if staged.runs.is_empty() {
            return Err(ImportError::NoRun);
        }
        Ok(staged)
    }

    /// Describes the first difference between an imported run and a stored run; `None` if they are
    /// equal.
    fn describe_difference(
        &self,
        key: i64,
        stored: &Document,
    ) -> Result<Option<String>, StoreError> {
        let path = Path::new(TEMPORARY_FILE);
        let failed = |error| StoreError::from_sqlite(path, 0, error);
        let damaged = |reason| {
            let run = stored.run.id.clone();
            StoreError::DamagedRun { path: path.into(), run, reason }
        };
        let query = "SELECT body FROM main.runs WHERE run = ?";
        let body: Vec<u8> =
            self.connection.query_one(query, [key], |row| row.get(0)).map_err(failed)?;
        if pack::inflate(&body, Run::from_json).map_err(damaged)? != stored.run {
            return Ok(Some("the description of the run".to_string()));
        }
        let query = format!(
            "SELECT {} FROM main.records WHERE run = ? ORDER BY place",
            RecordRow::QUERY_COLUMNS
        );
        let mut statement = self.connection.prepare_cached(&query).map_err(failed)?;
        let mut rows = statement.query([key]).map_err(failed)?;
        let mut count = 0;
        while let Some(row) = rows.next().map_err(failed)? {
            let Some(record) = stored.records.get(count) else {
                return Ok(Some(format!("the stored run has only {count} records")));
            };
            count += 1;
            if RecordRow::from_row(row).map_err(failed)?.unpack().map_err(damaged)? != *record {
                return Ok(Some(format!("record {count}")));
            }
        }
        Ok((count < stored.records.len())
            .then(|| format!("the stored run has more than {count} records")))
    }

    /// Copies a run and its records unchanged to the database `to`. Returns the number of records.
    fn copy(&self, key: i64, to: &Connection) -> rusqlite::Result<u64> {
        /// Columns of the table `runs` that are copied.
        const RUN_COLUMNS: &str =
            "id, started_unix_ns, profile, host, version, built_from, complete, body,
            checksum, parts";
        /// Columns of the table `records` that are copied.
        const RECORD_COLUMNS: &str =
            "place, id, contender, kind, unit, timing, started_unix_ns, median,
            low, high, p99, rate_per_s, body, checksum";
        copy_rows(&self.connection, "runs", RUN_COLUMNS, key, to, None)?;
        copy_rows(
            &self.connection,
            "records",
            RECORD_COLUMNS,
            key,
            to,
            Some(to.last_insert_rowid()),
        )
    }
}

/// Copies the rows of one run to the same table of `to`, and returns their number. `run` is the key
/// of the run in `to`, for tables with that column.
fn copy_rows(
    from: &Connection,
    table: &str,
    columns: &str,
    key: i64,
    to: &Connection,
    run: Option<i64>,
) -> rusqlite::Result<u64> {
    let mut read = from
        .prepare_cached(&format!("SELECT {columns} FROM main.{table} WHERE run = ? ORDER BY 1"))?;
    let columns_count = read.column_count();
    let placeholders = vec!["?"; columns_count + usize::from(run.is_some())].join(", ");
    let run_column = if run.is_some() { "run, " } else { "" };
    let insert =
        format!("INSERT INTO main.{table} ({run_column}{columns}) VALUES ({placeholders})");
    let mut write = to.prepare_cached(&insert)?;
    let mut rows = read.query([key])?;
    let mut copied = 0;
    while let Some(row) = rows.next()? {
        let mut values: Vec<Value> = run.map(Value::Integer).into_iter().collect();
        for column in 0..columns_count {
            values.push(row.get(column)?);
        }
        write.execute(params_from_iter(values))?;
        copied += 1;
    }
    Ok(copied)
}
