//! Names of runs, and deletion of runs.
//!
//! Several runs can share a name: the five processes of one build, the runs of a branch. Names are
//! stored separately, so that naming a run does not change its measurements.

use crate::checksum::{add_to_parts_checksum, tag_checksum};
use crate::error::StoreError;
use crate::names::check_tag;
use crate::store::{Store, find_run_key};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;

/// Name of a run, as read from the database.
pub(crate) struct TagRow {
    /// Id of the run.
    pub run_id: String,
    /// The name.
    pub name: String,
    /// Stored checksum of the id and the name.
    checksum: i64,
}

impl TagRow {
    /// Checks that the stored checksum matches; `Err` with a description if not.
    pub fn check(&self) -> Result<(), String> {
        match self.checksum == tag_checksum(&self.run_id, &self.name) {
            true => Ok(()),
            false => Err("the checksum of a name is wrong".to_string()),
        }
    }
}

impl Store {
    /// Adds a name to a run. The run keeps its other names, and several runs can share a name.
    /// `selector` is resolved as by [`load_run`](Store::load_run). Returns the run's id.
    ///
    /// # Errors
    /// If there is no such run, the name is invalid or ambiguous with a run's id, or the file
    /// cannot be written.
    pub fn add_tag(&mut self, selector: &str, name: &str) -> Result<String, StoreError> {
        self.check_new_tag(name)?;
        let id = self.resolve_run_id(selector)?;
        let (transaction, failed) = self.begin_write_transaction()?;
        let Some(run) = find_run_key(&transaction, &id).map_err(&failed)? else {
            drop(transaction);
            return Err(self.missing_run_error(&id)?);
        };
        insert_tag(&transaction, (run, &id), name).map_err(&failed)?;
        transaction.commit().map_err(failed)?;
        Ok(id)
    }

    /// Checks that a run can get this name.
    ///
    /// # Errors
    /// If the name is invalid or ambiguous with a run's id, or the file cannot be read.
    pub fn check_new_tag(&self, name: &str) -> Result<(), StoreError> {
        check_tag(name)?;
        match is_id_prefix(name, &self.run_ids()?) {
            true => Err(StoreError::TagIsId { name: name.to_string() }),
            false => Ok(()),
        }
    }

    /// Removes a name from a run. Returns `false` if the run did not have the name.
    ///
    /// # Errors
    /// If there is no such run, or the file cannot be written.
    pub fn remove_tag(&mut self, selector: &str, name: &str) -> Result<bool, StoreError> {
        let id = self.resolve_run_id(selector)?;
        let (transaction, failed) = self.begin_write_transaction()?;
        let delete = "DELETE FROM main.tags WHERE tag = ?2
            AND run = (SELECT run FROM main.runs WHERE id = ?1) RETURNING run, checksum";
        let taken: Option<(i64, i64)> = transaction
            .query_one(delete, params![id, name], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(&failed)?;
        if let Some((run, checksum)) = taken {
            add_to_parts_checksum(&transaction, run, -checksum).map_err(&failed)?;
        }
        transaction.commit().map_err(failed)?;
        Ok(taken.is_some())
    }

    /// Returns the names of all runs that have names, by the run's id. Each list is in alphabetical
    /// order.
    ///
    /// # Errors
    /// If the file cannot be read or is damaged.
    pub fn tags_by_run_id(&self) -> Result<BTreeMap<String, Vec<String>>, StoreError> {
        let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for TagRow { run_id, name, .. } in self.sound_tag_rows()? {
            named.entry(run_id).or_default().push(name);
        }
        named.values_mut().for_each(|tags| tags.sort_unstable());
        Ok(named)
    }

    /// Returns each name of each run. They are ordered by the start of the runs.
    pub(crate) fn tag_rows(&self) -> Result<Vec<TagRow>, StoreError> {
        // Without the index, which has copies of names that no checksum covers.
        let query = "SELECT id, tag, tags.checksum FROM main.tags NOT INDEXED
            JOIN main.runs USING (run) ORDER BY started_unix_ns, run";
        let rows: Result<Vec<TagRow>, _> =
            self.connection.prepare_cached(query).and_then(|mut statement| {
                let read = |row: &Row<'_>| {
                    Ok(TagRow { run_id: row.get(0)?, name: row.get(1)?, checksum: row.get(2)? })
                };
                statement.query_map([], read)?.collect()
            });
        rows.map_err(|refused| self.sqlite_error(refused))
    }

    /// Returns the same as [`tag_rows`](Self::tag_rows). Fails if any of the names is damaged.
    fn sound_tag_rows(&self) -> Result<Vec<TagRow>, StoreError> {
        let rows = self.tag_rows()?;
        for row in &rows {
            row.check().map_err(|reason| self.damaged_run_error(&row.run_id, reason))?;
        }
        Ok(rows)
    }

