//! Faults that need a process of their own: a kill during a write, no space, no permission.
//!
//! With `CHILD` set, this binary is the process in which the fault occurs.

mod support;

use handover_store::{Store, StoreError};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use support::{contents, record, run};
use tempfile::{TempDir, tempdir};

/// Environment variable for the child's role: `insert`, `open` or `read`.
const CHILD: &str = "HANDOVER_STORE_CHILD";
/// Environment variable for the path of the store.
const FILE: &str = "HANDOVER_STORE_FILE";
/// Environment variable for the id of the run to write.
const RUN: &str = "HANDOVER_STORE_RUN";
/// Environment variable for the limit of descriptors, if there is one.
const LIMIT: &str = "HANDOVER_STORE_DESCRIPTORS";
const RECORDS_MAX: u32 = 100_000;
const UNPRIVILEGED_UID: u32 = 65_534;

/// Reason for skipping a test on this machine.
type Skipped = Option<&'static str>;

type Test = (&'static str, fn() -> Skipped);

const TESTS: &[Test] = &[
    (
        "killed_process_loses_at_most_the_record_in_flight",
        killed_process_loses_at_most_the_record_in_flight,
    ),
    (
        "file_size_limit_is_an_error_and_loses_nothing",
        file_size_limit_is_an_error_and_loses_nothing,
    ),
    (
        "missing_descriptor_and_unwritable_file_give_different_errors",
        missing_descriptor_and_unwritable_file_give_different_errors,
    ),
    ("full_disk_is_an_error_and_loses_nothing", full_disk_is_an_error_and_loses_nothing),
    (
        "unwritable_store_is_refused_at_opening_and_can_be_read",
        unwritable_store_is_refused_at_opening_and_can_be_read,
    ),
];

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(CHILD) {
        return child(&role);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<&String> = arguments.iter().filter(|it| !it.starts_with('-')).collect();
    let chosen = |name: &str| filters.is_empty() || filters.iter().any(|it| name.contains(*it));
    let list = arguments.iter().any(|it| it == "--list");
    let mut passed = 0;
    for (name, test) in TESTS.iter().filter(|(name, _)| chosen(name)) {
        if list {
            println!("{name}: test");
            continue;
        }
        // A failed test panics, which ends this process with the panic's exit code.
        match test() {
            None => println!("test {name} ... ok"),
            Some(reason) => println!("test {name} ... skipped: {reason}"),
        }
        passed += 1;
    }
    println!("\ntest result: ok. {passed} passed; 0 failed");
    ExitCode::SUCCESS
}

fn child(role: &str) -> ExitCode {
    let path = PathBuf::from(std::env::var_os(FILE).expect("a file"));
    if let Ok(count) = std::env::var(LIMIT) {
        let current = Some(count.parse().expect("a number"));
        let limit = Rlimit { current, maximum: current };
        setrlimit(Resource::Nofile, limit).expect("a lower limit");
    }
    let progress_of = match role {
        "insert" => insert(&path),
        "open" => Store::open(&path).map(drop),
        _ => Store::open_existing(&path).and_then(|store| store.check_integrity()),
    };
    match progress_of {
        Ok(()) => println!("fine"),
        Err(refused) => println!("{refused:?}\n{refused}"),
    }
    ExitCode::SUCCESS
}

/// Inserts one record after another and prints each number once it is stored.
fn insert(path: &Path) -> Result<(), StoreError> {
    let id = std::env::var(RUN).expect("a run");
    let mut store = Store::open(path)?;
    store.begin_run(&run(&id, 1))?;
    for place in 1..RECORDS_MAX {
        store.insert_records(&id, &[record("a/b", "x", f64::from(place))])?;
        println!("stored {place}");
    }
    Ok(())
}

fn child_command(role: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this file"));
    command.env(CHILD, role).env(FILE, path).env(RUN, "one");
    command
}

/// Returns the last number that a child printed, and its other output.
fn progress_of(output: impl Read) -> (u32, String) {
    let (mut last, mut rest) = (0, String::new());
    for line in BufReader::new(output).lines() {
        let line = line.expect("text");
        match line.strip_prefix("stored ").and_then(|place| place.parse().ok()) {
            Some(place) => last = place,
            // A killed process may have printed part of a line.
            None if line.starts_with("stored") => {}
            None => rest += &format!("{line}\n"),
        }
    }
    (last, rest)
}

/// Asserts that every acknowledged record is stored, in order, and at most one more.
fn assert_records_kept(path: &Path, id: &str, acknowledged: u32) {
    let store = Store::open(path).expect("the next run opens it");
    store.check_integrity().expect("sound");
    let medians: Vec<f64> = match store.load_run(id) {
        Ok(document) => document.records.iter().map(|it| it.summary.median).collect(),
        Err(StoreError::UnknownRun { .. } | StoreError::Empty { .. }) => Vec::new(),
        Err(other) => panic!("{other}"),
    };
    let expected: Vec<f64> = (1..=medians.len() as u32).map(f64::from).collect();
    assert_eq!(medians, expected);
    let kept = medians.len() as u32;
    assert!(
        (acknowledged..=acknowledged + 1).contains(&kept),
        "{kept} records were kept, {acknowledged} were acknowledged"
    );
}

fn killed_process_loses_at_most_the_record_in_flight() -> Skipped {
    let folder = tempdir().expect("a folder");
    let shared = folder.path().join("shared.db");
    // A fixed sequence of random moments, as far as the scheduler allows.
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    for round in 0..20 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Kills the child some time after `after` records, which may be none.
        let (after, moment) =
            ((random >> 60) as u32, Duration::from_micros((random >> 33) % 20_000));
        // Alternately an existing store, and one that is being created.
        let fresh = folder.path().join(format!("fresh-{round}.db"));
        let path = if round % 2 == 0 { &shared } else { &fresh };
        let id = format!("run-{round}");
        let mut child = child_command("insert", path)
            .env(RUN, &id)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        for place in 1..=after {
            let mut line = String::new();
            output.read_line(&mut line).expect("text");
            assert_eq!(line, format!("stored {place}\n"));
        }
        let reader = std::thread::spawn(move || progress_of(output));
        std::thread::sleep(moment);
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");
        let (acknowledged, rest) = reader.join().expect("no panic");
        assert_eq!(rest, "", "killed before it ended");
        let acknowledged = acknowledged.max(after);
        if path.exists() {
            assert_records_kept(path, &id, acknowledged);
        } else {
            assert_eq!(acknowledged, 0);
        }
    }
    None
}

