//! Refusals before anything is measured; the refused file stays unchanged.

use crate::support::{contents, record, run};
use handover_store::{ImportError, STORE_SCHEMA_VERSION, Store, StoreError};
use rusqlite::Connection;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tempfile::{TempDir, tempdir};

fn folder() -> TempDir {
    tempdir().expect("a folder")
}

/// Creates a store with one run and one record.
fn some_store(path: &Path) {
    let mut store = Store::open(path).expect("open");
    store.begin_run(&run("aa", 1)).expect("begin");
    store.insert_records("aa", &[record("a/b", "x", 1.0)]).expect("insert");
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|it| it.modified()).expect("a time")
}

/// Asserts that opening in both ways is refused with an error that names the file and a remedy, and
/// changes nothing.
fn assert_refused(path: &Path, is_it: impl Fn(&StoreError) -> bool) {
    for open in [for_writing, for_reading] {
        assert_refused_by(open, path, &is_it);
    }
}

fn for_writing(path: &Path) -> Result<Store, StoreError> {
    Store::open(path)
}

fn for_reading(path: &Path) -> Result<Store, StoreError> {
    Store::open_existing(path)
}

fn assert_refused_by(
    open: fn(&Path) -> Result<Store, StoreError>,
    path: &Path,
    is_it: impl Fn(&StoreError) -> bool,
) {
    let folder = path.parent().expect("a folder");
    let (before, written) = (contents(folder), modified(path));
    let error = open(path).expect_err("refused");
    assert!(is_it(&error), "{error:?}");
    let error_text = error.to_string();
    assert!(
        error_text.contains(&path.display().to_string()) && error_text.contains("--db FILE"),
        "{error_text}"
    );
    assert!(!error_text.contains('\n'), "one line: {error_text}");
    assert!(contents(folder) == before, "{error_text}: the folder has changed");
    assert_eq!(modified(path), written, "{error_text}: the file was written");
}

#[test]
fn file_that_is_not_a_database_is_refused_unchanged() {
    let folder = folder();
    let path = folder.path().join("results.db");
    let mut header_alone = b"SQLite format 3\0".to_vec();
    header_alone.resize(100, 0xff);
    for bytes in [
        b"#!/bin/sh\necho important\n".as_slice(),
        b"x",
        &[0; 5000],
        &[0xff; 70_000],
        &header_alone,
    ] {
        fs::write(&path, bytes).expect("a file");
        assert_refused(&path, |error| matches!(error, StoreError::NotADatabase { .. }));
    }
}

#[test]
fn foreign_database_is_refused_unchanged() {
    let folder = folder();
    let path = folder.path().join("theirs.db");
    for setting in ["", "PRAGMA application_id = 7;", "PRAGMA user_version = 1;"] {
        let _ = fs::remove_file(&path);
        let theirs = Connection::open(&path).expect("a database");
        theirs
            .execute_batch(&format!("{setting} CREATE TABLE t (x); INSERT INTO t VALUES (1)"))
            .expect("a table");
        drop(theirs);
        assert_refused(&path, |error| matches!(error, StoreError::Foreign { .. }));
    }
}

#[test]
fn foreign_database_with_active_wal_is_left_unchanged() {
    let folder = folder();
    let path = folder.path().join("theirs.db");
    let theirs = Connection::open(&path).expect("a database");
    theirs
        .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        .expect("a table");
    theirs.execute_batch("PRAGMA wal_checkpoint; INSERT INTO t VALUES (2)").expect("a log");
    assert_refused(&path, |error| matches!(error, StoreError::Foreign { .. }));
}

/// Creates a store and changes the schema that it names.
fn store_of_schema(path: &Path, schema: u32) {
    some_store(path);
    let store = Connection::open(path).expect("a database");
    store.pragma_update(None, "user_version", schema).expect("a version");
}

