//! The documented transcripts of `hello1`, `hello3` and `hello4`, line by line: the figures differ,
//! the seconds are fewer, and lines of our own follow.

use super::{ending, texts};
use crate::common::{Home, Said, said};
use regex_lite::Regex;
use std::collections::HashMap;

/// Options added to each documented command line: the original's live loop was compiled in, and
/// lasted a minute.
const ADDED: &str = "-l --seconds 0.2";
/// Lines that follow the documented ones.
const LINES_ADDED: usize = 2;

/// A documented run of one machine, or of two.
struct Transcript {
    /// Text above it in the documentation.
    title: &'static str,
    line: &'static str,
    /// Options for what the documentation compiled in.
    variant: &'static str,
    text: &'static str,
}

const HELLO1: &str = r#"[45094.050127|21685|DEMO1EVM] IDLE timer set: 0 s
[45094.050221|21685|DEMO1EVM] QUIT timer set: 60 s
[45094.050261|21685|DEMO1EVM] IDLE timer expired!
[45094.050294|21685|DEMO1EVM] HELLO msg sent: "HELLO: 1"
[45154.050233|21685|DEMO1EVM] QUIT timer expired (33765956 messages sent)!
"#;

/// The oldest transcript of `hello3`; all later ones name the receiver.
const HELLO3_FIRST: &str = r#"[65824.725487|16129|DEMO3EVM] QUIT timer set: 60 s
[65824.725674|16130|DEMO3EVM] HELLO msg sent: "HELLO: 1"
[65884.725502|16129|DEMO3EVM] QUIT timer expired (15494667 messages sent)!
"#;

const HELLO3: &str = r#"[02246.496688|26129|DEMO3EVM] QUIT timer set: 60 s
[02246.496785|26130|DEMO3EVM] HELLO msg sent to evm_id=0: "HELLO: 1"
[02306.496699|26129|DEMO3EVM] QUIT timer expired (13979037 messages sent)!
"#;

const TRANSCRIPTS: &[Transcript] = &[
    Transcript {
        title: "Local messages (evm_message_call() - no FD triggering)",
        line: "time ./hello1_evm",
        variant: "",
        text: HELLO1,
    },
    Transcript {
        title: "Local messages (evm_message_pass() - with FD triggering)",
        line: "time ./hello1_evm",
        variant: "--via pass",
        text: HELLO1,
    },
    Transcript {
        title: "direct mapping for msg_ids and no FD-triggering (with blocking semaphore)",
        line: "time ./hello1_evm",
        variant: "--via pass --wake asleep",
        text: HELLO1,
    },
    Transcript {
        title: "Looping messages between two threads (evm_message_pass())",
        line: "time ./hello3_evm",
        variant: "--fds --lookup match",
        text: HELLO3_FIRST,
    },
    Transcript {
        title: "linear search for the only msg_id",
        line: "time ./hello3_evm",
        variant: "--fds --lookup search --ids 1",
        text: HELLO3,
    },
    Transcript {
        title: "linear search for 10th msg_id",
        line: "time ./hello3_evm",
        variant: "--fds --lookup search --ids 10",
        text: HELLO3,
    },
    Transcript {
        title: "linear search for 20th msg_id",
        line: "time ./hello3_evm",
        variant: "--fds --lookup search --ids 20",
        text: HELLO3,
    },
    Transcript {
        title: "direct mapping for msg_ids (1 id)",
        line: "time ./hello3_evm",
        variant: "--fds --ids 1",
        text: HELLO3,
    },
    Transcript {
        title: "direct mapping for msg_ids (20 ids)",
        line: "time ./hello3_evm",
        variant: "--fds",
        text: HELLO3,
    },
    Transcript {
        title: "direct mapping for msg_ids (20 ids) and no FDs",
        line: "time ./hello3_evm",
        variant: "",
        text: HELLO3,
    },
];

/// Runs a documented command line in the folder of its prompt, with options added.
fn typed(home: &Home, line: &str, options: &str) -> Said {
    let line = format!("cd build/demos && {line} {ADDED} {options}");
    said(home.shell(&format!("exec bash -c '{line}'"))).code(0)
}

