//! Temporary folders for traces.

use crate::error::AnatomyError;
use handover_harness::ScratchFolder;
use std::path::Path;

const PREFIX: &str = "handover-anatomy-";

/// Creates a temporary folder in `/dev/shm` or, if that fails, in the default temporary folder.
pub(crate) fn create_scratch_folder() -> Result<ScratchFolder, AnatomyError> {
    if let Ok(in_memory) = ScratchFolder::new(PREFIX, Path::new("/dev/shm")) {
        return Ok(in_memory);
    }
    let folder = std::env::temp_dir();
    ScratchFolder::new(PREFIX, &folder).map_err(AnatomyError::from_io_error_at(&folder))
}

/// Removes a folder with its contents. Errors are ignored: nothing depends on the removal.
pub(crate) fn remove_scratch_folder(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder);
}
