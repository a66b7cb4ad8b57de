//! File output without blocking, and atomic replacement of files.

use crate::exit::to_usage_error;
use anyhow::Context;
use handover_base::file;
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_setfl, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Creates a file, or truncates an existing one. Does not block: a pipe without a reader is an
/// error.
///
/// # Errors
/// If the file cannot be opened, or [`check_output_path`] refuses it.
pub fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    open_output(path, options.create(true).truncate(true))
}

/// Opens an output file with `options`, as [`create_file`] describes.
fn open_output(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    check_output_path(path)?;
    options.write(true);
    let file = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let file = file.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => io::Error::other("no process reads this pipe"),
        _ => error,
    })?;
    // Writes wait for the reader as usual.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Creates or truncates a file as [`create_file`] does, and writes its whole content.
///
/// # Errors
/// If the file cannot be opened or completely written.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_file(path)?.write_all(bytes)
}

/// Writes a chart to a file, as [`write_file`] does.
///
/// # Errors
/// A [`UsageError`](crate::exit::UsageError) if the file cannot be opened, another error if it
/// cannot be completely written.
pub fn write_chart(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let named = path.display();
    let mut file = create_file(path)
        .map_err(|error| to_usage_error(format!("cannot write the chart {named}: {error}")))?;
    file.write_all(bytes).with_context(|| format!("cannot write the chart {named}"))
}

/// Checks the path of an output file: that it is not `-`, which stands for standard output
/// elsewhere, and not an SQLite database, such as a store of results, which the output would
/// destroy.
///
/// # Errors
/// If it is one of these.
pub fn check_output_path(path: &Path) -> io::Result<()> {
    if path == Path::new("-") {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "name a file; /dev/stdout is standard output, ./- a file of this name",
        ));
    }
    const FIRST_BYTES: [u8; 16] = *b"SQLite format 3\0";
    // A pipe is not opened: it may never have a writer.
    let mut bytes = [0; FIRST_BYTES.len()];
    let is_database = fs::metadata(path).is_ok_and(|it| it.is_file())
        && File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).is_ok()
        && bytes == FIRST_BYTES;
    match is_database {
        true => Err(io::Error::other(
            "it is a database, such as a store of results, and is not replaced",
        )),
        false => Ok(()),
    }
}

/// Formats the error of creating the file that an option names, with a remedy.
pub fn format_create_error(error: &io::Error) -> String {
    match error.kind() {
        // The error of check_output_path for `-`, which has a remedy.
        io::ErrorKind::InvalidInput => error.to_string(),
        _ => format!("{error}; name a file that can be written"),
    }
}

/// Returns the path of a file, existing or not, with its symbolic links resolved. A link to
/// something that has no path, as `/dev/stdout` is if the output is a pipe or a deleted file,
/// remains.
///
/// # Errors
/// If it is a link whose target does not exist.
pub fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(target) => Ok(target),
        Err(_) if path.is_symlink() && !path.exists() => {
            Err(io::Error::other("the target of this link does not exist"))
        }
        Err(_) => Ok(path.to_path_buf()),
    }
}

