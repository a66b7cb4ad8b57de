//! Paths of the traces of a recording: of its own ones, and of older ones with the same name.

use super::rings::{self, RingFile};
use handover_probe::format::TraceHeader;
use handover_probe::read;
use handover_probe::trace_file::{self, with_suffix};
use std::io;
use std::path::{Path, PathBuf};

/// Traces of an earlier recording with the same name. Left in place, the files of its child
/// processes would be read as part of the new recording.
///
/// Each has its path and its session. An inode number does not identify a trace: a new file may get
/// that of a replaced one.
#[derive(Debug, Clone, Default)]
pub(super) struct OlderTraces(Vec<(PathBuf, u64)>);

impl OlderTraces {
    /// Finds the older traces of `file`.
    pub(super) fn find(file: &Path) -> io::Result<Self> {
        let mut paths = read::find_traces(file)?;
        paths.retain(|path| trace_file::is_ended_trace(path));
        let paths = paths.into_iter();
        Ok(Self(paths.filter_map(|path| trace_session(&path).map(|it| (path, it))).collect()))
    }

    /// Returns `true` if the file at `path` is one of the older traces.
    pub(super) fn contains(&self, path: &Path) -> bool {
        trace_session(path).is_some_and(|it| self.0.iter().any(|(_, older)| *older == it))
    }

    /// Removes the older traces of `file`, except those that the user has named. Call it once the
    /// new recording has replaced them.
    pub(super) fn remove(&self, file: &Path) {
        for (path, older) in &self.0 {
            if trace_session(path) == Some(*older) && is_name_of_recorder(path, file) {
                // If this fails, the old trace is shown with the new ones, as that of another
                // process.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Returns the number that identifies the recording of the trace at `path`; `None` if it is not a
/// trace.
fn trace_session(path: &Path) -> Option<u64> {
    trace_header(path).map(|header| header.session)
}

/// Returns `true` if a recording of `file` may have given the trace its `path`: `file` itself, or
/// one with the process ID in its suffix.
fn is_name_of_recorder(path: &Path, file: &Path) -> bool {
    let suffix = &path.as_os_str().as_encoded_bytes()[file.as_os_str().len()..];
    let Some(pid) = trace_header(path).map(|header| header.pid.to_string()) else { return false };
    suffix.is_empty() || suffix.split(|byte| *byte == b'.').any(|part| part == pid.as_bytes())
}

/// Stores the path of the trace `path` in its rings, if it has any.
fn name_in_rings(path: &Path) -> io::Result<()> {
    let Some(header) = trace_header(path) else { return Ok(()) };
    match RingFile::open(Path::new(&header.rings)) {
        Ok(Some(rings)) if rings.header.session == header.session => rings.write_stream_path(path),
        _ => Ok(()),
    }
}

/// Returns the paths of all new traces, `file` first.
pub(super) fn find_trace_paths(file: &Path, older: &OlderTraces) -> Vec<PathBuf> {
    let mut paths = read::find_traces(file).unwrap_or_default();
    paths.retain(|path| path.exists() && !older.contains(path));
    paths
}

/// Renames the program's trace to `file`. It is that of process `pid` or, if this process was not
/// recorded, as the shell of a script, the first that began after `begin_ns`. The trace of another
/// process at `file` is renamed to `file.PID`.
pub(super) fn put_first_trace_at_file(
    file: &Path,
    pid: u32,
    begin_ns: u64,
    older: &OlderTraces,
    notes: &mut Vec<String>,
) {
    let key = |path: &PathBuf| {
        let header = trace_header(path)?;
        let begin = header.begin.monotonic_ns;
        (begin >= begin_ns).then_some((header.pid != pid, begin))
    };
    let new =
        find_trace_paths(file, older).into_iter().filter_map(|path| Some((key(&path)?, path)));
    let Some((_, first)) = new.min().filter(|(_, first)| first != file) else { return };
    if trace_file::is_trace(file) && !older.contains(file) {
        // A process that still records with the policy `last` opens the file again for each thread.
        let other = trace_header(file).filter(|_| trace_file::is_ended_trace(file));
        let Some(other) = other else { return };
        rename_trace(file, &free_trace_path(file, other.pid, older), notes);
    }
    rename_trace(&first, file, notes);
}

/// Returns the path of the trace of process `pid`. The first process has `file` itself, which is
/// attempt 0. The others, and those that execute another program, need further attempts.
pub(super) fn trace_path(file: &Path, pid: u32, attempt: u32) -> PathBuf {
    match attempt {
        0 => file.to_owned(),
        1 => with_suffix(file, &pid.to_string()),
        _ => with_suffix(file, &format!("{pid}.{attempt}")),
    }
}

/// Returns the first path for a trace of process `pid` at which there is none yet, or an older one.
pub(super) fn free_trace_path(file: &Path, pid: u32, older: &OlderTraces) -> PathBuf {
    let mut attempt = 0;
    loop {
        let path = trace_path(file, pid, attempt);
        if !path.exists() || older.contains(&path) {
            return path;
        }
        attempt += 1;
    }
}

/// Renames the trace at `path` to `target`.
pub(super) fn rename_trace(path: &Path, target: &Path, notes: &mut Vec<String>) {
    // Rings complete the trace of a killed process. They are kept while the trace is at the path
    // that they name.
    let renamed = std::fs::rename(path, target).and_then(|()| name_in_rings(target));
    if let Err(error) = renamed {
        notes.push(format!("cannot rename the trace {path}: {error}", path = path.display()));
    }
}

/// Reads the header of the trace at `path`, which may be a link; `None` if it is not a trace.
pub(super) fn trace_header(path: &Path) -> Option<TraceHeader> {
    rings::decode_header(&trace_file::open_regular_file(path).ok()?)
}
