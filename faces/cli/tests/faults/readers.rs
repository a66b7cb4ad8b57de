//! Output that is not read or cannot be written.

use crate::common::{Home, said, skipped};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const SMOKE: &str = "--profile smoke --no-report";

/// Command that takes some seconds even with its smallest values: tried once in a test, or in
/// each way with `HANDOVER_LONG`.
const SLOW: &str = "calls -m 0.01 --calls 1000 --runs 1";

/// Returns every other command that prints something.
fn printing() -> Vec<String> {
    let run = |words: &str| format!("run {words} {SMOKE}");
    let lines = ["list", "list --json", "show", "show --json", "runs", "runs --json", "export"];
    let others = ["man", "completions bash", "--help", "help run", "trylock -t 1", "notify -n 1"];
    let mut all: Vec<String> = lines.iter().chain(&others).map(ToString::to_string).collect();
    all.extend([run("clock"), run("clock --json"), run("floor/futex --processes")]);
    all.extend(["links again".into(), "node-microbench -m 0.01".into()]);
    all.extend(std::env::var_os("HANDOVER_LONG").map(|_| SLOW.into()));
    all
}

fn home_with_a_run() -> Home {
    let home = Home::new();
    home.ok(&format!("run clock/now {SMOKE}"));
    home
}

#[test]
fn output_closed_early_is_no_error() {
    let home = home_with_a_run();
    for line in printing().iter().map(String::as_str).chain([SLOW]) {
        // The exit code of the first command, not of the reader.
        let both = format!("{{ handover {line}; echo $? >code; }} | head -1");
        let said = said(home.shell(&both)).code(0);
        assert!(said.out.lines().count() <= 1, "{line}: {said}");
        let code = std::fs::read_to_string(home.cwd().join("code")).expect("a code");
        assert_eq!(code, "0\n", "{line}: {said}");
    }
}

#[test]
fn output_without_a_reader_is_no_error() {
    let home = home_with_a_run();
    for line in printing() {
        // Prints after its reader has certainly ended.
        let both = format!("{{ sleep 0.1; handover {line}; echo $? >code; }} | true");
        said(home.shell(&both)).code(0);
        let code = std::fs::read_to_string(home.cwd().join("code")).expect("a code");
        assert_eq!(code, "0\n", "{line}");
    }
    // The run was nevertheless measured, stored, and written as a page.
    let page = home.cwd().join("report.html");
    said(home.shell("{ sleep 0.1; handover run lock/free --profile smoke; } 2>&1 | true"));
    assert!(home.last().run.complete && page.exists());
}

#[test]
fn files_of_results_are_written_without_a_reader_of_the_output() {
    let home = Home::new();
    let lines = [
        ("trylock -F -t 1 -o dump.txt", "dump.txt"),
        ("sched --seconds 0.1 --plot -p x-", "x-shares.svg"),
        ("evh_perf -e -c -p 0 --duration 0.2 --hdr load.hlog", "load.hlog"),
    ];
    for (line, file) in lines {
        let both = format!("{{ sleep 0.1; handover {line}; echo $? >code; }} | true");
        said(home.shell(&both)).code(0);
        let read = |name| std::fs::read_to_string(home.cwd().join(name)).expect("a file");
        assert_eq!(read("code"), "0\n", "{line}");
        let written = read(file);
        assert!(!written.is_empty(), "{line}");
        assert!(file != "load.hlog" || written.contains("Tag=raw"), "{line}: {written}");
    }
}

#[test]
fn full_file_of_results_is_an_error_without_a_reader_of_the_output() {
    if !Path::new("/dev/full").exists() {
        skipped("a full file", "no /dev/full");
        return;
    }
    let home = Home::new();
    symlink("/dev/full", home.cwd().join("x-shares.svg")).expect("a link");
    for line in [
        "run clock/now --profile smoke --report /dev/full",
        "trylock -F -t 1 -o /dev/full",
        "sched --seconds 0.1 --plot -p x-",
    ] {
        home.unread(line).code(1).tells(&["No space left"]);
    }
}

#[test]
fn library_and_header_are_written_without_a_reader_of_the_output() {
    let home = Home::new();
    home.unread("trace library there").code(0);
    for name in ["libhandover-trace.so", "handover_probe.h"] {
        assert!(home.cwd().join("there").join(name).exists(), "{name}");
    }
    fs::remove_file(home.cwd().join("there/handover_probe.h")).expect("a header");
    symlink("/dev/full", home.cwd().join("there/handover_probe.h")).expect("a link");
    home.run("trace library there").code(1).tells(&["handover_probe.h", "No space left"]);
}

#[test]
fn closed_stdout_is_an_error_and_closed_stderr_is_not() {
    let home = home_with_a_run();
    let check = |line: &str, closed: &str| {
        let said = said(home.shell(&format!("handover {line} {closed}"))).code(1);
        let told = said.err.contains("standard output: Bad file descriptor");
        assert_eq!(told, !closed.contains("2>&-"), "{line} {closed}: {said}");
    };
    check(SLOW, ">&-");
    for line in printing() {
        for closed in [">&-", ">&- 2>&-", "<&- >&- 2>&-"] {
            check(&line, closed);
        }
        for closed in ["2>&-", "2>&1 | true"] {
            said(home.shell(&format!("handover {line} {closed}"))).code(0);
        }
    }
    for nothing in [">/dev/null", "1<>/dev/null"] {
        said(home.shell(&format!("handover list {nothing}"))).code(0);
    }
    assert!(home.last().run.complete);
    assert_eq!(home.integrity(), "ok");
}

#[test]
fn full_output_is_reported_and_measurements_are_stored() {
    if !Path::new("/dev/full").exists() {
        skipped("a full output", "no /dev/full");
        return;
    }
    let home = home_with_a_run();
    for line in printing().iter().map(String::as_str).chain([SLOW]) {
        let said = said(home.shell(&format!("handover {line} >/dev/full"))).code(1);
        let said = said.tells(&["standard output: No space left on device"]);
        let count = said.err.matches("No space left").count();
        assert_eq!(count, 1, "{line}: {said}");
    }
    // Only progress and warnings are lost.
    for line in printing() {
        said(home.shell(&format!("handover {line} 2>/dev/full"))).code(0);
    }
    said(home.shell("handover nonsense 2>/dev/full")).code(2);
    assert!(home.runs().iter().all(|row| row["complete"] == true));
}
