//! `handover trace`, on traces of a process with probes: the test starts itself again as that
//! process.

use crate::common::{Home, Running, json, skipped, wait_until};
use handover_probe::format::{PAGE_BYTES, SEGMENT_CHUNK, SegmentHeader};
use handover_probe::read::Trace;
use handover_probe::{Config, Recording, disable, enable, probe, span};
use regex_lite::Regex;
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Variable with the role of the other process.
const ROLE: &str = "HANDOVER_TRACE_TEST_ROLE";

const ROUNDS: u64 = 100;

fn work(rounds: u64) {
    for number in 0..rounds {
        let _round = span!("served.round", number);
        for _ in 0..10 {
            let _inner = span!("served.inner(int, char*)");
        }
        probe!("served.mark", number);
    }
}

/// Returns a command that runs this test again, as a process in `home`.
fn traced(home: &Home, role: &str) -> Command {
    let mut command = home.program(std::env::current_exe().expect("this very file"));
    let test = "trace::trace_is_shown_by_function_and_as_a_tree";
    command.args(["--exact", test, "--nocapture"]).env(ROLE, role);
    command
}

/// Plays the role that `ROLE` names, if it is set; returns `true` then.
fn plays_a_role() -> bool {
    let Ok(role) = std::env::var(ROLE) else { return false };
    match role.as_str() {
        "record" => {
            let recording = Recording::start(Config::stream("a.trace")).expect("a recording");
            enable("served.*").expect("a pattern");
            let other = std::thread::Builder::new().name("other".into());
            let other = other.spawn(|| work(ROUNDS)).expect("a thread");
            other.join().expect("it works");
            let _open = span!("served.main");
            work(ROUNDS);
            disable("served.*").expect("a pattern");
            assert_eq!(recording.finish().lost, 0);
        }
        "serve" => {
            eprintln!("ready");
            loop {
                work(1);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // Records by its environment alone, and is killed.
        "die" => {
            work(ROUNDS);
            eprintln!("ready");
            std::thread::sleep(Duration::from_secs(600));
        }
        other => panic!("{other}"),
    }
    true
}

#[test]
fn functions_of_two_traces_are_compared() {
    let (home, other) = (recorded(), recorded());
    let at = |name: &str| home.cwd().join(name);
    fs::copy(other.cwd().join("a.trace"), at("b.trace")).expect("a trace");
    let shown = home.ok("trace compare a.trace b.trace");
    let row = Regex::new(r"(?m)^.* 2000 +2000 .* served\.inner\(int, char\*\)$").unwrap();
    assert!(row.is_match(&shown), "{shown}");
    assert!(shown.contains("all functions: ") && shown.contains("before: 1 calls had"), "{shown}");

    let same = home.ok("trace compare a.trace a.trace --only *,-served.inner*");
    assert!(same.contains("served.round") && !same.contains("served.inner"), "{same}");
    assert!(same.contains(" %\n") && same.contains(": +0.0 %"), "{same}");

    let document = json(&home.ok("trace compare a.trace b.trace --json --top 2"));
    let functions = document["functions"].as_array().expect("functions");
    let change = |function: &serde_json::Value| {
        let self_ns = |side: &str| function[side]["self_ns"].as_i64().expect("a time");
        (self_ns("after") - self_ns("before")).abs()
    };
    assert!(
        functions.len() == 2 && change(&functions[0]) >= change(&functions[1]),
        "{functions:?}"
    );
    let shown = json(&home.ok("trace show b.trace --json"));
    assert_eq!(document["after"]["time_ns"], shown["time_ns"]);
}

/// Returns a home with a trace.
fn recorded() -> Home {
    let home = Home::new();
    crate::common::said(traced(&home, "record")).code(0);
    assert!(home.cwd().join("a.trace").exists());
    home
}

#[test]
fn trace_is_shown_by_function_and_as_a_tree() {
    if plays_a_role() {
        return;
    }
    let home = recorded();
    let shown = home.ok("trace show a.trace");
    let row = Regex::new(r"(?m)^.* 2000  .* 2  served\.inner\(int, char\*\)$").unwrap();
    assert!(row.is_match(&shown), "{shown}");
    let mark = Regex::new(r"(?m)^ *200 +2 +served\.mark$").unwrap();
    assert!(mark.is_match(&shown) && shown.contains("2 threads"), "{shown}");
    assert!(shown.contains("1 calls had not ended"), "{shown}");

    let tree = home.ok("trace show a.trace --tree --threads");
    assert!(tree.contains(" other [") && tree.contains("    served.round"), "{tree}");
    let shallow = home.ok("trace show a.trace --tree --depth 1");
    assert!(!shallow.contains("served.inner"), "{shallow}");

    let top = home.ok("trace show a.trace --sort calls --top 1");
    assert!(top.contains("served.inner") && !top.contains("served.round"), "{top}");
    let only = home.ok("trace show a.trace --only *,-served.inner*");
    assert!(!only.contains("served.inner") && only.contains("served.round"), "{only}");
    assert!(home.data().exists() || fs::read_dir(home.cwd()).expect("a folder").count() == 1);
}

#[test]
fn json_contains_the_table_values() {
    let home = recorded();
    let document = json(&home.ok("trace show a.trace --json --tree --sort name"));
    assert_eq!(document["schema"], 1);
    assert_eq!(document["processes"][0]["end"], "finished");
    assert_eq!(document["processes"][0]["threads"].as_array().expect("threads").len(), 2);
    let functions = document["functions"].as_array().expect("functions");
    let inner = &functions[0];
    assert_eq!(inner["name"], "served.inner(int, char*)");
    assert_eq!((&inner["calls"], &inner["threads"]), (&2000.into(), &2.into()));
    assert!(inner["durations"]["p99_ns"].as_u64() >= inner["durations"]["p50_ns"].as_u64());
    let selves: u64 = functions.iter().filter_map(|it| it["self_ns"].as_u64()).sum();
    assert_eq!(document["time_ns"], selves);
    assert_eq!(document["tree"][0]["total_ns"], selves);
    assert_eq!(document["missing"]["lost"], 0);
    assert_eq!(document["pairing"]["open"], 1);
}

#[test]
fn exports_are_written_to_the_given_output() {
    let home = recorded();
    let at = |name: &str| home.cwd().join(name);
    let said = home.ok("trace export a.trace --to perfetto");
    assert!(said.ends_with(": a.pftrace\n"), "{said}");
    let bytes = fs::read(at("a.pftrace")).expect("a file");
    assert!(bytes.len() > 4_000 && bytes[0] == 0x0a);

    home.ok("trace export a.trace --to chrome -o b.json");
    let document = json(&fs::read_to_string(at("b.json")).expect("a file"));
    assert!(document["traceEvents"].as_array().expect("events").len() > 4_000);

    let folded = home.ok("trace export a.trace --to folded -o -");
    let sum: u64 = folded
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap())
        .map(|ns| ns.parse::<u64>().unwrap())
        .sum();
    assert_eq!(json(&home.ok("trace show a.trace --json"))["time_ns"], sum);
    let apart = home.ok("trace export a.trace --to folded --threads -o -");
    assert!(apart.contains(" other [") && !folded.contains(" other ["));

    home.ok("trace export a.trace --to flamegraph");
    let page = fs::read_to_string(at("a.svg")).expect("a file");
    assert!(page.starts_with("<svg xmlns=") && page.contains("<title>"), "{page:.300}");

    let csv = home.ok("trace export a.trace --to csv -o -");
    // A line of headings; for each thread 100 rounds of 2 x 11 events and a mark; and main's
    // beginning.
    assert_eq!(csv.lines().count(), 1 + 2 * 100 * 23 + 1);

    // A full disk leaves no partial file.
    let line = "ulimit -f 8; handover trace export a.trace --to csv -o full.csv";
    let said = crate::common::said(home.shell(line)).code(1).tells(&["full.csv"]);
    assert!(!at("full.csv").exists(), "{said}");
}

#[test]
fn tables_of_traces_are_cut_to_the_width_of_the_output() {
    let home = recorded();
    for line in ["trace estimate a.trace --below 1s", "trace list a.trace"] {
        let mut command = home.handover(line.split(' '));
        command.env("COLUMNS", "36");
        let cut = crate::common::said(command).code(0).out;
        let table = cut.split("\n\n").next().expect("a table");
        assert!(table.lines().all(|line| line.chars().count() <= 36), "{cut}");
        assert!(table.contains('…'), "{cut}");
        // The filter below a table is to be copied.
        let is_whole = cut.contains("-served.inner(int? char*)");
        assert!(is_whole || line.starts_with("trace list"), "{cut}");
    }
}

#[test]
fn estimate_suggests_a_filter() {
    let home = recorded();
    let said = home.ok("trace estimate a.trace --below 1s");
    assert!(said.contains("4601 events") && said.contains("-served.inner(int? char*)"), "{said}");
    let document = json(&home.ok("trace estimate a.trace --below 1s --json"));
    let filter = document["estimate"]["filter"].as_str().expect("a filter").to_owned();
    let mut show = home.handover(["trace", "show", "a.trace", "--json", "--only", &filter]);
    show.stdin(std::process::Stdio::null());
    let shown = json(&crate::common::said(show).code(0).out);
    assert_eq!(shown["pairing"]["events"], document["estimate"]["events_left"]);
    let long = home.ok("trace estimate a.trace --below 1ns --share 50%");
    assert!(long.contains("no function needs to be left out"), "{long}");
}

/// Removes, on drop, the rings in `/dev/shm` that the process of a trace has left when it was
/// killed. Nothing else would: they stay while the trace's folder is gone.
struct LeftRings(PathBuf);

impl Drop for LeftRings {
    fn drop(&mut self) {
        let trace = Trace::open(&self.0);
        if let Some(rings) = trace.as_ref().ok().and_then(Trace::rings_path) {
            // Nothing depends on the removal.
            let _ = fs::remove_file(rings);
        }
    }
}

/// Starts a process with probes in the background.
fn serving(home: &Home) -> Running<'_> {
    let mut serving = home.start(traced(home, "serve"));
    serving.wait_for("ready");
    serving
}

