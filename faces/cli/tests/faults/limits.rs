//! Too few descriptors, too few threads.

use crate::common::{Home, Said, binary, said, skipped};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

/// Checks the output that is required even if some benchmarks could not be measured.
fn check_reported(said: Said, why: &str) {
    let said = said.code(1).tells(&[why, "handover: "]);
    // One line for each that failed, and one at the end.
    let failed = said.err.lines().filter(|line| line.contains(why)).count();
    assert!(failed >= 1 && said.err.contains("could not be measured: see above"), "{said}");
    assert!(said.out.contains("is in /"), "{said}");
}

#[test]
fn benchmark_without_descriptors_is_reported_and_others_are_measured() {
    let home = Home::new();
    home.ok("run clock/now --profile smoke --no-report");
    // Threads share descriptors: six are too few for sockets and pipes, and enough for a store.
    let line = "ulimit -n 6 && exec handover run clock/now floor/socket notify/round-trip \
                --profile smoke --no-report";
    let said_by_threads = said(home.shell(line));
    assert!(said_by_threads.out.contains("clock/now"), "{said_by_threads}");
    check_reported(said_by_threads, "Too many open files");
    let line =
        "ulimit -n 10 && exec handover run floor/futex --processes --profile smoke --no-report";
    check_reported(said(home.shell(line)), "Too many open files");
    assert!(home.processes().is_empty(), "a participant process was left behind");
    assert_eq!(home.integrity(), "ok");
}

#[test]
fn missing_descriptor_for_the_store_is_not_reported_as_a_file_error() {
    let home = Home::new();
    home.ok("run clock/now --profile smoke --no-report");
    fs::write(home.cwd().join("runs.jsonl"), home.ok("export")).expect("a file");
    for line in ["run clock/now --profile smoke", "import runs.jsonl"] {
        let mut told_count = 0;
        // First just enough descriptors to start, and none for the store; then none for its
        // journal.
        for count in 3.. {
            let said = said(home.shell(&format!("ulimit -n {count} && exec handover {line}")));
            let starts = said.status.code() != Some(127);
            if said.status.success() || starts && !said.err.contains("results.db") {
                break;
            }
            if starts {
                let said = said.code(1);
                assert!(said.out.is_empty() && said.err.lines().count() == 1, "{line}: {said}");
                said.tells(&[&format!("the limit is {count}; raise it with `ulimit -n`")]);
                told_count += 1;
            }
        }
        assert!(told_count > 0, "{line}");
    }
    assert_eq!(home.integrity(), "ok");
}

#[test]
fn run_neither_hangs_nor_panics_with_any_descriptor_limit() {
    let home = Home::new();
    for count in (3..20).step_by(2) {
        let line = format!(
            "ulimit -n {count} && exec handover run floor/pipe --processes --profile smoke --no-report"
        );
        let said = said(home.shell(&line)).calm();
        assert!(said.status.code().is_some(), "{count}: {said}");
        assert!(!said.err.is_empty(), "{count}: {said}");
    }
    assert!(home.processes().is_empty(), "a participant process was left behind");
}

#[test]
fn sched_raises_the_descriptor_limit_or_names_the_command_that_does() {
    let home = Home::new();
    let line = "exec handover sched -t 100 --seconds 0.05";
    said(home.shell(&format!("ulimit -S -n 64; {line}"))).code(0);
    let said = said(home.shell(&format!("ulimit -n 64; {line}"))).code(1);
    said.tells(&["-t 100: cannot create the time-stamp file", "ulimit -n", "--stamp none"]);
}

/// Returns a command under a limit of threads, run by a user to whom the limit applies; or the
/// reason why that is impossible.
fn with_threads(home: &Home, threads_count: u32) -> Result<Command, String> {
    let runs = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !runs("prlimit") {
        return Err("no prlimit".to_string());
    }
    let mut command = home.program("prlimit");
    command.arg(format!("--nproc={threads_count}"));
    if rustix::process::getuid().is_root() {
        if !runs("setpriv") {
            return Err("root is not bound by it, and there is no setpriv".to_string());
        }
        // A user id that no other process has, other tests included, so that the count begins with
        // this process. Each home has one such user, who owns its store.
        let place = fs::metadata(home.path()).expect("a folder").ino();
        let user = 1_000_000 + place % 1_000_000_000;
        command.args(["setpriv", &format!("--reuid={user}"), "--clear-groups", "--"]);
        // Other users may not enter the folders of the user that builds this.
        let copy = home.path().join("handover");
        if !copy.exists() {
            // Copied by another process: if this process wrote the file, another test's child could
            // inherit the descriptor, and the file would be too busy to be executed.
            let copied = Command::new("cp").arg(binary()).arg(&copy).status();
            assert!(copied.is_ok_and(|status| status.success()), "a copy");
        }
        for open in [home.path().to_path_buf(), home.cwd(), copy.clone()] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o777)).expect("a mode");
        }
        command.arg(copy);
    } else {
        command.arg(binary());
    }
    Ok(command)
}

#[test]
fn threads_of_an_aborted_benchmark_are_free_for_the_next() {
    let home = Home::new();
    let mut command = match with_threads(&home, 3) {
        Ok(command) => command,
        Err(why) => return skipped("a limit of threads", &why),
    };
    // The benchmark needs four threads including the starting one; the null after it needs two.
    let line = "run lock/passed --set threads_count=3 --profile smoke --no-report";
    command.args(line.split(' '));
    let said = said(command).code(1);
    let said = said.tells(&["handover: lock/passed", "could not be started", "ulimit -u"]);
    assert!(said.out.contains("null/one-cpu"), "{said}");
    assert!(!said.err.contains("handover: null/one-cpu"), "{said}");
}

#[test]
fn missing_threads_are_reported_without_a_hang() {
    let home = Home::new();
    // With three, two participants have just enough, if the thread that set them up has ended in
    // time.
    for threads_count in 1..3 {
        for (words, code, why) in [
            (
                "run floor/empty clock/now notify/round-trip --profile smoke --no-report",
                1,
                "Resource",
            ),
            ("run floor/futex --processes --profile smoke --no-report", 1, "Resource"),
            ("trylock -n 4 -t 1", 1, "thread"),
            ("calls -m 0.01 --calls 1000 --runs 1", 1, "Resource"),
            ("hello4 4", 1, "thread"),
            ("sched -t 8 --seconds 1 --stamp none", 1, "thread"),
        ] {
            let mut command = match with_threads(&home, threads_count) {
                Ok(command) => command,
                Err(why) => return skipped("a limit of threads", &why),
            };
            command.args(words.split(' '));
            let said = said(command).code(code);
            assert!(said.err.contains(why), "{threads_count}, {words}: {said}");
        }
    }
    assert!(home.processes().is_empty(), "a participant process was left behind");
}
