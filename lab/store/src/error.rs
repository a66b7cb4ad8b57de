//! Errors of the store: each names the file and a remedy.

use crate::file::db_option;
use rustix::fs::Access;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Error of a store operation. An operation that fails before its first write leaves the file
/// unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Neither XDG_DATA_HOME nor HOME, which give the data folder, is set.
    #[error(
        "neither XDG_DATA_HOME nor HOME is set, so there is no default path for results; name a file with --db FILE"
    )]
    NoHome,
    /// The file to read does not exist.
    #[error("{}: no such file; `handover run{}` creates it, or name another with --db FILE", .path.display(), db_option(.path))]
    Absent {
        /// Path of the file.
        path: PathBuf,
    },
    /// The path is not a regular file, but a folder, a device or a pipe.
    #[error("{}: not a regular file; name a file with --db FILE", .path.display())]
    NotAFile {
        /// Path that the user named.
        path: PathBuf,
    },
    /// The file is not an SQLite database.
    #[error("{}: not a database; it was left as it is; name another file with --db FILE", .path.display())]
    NotADatabase {
        /// Path of the file.
        path: PathBuf,
    },
    /// The database belongs to another program.
    #[error("{}: a database, but not one of handover; it was left as it is; name another file with --db FILE", .path.display())]
    Foreign {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file was written by a newer version of handover.
    #[error("{}: written by a newer handover (its schema is {found}, this version supports up to {known}); use that version, or name another file with --db FILE", .path.display())]
    Newer {
        /// Path of the file.
        path: PathBuf,
        /// Schema version of the file.
        found: u32,
        /// Newest schema version that this version of handover supports.
        known: u32,
    },
    /// The file was written by an older version of handover. This version cannot read its schema.
    #[error("{}: written by an older handover (its schema is {found}, this version reads {known}); `handover export` its runs with that one, and `handover import` them into another file with --db FILE", .path.display())]
    Older {
        /// Path of the file.
        path: PathBuf,
        /// Schema version of the file.
        found: u32,
        /// Schema version that this version of handover reads.
        known: u32,
    },
    /// The file or its folder cannot be written or created.
    #[error("{}: cannot be written: {reason}; name another file with --db FILE", .path.display())]
    Unwritable {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error message of the system.
        reason: String,
    },
    /// The process has no file descriptor left to open the file.
    #[error("{}: no file descriptor is left: the limit is {limit}; raise it with `ulimit -n`", .path.display())]
    NoDescriptors {
        /// Path of the file.
        path: PathBuf,
        /// Maximum number of descriptors of this process.
        limit: u64,
    },
    /// The file cannot be read.
    #[error("{}: cannot be read: {reason}; name another file with --db FILE", .path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error message of the system.
        reason: String,
    },
    /// The file is locked by another process.
    #[error("{}: locked by another process for {waited_ms} ms; wait for it, or name another file with --db FILE", .path.display())]
    Locked {
        /// Path of the file.
        path: PathBuf,
        /// Time for which the operation waited for the lock.
        waited_ms: u64,
    },
    /// The content of the store is inconsistent. An example is a wrong checksum.
    #[error("{}: damaged: {reason}; name another file with --db FILE", .path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Description of the inconsistency.
        reason: String,
    },
    /// A stored run or one of its names is damaged.
    #[error("{path}: run {run} is damaged: {reason}; `handover delete {run}{}` removes it", db_option(.path), path = .path.display())]
    DamagedRun {
        /// Path of the file.
        path: PathBuf,
        /// Id of the run.
        run: String,
        /// Description of the damage.
        reason: String,
    },
    /// No disk space is left. Everything stored before is unchanged.
    #[error("{}: no space left (disk full, quota or file size limit); free some, or name another file with --db FILE", .path.display())]
    Full {
        /// Path of the file.
        path: PathBuf,
    },
    /// SQLite reported an error of another kind.
    #[error("{}: {error}", .path.display())]
    Sqlite {
        /// Path of the file.
        path: PathBuf,
        /// Error of SQLite.
        error: rusqlite::Error,
    },
    /// A number to be stored is infinite or NaN. An export as JSON cannot contain such a number.
    #[error("{subject}: {field} is {value}, but only finite numbers can be stored")]
    NotFinite {
        /// The run, or the figure and its contender, that contains the number.
        subject: String,
        /// Name of the field.
        field: String,
        /// Value of the field.
        value: f64,
    },
    /// A name in a run or a record is too long or contains control characters.
    #[error(
        "{subject}: {field} is {name:?}; names may have at most 200 characters, and no control characters"
    )]
    BadName {
        /// The run, or the figure and its contender, that contains the name.
        subject: String,
        /// Name of the field.
        field: &'static str,
        /// The invalid name.
        name: String,
    },
    /// A record is too long for one line of an export.
    #[error("{subject}: {bytes} bytes as JSON, but at most {bytes_max} can be stored")]
    TooLong {
        /// Figure and contender of the record.
        subject: String,
        /// Length of the line, in bytes.
        bytes: usize,
        /// Maximum length in bytes.
        bytes_max: usize,
    },
    /// The id of a run is not valid on a command line.
    #[error(
        "invalid run id {id:?}: use 1 to 64 letters, digits, '-', '_' or '.', the first a letter or digit, and not \"last\""
    )]
    BadRunId {
        /// The invalid id.
        id: String,
    },
    /// The name for a run is not valid on a command line.
    #[error(
        "invalid run name {name:?}: use 1 to 64 letters, digits, '-', '_', '.', '/', '+' or '@', the first a letter, and not \"last\""
    )]
    BadTag {
        /// The invalid name.
        name: String,
    },
    /// The name is the id of a run, or a prefix of one, and would be ambiguous.
    #[error(
        "name {name}: a run has this id, or an id that starts with this name; choose another name"
    )]
    TagIsId {
        /// Name that is a run id, or a prefix of one.
        name: String,
    },
    /// A run with this id is in the store already.
    #[error("run {id} is in the store already")]
    Duplicate {
        /// Id of the run.
        id: String,
    },
    /// There is no run with this id, prefix, name or position.
    #[error("run {}: no such run in the store{}", quoted_if_empty(.selector), nearest_hint(.nearest_names))]
    UnknownRun {
        /// Id, prefix, name or position that was looked up.
        selector: String,
        /// Run ids and names that are most similar to the selector, the most similar first.
        nearest_names: Vec<String>,
    },
    /// No run has the figure, or the figure has no such contender.
    #[error("{}: no run in the store has this figure{}", quoted_if_empty(.selector), nearest_hint(.nearest_names))]
    UnknownFigure {
        /// Figure, or figure and contender, that was looked up.
        selector: String,
        /// Names that are most similar to the selector, the most similar first.
        nearest_names: Vec<String>,
    },
    /// The text is a prefix of several run ids.
    #[error("run {selector}: the ids of {count} runs start with this text; add characters to choose one of {}", .candidates.join(", "))]
    Ambiguous {
        /// Prefix that was looked up.
        selector: String,
        /// Number of matching runs.
        count: usize,
        /// Some of the matching ids, the latest first.
        candidates: Vec<String>,
    },
    /// The store contains no run.
    #[error("{}: contains no run yet; `handover run{}` stores one", .path.display(), db_option(.path))]
    Empty {
        /// Path of the file.
        path: PathBuf,
    },
}

