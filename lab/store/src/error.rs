//! What can go wrong with the store: each error names the file and the way out.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Why the store refused or failed. Whatever is refused leaves the file as it was, to the byte.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Neither variable that says where data goes is set.
    #[error(
        "neither XDG_DATA_HOME nor HOME says where to keep results; name a file with --db FILE"
    )]
    NoHome,
    /// There is no store to read.
    #[error("{}: no such file; `handover run` makes one, or name another with --db FILE", .path.display())]
    Absent {
        /// The file asked for.
        path: PathBuf,
    },
    /// A folder, a device, a pipe.
    #[error("{}: not a regular file; name a file with --db FILE", .path.display())]
    NotAFile {
        /// The path asked for.
        path: PathBuf,
    },
    /// A file, but no SQLite database.
    #[error("{}: not a database; it was left as it is; name another file with --db FILE", .path.display())]
    NotADatabase {
        /// The file asked for.
        path: PathBuf,
    },
    /// A database of another program.
    #[error("{}: a database, but not one of handover; it was left as it is; name another file with --db FILE", .path.display())]
    Foreign {
        /// The file asked for.
        path: PathBuf,
    },
    /// Written by a version of handover that is newer than this one.
    #[error("{}: written by a newer handover (its schema is {found}, this one knows {known}); use that one, or another file with --db FILE", .path.display())]
    Newer {
        /// The file asked for.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest schema known here.
        known: u32,
    },
    /// Written by an older version, and on a medium where it cannot be brought up to date.
    #[error("{}: written by an older handover (schema {found}), and cannot be brought up to date where it lies: {why}; copy it and name the copy with --db FILE", .path.display())]
    Older {
        /// The file asked for.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// Why it could not be written.
        why: String,
    },
    /// The file or its folder cannot be written or made.
    #[error("{}: cannot be written: {why}; name another file with --db FILE", .path.display())]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// The system's word for it.
        why: String,
    },
    /// The process has no file descriptor left to open it with.
    #[error("{}: no file descriptor is left for it: this process may have {limit}; allow more with `ulimit -n`", .path.display())]
    NoDescriptors {
        /// The file asked for.
        path: PathBuf,
        /// How many this process may have.
        limit: u64,
    },
    /// The file cannot be read.
    #[error("{}: cannot be read: {why}; name another file with --db FILE", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's word for it.
        why: String,
    },
    /// Another process holds it.
    #[error("{}: locked by another process for {waited_ms} ms; wait for it, or name another file with --db FILE", .path.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// For how long we tried.
        waited_ms: u64,
    },
    /// A database of handover whose content contradicts itself.
    #[error("{}: damaged: {why}; name another file with --db FILE", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What contradicts what.
        why: String,
    },
    /// No space is left for it. What was stored before is still there, whatever a write failed of.
    #[error("{}: no space left (disk full, quota or file size limit); free some, or name another file with --db FILE", .path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// SQLite failed in a way that has no words of its own here.
    #[error("{}: {source}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A number that JSON cannot hold, so that it could not be exported again.
    #[error("{what}: {field} is {value}, and only finite numbers are stored")]
    NotFinite {
        /// The run, or the figure and its contender.
        what: String,
        /// The field.
        field: String,
        /// Its value.
        value: f64,
    },
    /// A name of a run or a figure that could not be shown.
    #[error(
        "{what}: {field} is {name:?}; names have at most 200 characters, and no control characters"
    )]
    BadName {
        /// The run, or the figure and its contender.
        what: String,
        /// The field.
        field: &'static str,
        /// The name.
        name: String,
    },
    /// A record too long for one line of an export.
    #[error("{what}: {bytes} bytes as JSON, and at most {bytes_max} are stored")]
    TooLong {
        /// The run, or the figure and its contender.
        what: String,
        /// Its length as JSON.
        bytes: usize,
        /// The most allowed.
        bytes_max: usize,
    },
    /// The name of a run that could not be asked for again.
    #[error(
        "run id {id:?}: 1 to 64 letters, digits, '-', '_' or '.', the first a letter or digit, and not \"last\""
    )]
    BadRunId {
        /// The id.
        id: String,
    },
    /// A name that could not be asked for again.
    #[error(
        "name {name:?}: 1 to 64 letters, digits, '-', '_', '.', '/', '+' or '@', the first a letter, and not \"last\""
    )]
    BadTag {
        /// The name.
        name: String,
    },
    /// A name that a run of the store has for its id: which is meant could not be told.
    #[error("name {name}: a run has this id, or one that begins so; take another")]
    TagIsId {
        /// The name.
        name: String,
    },
    /// A run of this id is there already.
    #[error("run {id} is in the store already")]
    Duplicate {
        /// The id.
        id: String,
    },
    /// No run of that id, prefix or place.
    #[error("run {asked}: no such run in the store{}", nearest_hint(.nearest))]
    UnknownRun {
        /// What was asked for.
        asked: String,
        /// The ids most like it, the likeliest first.
        nearest: Vec<String>,
    },
    /// A figure, or a contender of it, that no run has.
    #[error("{asked}: no run of the store has it{}", nearest_hint(.nearest))]
    UnknownFigure {
        /// What was asked for.
        asked: String,
        /// The names most like it, the likeliest first.
        nearest: Vec<String>,
    },
    /// A prefix of several ids.
    #[error("run {asked}: {count} runs begin so: {}", list(.candidates))]
    Ambiguous {
        /// What was asked for.
        asked: String,
        /// How many it could be.
        count: usize,
        /// The first of them.
        candidates: Vec<String>,
    },
    /// A store without a run.
    #[error("{}: holds no run yet; `handover run` makes one", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

