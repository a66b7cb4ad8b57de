//! The database file: identification, tables, and a check that it can be written.
//!
//! All of this precedes any measurement and changes nothing: the file is first read as if it were
//! immutable (no lock, no journal), and an unsuitable file is rejected before the first write.

use crate::error::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// SQLite application id of a store, `HaNd`.
pub(crate) const SQLITE_APPLICATION_ID: i32 = 0x4861_4e64;

/// Version of the store's schema that this version of handover writes and reads. A file has it as
/// `user_version`.
pub const STORE_SCHEMA_VERSION: u32 = 6;

/// SQL statements that create the tables of a new store.
const TABLES: &str = "
    CREATE TABLE runs (
        run INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        started_unix_ns INTEGER NOT NULL,
        profile TEXT NOT NULL,
        host TEXT NOT NULL,
        version TEXT NOT NULL,
        built_from TEXT NOT NULL,
        complete INTEGER NOT NULL,
        body BLOB NOT NULL,
        checksum INTEGER NOT NULL,
        parts INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE tags (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        tag TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        UNIQUE (run, tag)
    ) STRICT;
    CREATE TABLE records (
        record INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        place INTEGER NOT NULL,
        id TEXT NOT NULL,
        contender TEXT NOT NULL,
        kind TEXT NOT NULL,
        unit TEXT NOT NULL,
        timing TEXT NOT NULL,
        started_unix_ns INTEGER NOT NULL,
        median REAL NOT NULL,
        low REAL,
        high REAL,
        p99 REAL,
        rate_per_s REAL NOT NULL,
        body BLOB NOT NULL,
        checksum INTEGER NOT NULL,
        UNIQUE (run, place)
    ) STRICT;
";

/// Maximum time to wait for a lock while a file is opened.
const OPEN_WAIT: Duration = Duration::from_secs(2);

/// Returns the path of the store that is used without `--db`. It is
/// `$XDG_DATA_HOME/handover/results.db`, or `~/.local/share/handover/results.db`. A relative
/// `XDG_DATA_HOME` is ignored, as its specification requires.
///
/// # Errors
/// [`StoreError::NoHome`] if neither variable is set.
pub fn default_path() -> Result<PathBuf, StoreError> {
    default_path_from(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"))
}

/// Returns the default path for these values of `XDG_DATA_HOME` and `HOME`.
fn default_path_from(
    data_home: Option<OsString>,
    home: Option<OsString>,
) -> Result<PathBuf, StoreError> {
    let non_empty_path =
        |value: Option<OsString>| value.filter(|it| !it.is_empty()).map(PathBuf::from);
    non_empty_path(data_home)
        .filter(|path| path.is_absolute())
        .or_else(|| non_empty_path(home).map(|home| home.join(".local/share")))
        .map(|data| data.join("handover/results.db"))
        .ok_or(StoreError::NoHome)
}

/// Returns the option `--db` that names a store in a printed command: quoted for a shell, with a
/// space before it. Empty for the default store.
pub fn db_option(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    if default_path().is_ok_and(|default| default == path) {
        return String::new();
    }
    let path = path.to_string_lossy();
    // Only a NUL byte cannot be quoted, and no path has one.
    format!(" --db {}", shlex::try_quote(&path).unwrap_or_default())
}

/// Opens a store for writing. Creates the file and its folder if they do not exist.
pub(crate) fn open_for_writing(path: &Path) -> Result<(Connection, PathBuf), StoreError> {
    let path = absolute(path)?;
    create_if_absent(&path)?;
    check_identity(&path)?;
    let mut connection = connect(&path)?;
    prepare_for_writing(&mut connection, &path)?;
    Ok((connection, path))
}

/// Opens a store for reading, even if it or its file system is read-only.
pub(crate) fn open_for_reading(path: &Path) -> Result<(Connection, PathBuf), StoreError> {
    let path = absolute(path)?;
    check_regular_file(&path)?;
    check_identity(&path)?;
    let connection = connect(&path)?;
    let to_store_error = |source| StoreError::from_sqlite(&path, duration_to_ms(OPEN_WAIT), source);
    // The first read also rolls back an unfinished transaction of a killed writer.
    if is_fresh(&path, &FileIdentity::read(&connection).map_err(to_store_error)?)? {
        return Err(StoreError::Empty { path });
    }
    connection.pragma_update(None, "query_only", true).map_err(to_store_error)?;
    Ok((connection, path))
}

/// Opens a store in memory. It exists as long as its connection.
pub(crate) fn open_in_memory() -> Result<(Connection, PathBuf), StoreError> {
    let path = PathBuf::from("(in memory)");
    let to_store_error = |source| StoreError::from_sqlite(&path, 0, source);
    let mut connection = Connection::open_in_memory().map_err(to_store_error)?;
    configure(&connection).map_err(to_store_error)?;
    prepare_for_writing(&mut connection, &path)?;
    Ok((connection, path))
}

/// Opens a store in an unnamed temporary file. SQLite removes the file with the connection; the
/// store is not durable.
pub(crate) fn open_temporary() -> Result<Connection, StoreError> {
    let to_store_error = |source| StoreError::from_sqlite(Path::new("(temporary file)"), 0, source);
    let connection = Connection::open("").map_err(to_store_error)?;
    connection
        .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        .map_err(to_store_error)?;
    connection.execute_batch(TABLES).map_err(to_store_error)?;
    Ok(connection)
}

/// Makes a path absolute. It then does not depend on the working directory, and is no special name
/// of SQLite (`:memory:`).
fn absolute(path: &Path) -> Result<PathBuf, StoreError> {
    std::path::absolute(path).map_err(|error| StoreError::from_unwritable_path(path, &error))
}

/// Returns `true` if nothing exists at the path. Opening the path for writing then creates a store.
pub(crate) fn is_path_absent(path: &Path) -> bool {
    matches!(
        absolute(path).and_then(|path| check_regular_file(&path)),
        Err(StoreError::Absent { .. })
    )
}

/// Checks that the path is a regular file, either empty or large enough for a database.
fn check_regular_file(path: &Path) -> Result<(), StoreError> {
    /// Minimum size of a database: SQLite's smallest page. SQLite itself accepts one byte as an
    /// empty database.
    const DATABASE_BYTES_MIN: u64 = 512;
    match fs::metadata(path) {
        Ok(found) if found.is_file() && (1..DATABASE_BYTES_MIN).contains(&found.len()) => {
            Err(StoreError::NotADatabase { path: path.to_path_buf() })
        }
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(StoreError::NotAFile { path: path.to_path_buf() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(StoreError::Absent { path: path.to_path_buf() })
        }
        Err(error) => Err(StoreError::from_unreadable_path(path, error)),
    }
}

/// Creates an empty file and its folder if they do not exist.
fn create_if_absent(path: &Path) -> Result<(), StoreError> {
    match check_regular_file(path) {
        Err(StoreError::Absent { .. }) => {}
        other => return other,
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .map_err(|error| StoreError::from_unwritable_path(folder, &error))?;
    }
    match fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => Ok(()),
        // Another run has created the file in the meantime.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => check_regular_file(path),
        Err(error) => Err(StoreError::from_unwritable_path(path, &error)),
    }
}

/// Values that identify a database as a store of a certain schema.
struct FileIdentity {
    application_id: i64,
    /// Schema version, `user_version`.
    version: i64,
    /// Number of tables and other objects in the schema.
    tables_count: i64,
}

impl FileIdentity {
    /// Reads the values from the database.
    fn read(connection: &Connection) -> rusqlite::Result<FileIdentity> {
        let value = |query| connection.query_one(query, [], |row| row.get(0));
        Ok(FileIdentity {
            application_id: value("PRAGMA application_id")?,
            version: value("PRAGMA user_version")?,
            tables_count: value("SELECT count(*) FROM main.sqlite_schema")?,
        })
    }
}

/// Returns `true` if the database has no tables yet. Fails if it is not a store of this schema.
fn is_fresh(path: &Path, identity: &FileIdentity) -> Result<bool, StoreError> {
    // An empty file or a database without an application id, left by a run that was killed early.
    if identity.application_id == 0 && identity.version == 0 && identity.tables_count == 0 {
        return Ok(true);
    }
    let path = path.to_path_buf();
    if identity.application_id != i64::from(SQLITE_APPLICATION_ID) {
        return Err(StoreError::Foreign { path });
    }
    match u32::try_from(identity.version) {
        Ok(STORE_SCHEMA_VERSION) => Ok(false),
        Ok(found) if found > STORE_SCHEMA_VERSION => {
            Err(StoreError::Newer { path, found, known: STORE_SCHEMA_VERSION })
        }
        Ok(found) if found > 0 => {
            Err(StoreError::Older { path, found, known: STORE_SCHEMA_VERSION })
        }
        _ => Err(StoreError::Damaged {
            path,
            reason: format!("its schema version {version} is invalid", version = identity.version),
        }),
    }
}

/// Checks that the file is empty, or a store of this schema. Takes no lock and writes nothing. The
/// identification is read with SQLite's `immutable` flag: SQLite then takes no lock and creates no
/// other file. Reading the first bytes without SQLite is not an alternative: closing the file would
/// release every lock that this process has on it, as POSIX locks belong to processes.
fn check_identity(path: &Path) -> Result<(), StoreError> {
    let mut uri = String::from("file://");
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => {
                uri.push(char::from(byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push_str("?mode=ro&immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&uri, flags)
        .map_err(|error| StoreError::from_unreadable_path(path, error))?;
    match FileIdentity::read(&connection) {
        Ok(identity) => is_fresh(path, &identity).map(drop),
        Err(error) => match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::CannotOpen) => {
                Err(StoreError::from_unreadable_path(path, error))
            }
            // A database to which another process commits, or was killed while committing. SQLite
            // must decide, with its locks and the journal.
            Some(rusqlite::ErrorCode::DatabaseCorrupt) => Ok(()),
            _ => Err(StoreError::from_sqlite(path, 0, error)),
        },
    }
}

/// Opens the database for reading and writing. Sets the maximum wait for locks, and the options of
/// every connection.
fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .map_err(|error| StoreError::from_unreadable_path(path, error))?;
    connection
        .busy_timeout(OPEN_WAIT)
        .and_then(|()| configure(&connection))
        .map_err(|source| StoreError::from_sqlite(path, duration_to_ms(OPEN_WAIT), source))?;
    Ok(connection)
}

/// Sets the options of a connection. They are foreign keys, full sync, and no trust in the file's
/// schema. The journal mode stays SQLite's default, a rollback journal; the crate's page explains
/// why it is not a write-ahead log.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // An untrusted file may contain triggers and views; they must not call functions.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "synchronous", "FULL")
}

/// Creates the tables of a new file, under SQLite's write lock. Also checks that the file can be
/// written.
fn prepare_for_writing(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let to_store_error = |source| StoreError::from_sqlite(path, duration_to_ms(OPEN_WAIT), source);
    if connection.is_readonly(rusqlite::MAIN_DB).map_err(to_store_error)? {
        let reason = "the file is read-only".to_string();
        return Err(StoreError::Unwritable { path: path.to_path_buf(), reason });
    }
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(to_store_error)?;
    // Checked again under the lock: another run may have created or changed the file since.
    let is_fresh = is_fresh(path, &FileIdentity::read(&transaction).map_err(to_store_error)?)?;
    if is_fresh {
        transaction.execute_batch(TABLES).map_err(to_store_error)?;
        transaction
            .pragma_update(None, "application_id", SQLITE_APPLICATION_ID)
            .map_err(to_store_error)?;
    }
    // Even if the file has this value already, writing it makes SQLite open its journal, which a
    // lock alone does not; after the rollback the file is unchanged.
    transaction
        .pragma_update(None, "user_version", STORE_SCHEMA_VERSION)
        .map_err(to_store_error)?;
    if is_fresh { transaction.commit() } else { transaction.rollback() }.map_err(to_store_error)
}

/// Returns the duration in whole milliseconds.
pub(crate) fn duration_to_ms(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_uses_rollback_journal_and_full_sync() {
        let folder = tempfile::tempdir().expect("create a temporary folder");
        let path = folder.path().join("results.db");
        let (connection, _) = open_for_writing(&path).expect("open a store");
        let mode: String = connection
            .pragma_query_value(None, "journal_mode", |row| row.get(0))
            .expect("read the pragma");
        let synchronous: u32 = connection
            .pragma_query_value(None, "synchronous", |row| row.get(0))
            .expect("read the pragma");
        const FULL: u32 = 2;
        assert_eq!((mode.as_str(), synchronous), ("delete", FULL));
    }

    #[test]
    fn default_path_follows_xdg_data_home() {
        let from =
            |data: &str, home: &str| default_path_from(Some(data.into()), Some(home.into())).ok();
        assert_eq!(from("/data", "/home/a"), Some("/data/handover/results.db".into()));
        let in_home = Some("/home/a/.local/share/handover/results.db".into());
        assert_eq!(from("", "/home/a"), in_home);
        assert_eq!(from("relative", "/home/a"), in_home);
        assert!(matches!(default_path_from(None, None), Err(StoreError::NoHome)));
    }
}
