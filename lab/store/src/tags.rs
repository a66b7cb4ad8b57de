//! Names of runs; and runs that are no longer wanted.
//!
//! A name stands for as many runs as have it: the five processes of one build, the runs of a branch. Names
//! lie beside the runs, so that naming one changes nothing of what was measured.

use crate::checksum::{add_to_parts, of_tag, seal};
use crate::error::StoreError;
use crate::pack::{self, Packed, PackedRecord};
use crate::store::{Store, find_exact};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;

impl Store {
    /// Gives a run a name, beside those that it has and those that other runs have. `asked` is what
    /// [`load`](Store::load) takes. Gives the run's id.
    ///
    /// # Errors
    /// No such run, a name that is unfit or could be taken for a run's id, or the file cannot be written.
    pub fn tag(&mut self, asked: &str, name: &str) -> Result<String, StoreError> {
        pack::check_tag(name)?;
        let id = self.resolve(asked)?;
        if begins_an_id(name, &self.ids()?) {
            return Err(StoreError::TagIsId { name: name.to_string() });
        }
        let (transaction, failed) = self.transaction()?;
        if let Some(run) = find_exact(&transaction, &id).map_err(&failed)? {
            insert_tag(&transaction, (run, &id), name).map_err(&failed)?;
        }
        transaction.commit().map_err(failed)?;
        Ok(id)
    }

    /// Takes a name from a run; whether it had it.
    ///
    /// # Errors
    /// No such run, or the file cannot be written.
    pub fn untag(&mut self, asked: &str, name: &str) -> Result<bool, StoreError> {
        let id = self.resolve(asked)?;
        let (transaction, failed) = self.transaction()?;
        let delete = "DELETE FROM main.tags WHERE tag = ?2
            AND run = (SELECT run FROM main.runs WHERE id = ?1) RETURNING run, checksum";
        let taken: Option<(i64, Option<i64>)> = transaction
            .query_one(delete, params![id, name], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(&failed)?;
        if let Some((run, checksum)) = taken {
            add_to_parts(&transaction, run, -checksum.unwrap_or(0)).map_err(&failed)?;
        }
        transaction.commit().map_err(failed)?;
        Ok(taken.is_some())
    }

    /// The names of every run that has any, by the run's id, in alphabetical order.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn tags(&self) -> Result<BTreeMap<String, Vec<String>>, StoreError> {
        let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (id, tag) in self.tag_rows()? {
            named.entry(id).or_default().push(tag);
        }
        named.values_mut().for_each(|tags| tags.sort_unstable());
        Ok(named)
    }