/// Reads a regular text file of at most 16 MiB. Other files are not opened: a pipe may never have a
/// writer.
///
/// # Errors
/// If the file is not regular, longer, not UTF-8 or cannot be read.
pub fn read_text(path: &Path) -> io::Result<String> {
    match fs::metadata(path)?.is_file() {
        true => file::read_text(path, file::LENGTH_MAX_BYTES),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Replaces a file atomically. Writes another file in the same folder and renames it, so that
/// readers see the old or the new content, and a failed write leaves the old file. A file that is
/// not regular (a pipe, `/dev/null`), and an existing file in a folder without write permission, is
/// written in place.
pub fn replace_file(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    replace_file_with(path, |mut file| file.write_all(bytes.as_ref()))
}

/// Replaces a file as [`replace_file`] does, with the content that `write` writes.
pub fn replace_file_with<T>(
    path: &Path,
    write: impl FnOnce(&File) -> io::Result<T>,
) -> io::Result<T> {
    let mut replacement = FileReplacement::create(path)?;
    replacement.remove_old_content()?;
    let written = write(&replacement.file)?;
    replacement.commit()?;
    Ok(written)
}

/// New content of a file, collected in a partial file beside it. [`commit`](Self::commit) puts it
/// in place, as [`replace_file`] describes. If dropped before, the file remains unchanged, unless
/// it is written in place and something was written.
#[derive(Debug)]
pub struct FileReplacement {
    file: File,
    /// Paths of the partial file and of the target; `None` if the target itself is written.
    paths: Option<(PathBuf, PathBuf)>,
    /// `true` while a target that is written in place has its old content.
    has_old_content: bool,
}

impl FileReplacement {
    /// Creates the partial file, or opens the target if it must be written in place.
    ///
    /// # Errors
    /// If the file cannot be created or opened, or [`check_output_path`] refuses it.
    pub fn create(path: &Path) -> io::Result<FileReplacement> {
        check_output_path(path)?;
        // A symbolic link remains, and its target is replaced.
        let target = resolve_links(path)?;
        let there = fs::metadata(&target).ok();
        let is_file = there.as_ref().is_some_and(fs::Metadata::is_file);
        let in_place = || {
            let file = open_output(&target, &mut OpenOptions::new())?;
            Ok(FileReplacement { file, paths: None, has_old_content: is_file })
        };
        // A link without a path is not replaced by a file either: it may lead to one that was
        // deleted.
        if there.is_some() && !is_file || target.is_symlink() {
            return in_place();
        }
        remove_leftovers(&target);
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let beside = target.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let file = loop {
            let file = match File::create_new(&beside) {
                Err(_) if there.is_some() => return in_place(),
                made => made?,
            };
            // Held for as long as the file is open: shows other processes that it is in use. Fails
            // on a file system without locks; then only the process id shows that.
            let _ = flock(&file, FlockOperation::LockExclusive);
            // Another process may have removed it as a leftover before it was locked.
            if file.metadata()?.nlink() > 0 {
                break file;
            }
        };
        let replacement =
            FileReplacement { file, paths: Some((beside, target)), has_old_content: false };
        if let Some(there) = there {
            replacement.file.set_permissions(there.permissions())?;
        }
        Ok(replacement)
    }

    /// Removes the old content of a target that is written in place, before the first write.
    fn remove_old_content(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.has_old_content) {
            true => self.file.set_len(0),
            false => Ok(()),
        }
    }

    /// Renames the partial file to the target, unless the target was written in place.
    ///
    /// # Errors
    /// If the partial file cannot be renamed; the target is then unchanged.
    pub fn commit(mut self) -> io::Result<()> {
        self.remove_old_content()?;
        if let Some((beside, target)) = &self.paths {
            fs::rename(beside, target)?;
        }
        self.paths = None;
        Ok(())
    }
}

/// Removes partial files that killed processes have left beside `target`. Errors are ignored.
fn remove_leftovers(target: &Path) {
    let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else { return };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = fs::read_dir(folder) else { return };
    let start = format!(".{}.", name.to_string_lossy());
    for entry in entries.flatten() {
        let its_name = entry.file_name();
        let its_name = its_name.to_string_lossy();
        let pid = its_name.strip_prefix(&*start).and_then(|rest| rest.strip_suffix(".part"));
        if pid.and_then(|pid| pid.parse().ok()).is_some_and(has_exited) {
            let _ = remove_unlocked(&entry.path());
        }
    }
}

/// Returns `true` if no other process has this id.
fn has_exited(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let is_own = |pid: Pid| pid == rustix::process::getpid();
    pid.is_some_and(|pid| is_own(pid) || test_kill_process(pid) == Err(Errno::SRCH))
}

/// Removes a regular file unless a process has locked it. A process of another pid namespace may be
/// writing it, with an id that no process has here.
fn remove_unlocked(path: &Path) -> io::Result<()> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        fs::remove_file(path)?;
    }
    Ok(())
}

impl Write for FileReplacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.remove_old_content()?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for FileReplacement {
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.paths {
            // A failure to remove the partial file is ignored.
            let _ = fs::remove_file(beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    #[test]
    fn replaced_file_keeps_its_mode_and_link() {
        let folder = tempfile::tempdir().expect("create a temporary folder");
        let (page, link) = (folder.path().join("page.html"), folder.path().join("link"));
        fs::write(&page, "the old one").expect("write the file");
        fs::set_permissions(&page, fs::Permissions::from_mode(0o640)).expect("set the permissions");
        symlink("page.html", &link).expect("create the link");
        replace_file(&link, "the new one").expect("replace the file");
        assert_eq!(fs::read_to_string(&page).expect("read the file"), "the new one");
        assert_eq!(fs::metadata(&page).expect("stat the file").permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).expect("stat the link").is_symlink());
        assert_eq!(
            fs::read_dir(folder.path()).expect("list the folder").count(),
            2,
            "the folder has further files"
        );
    }

    /// Returns the path of the system's link to an open file of this process.
    fn link_to_open_file(file: &impl AsRawFd) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
    }

    #[test]
    fn link_to_a_pipe_without_a_path_is_written() {
        let (mut reader, writer) = std::io::pipe().expect("create a pipe");
        replace_file(&link_to_open_file(&writer), "through the pipe").expect("write to the pipe");
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("read the pipe");
        assert_eq!(text, "through the pipe");
    }

    #[test]
    fn link_to_a_deleted_file_stays_a_link() {
        let folder = tempfile::tempdir().expect("create a temporary folder");
        let mut deleted = tempfile::tempfile().expect("create a file without a name");
        let link = folder.path().join("link");
        symlink(link_to_open_file(&deleted), &link).expect("create the link");
        replace_file(&link, "into the file").expect("write the file");
        assert!(fs::symlink_metadata(&link).expect("stat the link").is_symlink());
        let mut text = String::new();
        deleted.read_to_string(&mut text).expect("read the file");
        assert_eq!(text, "into the file");
    }

