//! Errors in a command line: reported in one line, with exit code 2, before anything is done.

use crate::common::{Home, Said, said, skipped, tree};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A bad command line, split at whitespace, and the words that its error must contain.
type Refusal = (&'static str, &'static [&'static str]);

/// Commands and patterns.
const NAMES: &[Refusal] = &[
    ("rnu", &["rnu", "'runs'"]),
    ("lits", &["lits", "'list'"]),
    ("zzz", &["zzz", "--help"]),
    ("--frobnicate", &["--frobnicate", "--help"]),
    ("run lokc", &["lokc", "did you mean lock/", "handover list"]),
    ("list lokc", &["lokc", "did you mean lock/", "handover list"]),
    ("run lock floor/futez", &["floor/futez", "did you mean floor/futex"]),
    ("run nosuch/bench", &["nosuch/bench: no benchmark matches; `handover list`"]),
    ("run lock/free,lock/busy", &["separate patterns by spaces: lock/free lock/busy;"]),
    ("run round-trip", &["did you mean notify/round-trip or ring/round-trip or"]),
    ("run lock/[", &["lock/[", "invalid glob", "'lock/*'"]),
    ("run {a,b", &["{a,b", "invalid glob"]),
    ("run --profil smoke", &["--profil", "'--profile'"]),
    ("list --jsn", &["--jsn", "'--json'"]),
    ("show one two", &["two"]),
    ("export --all", &["--all"]),
];

/// Arguments of `run`.
const ARGUMENTS: &[Refusal] = &[
    ("run --set size_bytes", &["size_bytes", "--set", "NAME=VALUE"]),
    ("run --set =3", &["=3", "--set", "NAME=VALUE"]),
    ("run --set", &["--set", "NAME=VALUE"]),
    ("run floor/memcpy --set sise_bytes=3", &["sise_bytes=3", "size_bytes"]),
    ("run floor/syscall --set size_bytes=3", &["size_bytes=3", "they have no arguments"]),
    ("run floor/memcpy --set size_bytes=0", &["size_bytes=0", "1B..=256MiB"]),
    ("run floor/memcpy --set size_bytes=1GiB", &["size_bytes=1GiB", "1B..=256MiB"]),
    ("run floor/memcpy --set size_bytes=-1", &["size_bytes=-1", "64KiB"]),
    ("run floor/memcpy --set size_bytes=many", &["size_bytes=many", "64KiB"]),
    ("run floor/memcpy --set size_bytes=", &["size_bytes=", "64KiB"]),
    ("run floor/memcpy --set size_bytes=99999999999999999999", &["size_bytes=9999", "maximum"]),
    ("run notify --idle-gap 1s", &["--idle-gap", "1s", "0..=100ms"]),
    ("run notify --idle-gap 101ms", &["--idle-gap", "101ms", "0..=100ms"]),
    ("run notify --idle-gap -1", &["--idle-gap", "-1", "30us"]),
    ("run notify --idle-gap -1ms", &["--idle-gap", "-1ms", "30us"]),
    ("run notify --idle-gap=-1ms", &["--idle-gap", "-1ms", "30us"]),
    ("run notify --idle-gap abc", &["--idle-gap", "abc", "30us"]),
    ("run notify --idle-gap 5", &["--idle-gap", "5", "5ms"]),
    ("run notify --idle-gap", &["--idle-gap"]),
    ("export --to xml", &["--to", "xml", "github-action"]),
    ("show --format html", &["html", "markdown"]),
    ("doctor --time 2h", &["--time", "7200s", "the maximum is 1h"]),
    ("doctor --time soon", &["--time", "soon"]),
    ("run notify --time 2h", &["--time", "7200s", "100ms..=1h"]),
    ("run notify --time 5", &["--time", "5", "5ms"]),
    ("run --place nowhere", &["--place", "nowhere", "near, far, smt or same"]),
    ("run --profile fast", &["--profile", "fast", "smoke, quick or full"]),
    ("--profile fast", &["--profile", "fast", "smoke, quick or full"]),
    ("run clock --neighbour", &["--neighbour", "hands work"]),
    ("run clock --processes", &["--processes", "hands work"]),
    ("run clock --idle-gap 1ms", &["--idle-gap", "hands work"]),
    ("run lock/passed --processes", &["--processes", "lock/passed"]),
    ("run clock --no-report --report x.html", &["--no-report", "--report"]),
    ("--json runs", &["--json", "runs"]),
];

/// Sweeps.
const SWEEPS: &[Refusal] = &[
    ("sweep", &["<ID>"]),
    ("sweep floor/memcpy", &["--over"]),
    ("sweep floor/memcpy --over size_bytes", &["ARG=a..b", "size_bytes"]),
    ("sweep floor/memcpy --over size_bytes=4..2", &["size_bytes=4..2", "below the last"]),
    ("sweep floor/memcpy --over size_bytes=0..2", &["size_bytes=0", "1B..=256MiB"]),
    ("sweep floor/memcpy --over size_bytes=1..2GiB", &["size_bytes=2GiB", "1B..=256MiB"]),
    ("sweep floor/memcpy --over size_bytes=1..9:0", &["step", "above 0"]),
    ("sweep floor/memcpy --over size_bytes=1..1MiB:1", &["1048576 values", ":log"]),
    ("sweep floor/memcpy --over sise_bytes=1..2", &["sise_bytes", "its arguments are size_bytes"]),
    ("sweep floor/syscall --over size_bytes=1..2", &["size_bytes", "it has no arguments"]),
    ("sweep floor --over size_bytes=1..2", &["floor", "full id", "floor/memcpy"]),
    ("sweep flor/memcpy --over size_bytes=1..2", &["flor/memcpy", "did you mean floor/memcpy"]),
    (
        "sweep floor/memcpy --over size_bytes=1..2 --set size_bytes=3",
        &["--set size_bytes", "leave out --set"],
    ),
    ("sweep lock/passed --over threads_count=1..6 --simulate 64", &["--simulate", "NAME=VALUE"]),
    (
        "sweep lock/passed --over threads_count=1..6 --simulate threads_count=0",
        &["--simulate threads_count=0", "1..=1000000000"],
    ),
    (
        "sweep lock/passed --over threads_count=1..6 --simulate clients_count=64",
        &["--simulate clients_count=64", "threads_count=64 or cores=64"],
    ),
    (
        "sweep floor/memcpy --over size_bytes=1..6 --simulate size_bytes=64",
        &["--simulate size_bytes=64", "size_bytes does not count workers"],
    ),
    ("plot nowhere.json --db nowhere.db", &["nowhere.db", "no such file"]),
    ("plot text.txt", &["text.txt", "line 1"]),
];

/// Anatomies.
const ANATOMIES: &[Refusal] = &[
    ("anatomy", &["<ID>"]),
    ("anatomy event/roundtrip", &["event/roundtrip", "no benchmark", "event/round-trip"]),
    ("anatomy floor/memcpy", &["floor/memcpy", "no probe sites", "ring/mailbox", "lock/passed"]),
    ("anatomy ring", &["ring", "no benchmark", "ring/mailbox"]),
    ("anatomy ring/mailbox --contender rtrb", &["rtrb", "handover"]),
    ("anatomy ring/mailbox --seconds 0", &["--seconds", "between 0.1 and 600"]),
    ("anatomy ring/mailbox --seconds -1", &["--seconds", "between 0.1 and 600"]),
    ("anatomy ring/mailbox --seconds many", &["--seconds", "number of seconds"]),
    ("anatomy ring/mailbox --time 2h", &["--time", "100ms..=1h"]),
    ("anatomy ring/mailbox --time 1s --seconds 1", &["--time", "--seconds"]),
    ("anatomy ring/mailbox --set slots_count=3", &["slots_count=3", "they have no arguments"]),
    ("anatomy ring/round-trip --set slots_count=0", &["slots_count=0", "1..=65536"]),
    ("anatomy ring/mailbox --no-peers", &["--no-peers", "one contender", "leave the option out"]),
    ("anatomy ring/mailbox --processes", &["--processes", "ring/mailbox"]),
    ("anatomy ring/mailbox --svg /no/such/folder/x.svg", &["--svg", "/no/such/folder"]),
    ("anatomy ring/mailbox --outliers 3", &["3"]),
    ("anatomy ring/mailbox --outliers=text.txt", &["--outliers=text.txt", "File exists"]),
    ("anatomy ring/mailbox --outliers=/proc/x", &["--outliers=/proc/x", "cannot create"]),
];

/// Traces.
const TRACES: &[Refusal] = &[
    ("trace record --min-duration 9223372036854775807 true", &["--min-duration", "0..=24h"]),
    ("trace record --min-duration 99999999999999999999 true", &["--min-duration", "0..=24h"]),
    ("trace record --min-duration 25h true", &["--min-duration", "25h", "0..=24h"]),
    ("trace record --min-duration soon true", &["--min-duration", "soon", "0..=24h"]),
    ("trace record --min-duration -1 true", &["--min-duration", "-1", "0..=24h"]),
    ("trace record --depth -1 true", &["--depth", "-1", "1..=1023"]),
    ("trace record --wait -1 true", &["--wait", "-1", "0..=3600000"]),
    ("trace record --ring -1 true", &["--ring", "-1", "8KiB..=4GiB"]),
    ("trace record --ring 8191 true", &["--ring", "8191", "8KiB..=4GiB"]),
    ("trace record --ring large true", &["--ring", "large", "8KiB..=4GiB"]),
    ("trace show --top -1 a.trace", &["--top", "-1 is not in 1.."]),
    ("trace show --depth -1 a.trace", &["--depth", "-1", "0..="]),
];

/// Files.
const FILES: &[Refusal] = &[
    ("sched -f /dev/zero", &["-f: cannot read /dev/zero: longer than 16MiB"]),
    ("run clock --db folder", &["folder", "not a regular file", "--db"]),
    ("run clock --db text.txt", &["text.txt", "not a database", "--db"]),
    ("run clock --db short.txt", &["short.txt", "not a database", "--db"]),
    ("run clock --db foreign.db", &["foreign.db", "not one of handover", "--db"]),
    ("run clock --db /proc/x", &["/proc/x", "cannot be written", "--db"]),
    ("run clock --db /proc/x/y/z.db", &["/proc/x", "cannot be written", "--db"]),
    ("run clock --db text.txt/y.db", &["text.txt", "--db"]),
    ("run clock --db /dev/null", &["/dev/null", "not a regular file", "--db"]),
    ("run clock --report /proc/x", &["--report", "/proc/x", "--no-report"]),
    ("run clock --report folder", &["--report", "folder", "--no-report"]),
    ("run clock --report nowhere/x.html", &["--report", "nowhere/x.html", "--no-report"]),
    ("run clock --report -", &["--report -", "name a file", "/dev/stdout"]),
    ("run clock --report pipe", &["--report", "pipe", "--no-report"]),
    ("run clock --db pipe", &["pipe", "not a regular file", "--db"]),
    ("run clock --db nowhere/x.db", &["nowhere/x.db", "no folder nowhere", "--db"]),
    ("sweep floor/memcpy --over size_bytes=1..2 --db no/x.db", &["no folder no", "--db"]),
    ("show", &["results.db", "no such file", "handover run"]),
    ("runs", &["results.db", "no such file", "handover run"]),
    ("export", &["results.db", "no such file", "handover run"]),
    ("show --db text.txt", &["text.txt", "not a database"]),
    ("runs --db foreign.db", &["foreign.db", "not one of handover"]),
    ("export --db folder", &["folder", "not a regular file"]),
    ("show --db nowhere.db", &["nowhere.db", "no such file"]),
    ("import text.txt --db foreign.db", &["foreign.db", "not one of handover"]),
    ("import nowhere.jsonl", &["nowhere.jsonl", "No such file"]),
    ("import folder", &["folder", "directory"]),
    ("import empty", &["empty", "contains no run"]),
    ("import", &["<FILE>"]),
    ("links", &["<DIR>"]),
    ("links text.txt", &["text.txt", "not a folder"]),
    ("links taken", &["taken/trylock", "another folder"]),
    ("links /proc/x", &["/proc/x", "another folder"]),
    ("completions tcsh", &["tcsh", "bash, elvish, fish, powershell, zsh"]),
];

/// The classic programs.
const CLASSIC: &[Refusal] = &[
    ("trylock -n 0", &["-n", "0", "1..=1024"]),
    ("trylock -n 1025", &["-n", "1025", "1..=1024"]),
    ("trylock -n x", &["-n", "'x'", "1..=1024"]),
    ("trylock -n -1", &["-n", "-1", "1..=1024"]),
    ("trylock -n 1.5", &["-n", "1.5", "whole number", "1..=1024"]),
    ("trylock -n", &["-n"]),
    ("trylock -t 0", &["-t", "0", "1..=30000000"]),
    ("trylock -t 30000001", &["-t", "30000001", "1..=30000000"]),
    ("trylock -x 9999", &["-x", "9999", "this process may use CPUs"]),
    ("trylock -x -1", &["-x", "-1", "this process may use CPUs"]),
    ("trylock -x one", &["-x", "one", "this process may use CPUs"]),
    ("trylock -o dump.txt", &["-F"]),
    ("trylock -F -o /proc/x", &["-o /proc/x", "can be written"]),
    ("trylock -F -o folder", &["-o folder", "can be written"]),
    ("trylock -F -o pipe", &["-o pipe", "no process reads this pipe"]),
    ("trylock -F -o foreign.db", &["-o foreign.db", "it is a database"]),
    ("sched --test -b 5G", &["--test", "-b <BANDWIDTH>"]),
    ("sched --test --batch 4", &["--test", "--batch <PACKETS>"]),
    ("trylock --via nothing", &["--via", "nothing", "sem, mutex, spin, cas, handover"]),
    ("trylock three", &["three"]),
    ("trylock -S", &["-S"]),
    ("notify -n 0", &["-n", "0", "1..=1000000000"]),
    ("notify -n x", &["-n", "'x'", "1..=1000000000"]),
    ("notify -s 9999", &["-s", "9999", "this process may use CPUs"]),
    ("notify -r 9999", &["-r", "9999", "this process may use CPUs"]),
    ("notify --via x", &["--via", "'x'", "eventfd, pipe, futex, handover"]),
    ("notify -F", &["-F"]),
    ("node-microbench", &["-m"]),
    ("node-microbench -m 0", &["-m", "0", "0.001..="]),
    ("node-microbench -m -5", &["-m", "-5", "0.001..="]),
    ("node-microbench -m x", &["-m", "'x'", "0.001..="]),
    ("abt-eventual-bench -d 0", &["-d", "0", "1..=86400"]),
    ("abt-eventual-bench -d 0.5", &["-d", "0.5", "whole number", "1..=86400"]),
    ("abt-eventual-bench -d -1", &["-d", "-1", "1..=86400"]),
    ("abt-eventual-bench -d x", &["-d", "'x'", "1..=86400"]),
    ("abt-eventual-bench -n 0", &["-n", "0", "1..=1000000"]),
    ("abt-eventual-bench -n 1.5", &["-n", "1.5", "whole number", "1..=1000000"]),
    ("abt-eventual-bench -n 1e9", &["-n", "1e9", "1..=1000000"]),
    ("abt-eventual-bench -n -4", &["-n", "-4", "1..=1000000"]),
    ("abt-eventual-bench -n", &["-n"]),
    ("abt-eventual-bench -i 0", &["-i", "0", "0.001..=3600000"]),
    ("abt-eventual-bench -i -1", &["-i", "-1", "0.001..=3600000"]),
    ("abt-eventual-bench -i nan", &["-i", "nan", "0.001..=3600000"]),
    ("abt-eventual-bench -i inf", &["-i", "inf", "0.001..=3600000"]),
    ("abt-eventual-bench -i often", &["-i", "often", "must be a number in 0.001..=3600000"]),
    ("abt-eventual-bench --workers 0", &["--workers", "0", "1..=1024"]),
    ("abt-eventual-bench many", &["many"]),
    ("sweep-abt-eventual-bench --from 0", &["--from", "0", "1..=1000000"]),
    ("sweep-abt-eventual-bench --step 0", &["--step", "0", "1..=1000000"]),
    ("sweep-abt-eventual-bench --step 2.5", &["--step", "2.5", "whole number"]),
    ("sweep-abt-eventual-bench --from 200 --to 100", &["--from 200", "--to 100", "is above"]),
    ("sweep-abt-eventual-bench --to 1000000 --step 1", &["--step 1", "longer step"]),
    ("plot-abt-eventual-bench", &["<FILE.dat>"]),
    ("plot-abt-eventual-bench text.txt", &["text.txt", "line 1", "num_ults"]),
    ("plot-abt-eventual-bench empty", &["empty", "no rows"]),
    ("plot-abt-eventual-bench pipe", &["pipe", "not a regular file"]),
    ("calls -m 0", &["-m", "0", "0.001..="]),
    ("calls -m x", &["-m", "'x'", "0.001..="]),
    ("calls --calls 0", &["--calls", "0", "1..=10000000000"]),
    ("calls --dir nowhere", &["--dir nowhere", "No such file", "name a folder"]),
    ("calls --dir text.txt", &["--dir text.txt", "name a folder"]),
    ("evh_perf -c -p 1 --hdr -", &["--hdr -", "/dev/stdout", "./- a file of this name\n"]),
    ("trylock -F -o -", &["-o -", "/dev/stdout", "./- a file of this name\n"]),
    ("evh_perf -c -p 1 --hdr pipe", &["--hdr pipe", "no process reads this pipe"]),
    ("evh_perf -c -p 1 --tls --ca pipe", &["--ca pipe", "not a regular file"]),
    ("evh_perf -e --tls --cert pipe --key pipe", &["--cert pipe", "not a regular file"]),
    ("margo-p2p-latency -n sm -i 1 -d nowhere/x", &["-d nowhere/x", "name a file"]),
    ("margo-p2p-latency -n sm -i 1 --config pipe", &["--config pipe", "not a regular file"]),
];

/// Returns a home with files that no command may change.
fn home() -> Home {
    let home = Home::new();
    let at = |name: &str| home.cwd().join(name);
    fs::create_dir(at("folder")).expect("a folder");
    fs::create_dir(at("taken")).expect("a folder");
    fs::write(at("taken/trylock"), "somebody's own").expect("a file");
    fs::write(at("text.txt"), "a text, and no database\n".repeat(100)).expect("a file");
    fs::write(at("short.txt"), "x").expect("a file");
    fs::write(at("empty"), "").expect("a file");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), mode).expect("a pipe that nobody reads");
    let foreign = rusqlite::Connection::open(at("foreign.db")).expect("a database");
    foreign.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").expect("a table");
    home
}