#[test]
fn newer_schema_is_refused_unchanged() {
    let folder = folder();
    let path = folder.path().join("results.db");
    store_of_schema(&path, STORE_SCHEMA_VERSION + 1);
    assert_refused(
        &path,
        |error| matches!(error, StoreError::Newer { found, known, .. } if *found == known + 1),
    );
}

#[test]
fn older_schema_is_refused_with_the_migration_commands() {
    let folder = folder();
    let path = folder.path().join("results.db");
    for schema in 1..STORE_SCHEMA_VERSION {
        let _ = fs::remove_file(&path);
        store_of_schema(&path, schema);
        assert_refused(&path, |error| {
            let error_text = error.to_string();
            let names_the_way =
                error_text.contains("handover export") && error_text.contains("import");
            matches!(error, StoreError::Older { found, .. } if *found == schema) && names_the_way
        });
    }
}

fn locked_is_refused_after_two_seconds(open: fn(&Path) -> Result<Store, StoreError>) {
    let folder = folder();
    let path = folder.path().join("results.db");
    some_store(&path);
    let other = Connection::open(&path).expect("a database");
    other.execute_batch("BEGIN EXCLUSIVE").expect("a lock");
    let begun = Instant::now();
    assert_refused_by(open, &path, |error| {
        matches!(error, StoreError::Locked { waited_ms: 2000, .. })
    });
    let (least, most) = (Duration::from_millis(1500), Duration::from_secs(40));
    assert!((least..most).contains(&begun.elapsed()), "2 s, {:?}", begun.elapsed());
    other.execute_batch("ROLLBACK").expect("no lock");
    open(&path).expect("free again");
}

#[test]
fn locked_store_is_refused_to_writers_after_two_seconds() {
    locked_is_refused_after_two_seconds(for_writing);
}

#[test]
fn locked_store_is_refused_to_readers_after_two_seconds() {
    locked_is_refused_after_two_seconds(for_reading);
}

#[test]
fn lock_released_in_time_is_waited_for() {
    let folder = folder();
    let path = folder.path().join("results.db");
    some_store(&path);
    let other = Connection::open(&path).expect("a database");
    other.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    Store::open_existing(&path).expect("readers need not wait for one that only prepares to write");
    std::thread::scope(|threads| {
        let opened = threads.spawn(|| Store::open(&path).map(drop));
        std::thread::sleep(Duration::from_millis(20));
        other.execute_batch("COMMIT").expect("no lock");
        opened.join().expect("no panic").expect("opened");
    });
}

#[test]
fn non_regular_file_is_refused() {
    let folder = folder();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    for path in [folder.path(), &pipe, Path::new("/dev/null")] {
        for attempt in [Store::open(path), Store::open_existing(path)] {
            assert!(matches!(attempt, Err(StoreError::NotAFile { .. })), "{}", path.display());
        }
    }
}

#[test]
fn path_through_a_file_is_refused() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "x").expect("a file");
    let error_text = Store::open(file.join("results.db")).expect_err("refused").to_string();
    assert!(error_text.contains("--db FILE"), "{error_text}");
    let error_text = Store::open("/proc/handover/results.db").expect_err("refused");
    assert!(matches!(error_text, StoreError::Unwritable { .. }), "{error_text}");
    assert_eq!(contents(folder.path()).len(), 1);
}