    #[test]
    fn dropped_replacement_leaves_only_the_old_file() {
        let folder = tempfile::tempdir().expect("create a temporary folder");
        let page = folder.path().join("page.html");
        fs::write(&page, "the old one").expect("write the file");
        let mut replacement = FileReplacement::create(&page).expect("create the partial file");
        replacement.write_all(b"half of").expect("write to the file");
        assert_eq!(fs::read_to_string(&page).expect("read the file"), "the old one");
        drop(replacement);
        assert_eq!(fs::read_to_string(&page).expect("read the file"), "the old one");
        assert_eq!(
            fs::read_dir(folder.path()).expect("list the folder").count(),
            1,
            "the folder has further files"
        );
    }

    #[test]
    fn dropped_replacement_in_place_leaves_the_old_content() {
        let folder = tempfile::tempdir().expect("create a temporary folder");
        // The name of a partial file beside it would be too long.
        let page = folder.path().join("n".repeat(250));
        fs::write(&page, "the old one").expect("write the file");
        drop(FileReplacement::create(&page).expect("open the file"));
        assert_eq!(fs::read_to_string(&page).expect("read the file"), "the old one");
        replace_file(&page, "new").expect("replace the file");
        assert_eq!(fs::read_to_string(&page).expect("read the file"), "new");
        FileReplacement::create(&page).and_then(FileReplacement::commit).expect("empty the file");
        assert_eq!(fs::read_to_string(&page).expect("read the file"), "");
    }

    /// Environment variable that makes this test program write the named file.
    const WRITER: &str = "HANDOVER_TEST_WRITER";

    /// Not a test: the process that [`partial_file_of_a_killed_writer_is_removed_by_the_next`]
    /// kills.
    #[test]
    fn writer_that_is_killed() {
        let Some(path) = std::env::var_os(WRITER) else { return };
        let mut replacement =
            FileReplacement::create(Path::new(&path)).expect("create the partial file");
        replacement.write_all(b"half of").expect("write to the file");
        std::thread::sleep(std::time::Duration::from_secs(600));
    }

    #[test]
    fn partial_file_of_a_killed_writer_is_removed_by_the_next() {
        let folder = tempfile::tempdir().expect("create a temporary folder");
        let page = folder.path().join("page.html");
        let paths = || -> Vec<String> {
            let entries = fs::read_dir(folder.path())
                .expect("list the folder")
                .map(|it| it.expect("read a folder entry"));
            let mut paths: Vec<_> = entries
                .map(|it| it.file_name().into_string().expect("the file name is not UTF-8"))
                .collect();
            paths.sort_unstable();
            paths
        };
        let others =
            [".other.html.1073741824.part", ".page.html.x.part", "page.html.1073741824.part"];
        for other in others {
            fs::write(folder.path().join(other), "not of this file").expect("write the file");
        }
        // No process has such a number.
        let link = ".page.html.1073741824.part";
        symlink("page.html", folder.path().join(link)).expect("create the link");
        let this = std::env::current_exe().expect("find this program");
        let mut writer = std::process::Command::new(this)
            .args(["--exact", "files::tests::writer_that_is_killed"])
            .env(WRITER, &page)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("a process");
        let partial = format!(".page.html.{}.part", writer.id());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while fs::read(folder.path().join(&partial)).is_ok_and(|it| it.is_empty())
            || !paths().contains(&partial)
        {
            assert!(std::time::Instant::now() < until, "{:?}", paths());
            std::thread::yield_now();
        }
        replace_file(&page, "complete").expect("replace the file");
        assert!(paths().contains(&partial), "the partial file of a running writer was removed");
        writer.kill().expect("kill the writer");
        writer.wait().expect("it has ended");
        assert!(paths().contains(&partial), "the partial file of a killed writer was kept");
        replace_file(&page, "complete again").expect("replace the file");
        let mut expected = others.to_vec();
        expected.extend([link, "page.html"]);
        expected.sort_unstable();
        assert_eq!(paths(), expected);
    }

    #[test]
    fn locked_partial_file_is_kept() {
        let folder = tempfile::tempdir().expect("create a temporary folder");
        let page = folder.path().join("page.html");
        // As if held by a process of another pid namespace.
        let partial = folder.path().join(".page.html.1073741824.part");
        let file = File::create_new(&partial).expect("create the file");
        flock(&file, FlockOperation::LockExclusive).expect("a lock");
        replace_file(&page, "complete").expect("replace the file");
        assert!(partial.exists());
        // Not by closing the file: a child that another test has just forked holds it open until it
        // executes a program.
        flock(&file, FlockOperation::Unlock).expect("unlock the file");
        replace_file(&page, "complete").expect("replace the file");
        assert!(!partial.exists());
    }

    #[test]
    fn device_is_written_in_place_and_missing_folder_is_refused() {
        replace_file(Path::new("/dev/null"), "gone").expect("taken");
        let kind = fs::metadata("/dev/null").expect("a device").file_type();
        assert!(kind.is_char_device());
        let folder = tempfile::tempdir().expect("create a temporary folder");
        let error = replace_file(&folder.path().join("no/page.html"), "").expect_err("no folder");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