#[test]
fn probes_of_a_running_process_are_listed_switched_on_and_off() {
    let home = Home::new();
    let serving = serving(&home);
    let pid = serving.id();
    if home.run(&format!("trace list {pid}")).err.contains("may not be traced") {
        return skipped("probes switched from outside", "processes may not trace their siblings");
    }
    let off = home.ok(&format!("trace list {pid} served.*"));
    assert_eq!(off.matches("off  ").count(), 4, "{off}");
    assert!(off.contains("span  served.round") && off.contains("trace.rs:"), "{off}");

    let said = home.ok(&format!("trace on {pid} served.*,-served.inner* -o out.trace"));
    assert!(said.contains("3 probes") && said.contains("cwd/out.trace"), "{said}");
    let path = home.cwd().join("out.trace");
    let _rings = LeftRings(path.clone());
    wait_until("a trace", || {
        path.exists() && home.run("trace show out.trace").out.contains("served.round")
    });
    let all = json(&home.ok(&format!("trace list {pid} --json")));
    let on = all["sites"].as_array().expect("sites").iter().filter(|it| it["on"] == true).count();
    assert_eq!(on, 3);
    let said = home.ok(&format!("trace off {pid}"));
    assert!(said.contains("0 are on"), "{said}");
    let all = home.ok(&format!("trace list {pid}"));
    assert!(!all.contains("on   "), "{all}");
    let named = home.ok("trace list out.trace served.round");
    assert!(named.starts_with("span  served.round"), "{named}");
    serving.signal(Signal::KILL);
}

