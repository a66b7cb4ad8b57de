//! A folder for traces while they are looked at.

use crate::error::AnatomyError;
use handover_harness::Scratch;
use std::path::Path;

const PREFIX: &str = "handover-anatomy-";

/// A folder in memory if there is one.
pub(crate) fn make() -> Result<Scratch, AnatomyError> {
    if let Ok(in_memory) = Scratch::new(PREFIX, Path::new("/dev/shm")) {
        return Ok(in_memory);
    }
    let folder = std::env::temp_dir();
    Scratch::new(PREFIX, &folder).map_err(AnatomyError::at(&folder))
}

/// Removes a folder with all that is in it. What cannot be removed is left: nothing depends on it.
pub(crate) fn remove(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder);
}
