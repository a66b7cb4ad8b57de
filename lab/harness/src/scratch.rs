//! Folders for a program's temporary files. A program removes its own; the next one removes those of programs
//! that were killed.

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::process::geteuid;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A folder that is removed when this is dropped. A lock on it, which ends with the process, tells others that
/// it is in use.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _lock: OwnedFd,
}

impl Scratch {
    /// Makes a folder in `within` whose name begins with `prefix`, and removes those of this user there that no
    /// process uses any more.
    ///
    /// # Errors
    /// No folder can be made there.
    pub fn new(prefix: &str, within: &Path) -> io::Result<Scratch> {
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
            if let Some(lock) = locked(&path) {
                return Ok(Scratch { path, _lock: lock });
            }
        }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays: nothing depends on it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Locks a folder of this user that is at that path; `None` where there is none, or it is locked already.
fn locked(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, path, flags, Mode::empty()).ok()?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
    let (locked, there) = (fstat(&folder).ok()?, fs::symlink_metadata(path).ok()?);
    let is_ours = locked.st_uid == geteuid().as_raw();
    (is_ours && (locked.st_dev, locked.st_ino) == (there.dev(), there.ino())).then_some(folder)
}

/// Removes what killed processes have left. What cannot be removed stays: nothing depends on it.
fn remove_unused(prefix: &str, within: &Path) {
    let Ok(entries) = fs::read_dir(within) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix)
            && let Some(_lock) = locked(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_in_use_stays_and_folder_of_a_killed_process_goes() {
        let around = tempfile::tempdir().expect("a folder");
        let used = Scratch::new("program-", around.path()).expect("a folder");
        let [left, other] = ["program-left", "another"].map(|name| around.path().join(name));
        for folder in [&left, &other] {
            fs::create_dir(folder).expect("a folder");
            fs::write(folder.join("file"), "left").expect("a file");
        }
        let next = Scratch::new("program-", around.path()).expect("a folder");
        assert!(used.path().exists() && next.path().exists() && other.join("file").exists());
        assert!(!left.exists(), "nobody uses it");
        let paths = [used.path().to_path_buf(), next.path().to_path_buf()];
        drop((used, next));
        assert!(!paths.iter().any(|path| path.exists()));
    }
}