#[test]
fn trace_of_a_killed_process_is_complete() {
    let home = Home::new();
    let _rings = LeftRings(home.cwd().join("killed.trace"));
    let mut command = traced(&home, "die");
    command.env("HANDOVER_TRACE", "served.*").env("HANDOVER_TRACE_FILE", "killed.trace");
    let mut dying = home.start(command);
    dying.wait_for("ready");
    dying.signal(Signal::KILL);
    dying.finish();
    let shown = home.ok("trace show killed.trace");
    assert!(shown.contains("not finished"), "{shown}");
    let document = json(&home.ok("trace show killed.trace --json"));
    assert_eq!(document["pairing"]["events"], 100 * 23);
    assert_eq!(document["processes"][0]["end"], "open");
    home.ok("trace export killed.trace --to perfetto");
}

#[test]
fn trace_errors_are_one_line_with_a_remedy() {
    let home = recorded();
    let at = |name: &str| home.cwd().join(name);
    let bytes = fs::read(at("a.trace")).expect("a trace");
    fs::write(at("empty"), "").expect("a file");
    fs::write(at("text.txt"), "no trace at all\n").expect("a file");
    fs::write(at("short"), &bytes[..1000]).expect("a file");
    let mut flipped = bytes.clone();
    flipped[20] ^= 1;
    fs::write(at("header"), &flipped).expect("a file");
    fs::create_dir(at("folder")).expect("a folder");
    let me = std::process::id();
    for (line, words) in [
        ("trace show empty", &["empty", "not a trace", "handover trace"][..]),
        ("trace show text.txt", &["text.txt", "not a trace"]),
        ("trace export text.txt --to csv", &["text.txt", "not a trace"]),
        ("trace estimate text.txt", &["text.txt", "not a trace"]),
        ("trace list text.txt", &["text.txt", "not a trace"]),
        ("trace show short", &["short", "first page"]),
        ("trace show header", &["header", "first page"]),
        ("trace show nowhere", &["nowhere", "No such file"]),
        ("trace show folder", &["folder", "directory"]),
        ("trace show", &["<FILE>"]),
        ("trace show a.trace --sort fastest", &["fastest", "p99"]),
        ("trace compare a.trace", &["<AFTER>"]),
        ("trace compare a.trace text.txt", &["text.txt", "not a trace"]),
        ("trace compare a.trace a.trace --only zzz", &["zzz", "trace list"]),
        ("trace show a.trace --depth 9999", &["9999", "0..=1024"]),
        ("trace show a.trace --top 0", &["--top"]),
        ("trace show a.trace --threads", &["--tree"]),
        ("trace show a.trace --depth 3", &["--tree"]),
        ("trace export a.trace --to csv --threads", &["--threads", "folded or flamegraph"]),
        ("trace show a.trace --only served.rund", &["served.rund", "did you mean served.round"]),
        ("trace show a.trace --only zzz", &["zzz", "trace list"]),
        ("trace export a.trace", &["--to"]),
        ("trace export a.trace --to ctf", &["ctf", "perfetto, chrome, folded, flamegraph or csv"]),
        ("trace export a.trace --to csv -o a.trace", &["a.trace", "another file"]),
        ("trace export a.trace --to csv -o nowhere/x", &["nowhere/x", "No such file"]),
        ("trace estimate a.trace --share 101", &["101", "0..=100"]),
        ("trace estimate a.trace --below much", &["much"]),
        ("trace on 0 x", &["'0'"]),
        ("trace on 4000000000 x", &["no process 4000000000"]),
        ("trace on 99999999999 x", &["99999999999"]),
        ("trace off 4000000000", &["no process 4000000000"]),
        ("trace list 4000000000", &["no process 4000000000"]),
        ("trace on", &["<PID>", "<PATTERN>"]),
        ("trace shwo a.trace", &["shwo", "show"]),
    ] {
        let said = home.run(line).code(2).tells(words);
        assert!(said.out.is_empty() && said.err.lines().count() == 1, "{line}: {said}");
        assert!(said.err.starts_with("handover: "), "{line}: {said}");
    }
    let said = home.run(&format!("trace on {me} served.rounds"));
    if !said.err.contains("may not be traced") {
        said.code(2).tells(&["served.rounds", "did you mean served.round"]);
    }
    assert_eq!(fs::read(at("a.trace")).expect("a trace"), bytes, "it was left alone");
}