fn file_size_limit_is_an_error_and_loses_nothing() -> Skipped {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("results.db");
    // With SIGXFSZ ignored the write fails, as on a full disk, instead of ending the process.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 400; exec \"$0\""])
        .arg(std::env::current_exe().expect("this file"))
        .envs([(CHILD, "insert".as_ref()), (FILE, path.as_os_str()), (RUN, "one".as_ref())])
        .output()
        .expect("a child");
    assert_full(&path, &output.stdout);
    None
}

fn missing_descriptor_and_unwritable_file_give_different_errors() -> Skipped {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("results.db");
    let mut store = Store::open(&path).expect("a store");
    store.begin_run(&run("aa", 1)).expect("begin");
    drop(store);
    let before = contents(folder.path());
    let ask = |role: &str, path: &Path, descriptors_count: u32| {
        let output = child_command(role, path).env(LIMIT, descriptors_count.to_string()).output();
        String::from_utf8(output.expect("a child").stdout).expect("text")
    };
    for role in ["open", "read"] {
        // First no descriptor for the store, then none for its journal, until there are enough.
        for descriptors_count in 3.. {
            let output = ask(role, &path, descriptors_count);
            if descriptors_count > 3 && output == "fine\n" {
                break;
            }
            assert!(output.starts_with("NoDescriptors {"), "{role}, {descriptors_count}: {output}");
            let limit = format!("the limit is {descriptors_count}; raise it with `ulimit -n`");
            assert!(output.contains(&limit), "{output}");
        }
    }
    let absent = folder.path().join("absent.db");
    assert!(ask("open", &absent, 3).starts_with("NoDescriptors {"));
    assert!(contents(folder.path()) == before, "the folder has changed");
    None
}