/// Checks that a line was rejected correctly.
#[track_caller]
fn check(line: &str, said: Said, says: &[&str]) {
    let said = said.code(2);
    assert!(said.out.is_empty(), "{line}: {said}");
    assert!(said.err.starts_with("handover: ") && said.err.ends_with('\n'), "{line}: {said}");
    assert_eq!(said.err.lines().count(), 1, "{line}: {said}");
    for words in says {
        assert!(said.err.contains(words), "{line}: {words:?} is not in the error: {said}");
    }
}

fn check_all(refusals: &[Refusal]) {
    let home = home();
    let before = tree(&home.cwd());
    for (line, says) in refusals {
        check(line, home.run(line), says);
        assert!(!home.data().exists(), "{line}: a store was made");
        assert!(tree(&home.cwd()) == before, "{line}: a file was made or changed");
    }
}

#[test]
fn argument_that_is_empty_or_not_utf_8_is_quoted() {
    let home = Home::new();
    home.ok("run floor/syscall --profile smoke --no-report");
    check("show ''", said(home.handover(["show", ""])), &["run '': no such run"]);
    check("history ''", said(home.handover(["history", ""])), &["'': no run in the store"]);
    let mut command = home.handover(["show"]);
    command.arg(OsStr::from_bytes(b"a\xff"));
    check("show a\\xff", said(command), &["\"a\\xFF\": not UTF-8 text"]);
}