#[test]
fn missing_events_are_shown_with_a_hint() {
    let home = recorded();
    assert!(!home.ok("trace show a.trace").contains("hint:"));
    let path = home.cwd().join("a.trace");
    let bytes = fs::read(&path).expect("a trace");
    fs::write(&path, &bytes[..bytes.len() - 700]).expect("a trace");
    let said = home.run("trace show a.trace").code(1);
    assert!(
        said.out.contains("hint: a.trace was complete, but has since been truncated or damaged"),
        "{said}"
    );
}

/// Returns the offset of the middle of the longest chunk of events in a trace. The number of chunks
/// depends on the time that the recording took.
fn middle_of_longest_chunk(bytes: &[u8]) -> usize {
    let (mut at, mut longest) = (PAGE_BYTES as usize, 0..0);
    while let Some(segment) = SegmentHeader::decode(&bytes[at..]) {
        let end = at + segment.bytes as usize;
        if segment.kind == SEGMENT_CHUNK && end - at > longest.len() {
            longest = at..end;
        }
        at = end;
    }
    longest.start + longest.len() / 2
}

#[test]
fn intact_parts_of_a_damaged_trace_are_shown_with_exit_code_1() {
    let home = recorded();
    let path = home.cwd().join("a.trace");
    let mut bytes = fs::read(&path).expect("a trace");
    let at = middle_of_longest_chunk(&bytes);
    bytes[at] ^= 0x10;
    fs::write(&path, &bytes).expect("a trace");
    for line in ["trace show a.trace", "trace show a.trace --json", "trace estimate a.trace"] {
        let said = home.run(line).code(1).tells(&["a.trace", "events are missing"]);
        assert!(said.out.contains("served."), "{line}: {said}");
        home.unread(line).code(1).tells(&["events are missing"]);
    }
    for line in ["trace compare a.trace a.trace", "trace export a.trace --to csv -o -"] {
        home.unread(line).code(1).tells(&["events are missing"]);
    }
    let said = home.run("trace show a.trace").code(1);
    assert!(
        said.out.contains("hint: a.trace was complete, but has since been truncated or damaged"),
        "{said}"
    );
    home.run("trace export a.trace --to perfetto -o half.pftrace").code(1).tells(&["missing"]);
    assert!(Path::new(&home.cwd().join("half.pftrace")).exists());
}
