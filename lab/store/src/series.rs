//! One figure over all runs, read without the other figures.

use crate::error::StoreError;
use crate::names::truncated_for_error;
use crate::pack::RecordRow;
use crate::row::RunRow;
use crate::store::{Store, StoredRun, nearest_names};
use handover_record::{ContenderKind, Record};

/// Figure of one contender in one stored run, with a description of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredFigure {
    /// Id of the run.
    pub run: String,
    /// Start of the run, in nanoseconds since the Unix epoch.
    pub started_unix_ns: i64,
    /// Name of the host.
    pub host: String,
    /// Version of handover that measured the run.
    pub version: String,
    /// Commit of the measured build.
    pub commit: String,
    /// Record of the figure.
    pub record: Record,
}

impl Store {
    /// Returns a contender's figure in every run that has it, in order of the runs' start times.
    ///
    /// # Errors
    /// If the file cannot be read or is damaged.
    ///
    /// # Cost
    /// Reads the start of every record in the store: an index would hold copies of the ids that
    /// no checksum covers. Decompresses one record for each run that has the figure.
    pub fn figures(&self, id: &str, contender: &str) -> Result<Vec<StoredFigure>, StoreError> {
        let failed = |refused| self.sqlite_error(refused);
        self.check_row_count("records")?;
        let query = format!(
            "SELECT {}, {} FROM main.records NOT INDEXED JOIN main.runs USING (run)
            WHERE records.id = ? AND contender = ? ORDER BY runs.started_unix_ns, run, place",
            RecordRow::QUERY_COLUMNS,
            StoredRun::QUERY_COLUMNS
        );
        let mut statement = self.connection.prepare_cached(&query).map_err(failed)?;
        let mut rows = statement.query([id, contender]).map_err(failed)?;
        let mut figures = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let figure = RecordRow::from_row(row).map_err(failed)?;
            let stored = StoredRun::from_row_after_columns(row, RecordRow::QUERY_COLUMNS_COUNT)
                .map_err(failed)?;
            let damaged = |reason: String| self.damaged_run_error(&stored.row.id, reason);
            let record = figure.unpack().map_err(damaged)?;
            stored.check().map_err(damaged)?;
            if !figure.has_valid_checksum(&stored.row.id) {
                return Err(damaged(format!("the checksum of {id} [{contender}] is wrong")));
            }
            let RunRow { id: run, started_unix_ns, host, version, commit, .. } = stored.row;
            figures.push(StoredFigure { run, started_unix_ns, host, version, commit, record });
        }
        Ok(figures)
    }

    /// Returns the name of a contender of the figure `id`: `named`, if the figure has it. Without
    /// `named`, it is our contender, or else the first.
    ///
    /// # Errors
    /// If no run has the figure or the contender, with the most similar names, or if the file
    /// cannot be read.
    pub fn resolve_contender(&self, id: &str, named: Option<&str>) -> Result<String, StoreError> {
        let query = "SELECT DISTINCT id, contender, kind FROM main.records ORDER BY id, contender";
        let names: Result<Vec<(String, String, String)>, _> =
            self.connection.prepare_cached(query).and_then(|mut statement| {
                let rows =
                    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
                rows.collect()
            });
        let names = names.map_err(|refused| self.sqlite_error(refused))?;
        let of_it: Vec<_> = names.iter().filter(|name| name.0 == id).collect();
        let ours = ContenderKind::Ours.to_string();
        let found = match named {
            Some(named) => of_it.iter().find(|name| name.1 == named),
            None => of_it.iter().find(|name| name.2 == ours).or(of_it.first()),
        };
        if let Some(found) = found {
            return Ok(found.1.clone());
        }
        let known = |pick: fn(&(String, String, String)) -> &String| -> Vec<String> {
            let mut known: Vec<String> = match of_it.is_empty() {
                true => names.iter().map(pick).cloned().collect(),
                false => of_it.iter().map(|name| pick(name)).cloned().collect(),
            };
            known.dedup();
            known
        };
        let (selector, known) = match (named, of_it.is_empty()) {
            (Some(named), false) => (format!("{id} [{named}]"), known(|name| &name.1)),
            _ => (id.to_string(), known(|name| &name.0)),
        };
        let like = named.filter(|_| !of_it.is_empty()).unwrap_or(id);
        Err(StoreError::UnknownFigure {
            selector: truncated_for_error(&selector),
            nearest_names: nearest_names(like, &known),
        })
    }
}
