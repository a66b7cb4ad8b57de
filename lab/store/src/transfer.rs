//! JSON Lines: out of the store and back, to the byte.

use crate::checksum::add_to_parts;
use crate::error::{ExportError, ImportError, StoreError};
use crate::file;
use crate::lines::{Line, Lines, RecordLine, RunLine};
use crate::pack::{self, Packed, PackedRecord, PackedRun};
use crate::store::{Store, find_exact, insert_record, insert_run};
use crate::tags::{begins_an_id, insert_tag};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use serde::Serialize;
use std::io::{self, BufRead, Write};
use std::path::Path;

/// What an export wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Runs.
    pub runs: u64,
    /// Their records.
    pub records: u64,
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Runs that are new here.
    pub runs: u64,
    /// Their records.
    pub records: u64,
    /// Runs that were here already, with the same content.
    pub skipped: u64,
}

impl Store {
    /// Writes runs as JSON Lines: a line for the run, then one for each of its records. Each of `asked`
    /// is what [`side`](Store::side) takes, and a run asked for twice is written once; without any, all
    /// runs are written, the earliest first.
    ///
    /// Every run is written as of one moment. No lock is held while the output is slow to take it.
    ///
    /// # Errors
    /// A run that is not there (found before anything is written), a file that cannot be read, or an
    /// output that does not take more: see [`ExportError::Write`] for a closed pipe.
    pub fn export(&self, asked: &[String], out: &mut dyn Write) -> Result<Exported, ExportError> {
        let ids = if asked.is_empty() { self.ids()? } else { self.sides(asked)? };
        let tags = self.tags()?;
        let mut exported = Exported::default();
        for id in ids {
            let document = self.load_exact(&id)?;
            let named = tags.get(&id).map_or(&[][..], |it| it);
            write_line(out, &RunLine::new(&document.run, named))?;
            for record in &document.records {
                write_line(out, &RecordLine::new(&document.run.id, record))?;
                exported.records += 1;
            }
            exported.runs += 1;
        }
        out.flush()?;
        Ok(exported)
    }

    /// Reads runs as [`export`](Store::export) wrote them, from anywhere: the input is not trusted. A run
    /// that is here already is skipped where its content is the same. Blank lines are passed over.
    ///
    /// All or nothing: the input is read to its end into a temporary file before this store is touched,
    /// so a slow or endless input blocks nobody, and a bad last line leaves nothing of the lines before.
    ///
    /// # Errors
    /// The first line that is no run or record of schema 1, with its number; an input without a run; a
    /// run that is here with other content; an input that cannot be read; a store that cannot be written.
    pub fn import(&mut self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        self.take(&Staged::read(input)?)
    }

    /// The same into the store at `path`, which is made where it is absent, but not for an input that
    /// is refused. A store that is there is opened, and refused, before anything is read.
    ///
    /// # Errors
    /// As [`import`](Store::import), and as [`open`](Store::open).
    ///
    /// # Blocking
    /// As [`open`](Store::open), and as long as the input takes.
    pub fn import_into(
        path: impl AsRef<Path>,
        input: &mut dyn BufRead,
    ) -> Result<Imported, ImportError> {
        let path = path.as_ref();
        if file::is_absent(path) {
            let staged = Staged::read(input)?;
            return Store::open(path)?.take(&staged);
        }
        Store::open(path)?.import(input)
    }

    fn take(&mut self, staged: &Staged) -> Result<Imported, ImportError> {
        let mut ids = self.ids()?;
        ids.extend(staged.runs.iter().map(|run| run.id.clone()));
        for StagedRun { line, tags, .. } in &staged.runs {
            if let Some(name) = tags.iter().find(|name| begins_an_id(name, &ids)) {
                let why = StoreError::TagIsId { name: name.clone() }.to_string();
                return Err(ImportError::BadLine { line: *line, why });
            }
        }
        let (transaction, failed) = self.transaction()?;
        let mut imported = Imported::default();
        for StagedRun { key, id, line, tags } in &staged.runs {
            match find_exact(&transaction, id).map_err(&failed)? {
                Some(here) => {
                    let differs = difference(&staged.connection, *key, &transaction, here)?;
                    if let Some(why) = differs {
                        return Err(ImportError::Differs { line: *line, id: id.clone(), why });
                    }
                    imported.skipped += 1;
                }
                None => {
                    imported.records += staged.copy(*key, &transaction).map_err(&failed)?;
                    imported.runs += 1;
                }
            }
            if let Some(here) = find_exact(&transaction, id).map_err(&failed)? {
                for tag in tags {
                    insert_tag(&transaction, (here, id), tag).map_err(&failed)?;
                }
            }
        }
        transaction.commit().map_err(failed)?;
        Ok(imported)
    }
}

/// Imports bytes into an empty store in memory and gives what it exports: the whole path of untrusted
/// input, for a fuzzer. What it gives, given to it again, comes out the same.
///
/// # Errors
/// As [`Store::import`].
pub fn import_bytes(mut bytes: &[u8]) -> Result<Vec<u8>, ImportError> {
    let mut store = Store::in_memory()?;
    store.import(&mut bytes)?;
    let mut exported = Vec::new();
    match store.export(&[], &mut exported) {
        Ok(_) => Ok(exported),
        Err(ExportError::Store(refused)) => Err(refused.into()),
        Err(ExportError::Write(refused)) => Err(refused.into()),
    }
}