#[test]
fn opening_an_absent_store_for_reading_creates_no_file() {
    let folder = folder();
    let path = folder.path().join("none/results.db");
    assert!(matches!(Store::open_existing(&path), Err(StoreError::Absent { .. })));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn refused_import_creates_no_store() {
    let folder = folder();
    let path = folder.path().join("none/results.db");
    for rubbish in [b"rubbish".as_slice(), b"", b"\n\n", b"{\"type\":\"run\",\"schema\":7}\n"] {
        let mut input = rubbish;
        let error_text = Store::import_into(&path, &mut input).expect_err("refused").to_string();
        assert!(error_text.ends_with("; nothing was imported"), "{error_text}");
        assert_eq!(contents(folder.path()).len(), 0, "{error_text}: a file was left behind");
        assert!(!folder.path().join("none").exists(), "{error_text}: a folder was left behind");
    }
}

#[test]
fn invalid_store_is_refused_before_the_import_reads() {
    let folder = folder();
    let path = folder.path().join("results.db");
    fs::write(&path, "#!/bin/sh\necho important\n").expect("a file");
    let mut unread = b"rubbish".as_slice();
    let refused = Store::import_into(&path, &mut unread);
    assert!(matches!(refused, Err(ImportError::Store(StoreError::NotADatabase { .. }))));
    assert_eq!(unread, b"rubbish");
}

#[test]
fn damaged_store_is_reported_as_damaged() {
    let folder = folder();
    let path = folder.path().join("results.db");
    some_store(&path);
    let whole = fs::read(&path).expect("a file");
    fs::write(&path, &whole[..whole.len() / 2]).expect("half a file");
    assert_refused(&path, |error| matches!(error, StoreError::Damaged { .. }));
    // The pages are sound, but their content is not.
    fs::write(&path, &whole).expect("a whole file");
    let other = Connection::open(&path).expect("a database");
    other.execute_batch("UPDATE records SET body = x'00'").expect("an update");
    drop(other);
    let store = Store::open_existing(&path).expect("opens");
    for error_text in [store.load_run("aa").map(drop), store.check_integrity()] {
        assert!(matches!(error_text, Err(StoreError::DamagedRun { .. })), "{error_text:?}");
    }
}

#[test]
fn other_runs_can_be_read_once_a_damaged_run_is_deleted() {
    let folder = folder();
    let path = folder.path().join("results.db");
    for change in [
        "UPDATE records SET body = x'00' WHERE run = 1",
        "UPDATE records SET checksum = 0 WHERE run = 1",
        "UPDATE runs SET body = x'00' WHERE run = 1",
        "UPDATE runs SET checksum = 0 WHERE run = 1",
        "UPDATE runs SET parts = parts + 1 WHERE run = 1",
        "UPDATE tags SET checksum = 0",
    ] {
        let _ = fs::remove_file(&path);
        some_store(&path);
        let mut store = Store::open(&path).expect("open");
        store.begin_run(&run("bb", 2)).expect("begin");
        store.add_tag("aa", "before").expect("a name");
        drop(store);
        Connection::open(&path).and_then(|it| it.execute_batch(change)).expect("a change");
        let mut store = Store::open(&path).expect("open");
        let text = store.check_integrity().expect_err(change).to_string();
        let hint = format!("`handover delete aa --db {}` removes it", path.display());
        assert!(text.contains(&hint), "{change}: {text}");
        assert_eq!(store.matching_ids("aa").expect(change), ["aa"]);
        let listed = store.runs().expect(change);
        let listed: Vec<_> = listed.iter().map(|run| (&*run.id, run.damage.is_some())).collect();
        let is_found_in_row = !change.contains("records") && !change.contains("parts");
        assert_eq!(listed, [("aa", is_found_in_row), ("bb", false)], "{change}");
        assert_eq!(store.load_run("bb").expect(change).run.id, "bb");
        store.delete_run("aa").expect(change);
        store.check_integrity().expect(change);
        assert_eq!(store.load_run("bb").expect(change).run.id, "bb");
    }
}

#[test]
fn import_over_a_damaged_run_names_the_store() {
    let folder = folder();
    let path = folder.path().join("results.db");
    for change in [
        "UPDATE runs SET body = x'00'",
        "UPDATE records SET body = x'00'",
        "UPDATE records SET checksum = 0",
        "DELETE FROM records",
    ] {
        let _ = fs::remove_file(&path);
        some_store(&path);
        let mut store = Store::open(&path).expect("open");
        let mut exported = Vec::new();
        store.export(&[], &mut exported).expect("an export");
        Connection::open(&path).and_then(|it| it.execute_batch(change)).expect("a change");
        let refused = store.import(&mut &exported[..]).expect_err(change).to_string();
        let expected = format!("{}: run aa is damaged", path.display());
        assert!(refused.starts_with(&expected), "{change}: {refused}");
    }
}

#[test]
fn run_that_another_process_deletes_meanwhile_is_unknown() {
    let folder = folder();
    let path = folder.path().join("results.db");
    for is_deletion in [true, false] {
        let _ = fs::remove_file(&path);
        some_store(&path);
        let mut store = Store::open(&path).expect("open");
        store.begin_run(&run("bb", 2)).expect("begin");
        let other = Connection::open(&path).expect("a database");
        let deletion = "BEGIN IMMEDIATE; DELETE FROM runs WHERE id = 'aa'";
        other.execute_batch(deletion).expect("a deletion");
        let result = thread::scope(|scope| {
            let changed = scope.spawn(|| match is_deletion {
                true => store.delete_run("aa"),
                false => store.add_tag("aa", "name"),
            });
            // Enough to find the run, usually. A slower thread finds only the run `bb`.
            thread::sleep(Duration::from_millis(200));
            other.execute_batch("COMMIT").expect("a commit");
            changed.join().expect("a thread that ends")
        });
        assert!(matches!(result, Err(StoreError::UnknownRun { .. })), "{result:?}");
    }
}

/// Iterates over some 250 byte positions of the file or, with `HANDOVER_LONG`, over all.
fn places(bytes: usize) -> impl Iterator<Item = usize> {
    let step = if std::env::var_os("HANDOVER_LONG").is_some() { 1 } else { bytes / 250 };
    (0..bytes).step_by(step.max(1))
}

#[test]
fn flipped_bit_is_detected_or_has_no_effect() {
    let folder = folder();
    let path = folder.path().join("results.db");
    some_store(&path);
    let mut store = Store::open(&path).expect("open");
    store
        .insert_records("aa", &[record("a/c", "y", 2.5), record("a/c", "z", 3.5)])
        .expect("insert");
    store.begin_run(&run("bb", 2)).expect("begin");
    store.insert_records("bb", &[record("a/b", "x", 4.0)]).expect("insert");
    store.add_tag("bb", "before").expect("a name");
    drop(store);
    let whole = fs::read(&path).expect("a file");
    let read = || -> Result<(Vec<u8>, String), Box<dyn std::error::Error>> {
        let store = Store::open_existing(&path)?;
        let mut lines = Vec::new();
        store.export(&[], &mut lines)?;
        Ok((lines, format!("{:?}", store.figures("a/c", "z")?)))
    };
    let before = read().expect("an export");
    let mut refused = 0;
    for place in places(whole.len()) {
        let mut bytes = whole.clone();
        bytes[place] ^= 1 << (place % 8);
        fs::write(&path, &bytes).expect("a file");
        match read() {
            Ok(after) => assert!(after == before, "a bit of byte {place} changes what is read"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 25, "{refused} were refused");
}

#[test]
fn lost_changed_or_moved_rows_are_detected() {
    let folder = folder();
    let path = folder.path().join("results.db");
    for change in [
        "DELETE FROM records WHERE place = 1",
        "DELETE FROM records",
        "DELETE FROM tags",
        "UPDATE records SET contender = 'z' WHERE place = 1",
        "UPDATE records SET run = 3 - run",
        "UPDATE runs SET complete = 1 - complete",
        "UPDATE runs SET checksum = 0",
        "UPDATE runs SET started_unix_ns = started_unix_ns + 1",
        "UPDATE runs SET host = 'another'",
        "UPDATE tags SET tag = 'after'",
        "UPDATE tags SET run = 3 - run",
    ] {
        let _ = fs::remove_file(&path);
        some_store(&path);
        let mut store = Store::open(&path).expect("open");
        store.insert_records("aa", &[record("a/b", "y", 2.0)]).expect("insert");
        store.begin_run(&run("bb", 2)).expect("begin");
        store.add_tag("aa", "before").expect("a name");
        drop(store);
        let other = Connection::open(&path).expect("a database");
        other.execute_batch(change).expect("a change");
        drop(other);
        let store = Store::open_existing(&path).expect("opens");
        let error_text = store.export(&[], &mut Vec::new()).expect_err(change).to_string();
        assert!(error_text.contains("damaged"), "{change}: {error_text}");
        let damaged = store.check_integrity().expect_err(change);
        let is_damaged =
            matches!(damaged, StoreError::Damaged { .. } | StoreError::DamagedRun { .. });
        assert!(is_damaged, "{change}: {damaged:?}");
    }
}

#[test]
fn decompression_bomb_is_refused() {
    use std::io::Write as _;
    let folder = folder();
    let path = folder.path().join("results.db");
    some_store(&path);
    let mut bomb = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        bomb.write_all(&[b' '; 1 << 20]).expect("zeros");
    }
    let other = Connection::open(&path).expect("a database");
    let bomb = bomb.finish().expect("a bomb");
    other.execute("UPDATE records SET body = ?", [bomb]).expect("an update");
    drop(other);
    let error_text =
        Store::open_existing(&path).and_then(|store| store.load_run("aa")).expect_err("refused");
    assert!(error_text.to_string().contains("inflates to more than"), "{error_text}");
}

#[test]
fn empty_file_becomes_a_store_but_cannot_be_read() {
    let folder = folder();
    let path = folder.path().join("results.db");
    fs::write(&path, "").expect("a file");
    assert!(matches!(Store::open_existing(&path), Err(StoreError::Empty { .. })));
    some_store(&path);
    Store::open_existing(&path).expect("a store").check_integrity().expect("sound");
}

#[test]
fn opening_does_not_change_the_file() {
    let folder = folder();
    let path = folder.path().join("results.db");
    some_store(&path);
    let (before, written) = (contents(folder.path()), modified(&path));
    drop(Store::open(&path).expect("open"));
    drop(Store::open_existing(&path).expect("open"));
    assert!(contents(folder.path()) == before);
    assert_eq!(modified(&path), written);
}

#[test]
fn store_opened_for_reading_is_not_written() {
    let folder = folder();
    let path = folder.path().join("results.db");
    some_store(&path);
    let before = contents(folder.path());
    let mut store = Store::open_existing(&path).expect("open");
    assert!(matches!(store.begin_run(&run("bb", 2)), Err(StoreError::Unwritable { .. })));
    let mut elsewhere = Store::open_in_memory().expect("a store");
    elsewhere.begin_run(&run("cc", 3)).expect("begin");
    let mut lines = Vec::new();
    elsewhere.export(&[], &mut lines).expect("an export");
    let refused = store.import(&mut lines.as_slice());
    assert!(
        matches!(refused, Err(ImportError::Store(StoreError::Unwritable { .. }))),
        "{refused:?}"
    );
    drop(store);
    assert!(contents(folder.path()) == before);
}

#[test]
fn path_with_special_characters_is_opened() {
    let folder = folder();
    let odd = ["a b?mode=memory#%41&x.db", ":memory:", "file:x.db", "ä \u{1f600}.db", "'\";--.db"];
    let mut paths: Vec<PathBuf> = odd.iter().map(|name| folder.path().join(name)).collect();
    paths.push(folder.path().join(OsStr::from_bytes(b"not \xff utf-8.db")));
    for path in paths {
        some_store(&path);
        assert!(path.is_file(), "{}", path.display());
        assert_eq!(Store::open_existing(&path).expect("open").runs().expect("rows").len(), 1);
    }
}