/// Checks what the shell's `time` adds.
#[track_caller]
fn check_times(said: &Said) {
    let form = r"^\nreal\t\d+m\d+[.,]\d{3}s\nuser\t\d+m\d+[.,]\d{3}s\nsys\t\d+m\d+[.,]\d{3}s\n$";
    assert!(Regex::new(form).expect("a form").is_match(&said.err), "{said}");
}

/// Splits a line into its thread, tag and text, of which the figures are replaced.
#[track_caller]
fn parts(line: &str) -> (&str, &str, String) {
    let form = Regex::new(r"^\[\d{5}\.\d{6}\|(\d+)\|(\w+)\] (.*)$").expect("a form");
    let found = form.captures(line).unwrap_or_else(|| panic!("{line}\nhas no header"));
    let part = |index| found.get(index).map_or("", |part| part.as_str());
    let count = Regex::new(r"\(\d+ messages").expect("a form");
    let text = count.replace(part(3), "(N messages").replace("60 s", "200 ms");
    (part(1), part(2), text)
}

#[test]
fn transcripts_of_hello1_and_hello3_match_the_documented_ones_line_by_line() {
    let home = Home::new();
    home.ok("links .");
    for Transcript { title, line, variant, text } in TRANSCRIPTS {
        let said = typed(&home, line, variant);
        check_times(&said);
        let lines: Vec<&str> = said.out.lines().collect();
        let documented: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), documented.len() + LINES_ADDED, "{title}: {said}");
        let mut threads = HashMap::new();
        for (line, documented) in lines.iter().zip(&documented) {
            let (thread, tag, text) = parts(line);
            let (documented_thread, documented_tag, documented_text) = parts(documented);
            assert_eq!((tag, text), (documented_tag, documented_text), "{title}: {said}");
            let before = *threads.entry(documented_thread).or_insert(thread);
            assert_eq!(thread, before, "{title}: by another thread: {said}");
        }
        let mut distinct: Vec<_> = threads.values().collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), threads.len(), "{title}: threads are not told apart: {said}");
        ending(&texts(&said, parts(documented[0]).1));
    }
}

#[test]
fn transcripts_of_hello4_have_a_line_of_each_thread_in_any_order_between_start_and_quit() {
    let home = Home::new();
    home.ok("links .");
    let limits = "ulimit -n4096 && ulimit -s2048 && ";
    for (limits, threads_count) in [("", 1), ("", 10), ("", 100), (limits, 1000)] {
        let try_limits = format!("exec bash -c '{limits}true'");
        if !said(home.shell(&try_limits)).status.success() {
            crate::common::skipped("hello4_evm 1000", "the limits of its transcript are refused");
            continue;
        }
        for variant in ["--fds", "--fds --wake asleep", ""] {
            let said = typed(&home, &format!("{limits}time ./hello4_evm {threads_count}"), variant);
            check_times(&said);
            let lines: Vec<_> = said.out.lines().map(parts).collect();
            assert!(lines.iter().all(|(_, tag, _)| *tag == "DEMO3EVM"), "{said}");
            let before = lines.len() - LINES_ADDED - 1;
            let (started, quit) = (&lines[..before], &lines[before]);
            assert_eq!(quit.2, "QUIT timer expired (N messages sent)!", "{said}");
            let said_by = |text: &str| -> Vec<&str> {
                let lines = started.iter().filter(|line| line.2 == text);
                lines.map(|line| line.0).collect()
            };
            let set = said_by("QUIT timer set: 200 ms");
            assert_eq!(set, [quit.0], "{said}");
            let mut hellos = said_by("HELLO msg sent: \"HELLO1\"");
            assert_eq!(hellos.len() + set.len(), started.len(), "another line: {said}");
            hellos.sort_unstable();
            hellos.dedup();
            assert_eq!(hellos.len(), threads_count, "{variant}: {said}");
            assert!(!hellos.contains(&quit.0), "{said}");
        }
    }
}
