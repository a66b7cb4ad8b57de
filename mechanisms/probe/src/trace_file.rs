//! Ownership of a recording's file, and the rules for replacing one.
//!
//! Only a trace that no process records into is replaced, by renaming. A recording process holds a
//! lock on its file, which the kernel releases when the process is killed.

use crate::format::{self, PAGE_BYTES, TraceHeader};
use crate::raw::signals;
use handover_base::clock;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Creates and locks a recording's file at `path`, with `page` as its first page. An older trace at
/// the path is replaced by renaming, so that processes that have mapped it can still use it.
///
/// # Errors
/// `AlreadyExists` if another process records to this file; `InvalidInput` if the path names
/// something that is not a trace, which then stays.
pub fn create_trace_file(path: &Path, page: &[u8]) -> io::Result<File> {
    // For a link, its target is replaced.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // Repeated if a file was created or removed in between.
    for _ in 0..ATTEMPTS_MAX {
        match trace_open_options().create_new(true).open(path) {
            Ok(file) => {
                if lock_file(&file) && is_at_path(&file, path) {
                    write_first_page(&file, page)
                        .inspect_err(|_| drop(std::fs::remove_file(path)))?;
                    return Ok(file);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let old = match trace_open_options().open(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    opened => opened.map_err(|error| replace_refusal(path).unwrap_or(error))?,
                };
                if let Some(refusal) = replace_refusal(path) {
                    return Err(refusal);
                }
                if let Some(file) = replace(&old, path, page)? {
                    return Ok(file);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        "cannot create the file after 100 attempts: other processes keep creating and removing it",
    ))
}

/// Removes the trace at `path` that [`create_trace_file`] has created for a recording that could
/// not start. Until then, its header keeps other processes from replacing it.
pub(crate) fn discard_trace_file(path: &Path) {
    // For a link, its target was created. A failure only leaves the file in place.
    let _ = std::fs::remove_file(path.canonicalize().as_deref().unwrap_or(path));
}

/// Maximum number of attempts to create a file while other processes create and remove it.
const ATTEMPTS_MAX: u32 = 100;

/// Returns options for opening a trace without following a symbolic link, or blocking on a FIFO.
fn trace_open_options() -> OpenOptions {
    let mut options = File::options();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.read(true).write(true).custom_flags(flags.bits().cast_signed());
    options
}

/// Returns an error if `path` must not be replaced. It then exists, and is neither a trace nor an
/// empty file.
fn replace_refusal(path: &Path) -> Option<io::Error> {
    let refused = |why| Some(io::Error::new(io::ErrorKind::InvalidInput, why));
    match std::fs::symlink_metadata(path) {
        Ok(data) if data.is_symlink() => {
            refused("the path is a symbolic link to a file that does not exist: name another file")
        }
        Ok(data) if !data.is_file() => refused("the path is not a regular file: name another file"),
        Ok(data) if data.len() > 0 && !is_trace(path) => {
            refused("the file exists and is not a trace: name another file")
        }
        _ => None,
    }
}

/// Checks that [`create_trace_file`] would accept the path. Also checks that a file can be created
/// in its folder.
///
/// # Errors
/// Like [`create_trace_file`].
pub fn check_trace_path(path: &Path) -> io::Result<()> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(refusal) = replace_refusal(path) {
        return Err(refusal);
    }
    let temporary = temporary_path(path);
    trace_open_options().create_new(true).open(&temporary)?;
    std::fs::remove_file(&temporary)
}

/// Returns a temporary path in the folder of `path`, for a file that will replace `path`.
fn temporary_path(path: &Path) -> PathBuf {
    with_suffix(path, &format!("{}.{:x}.new", std::process::id(), clock::now_ns()))
}

/// Returns `true` if the file starts with the magic number of a trace.
#[must_use]
pub fn is_trace(path: &Path) -> bool {
    let mut magic = [0; 8];
    let read = open_trace_for_read(path).and_then(|file| file.read_exact_at(&mut magic, 0));
    read.is_ok() && magic == format::MAGIC.to_le_bytes()
}

/// Opens the file at `path` for reading.
///
/// # Errors
/// Like [`File::open`]; also if the path is a symbolic link.
pub fn open_trace_for_read(path: &Path) -> io::Result<File> {
    trace_open_options().write(false).open(path)
}

/// Opens the regular file at `path` for reading. A symbolic link is followed.
///
/// # Errors
/// Like [`File::open`]; also if the path leads to something else, such as a FIFO or a device.
pub fn open_regular_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    // A FIFO without a writer does not block.
    let file = options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Creates a file that replaces the trace `old` at `path`. Returns `None` if `old` is no longer at
/// `path`.
fn replace(old: &File, path: &Path, page: &[u8]) -> io::Result<Option<File>> {
    // While this process holds the lock, no other replaces the file.
    if !lock_file(old) || is_being_recorded(old) {
        let why = "another process is recording to this file";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    if !is_at_path(old, path) {
        return Ok(None);
    }
    let temporary = temporary_path(path);
    let file = trace_open_options().create_new(true).open(&temporary)?;
    let locked = if lock_file(&file) { Ok(()) } else { Err(Errno::WOULDBLOCK.into()) };
    let renamed = locked
        .and_then(|()| write_first_page(&file, page))
        .and_then(|()| std::fs::rename(&temporary, path));
    // If this removal fails too, the new file is left behind.
    renamed.inspect_err(|_| drop(std::fs::remove_file(&temporary)))?;
    Ok(Some(file))
}

/// Allocates disk space for the file's first page, and writes the page.
fn write_first_page(file: &File, page: &[u8]) -> io::Result<()> {
    reserve_bytes(file, 0, page.len() as u64)?;
    file.write_all_at(page, 0)
}

/// Locks the file without waiting. Returns `false` if another process has locked it. On file
/// systems without locks it returns `true`, and only the header shows if a process records.
#[must_use]
pub fn lock_file(file: &File) -> bool {
    let locked = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    locked != Err(Errno::WOULDBLOCK)
}

/// Unlocks a file created by [`create_trace_file`]. Closing the file is not enough, as forked
/// processes have it open, too.
pub fn unlock_file(file: &File) {
    // If this fails, the lock ends when the last process that has the file open ends.
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

/// Returns `true` if `path` is still the path of the open file `file`.
pub(crate) fn is_at_path(file: &File, path: &Path) -> bool {
    let identity = |data: std::fs::Metadata| (data.dev(), data.ino());
    let there = std::fs::symlink_metadata(path).map(identity);
    file.metadata().map(identity).is_ok_and(|ours| there.is_ok_and(|there| there == ours))
}

/// Returns `true` if the trace is not finished and the process that writes it is alive. That may be
/// the calling process, if it recorded before it executed this program.
fn is_being_recorded(file: &File) -> bool {
    read_header(file).is_some_and(|header| is_live(&header))
}

/// Returns `true` if `path` leads to a trace with a valid header, by which its recording has ended
/// or the recorded process is not alive.
#[must_use]
pub fn is_ended_trace(path: &Path) -> bool {
    let header = open_regular_file(path).ok().and_then(|file| read_header(&file));
    header.is_some_and(|header| !is_live(&header))
}

fn read_header(file: &File) -> Option<TraceHeader> {
    let mut page = vec![0; PAGE_BYTES as usize];
    file.read_exact_at(&mut page, 0).ok()?;
    TraceHeader::decode(&page)
}

/// Returns `true` if the recording is not finished and its process is alive. Another process with
/// the same ID, as PID 1 of a container that was restarted, has started at another time.
pub(crate) fn is_live(header: &TraceHeader) -> bool {
    let has_its_start = || {
        header.process_start == 0
            || process_start(header.pid).is_none_or(|start| start == header.process_start)
    };
    header.state == format::STATE_RECORDING && is_process_alive(header.pid) && has_its_start()
}

/// Returns the time at which the process started, in clock ticks since the machine's boot. It does
/// not change when the process executes another program. Returns `None` if it cannot be read.
pub(crate) fn process_start(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, in parentheses, is the second field and may contain spaces.
    let (_, fields) = status.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// Returns `true` if a process with this ID exists.
#[must_use]
pub fn is_process_alive(pid: u32) -> bool {
    let pid = pid.try_into().ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// Time for which a file of rings is kept if the folder of its trace cannot be found. It begins
/// when the rings were first used: later stores through the mapping do not change the file's time.
const KEPT_WITHOUT_FOLDER_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Returns `true` if the file of rings at `path` must not be deleted. It is needed while it is
/// written, and by an unfinished trace; another file counts as needed.
#[must_use]
pub fn is_rings_file_needed(path: &Path) -> bool {
    let Ok(file) = open_trace_for_read(path) else { return true };
    let Some(rings) = read_header(&file) else { return true };
    if rings.kind != format::FILE_RINGS || !lock_file(&file) || is_process_alive(rings.pid) {
        return true;
    }
    let stream = Path::new(&rings.stream);
    match open_trace_for_read(stream) {
        Ok(trace) => read_header(&trace).is_some_and(|trace| {
            trace.session == rings.session && trace.state == format::STATE_RECORDING
        }),
        Err(error) if error.kind() != io::ErrorKind::NotFound => true,
        Err(_) if stream.parent().is_some_and(Path::is_dir) => false,
        // The folder was removed, or cannot be seen from this process.
        Err(_) => !file
            .metadata()
            .and_then(|it| it.modified())
            .is_ok_and(|changed| changed.elapsed().is_ok_and(|it| it > KEPT_WITHOUT_FOLDER_MAX)),
    }
}

/// Returns `path` with `.suffix` appended.
#[must_use]
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut joined = path.as_os_str().to_owned();
    joined.push(".");
    joined.push(suffix);
    joined.into()
}

/// Allocates disk blocks for a part of a file. Without them, access to a mapping of the part could
/// fail on a full disk.
pub(crate) fn reserve_bytes(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    // In memory, a signal ends a long allocation, which would start anew. Signals that cannot be
    // blocked, as of a debugger, are rare.
    let _blocked = signals::block_signals();
    let allocate = || rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes);
    match rustix::io::retry_on_intr(allocate) {
        Ok(()) => Ok(()),
        // Some network file systems do not support it; writing zeroes has the same effect, slowly.
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