    /// Returns the ids of all runs with the name `name`, in order of their start times. The list is
    /// empty if there are none.
    ///
    /// # Errors
    /// If the file cannot be read or is damaged.
    pub fn ids_with_tag(&self, name: &str) -> Result<Vec<String>, StoreError> {
        let rows = self.sound_tag_rows()?;
        Ok(rows.into_iter().filter(|row| row.name == name).map(|row| row.run_id).collect())
    }

    /// Returns the ids of the runs that `selector` denotes: the run with this id, or else all runs
    /// with this name, or else the one run that [`load_run`](Store::load_run) would load.
    ///
    /// # Errors
    /// Those of [`load_run`](Store::load_run).
    pub fn matching_ids(&self, selector: &str) -> Result<Vec<String>, StoreError> {
        // An id first: a run whose name is damaged can then be deleted.
        if self.has_run(selector)? {
            return Ok(vec![selector.to_string()]);
        }
        match self.ids_with_tag(selector)? {
            named if named.is_empty() => Ok(vec![self.resolve_run_id(selector)?]),
            named => Ok(named),
        }
    }

    /// Returns the ids that any of `selectors` denotes, in order and without duplicates. Each
    /// selector is resolved as by [`matching_ids`](Store::matching_ids).
    ///
    /// # Errors
    /// Those of [`matching_ids`](Store::matching_ids), for the first that fails.
    pub fn all_matching_ids(&self, selectors: &[String]) -> Result<Vec<String>, StoreError> {
        let mut ids = Vec::new();
        for selector in selectors {
            for id in self.matching_ids(selector)? {
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
        Ok(ids)
    }

    /// Deletes a run with its records and names, and returns its id. Later runs reuse the space;
    /// [`vacuum`](Store::vacuum) returns it to the file system.
    ///
    /// # Errors
    /// Those of [`load_run`](Store::load_run), or if the file cannot be written; nothing is deleted
    /// then.
    pub fn delete_run(&mut self, selector: &str) -> Result<String, StoreError> {
        let id = self.resolve_run_id(selector)?;
        let (transaction, failed) = self.begin_write_transaction()?;
        let count =
            transaction.execute("DELETE FROM main.runs WHERE id = ?", [&id]).map_err(&failed)?;
        transaction.commit().map_err(failed)?;
        match count {
            0 => Err(self.missing_run_error(&id)?),
            _ => Ok(id),
        }
    }

    /// Creates the error for a run that was found before, and that the index of runs does not have.
    /// Another process has deleted the run, or the index is damaged.
    fn missing_run_error(&self, id: &str) -> Result<StoreError, StoreError> {
        match self.run_ids()?.iter().any(|it| it == id) {
            true => Ok(self.damaged_error(format!("the index of runs does not have {id}"))),
            false => self.unknown_run_error(id),
        }
    }

    /// Removes unused space from the file. Returns the file's length in bytes before and after.
    ///
    /// # Errors
    /// If there is no space for the temporary copy, or the file cannot be written; the store is
    /// then unchanged.
    ///
    /// # Cost
    /// Rewrites the whole file.
    pub fn vacuum(&mut self) -> Result<(u64, u64), StoreError> {
        let before = self.length_bytes()?;
        self.connection.execute_batch("VACUUM").map_err(|refused| self.sqlite_error(refused))?;
        Ok((before, self.length_bytes()?))
    }

    /// Returns the length of the file in bytes.
    fn length_bytes(&self) -> Result<u64, StoreError> {
        let read = |query| self.connection.query_one(query, [], |row| row.get::<_, i64>(0));
        let bytes = read("PRAGMA page_count")
            .and_then(|pages| Ok(pages * read("PRAGMA page_size")?))
            .map_err(|refused| self.sqlite_error(refused))?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }
}

/// Returns `true` if one of the ids starts with `name`.
pub(crate) fn is_id_prefix(name: &str, ids: &[String]) -> bool {
    ids.iter().any(|id| id.starts_with(name))
}

/// Adds a name to a run. The run is given by its key and its id. Does nothing if the run has the
/// name already.
pub(crate) fn insert_tag(
    connection: &Connection,
    (run, run_id): (i64, &str),
    name: &str,
) -> rusqlite::Result<()> {
    let checksum = tag_checksum(run_id, name);
    let inserted = connection
        .prepare_cached("INSERT OR IGNORE INTO main.tags (run, tag, checksum) VALUES (?1, ?2, ?3)")?
        .execute(params![run, name, checksum])?;
    match inserted {
        0 => Ok(()),
        _ => add_to_parts_checksum(connection, run, checksum),
    }
}
