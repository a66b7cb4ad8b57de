//! Files of runs, written by `handover export` and `handover show --json`.

use crate::exit::to_usage_error;
use handover_base::file;
use handover_record::{Document, JSON_SCHEMA_VERSION};
use handover_store::Store;
use std::path::Path;

/// Maximum size of a file of runs in bytes.
const FILE_BYTES_MAX: u64 = 1 << 28;

/// Content of a file: runs, or something else.
pub enum RunsFileContent {
    /// Runs in the file.
    Runs(Vec<Document>),
    /// Something else, such as output of abt-eventual-bench.
    NoRuns,
}

/// Reads the runs in a file of JSON Lines or of one JSON document.
pub fn read_runs_file(path: &Path) -> anyhow::Result<RunsFileContent> {
    let named = path.display();
    let refused = |why: &dyn std::fmt::Display| to_usage_error(format!("{named}: {why}"));
    if !path.is_file() {
        return Err(refused(&"not a regular file"));
    }
    let bytes = file::read(path, FILE_BYTES_MAX).map_err(|error| refused(&error))?;
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Ok(RunsFileContent::NoRuns);
    }
    if let Ok(document) = Document::from_json(&bytes) {
        if document.schema != JSON_SCHEMA_VERSION {
            let why = format!(
                "schema {}; this handover reads schema {JSON_SCHEMA_VERSION}",
                document.schema
            );
            return Err(refused(&why));
        }
        return Ok(RunsFileContent::Runs(vec![document]));
    }
    let mut store = Store::open_in_memory()?;
    store.import(&mut &bytes[..]).map_err(|error| refused(&error))?;
    let runs = store.runs()?;
    let documents: Result<Vec<_>, _> = runs.iter().map(|run| store.load_run(&run.id)).collect();
    Ok(RunsFileContent::Runs(documents?))
}