fn list(ids: &[String]) -> String {
    ids.join(", ")
}

fn nearest_hint(nearest: &[String]) -> String {
    match nearest {
        [] => "; it holds none yet".to_string(),
        [one] => format!("; the nearest is {one}"),
        more => format!("; the nearest are {}", list(more)),
    }
}

impl StoreError {
    /// A path that the system does not let us write.
    pub(crate) fn unwritable(path: &Path, refused: &io::Error) -> StoreError {
        StoreError::without_descriptors(path).unwrap_or_else(|| StoreError::Unwritable {
            path: path.to_path_buf(),
            why: refused.to_string(),
        })
    }

    /// A path that the system or SQLite does not let us read.
    pub(crate) fn unreadable(path: &Path, refused: impl fmt::Display) -> StoreError {
        StoreError::without_descriptors(path).unwrap_or_else(|| StoreError::Unreadable {
            path: path.to_path_buf(),
            why: refused.to_string(),
        })
    }

    /// Whether what has just failed to open failed for want of a descriptor: then nothing else can be
    /// opened either. SQLite does not say.
    fn without_descriptors(path: &Path) -> Option<StoreError> {
        let refused = File::open("/").err()?;
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let path = path.to_path_buf();
        (Errno::from_io_error(&refused) == Some(Errno::MFILE))
            .then_some(StoreError::NoDescriptors { path, limit })
    }

    /// What SQLite said, in our words. `waited_ms` is how long a lock was waited for.
    pub(crate) fn from_sqlite(path: &Path, waited_ms: u64, source: rusqlite::Error) -> StoreError {
        use rusqlite::ErrorCode;
        let path = path.to_path_buf();
        let Some(code) = source.sqlite_error_code() else {
            return StoreError::Sqlite { path, source };
        };
        match code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                StoreError::Locked { path, waited_ms }
            }
            ErrorCode::NotADatabase => StoreError::NotADatabase { path },
            ErrorCode::DatabaseCorrupt => StoreError::Damaged { path, why: source.to_string() },
            ErrorCode::DiskFull => StoreError::Full { path },
            ErrorCode::SystemIoFailure if is_write_failure(&source) => StoreError::Full { path },
            ErrorCode::ReadOnly => {
                StoreError::Unwritable { path, why: "it or its folder is read-only".to_string() }
            }
            ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
                StoreError::without_descriptors(&path).unwrap_or_else(|| StoreError::Unwritable {
                    path,
                    why: "its folder does not allow the journal beside it".to_string(),
                })
            }
            _ => StoreError::Sqlite { path, source },
        }
    }
}

/// A write that the system cut short: SQLite reports a file size limit so, and some quotas.
fn is_write_failure(source: &rusqlite::Error) -> bool {
    const WRITES: [std::ffi::c_int; 4] = [
        rusqlite::ffi::SQLITE_IOERR_WRITE,
        rusqlite::ffi::SQLITE_IOERR_TRUNCATE,
        rusqlite::ffi::SQLITE_IOERR_FSYNC,
        rusqlite::ffi::SQLITE_IOERR_DIR_FSYNC,
    ];
    source.sqlite_error().is_some_and(|error| WRITES.contains(&error.extended_code))
}

/// Why an export stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A run could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output did not take it; `kind()` says whether its reader merely went away.
    #[error("export: {0}")]
    Write(#[from] io::Error),
}

/// Why an import was refused; whatever the reason, the store is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A line that is no run and no record of ours.
    #[error("line {line}: {why}; nothing was imported")]
    BadLine {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A line longer than any of ours.
    #[error("line {line}: longer than {bytes_max} bytes; nothing was imported")]
    TooLong {
        /// Counted from 1.
        line: u64,
        /// The most allowed.
        bytes_max: usize,
    },
    /// A run of the same id with other content.
    #[error(
        "line {line}: run {id} is in the store already and differs ({why}); nothing was imported"
    )]
    Differs {
        /// The line of the run, counted from 1.
        line: u64,
        /// Its id.
        id: String,
        /// Where it differs.
        why: String,
    },
    /// An input without a run.
    #[error("it holds no run; nothing was imported")]
    NoRun,
    /// The input could not be read.
    #[error("import: {0}; nothing was imported")]
    Read(#[from] io::Error),
    /// The store could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}