#[test]
fn invalid_sweep_range_is_refused() {
    check_all(SWEEPS);
}

#[test]
fn benchmark_without_an_anatomy_is_refused_with_those_that_have_one() {
    check_all(ANATOMIES);
}

#[test]
fn invalid_trace_argument_is_refused_with_its_range() {
    check_all(TRACES);
}

#[test]
fn misspelt_name_is_refused_with_the_nearest_one() {
    check_all(NAMES);
}

#[test]
fn invalid_run_argument_is_refused_with_its_range() {
    check_all(ARGUMENTS);
}

#[test]
fn unsuitable_file_is_refused() {
    check_all(FILES);
}

#[test]
fn invalid_argument_of_a_classic_program_is_refused_with_its_range() {
    check_all(CLASSIC);
}

#[test]
fn unwritable_folder_is_refused_before_measuring() {
    let home = home();
    let closed = home.cwd().join("closed");
    fs::create_dir(&closed).expect("a folder");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).expect("a mode");
    if fs::write(closed.join("probe"), "").is_ok() {
        skipped("a folder that cannot be written", "this user may write everywhere");
        return;
    }
    for (line, says) in [
        ("run clock --db closed/r.db", &["closed", "cannot be written", "--db"]),
        ("run clock --report closed/r.html", &["closed/r.html", "--report", "--no-report"]),
        ("trylock -F -o closed/dump", &["-o", "closed/dump", "can be written"]),
    ] {
        check(line, home.run(line), says);
        assert!(!home.data().exists() && tree(&closed).is_empty(), "{line}");
    }
}