/// Returns a text of a message, or quotation marks if it is empty.
fn quoted_if_empty(text: &str) -> &str {
    if text.is_empty() { "''" } else { text }
}

/// Returns the end of an error message: the most similar ids or names. Without any, it says that
/// the store has none.
fn nearest_hint(nearest_names: &[String]) -> String {
    match nearest_names {
        [] => "; the store has none yet".to_string(),
        [nearest_name] => format!("; the nearest is {nearest_name}"),
        names => format!("; the nearest are {}", names.join(", ")),
    }
}

impl StoreError {
    /// Creates the error for a path that cannot be written.
    pub(crate) fn from_unwritable_path(path: &Path, error: &io::Error) -> StoreError {
        StoreError::no_descriptors_error(path).unwrap_or_else(|| StoreError::Unwritable {
            path: path.to_path_buf(),
            reason: error.to_string(),
        })
    }

    /// Creates the error for a path that the system or SQLite cannot read.
    pub(crate) fn from_unreadable_path(path: &Path, error: impl fmt::Display) -> StoreError {
        // SQLite's message does not say why the file cannot be opened.
        let refused = rustix::fs::access(path, Access::READ_OK).err();
        StoreError::no_descriptors_error(path).unwrap_or_else(|| StoreError::Unreadable {
            path: path.to_path_buf(),
            reason: refused.map_or_else(|| error.to_string(), |errno| errno.to_string()),
        })
    }