fn full_disk_is_an_error_and_loses_nothing() -> Skipped {
    // A tmpfs in a mount namespace of its own, which ends with the process.
    let namespace = ["--mount", "--map-root-user", "sh", "-c"];
    let can = Command::new("unshare")
        .args(namespace)
        .arg("mount -t tmpfs -o size=64k none /mnt")
        .output();
    if !can.is_ok_and(|output| output.status.success()) {
        return Some("no mount namespace with a tmpfs can be made here");
    }
    let folder = tempdir().expect("a folder");
    let script = "set -e; mount -t tmpfs -o size=300k none \"$1\"
        HANDOVER_STORE_FILE=\"$1/results.db\" \"$0\" > \"$2\"
        cp \"$1\"/results.db* \"$3\"";
    let (disk, kept) = (folder.path().join("disk"), folder.path().join("kept"));
    fs::create_dir(&disk).and_then(|()| fs::create_dir(&kept)).expect("folders");
    let printed = folder.path().join("output");
    let output = Command::new("unshare")
        .args(namespace)
        .arg(script)
        .arg(std::env::current_exe().expect("this file"))
        .args([&disk, &printed, &kept])
        .envs([(CHILD, "insert"), (RUN, "one")])
        .output()
        .expect("a child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_full(&kept.join("results.db"), &fs::read(&printed).expect("the output"));
    None
}

fn assert_full(path: &Path, output: &[u8]) {
    let (acknowledged, rest) = progress_of(output);
    assert!(acknowledged > 5, "some records fit: {rest}");
    assert!(rest.starts_with("Full {"), "{rest}");
    assert!(rest.contains("no space left") && rest.contains("--db FILE"), "{rest}");
    assert_records_kept(path, "one", acknowledged);
}

/// Copies this binary to where any user can run it.
fn world_readable_copy(folder: &TempDir) -> PathBuf {
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
    let copy = folder.path().join("child");
    fs::copy(std::env::current_exe().expect("this file"), &copy).expect("a copy");
    open(folder.path()).and_then(|()| open(&copy)).expect("permissions");
    copy
}

fn unwritable_store_is_refused_at_opening_and_can_be_read() -> Skipped {
    let folder = tempdir().expect("a folder");
    let copy = world_readable_copy(&folder);
    let is_root = fs::metadata("/proc/self").expect("a process").uid() == 0;
    let set = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    };
    let ask = |role: &str, path: &Path| {
        let mut command = Command::new(&copy);
        command.env(CHILD, role).env(FILE, path).current_dir("/");
        if is_root {
            command.uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID);
        }
        let output = command.output().expect("a child");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    // Modes of the folder and of the file, and whether the file can be read.
    for (place, (folder_mode, file_mode, readable)) in
        [(0o555, 0o666, true), (0o777, 0o444, true), (0o555, 0o444, true), (0o755, 0o000, false)]
            .into_iter()
            .enumerate()
    {
        let inner = folder.path().join(format!("inner-{place}"));
        fs::create_dir(&inner).expect("a folder");
        let path = inner.join("results.db");
        let mut store = Store::open(&path).expect("a store");
        store.begin_run(&run("aa", 1)).expect("begin");
        store.insert_records("aa", &[record("a/b", "x", 1.0)]).expect("insert");
        drop(store);
        let before = contents(&inner);
        set(&path, file_mode);
        set(&inner, folder_mode);
        let output = ask("open", &path);
        let refused = output.starts_with("Unwritable {") || output.starts_with("Unreadable {");
        assert!(refused && output.contains("--db FILE"), "{folder_mode:o} {file_mode:o}: {output}");
        let output = ask("read", &path);
        assert_eq!(output == "fine\n", readable, "{folder_mode:o} {file_mode:o}: {output}");
        set(&inner, 0o755);
        set(&path, 0o644);
        assert!(
            contents(&inner) == before,
            "{folder_mode:o} {file_mode:o}: the folder has changed"
        );
    }
    let inner = folder.path().join("bare");
    fs::create_dir(&inner).expect("a folder");
    set(&inner, 0o555);
    for path in [inner.join("results.db"), inner.join("deeper/results.db")] {
        let output = ask("open", &path);
        assert!(output.starts_with("Unwritable {") && output.contains("--db FILE"), "{output}");
    }
    std::io::stdout().flush().expect("output");
    None
}
