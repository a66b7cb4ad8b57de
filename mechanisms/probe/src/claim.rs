//! The file of a recording: whose it is, and what may take whose place.
//!
//! Nothing is replaced but a trace that nobody records into, and that by renaming. Who records holds a lock
//! on the file, which the kernel gives back when the process is killed.

use crate::format::{self, Header, PAGE_BYTES};
use handover_base::clock;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Makes the file of a recording, with its first page, and locks it for as long as it is open. An older
/// trace there is replaced by renaming: whoever has it mapped keeps it.
///
/// # Errors
/// `AlreadyExists` if somebody records there; `InvalidInput` if what is there is no trace, which then stays.
pub fn create(path: &Path, page: &[u8]) -> io::Result<File> {
    // Of a link, what it names is replaced.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // Another round when a file has come or gone meanwhile.
    for _ in 0..ROUNDS_MAX {
        match options().create_new(true).open(path) {
            Ok(file) => {
                if lock(&file) && is_at(&file, path) {
                    begin(&file, page).inspect_err(|_| drop(std::fs::remove_file(path)))?;
                    return Ok(file);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let old = match options().open(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    opened => opened.map_err(|error| refusal(path).unwrap_or(error))?,
                };
                if let Some(refusal) = refusal(path) {
                    return Err(refusal);
                }
                if let Some(file) = replace(&old, path, page)? {
                    return Ok(file);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "others make and remove it all the time"))
}

/// How often a file is looked at anew that others change.
const ROUNDS_MAX: u32 = 100;

/// How files are opened that may be something else: a FIFO would be waited for.
fn options() -> OpenOptions {
    let mut options = File::options();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.read(true).write(true).custom_flags(flags.bits().cast_signed());
    options
}

/// Why what is at `path` is not to be replaced: it is no trace, and not empty.
fn refusal(path: &Path) -> Option<io::Error> {
    let refused = |why| Some(io::Error::new(io::ErrorKind::InvalidInput, why));
    match std::fs::symlink_metadata(path) {
        Ok(data) if data.is_symlink() => refused("it is a link to nothing"),
        Ok(data) if !data.is_file() => refused("it is not a regular file"),
        Ok(data) if data.len() > 0 && !is_trace(path) => {
            refused("it is there already, and is no trace: name another file")
        }
        _ => None,
    }
}

/// Refuses what [`create`] would refuse, and a folder in which no file can be made.
///
/// # Errors
/// As [`create`].
pub fn check(path: &Path) -> io::Result<()> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(refusal) = refusal(path) {
        return Err(refusal);
    }
    let beside = beside(path);
    options().create_new(true).open(&beside)?;
    std::fs::remove_file(&beside)
}

/// A name for a file that is to take the place of another.
fn beside(path: &Path) -> PathBuf {
    with_suffix(path, &format!("{}.{:x}.new", std::process::id(), clock::now_ns()))
}

/// Whether a file begins as traces do.
#[must_use]
pub fn is_trace(path: &Path) -> bool {
    let mut magic = [0; 8];
    let read = options().write(false).open(path).and_then(|file| file.read_exact_at(&mut magic, 0));
    read.is_ok() && magic == format::MAGIC.to_le_bytes()
}

/// Puts a new file in the place of `old`, a trace; `None` if `old` is not at `path` any more.
fn replace(old: &File, path: &Path, page: &[u8]) -> io::Result<Option<File>> {
    // As long as it is locked, nobody else replaces it.
    if !lock(old) || is_recorded(old) {
        let why = "a process records there";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    if !is_at(old, path) {
        return Ok(None);
    }
    let beside = beside(path);
    let file = options().create_new(true).open(&beside)?;
    let made = if lock(&file) { Ok(()) } else { Err(Errno::WOULDBLOCK.into()) };
    let renamed =
        made.and_then(|()| begin(&file, page)).and_then(|()| std::fs::rename(&beside, path));
    // If this fails too, an empty file is left.
    renamed.inspect_err(|_| drop(std::fs::remove_file(&beside)))?;
    Ok(Some(file))
}

fn begin(file: &File, page: &[u8]) -> io::Result<()> {
    reserve(file, 0, page.len() as u64)?;
    file.write_all_at(page, 0)
}

/// Returns `false` if somebody else has locked it. Where files cannot be locked, their header says who
/// records.
#[must_use]
pub fn lock(file: &File) -> bool {
    let locked = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    locked != Err(Errno::WOULDBLOCK)
}

/// Lets others replace what [`create`] has made: processes that were forked meanwhile keep it open.
pub fn release(file: &File) {
    // If this fails, it is released when the last of them has ended.
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

/// Whether `file` is what `path` names.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let identity = |data: std::fs::Metadata| (data.dev(), data.ino());
    let there = std::fs::symlink_metadata(path).map(identity);
    file.metadata().map(identity).is_ok_and(|ours| there.is_ok_and(|there| there == ours))
}

/// Whether the process lives that has begun to write a trace and has not finished it. This one counts too:
/// it may have recorded there before it became another program.
fn is_recorded(file: &File) -> bool {
    let mut page = vec![0; PAGE_BYTES as usize];
    let header = file.read_exact_at(&mut page, 0).ok().and_then(|()| Header::decode(&page));
    header.is_some_and(|it| it.state == format::STATE_RECORDING && lives(it.pid))
}

/// Returns `true` if there is such a process.
#[must_use]
pub fn lives(pid: u32) -> bool {
    let pid = pid.try_into().ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// Whether the rings at `path` are written still, or complete a trace that was not finished. What is no rings
/// is none of ours, and needed.
#[must_use]
pub fn is_needed(path: &Path) -> bool {
    let header = |path: &Path| -> Option<(File, Header)> {
        let file = options().write(false).open(path).ok()?;
        let mut page = vec![0; PAGE_BYTES as usize];
        file.read_exact_at(&mut page, 0).ok()?;
        Some((file, Header::decode(&page)?))
    };
    let Some((file, rings)) = header(path) else { return true };
    if rings.kind != format::FILE_RINGS || !lock(&file) || lives(rings.pid) {
        return true;
    }
    let stream = Path::new(&rings.stream);
    match header(stream) {
        Some((_, trace)) => {
            trace.session == rings.session && trace.state == format::STATE_RECORDING
        }
        // Gone, or in a folder that cannot be seen from here.
        None => !stream.parent().is_some_and(|folder| folder.is_dir()),
    }
}

/// `path.suffix`.
#[must_use]
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut whole = path.as_os_str().to_owned();
    whole.push(".");
    whole.push(suffix);
    whole.into()
}

/// Blocks of the disk for a stretch of a file, so that touching it when it is mapped cannot fail.
pub(crate) fn reserve(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes) {
        Ok(()) => Ok(()),
        // Some network file systems cannot; zeroes do the same, slowly.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeroes = vec![0; PAGE_BYTES as usize];
            for at in (offset..offset + bytes).step_by(zeroes.len()) {
                let count = (offset + bytes - at).min(PAGE_BYTES) as usize;
                file.write_all_at(&zeroes[..count], at)?;
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