    /// Returns [`StoreError::NoDescriptors`] if the process has no file descriptor left. SQLite
    /// does not report this. Opening any other file then fails, too.
    fn no_descriptors_error(path: &Path) -> Option<StoreError> {
        let error = File::open("/").err()?;
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let path = path.to_path_buf();
        (Errno::from_io_error(&error) == Some(Errno::MFILE))
            .then_some(StoreError::NoDescriptors { path, limit })
    }

    /// Converts an error of SQLite. `waited_ms` is the maximum time to wait for a lock.
    pub(crate) fn from_sqlite(path: &Path, waited_ms: u64, error: rusqlite::Error) -> StoreError {
        use rusqlite::ErrorCode;
        let path = path.to_path_buf();
        let Some(code) = error.sqlite_error_code() else {
            return StoreError::Sqlite { path, error };
        };
        match code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                StoreError::Locked { path, waited_ms }
            }
            ErrorCode::NotADatabase => StoreError::NotADatabase { path },
            ErrorCode::DatabaseCorrupt => StoreError::Damaged { path, reason: error.to_string() },
            ErrorCode::DiskFull => StoreError::Full { path },
            ErrorCode::SystemIoFailure if is_write_failure(&error) => StoreError::Full { path },
            ErrorCode::ReadOnly => StoreError::Unwritable {
                path,
                reason: "the file or its folder is read-only".to_string(),
            },
            ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
                StoreError::no_descriptors_error(&path).unwrap_or_else(|| StoreError::Unwritable {
                    path,
                    reason: "the journal cannot be created in its folder".to_string(),
                })
            }
            _ => StoreError::Sqlite { path, error },
        }
    }
}

/// Returns `true` if SQLite could not write or sync a file. Examples of causes are a file size
/// limit and some quotas.
fn is_write_failure(source: &rusqlite::Error) -> bool {
    /// Codes of SQLite for failed writes.
    const WRITES: [std::ffi::c_int; 4] = [
        rusqlite::ffi::SQLITE_IOERR_WRITE,
        rusqlite::ffi::SQLITE_IOERR_TRUNCATE,
        rusqlite::ffi::SQLITE_IOERR_FSYNC,
        rusqlite::ffi::SQLITE_IOERR_DIR_FSYNC,
    ];
    source.sqlite_error().is_some_and(|error| WRITES.contains(&error.extended_code))
}

/// Error of an export.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A run could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Writing the output failed. The error's `kind()` tells if the reader closed it.
    #[error("cannot write the export: {0}")]
    Write(io::Error),
}

/// Error of an import. The store is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A line is neither a valid run nor a valid record.
    #[error("line {line}: {reason}; nothing was imported")]
    BadLine {
        /// Line number, from 1.
        line: u64,
        /// Description of the error.
        reason: String,
    },
    /// A line is longer than the maximum that an export writes.
    #[error("line {line}: longer than {bytes_max} bytes; nothing was imported")]
    TooLong {
        /// Line number, from 1.
        line: u64,
        /// Maximum length in bytes.
        bytes_max: usize,
    },
    /// A run with the same id and other content is in the store.
    #[error(
        "line {line}: run {id} is in the store already and differs ({reason}); nothing was imported"
    )]
    Differs {
        /// Number of the run's line, from 1.
        line: u64,
        /// Id of the run.
        id: String,
        /// First difference between the two runs.
        reason: String,
    },
    /// The input contains no run.
    #[error("the input contains no run; nothing was imported")]
    NoRun,
    /// The input could not be read.
    #[error("cannot read the import: {0}; nothing was imported")]
    Read(io::Error),
    /// The store could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}