fn write_line(out: &mut dyn Write, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    out.write_all(&text)
}

/// What was read and understood, waiting for its end.
struct Staged {
    connection: Connection,
    runs: Vec<StagedRun>,
}

struct StagedRun {
    key: i64,
    id: String,
    line: u64,
    tags: Vec<String>,
}

impl Staged {
    fn read(input: &mut dyn BufRead) -> Result<Staged, ImportError> {
        let connection = file::open_temporary()?;
        let failed = |refused| {
            ImportError::from(StoreError::from_sqlite(Path::new("(temporary file)"), 0, refused))
        };
        let mut staged = Staged { connection, runs: Vec::new() };
        let transaction = staged.connection.unchecked_transaction().map_err(failed)?;
        let mut lines = Lines::new(input);
        let mut place = 0;
        while let Some(parsed) = lines.next()? {
            let line = lines.number;
            let bad = |refused: StoreError| ImportError::BadLine { line, why: refused.to_string() };
            match parsed {
                Line::Run(run, tags) => {
                    let packed = PackedRun::new(&run).map_err(bad)?;
                    if find_exact(&transaction, &run.id).map_err(failed)?.is_some() {
                        let why = format!("run {} comes a second time", run.id);
                        return Err(ImportError::BadLine { line, why });
                    }
                    insert_run(&transaction, &packed).map_err(failed)?;
                    let key = transaction.last_insert_rowid();
                    staged.runs.push(StagedRun { key, id: run.id, line, tags });
                    place = 0;
                }
                Line::Record(record) => {
                    let Some(run) = staged.runs.last() else {
                        let why = "a record before any run".to_string();
                        return Err(ImportError::BadLine { line, why });
                    };
                    let packed = PackedRecord::new(&record).map_err(bad)?;
                    let checksum = insert_record(&transaction, (run.key, &run.id), place, &packed)
                        .map_err(failed)?;
                    add_to_parts(&transaction, run.key, checksum).map_err(failed)?;
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

    /// Copies a run and its records as they are; gives the number of its records.
    fn copy(&self, key: i64, to: &Connection) -> rusqlite::Result<u64> {
        const RUN: &str = "id, started_unix_ns, profile, host, version, built_from, complete, body,
            checksum, parts";
        const RECORD: &str = "place, id, contender, kind, unit, started_unix_ns, median, low, high,
            p99, rate_per_s, body, rounds, histogram, checksum";
        copy_rows(&self.connection, "runs", RUN, key, to, None)?;
        copy_rows(&self.connection, "records", RECORD, key, to, Some(to.last_insert_rowid()))
    }
}

/// Copies the rows of one run from table to table; `run` is its key there, where the table needs it.
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
    let holes = vec!["?"; columns_count + usize::from(run.is_some())].join(", ");
    let run_column = if run.is_some() { "run, " } else { "" };
    let insert = format!("INSERT INTO main.{table} ({run_column}{columns}) VALUES ({holes})");
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

/// Where a run that came differs from the one that is here.
fn difference(
    came: &Connection,
    came_key: i64,
    here: &Connection,
    here_key: i64,
) -> Result<Option<String>, StoreError> {
    let failed = |refused| StoreError::from_sqlite(Path::new("(import)"), 0, refused);
    let damaged = |why| StoreError::Damaged { path: "(import)".into(), why };
    let run = |connection: &Connection, key| {
        connection
            .query_one("SELECT body FROM main.runs WHERE run = ?", [key], |row| {
                row.get::<_, Vec<u8>>(0)
            })
            .map_err(failed)
            .and_then(|body| pack::unpack_run(&body).map_err(damaged))
    };
    if run(came, came_key)? != run(here, here_key)? {
        return Ok(Some("the run itself".to_string()));
    }
    let query =
        format!("SELECT {} FROM main.records WHERE run = ? ORDER BY place", Packed::COLUMNS);
    let mut came = came.prepare_cached(&query).map_err(failed)?;
    let mut here = here.prepare_cached(&query).map_err(failed)?;
    let mut came = came.query([came_key]).map_err(failed)?;
    let mut here = here.query([here_key]).map_err(failed)?;
    let record =
        |row: &rusqlite::Row<'_>| Packed::of(row).map_err(failed)?.unpack().map_err(damaged);
    for place in 1_u64.. {
        match (came.next().map_err(failed)?, here.next().map_err(failed)?) {
            (None, None) => break,
            (Some(_), None) => return Ok(Some(format!("it has {} records here", place - 1))),
            (None, Some(_)) => {
                return Ok(Some(format!("it has more than {} records here", place - 1)));
            }
            (Some(came), Some(here)) => {
                if record(came)? != record(here)? {
                    return Ok(Some(format!("its record {place}")));
                }
            }
        }
    }
    Ok(None)
}
