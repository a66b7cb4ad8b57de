//! A folder for traces while they are looked at.

use crate::error::AnatomyError;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder in memory if there is one, which goes with this.
#[derive(Debug)]
pub(crate) struct Scratch(pub PathBuf);

impl Scratch {
    pub fn make() -> Result<Self, AnatomyError> {
        // Relaxed: a number of its own is all that is wanted.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "handover-anatomy-{}-{}",
            std::process::id(),
            MADE.fetch_add(1, Ordering::Relaxed)
        );
        let in_memory = Path::new("/dev/shm").join(&name);
        if std::fs::create_dir(&in_memory).is_ok() {
            return Ok(Self(in_memory));
        }
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).map_err(AnatomyError::at(&folder))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes a folder with all that is in it. What cannot be removed is left: nothing depends on it.
pub(crate) fn remove(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder);
}