#[test]
fn non_utf8_argument_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let home = home();
    for before in [&["run"][..], &["run", "--set"], &["show"], &["--profile"]] {
        let mut command = home.handover(before.iter().copied());
        command.arg(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
        check("no text", said(command), &["UTF-8"]);
    }
}

#[test]
fn control_characters_in_an_argument_are_escaped() {
    let home = home();
    for words in [["run", "lo\nck"], ["list", "\x1b[31mlock"], ["show", "a\r\nb"], ["x\ny", "z"]] {
        let said = said(home.handover(words)).code(2);
        assert!(!said.err.trim_end_matches('\n').chars().any(char::is_control), "{said}");
    }
}

#[test]
fn long_argument_is_shortened_in_the_error() {
    let home = home();
    let long = "x".repeat(100_000);
    let (set, over) = (format!("{long}=1"), format!("size_bytes=1..{long}"));
    for words in [
        &["show", &*long][..],
        &["list", &long],
        &["run", "clock", "--set", &set],
        &["run", "clock", "--place", &long],
        &["sweep", "floor/memcpy", "--over", &over],
        &["run", "clock", "--db", &long],
        &["import", &long],
        &["trylock", "--via", &long],
        &[&long],
    ] {
        let said = said(home.handover(words.iter().copied())).code(2);
        assert!(said.err.len() < 1200, "{} bytes: {said}", said.err.len());
    }
}

#[test]
fn missing_home_folder_is_refused_without_creating_a_store() {
    let home = home();
    let mut command = home.handover(["run", "clock", "--profile", "smoke"]);
    command.env_remove("HOME").env_remove("XDG_DATA_HOME");
    check("no home", said(command), &["XDG_DATA_HOME", "HOME", "--db"]);
}

#[test]
fn participant_variable_set_by_a_user_is_refused() {
    let home = Home::new();
    let mut command = home.handover(["list"]);
    command.env("HANDOVER_PARTY", "yes");
    let said = crate::common::said(command).code(2).tells(&["HANDOVER_PARTY", "unset it"]);
    assert!(said.out.is_empty() && said.err.lines().count() == 1, "{said}");
}

#[test]
fn dangling_link_is_refused_and_kept() {
    let home = Home::new();
    let (link, target) = (home.cwd().join("page.html"), home.cwd().join("nowhere"));
    symlink(&target, &link).expect("a link");
    let tells = ["--report page.html", "the target of this link does not exist"];
    home.run("run clock --report page.html").code(2).tells(&tells);
    assert!(link.is_symlink() && !target.exists());
}