    /// Every name with the id of its run, by the begin of the runs.
    fn tag_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        // Not by an index, which has copies of names that no checksum covers.
        let query = "SELECT id, tag, tags.checksum FROM main.tags NOT INDEXED
            JOIN main.runs USING (run) ORDER BY started_unix_ns, run";
        let rows: Result<Vec<(String, String, Option<i64>)>, _> =
            self.connection.prepare_cached(query).and_then(|mut statement| {
                let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
                statement.query_map([], read)?.collect()
            });
        let rows = rows.map_err(|refused| self.failed(refused))?;
        let is_sound = |(id, tag, checksum): &(String, String, Option<i64>)| {
            checksum.is_none_or(|checksum| checksum == of_tag(id, tag))
        };
        match rows.iter().find(|row| !is_sound(row)) {
            Some((id, ..)) => {
                Err(self.damaged(format!("a name of run {id} does not have its checksum")))
            }
            None => Ok(rows.into_iter().map(|(id, tag, _)| (id, tag)).collect()),
        }
    }

    /// The ids of the runs of a name, the earliest first; none where nothing has it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn named(&self, name: &str) -> Result<Vec<String>, StoreError> {
        let rows = self.tag_rows()?;
        Ok(rows.into_iter().filter(|(_, tag)| tag == name).map(|(id, _)| id).collect())
    }

    /// The ids of what `asked` stands for: all runs of a name, or else the one run that
    /// [`load`](Store::load) gives.
    ///
    /// # Errors
    /// As [`load`](Store::load), with the names most like it among what is offered.
    pub fn side(&self, asked: &str) -> Result<Vec<String>, StoreError> {
        match self.named(asked)? {
            named if named.is_empty() => Ok(vec![self.resolve(asked)?]),
            named => Ok(named),
        }
    }

    /// The ids of what all of these stand for, as [`side`](Store::side), in their order and each once.
    ///
    /// # Errors
    /// As [`side`](Store::side), of the first that is refused.
    pub fn sides(&self, asked: &[String]) -> Result<Vec<String>, StoreError> {
        let mut ids = Vec::new();
        for one in asked {
            for id in self.side(one)? {
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
        Ok(ids)
    }

    /// Forgets a run, its records and its names; gives its id. Its space is used again by later runs;
    /// [`vacuum`](Store::vacuum) gives it back.
    ///
    /// # Errors
    /// As [`load`](Store::load), or the file cannot be written: then nothing is forgotten.
    pub fn delete(&mut self, asked: &str) -> Result<String, StoreError> {
        let id = self.resolve(asked)?;
        let (transaction, failed) = self.transaction()?;
        transaction.execute("DELETE FROM main.runs WHERE id = ?", [&id]).map_err(&failed)?;
        transaction.commit().map_err(failed)?;
        Ok(id)
    }

    /// Packs records of older schemas as this one does, gives them checksums, and gives back the space of what was deleted; gives the
    /// file's length before and after, in bytes. A record that cannot be read stays as it is.
    ///
    /// # Errors
    /// No space for the copy that is made meanwhile, or the file cannot be written; every record is then as
    /// before, or packed anew.
    ///
    /// # Cost
    /// Writes the whole file anew. One record at a time is in memory.
    pub fn vacuum(&mut self) -> Result<(u64, u64), StoreError> {
        let before = self.length_bytes()?;
        self.repack()?;
        self.connection.execute_batch("VACUUM").map_err(|refused| self.failed(refused))?;
        Ok((before, self.length_bytes()?))
    }

    fn repack(&mut self) -> Result<(), StoreError> {
        let (transaction, failed) = self.transaction()?;
        let mut after = i64::MIN;
        while let Some((key, packed)) = next_old(&transaction, after).map_err(&failed)? {
            after = key;
            let Ok(record) = packed.unpack() else { continue };
            let Ok(packed) = PackedRecord::new(&record) else { continue };
            repack_record(&transaction, key, &packed).map_err(&failed)?;
        }
        seal(&transaction).map_err(&failed)?;
        transaction.commit().map_err(failed)
    }

    fn length_bytes(&self) -> Result<u64, StoreError> {
        let read = |query| self.connection.query_one(query, [], |row| row.get::<_, i64>(0));
        let bytes = read("PRAGMA page_count")
            .and_then(|pages| Ok(pages * read("PRAGMA page_size")?))
            .map_err(|refused| self.failed(refused))?;
        Ok(u64::try_from(bytes).unwrap_or(0))
    }
}

/// The first record behind that of this key that an older schema has packed, with its key.
fn next_old(connection: &Connection, after: i64) -> rusqlite::Result<Option<(i64, Packed)>> {
    let query = format!(
        "SELECT {}, record FROM main.records WHERE record > ?1 AND substr(body, 1, 1) <> ?2
            ORDER BY record LIMIT 1",
        Packed::COLUMNS
    );
    connection
        .prepare_cached(&query)?
        .query_one(params![after, [pack::FORM]], |row| Ok((row.get("record")?, Packed::of(row)?)))
        .optional()
}

fn repack_record(
    connection: &Connection,
    key: i64,
    PackedRecord { body, rounds, histogram, .. }: &PackedRecord<'_>,
) -> rusqlite::Result<usize> {
    let update = "UPDATE main.records SET body = ?2, rounds = ?3, histogram = ?4 WHERE record = ?1";
    connection.prepare_cached(update)?.execute(params![key, body, rounds, histogram])
}

/// Whether a name could be taken for the id of one of these runs, or for the begin of one.
pub(crate) fn begins_an_id(name: &str, ids: &[String]) -> bool {
    ids.iter().any(|id| id.starts_with(name))
}

/// Names a run that is there, which is given by its key and its id; nothing where it has the name already.
pub(crate) fn insert_tag(
    connection: &Connection,
    (run, run_id): (i64, &str),
    name: &str,
) -> rusqlite::Result<()> {
    let checksum = of_tag(run_id, name);
    let inserted = connection
        .prepare_cached("INSERT OR IGNORE INTO main.tags (run, tag, checksum) VALUES (?1, ?2, ?3)")?
        .execute(params![run, name, checksum])?;
    match inserted {
        0 => Ok(()),
        _ => add_to_parts(connection, run, checksum),
    }
}
