//! The store: locked, full, and left as it was.

use crate::common::{Home, benchmarks, said, skipped, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns a home whose store has a run.
fn home_with_a_run() -> Home {
    let home = Home::new();
    home.ok("run clock/now --profile smoke --no-report");
    home
}

/// Locks the whole store exclusively.
fn lock(home: &Home) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(home.db()).expect("the store");
    connection.execute_batch("PRAGMA busy_timeout = 60000; BEGIN EXCLUSIVE").expect("the lock");
    connection
}

/// Returns `true` if the last run in the store has a record of this benchmark.
fn is_in_last_run(store: &rusqlite::Connection, id: &str) -> bool {
    let query = "SELECT count(*) FROM records WHERE id = ? AND run = (SELECT max(run) FROM runs)";
    store.query_one(query, [id], |row| row.get::<_, u32>(0)).expect("a count") > 0
}

#[test]
fn locked_store_is_refused_before_measuring() {
    let home = home_with_a_run();
    let before = fs::read(home.db()).expect("the store");
    let locked = lock(&home);
    for line in ["run clock --profile smoke", "show", "runs", "export"] {
        let said = home.run(line).code(2).tells(&["results.db", "locked", "--db"]);
        assert!(said.out.is_empty() && said.err.lines().count() == 1, "{said}");
    }
    drop(locked);
    assert!(fs::read(home.db()).expect("the store") == before, "it was changed");
    assert!(!home.cwd().join("report.html").exists());
    home.ok("run clock/now --profile smoke --no-report");
}

#[test]
fn store_locked_during_a_run_fails_only_the_storing() {
    let home = home_with_a_run();
    let first = home.ok("export");
    let line = "run clock/now lock/free --no-peers --time 100ms";
    let (mut run, locked) = loop {
        let mut run = home.start(home.handover(line.split(' ')));
        run.wait_for("clock/now measured\n");
        let locked = lock(&home);
        if !is_in_last_run(&locked, "lock/free") {
            break (run, locked);
        }
        // The lock came after the second figure.
        drop(locked);
        run.finish().code(0);
    };
    run.wait_for("lock/free measured\n");
    // The error has been seen.
    run.signal(Signal::INT);
    let said = run.finish().code(1).tells(&[
        "not all results above could be stored; earlier results are intact: ",
        "locked by another process",
    ]);
    drop(locked);
    for id in ["clock/now", "lock/free"] {
        assert!(said.out.contains(id), "{id}: {said}");
    }
    assert!(!said.out.contains("is in /"), "it says that it was stored: {said}");
    assert!(home.cwd().join("report.html").exists());
    assert_eq!(home.integrity(), "ok");
    assert!(home.ok("export").starts_with(&first), "an earlier run was changed");
    let run = home.last();
    assert_eq!((benchmarks(&run), run.run.complete), (vec!["clock/now"], false));
}

/// Checks a run whose store became full before the run's end.
fn check_full(home: &Home, said: &crate::common::Said, first: &str) {
    let told = "handover: not all results above could be stored; earlier results are intact: ";
    // A benchmark that needs larger files than the limit allows fails earlier.
    let last = said.err.lines().find(|line| line.starts_with(told)).expect("an error");
    assert!(last.contains(": no space left "), "{said}");
    assert_eq!(last.matches("stored").count(), 1, "it is said once: {last}");
    for id in ["floor/empty", "lock/busy", "notify/round-trip", "null/two-cpus"] {
        assert!(crate::common::shows(&said.out, id), "{id}: {said}");
    }
    assert_eq!(home.integrity(), "ok");
    let exported = home.ok("export");
    assert!(exported.starts_with(first), "an earlier run was changed");
    let run = home.last();
    assert!(!run.run.complete && !run.records.is_empty(), "{}", run.records.len());
}

#[test]
fn file_size_limit_fails_only_the_storing() {
    let home = home_with_a_run();
    let first = home.ok("export");
    let size = fs::metadata(home.db()).expect("the store").len();
    let mut command = home.program("prlimit");
    command.arg(format!("--fsize={}", size + 24 * 1024)).arg(crate::common::binary());
    // Without the probe benchmarks: their recordings are files of their own, which the limit
    // affects too.
    command.args(["run", "call", "clock", "event", "floor", "lock", "notify", "null", "ring"]);
    command.args(["sched", "timer", "--profile", "smoke", "--no-report"]);
    if home.program("prlimit").arg("--version").output().is_err() {
        skipped("a limit on the size of files", "no prlimit");
        return;
    }
    let said = said(command).code(1);
    check_full(&home, &said, &first);
    home.ok("run clock/now --profile smoke --no-report");
}

#[test]
fn full_disk_fails_only_the_storing() {
    let home = home_with_a_run();
    let first = home.ok("export");
    let try_it =
        Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
    if !try_it.is_ok_and(|it| it.status.success()) {
        skipped("a full disk", "no file system can be mounted here");
        return;
    }
    let small = home.path().join("small");
    fs::create_dir(&small).expect("a folder");
    let line = "mount -t tmpfs -o size=96k tmpfs \"$SMALL\" && cp \"$DB\" \"$SMALL/r.db\" && \
        { handover run call event floor lock notify ring sched timer --profile smoke --no-report --db \"$SMALL/r.db\"; code=$?; \
        cp \"$SMALL/r.db\" \"$DB\"; ls \"$SMALL\" >&2; exit $code; }";
    let shell = home.shell(line);
    let mut command = home.program("unshare");
    command.arg("-m").arg(shell.get_program()).args(shell.get_args());
    let path = shell.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, path)| path);
    command.env("PATH", path.expect("a path")).env("SMALL", &small).env("DB", home.db());
    let said = said(command).code(1);
    assert!(said.err.ends_with("\nr.db\n"), "something was left beside the store: {said}");
    check_full(&home, &said, &first);
}

#[test]
fn unwritable_report_fails_only_the_report() {
    let home = Home::new();
    let full = Path::new("/dev/full");
    if !full.exists() {
        skipped("a page on a full disk", "no /dev/full");
        return;
    }
    let said = home.run("run clock/now --profile smoke --report /dev/full").code(1);
    let said = said.tells(&["/dev/full", "No space left"]);
    assert!(said.out.contains("clock/now") && !said.out.contains("the report page is"), "{said}");
    assert!(home.last().run.complete);
    home.run("report --output /dev/full").code(1).tells(&["/dev/full", "No space left"]);
}

#[test]
fn output_file_may_be_a_pipe_with_a_reader() {
    let home = Home::new();
    let pipe = home.cwd().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("a pipe");
    for (line, element) in [
        ("run clock/now --profile smoke --report pipe", "<html"),
        ("report -o pipe", "<html"),
        ("history clock/now --svg pipe", "<svg"),
    ] {
        let mut command = home.program("cat");
        command.arg(&pipe);
        let reader = home.start(command);
        let stat = format!("/proc/{}/stat", reader.id());
        wait_until("a reader that waits for a writer", || {
            fs::read_to_string(&stat).is_ok_and(|stat| stat.contains("(cat) S"))
        });
        home.ok(line);
        let read = reader.finish().code(0);
        assert!(read.out.contains(element), "{line}: {read}");
    }
}
