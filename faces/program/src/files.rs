//! Files that are written: without blocking, and replaced atomically.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Creates a file, or truncates an existing one. Does not block: a pipe without a reader is an
/// error.
///
/// # Errors
/// If the file cannot be opened.
pub fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let file = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let file = file.map_err(|refused| match Errno::from_io_error(&refused) {
        Some(Errno::NXIO) => io::Error::other("no process reads this pipe"),
        _ => refused,
    })?;
    // Writes wait for the reader as usual.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Writes a file opened by [`create`].
///
/// # Errors
/// If the file cannot be opened or completely written.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create(path)?.write_all(bytes)
}

/// Reads a regular text file. Other files are not opened: a pipe may never have a writer.
///
/// # Errors
/// If the file is not regular or cannot be read.
pub fn read_text(path: &Path) -> io::Result<String> {
    match fs::metadata(path)?.is_file() {
        true => fs::read_to_string(path),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Replaces a file atomically: writes another file in the same folder and renames it, so that
/// readers see the old or the new content, and a failed write leaves the old file. A file that is
/// not regular (a pipe, `/dev/null`), and an existing file in a folder without write permission, is
/// written in place.
pub fn replace(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    replace_by(path, |mut file| file.write_all(bytes.as_ref()))
}

/// Replaces a file as [`replace`] does, with the content that `write` writes.
pub fn replace_by<T>(path: &Path, write: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
    let replacement = Replacement::begin(path)?;
    let written = write(&replacement.file)?;
    replacement.commit()?;
    Ok(written)
}

/// New content of a file, which appears there as a whole by [`commit`](Self::commit), as [`replace`]
/// describes. Dropped before, it leaves the file as it was.
#[derive(Debug)]
pub struct Replacement {
    file: File,
    /// The partial file and the one that it replaces; `None` if the file is written in place.
    names: Option<(PathBuf, PathBuf)>,
}

impl Replacement {
    /// Creates the partial file.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn begin(path: &Path) -> io::Result<Replacement> {
        // A symbolic link stays, and its target is replaced.
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(error) if path.is_symlink() => return Err(error),
            Err(_) => path.to_path_buf(),
        };
        let there = fs::metadata(&target).ok();
        let in_place = || Ok(Replacement { file: create(&target)?, names: None });
        if there.as_ref().is_some_and(|it| !it.is_file()) {
            return in_place();
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let beside = target.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let file = match File::create_new(&beside) {
            Err(_) if there.is_some() => return in_place(),
            made => made?,
        };
        let replacement = Replacement { file, names: Some((beside, target)) };
        if let Some(there) = there {
            replacement.file.set_permissions(there.permissions())?;
        }
        Ok(replacement)
    }

    /// Makes the content that was written the file's.
    ///
    /// # Errors
    /// If the partial file cannot be renamed; the file is then as it was.
    pub fn commit(mut self) -> io::Result<()> {
        if let Some((beside, target)) = &self.names {
            fs::rename(beside, target)?;
        }
        self.names = None;
        Ok(())
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.names {
            // A failure to remove the partial file is ignored.
            let _ = fs::remove_file(beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_mode_and_its_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (page, link) = (folder.path().join("page.html"), folder.path().join("link"));
        fs::write(&page, "the old one").expect("a page");
        fs::set_permissions(&page, fs::Permissions::from_mode(0o640)).expect("a mode");
        symlink("page.html", &link).expect("a link");
        replace(&link, "the new one").expect("written");
        assert_eq!(fs::read_to_string(&page).expect("a page"), "the new one");
        assert_eq!(fs::metadata(&page).expect("a page").permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing beside");
    }

    #[test]
    fn a_replacement_that_is_not_committed_leaves_the_file_and_nothing_beside() {
        let folder = tempfile::tempdir().expect("a folder");
        let page = folder.path().join("page.html");
        fs::write(&page, "the old one").expect("a page");
        let mut replacement = Replacement::begin(&page).expect("a partial file");
        replacement.write_all(b"half of").expect("written");
        assert_eq!(fs::read_to_string(&page).expect("a page"), "the old one");
        drop(replacement);
        assert_eq!(fs::read_to_string(&page).expect("a page"), "the old one");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing beside");
    }

    #[test]
    fn a_device_stays_one_and_a_folder_that_is_not_there_is_refused() {
        replace(Path::new("/dev/null"), "gone").expect("taken");
        let kind = fs::metadata("/dev/null").expect("a device").file_type();
        assert!(kind.is_char_device());
        let folder = tempfile::tempdir().expect("a folder");
        let refused = replace(&folder.path().join("no/page.html"), "").expect_err("no folder");
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
    }
}
