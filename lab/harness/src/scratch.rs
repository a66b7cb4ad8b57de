//! Temporary folders. A program removes its own folders, and those of killed programs.

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::process::geteuid;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A temporary folder that is removed on drop. A file lock, released by the kernel when the process
/// exits, marks it as in use.
#[derive(Debug)]
pub struct ScratchFolder {
    path: PathBuf,
    _lock: OwnedFd,
}

impl ScratchFolder {
    /// Creates a folder in `within` with a name that starts with `prefix`. Also removes such
    /// folders of this user that no process uses.
    ///
    /// # Errors
    /// Fails if no folder can be created there.
    pub fn new(prefix: &str, within: &Path) -> io::Result<ScratchFolder> {
        remove_unused(prefix, within);
        let mut number = 0;
        loop {
            let path = within.join(format!("{prefix}{}-{number}", std::process::id()));
            number += 1;
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                Err(refused) if refused.kind() == ErrorKind::AlreadyExists => continue,
                Err(refused) => return Err(refused),
            }
            // Another process may have removed it as unused before it was locked.
            if let Some(lock) = lock_folder(&path) {
                return Ok(ScratchFolder { path, _lock: lock });
            }
        }
    }

    /// Returns the folder's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // Errors are ignored: nothing depends on the removal.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Locks this user's folder at `path`; `None` if it does not exist or is already locked.
fn lock_folder(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, path, flags, Mode::empty()).ok()?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
    let (locked, there) = (fstat(&folder).ok()?, fs::symlink_metadata(path).ok()?);
    let is_ours = locked.st_uid == geteuid().as_raw();
    (is_ours && (locked.st_dev, locked.st_ino) == (there.dev(), there.ino())).then_some(folder)
}

/// Removes folders that killed processes have left in `within`, if their names start with `prefix`.
/// Errors are ignored: nothing depends on the removal.
fn remove_unused(prefix: &str, within: &Path) {
    let Ok(entries) = fs::read_dir(within) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix)
            && let Some(_lock) = lock_folder(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_in_use_remains_and_folder_of_a_killed_process_is_removed() {
        let around = tempfile::tempdir().expect("create a temporary folder");
        let used = ScratchFolder::new("program-", around.path()).expect("create a scratch folder");
        let [left, other] = ["program-left", "another"].map(|name| around.path().join(name));
        for folder in [&left, &other] {
            fs::create_dir(folder).expect("create the folder");
            fs::write(folder.join("file"), "left").expect("write the file");
        }
        let next = ScratchFolder::new("program-", around.path()).expect("create a scratch folder");
        assert!(used.path().exists() && next.path().exists() && other.join("file").exists());
        assert!(!left.exists(), "the unused folder was not removed");
        let paths = [used.path().to_path_buf(), next.path().to_path_buf()];
        drop((used, next));
        assert!(!paths.iter().any(|path| path.exists()));
    }
}
