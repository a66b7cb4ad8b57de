//! The demos `hello1` to `hello5`: their lines, counts and ends.

mod transcripts;

use crate::common::{Home, Said, said, said_to, wait_until};
use regex_lite::Regex;
use rustix::process::Signal;
use std::time::Duration;

/// Start of a line: time, thread, module.
const HEAD: &str = r"^\[\d{5}\.\d{6}\|\d+\|TAG\] ";

/// Returns the texts of a demo's lines, all of which must have this start.
#[track_caller]
fn texts<'a>(said: &'a Said, tag: &str) -> Vec<&'a str> {
    let head = Regex::new(&HEAD.replace("TAG", tag)).expect("a form");
    let text = |line: &'a str| match head.find(line) {
        Some(found) => &line[found.end()..],
        None => panic!("{line}\nhas not the head of {tag}: {said}"),
    };
    said.out.lines().map(text).collect()
}

/// Checks the last three lines; returns the number of messages that they report.
#[track_caller]
fn ending(texts: &[&str]) -> u64 {
    let [.., quit, rate, used] = texts[..] else { panic!("{texts:?}") };
    let found = |form: &str, line: &str| {
        let form = Regex::new(form).expect("a form");
        let found =
            form.captures(line).unwrap_or_else(|| panic!("{line}\nhas not the form\n{form}"));
        found.get(1).map_or(0, |count| count.as_str().parse().expect("a count"))
    };
    let count: u64 = found(r"^(?:QUIT timer expired|Interrupted) \((\d+) messages sent\)!$", quit);
    let again = found(r"^(\d+) messages in \d+\.\d{3} s: \d[\d.]* [kMG]?/s(?:, .* each)?$", rate);
    assert_eq!(count, again, "{texts:?}");
    found(
        &r"^user PART, system PART; context switches: \d+ voluntary, \d+ involuntary$"
            .replace("PART", r"\d+\.\d{3} s \(\d+ %(?:, \S+ \S+ each)?\)"),
        used,
    );
    count
}

/// Runs a demo until its QUIT timer; returns the texts before the last three, and the number of
/// messages.
#[track_caller]
fn played(home: &Home, line: &str, tag: &str) -> (Vec<String>, u64) {
    let said = home.run(line).code(0);
    assert!(said.err.is_empty(), "{said}");
    let texts = texts(&said, tag);
    let count = ending(&texts);
    let before = texts[..texts.len() - 3].iter().map(ToString::to_string);
    (before.collect(), count)
}

/// Durations of a live loop, each with the text of its line about the QUIT timer.
const LIVE_DURATIONS: [(&str, &str); 3] = [
    ("0.2", "QUIT timer set: 200 ms"),
    ("5", "QUIT timer set: 5 s"),
    ("60", "QUIT timer set: 60 s"),
];

/// Runs a demo with a live loop until it has handled more than `count_min` messages: on a busy
/// machine a thread may get no CPU before the QUIT timer expires, and then the demo runs longer.
/// Returns the texts before the last three, and the text of the line about the QUIT timer.
#[track_caller]
fn played_live(home: &Home, line: &str, tag: &str, count_min: u64) -> (Vec<String>, &'static str) {
    for (seconds, quit) in LIVE_DURATIONS {
        let (texts, count) = played(home, &format!("{line} --seconds {seconds}"), tag);
        if count > count_min {
            return (texts, quit);
        }
    }
    panic!("{line}: at most {count_min} messages");
}

#[test]
fn hello1_prints_the_lines_of_the_original() {
    let home = Home::new();
    for via in ["call", "pass"] {
        let line = format!("hello1 -l --via {via}");
        let (texts, quit) = played_live(&home, &line, "DEMO1EVM", 1);
        let opening =
            ["IDLE timer set: 0 s", quit, "IDLE timer expired!", "HELLO msg sent: \"HELLO: 1\""];
        assert_eq!(texts, opening);
    }
}

/// Runs a demo until it has printed `text`, and interrupts it, with its second process if it has
/// one. Returns the texts before the last three, and the number of messages.
#[track_caller]
fn interrupted_after(home: &Home, line: &str, tag: &str, text: &str) -> (Vec<String>, u64) {
    let running = home.start(home.handover(line.split(' ')));
    let out = home.path().join("out");
    wait_until(text, || std::fs::read_to_string(&out).expect("a file").contains(text));
    running.signal_all(Signal::INT);
    let said = running.finish().code(130);
    let texts = texts(&said, tag);
    let before = texts[..texts.len() - 3].iter().map(ToString::to_string);
    (before.collect(), ending(&texts))
}

#[test]
fn without_the_live_loop_each_message_is_followed_by_a_pause() {
    let home = Home::new();
    let received = ["HELLO msg received: \"HELLO: 1\"", "IDLE timer set: 10 s"];
    let (texts, count) = interrupted_after(&home, "hello1", "DEMO1EVM", received[1]);
    assert_eq!(texts[4..], received);
    assert_eq!(count, 1);
    // Two processes: the second one has received, and pauses.
    let (texts, count) = interrupted_after(&home, "hello2", "DEMO2EVM", received[1]);
    for text in ["HELLO msg sent: \"HELLO: 1\"", received[0], received[1]] {
        assert!(texts.iter().any(|it| it == text), "{text}: {texts:?}");
    }
    assert_eq!(count, 1);
}

#[test]
fn two_threads_pause_a_millisecond_and_count_each_message_once() {
    let home = Home::new();
    let (texts, count) = played(&home, "hello3 --seconds 1", "DEMO3EVM");
    let received = texts.iter().filter(|line| line.starts_with("HELLO msg received")).count();
    assert_eq!(received as u64, count, "{texts:?}");
    assert!((2..=1000).contains(&count), "{count}");
    assert!(texts.iter().any(|line| line == "IDLE timer set: 1 ms"), "{texts:?}");
    // A thread writes its line after it has sent, when the other may have answered already.
    let mut sent: Vec<_> = texts.iter().filter(|line| line.starts_with("HELLO msg sent")).collect();
    sent.sort_by_key(|line| {
        line.rsplit(' ').next().and_then(|it| it.trim_end_matches('"').parse::<u64>().ok())
    });
    for (index, line) in sent.iter().enumerate() {
        let form = format!("HELLO msg sent to evm_id={}: \"HELLO: {}\"", index % 2, index + 1);
        assert_eq!(**line, form);
    }
}

#[test]
fn hello4_without_the_live_loop_joins_only_the_first_hello_of_each_client() {
    let home = Home::new();
    let received = "HELLO msg received: \"HELLO: 1\"";
    let (texts, count) = interrupted_after(&home, "hello4", "DEMO3EVM", received);
    assert!(texts.iter().any(|it| it == "HELLO msg sent: \"HELLO1\""), "{texts:?}");
    assert_eq!(count, 1);
}

#[test]
fn missing_descriptors_are_an_error_that_names_the_limit() {
    let home = Home::new();
    for demo in ["hello4", "hello5"] {
        let line = format!("ulimit -n 64 && exec handover {demo} --fds --seconds 0.2 100");
        let said = said(home.shell(&line)).code(1).tells(&["Too many open files", "`ulimit -n`"]);
        assert!(said.out.is_empty() && said.err.lines().count() == 1, "{said}");
        let line = format!("ulimit -n 64 && exec handover {demo} -l -n --seconds 0.2 100");
        self::said(home.shell(&line)).code(0);
    }
}

#[test]
fn live_loop_of_each_demo_prints_opening_and_end_only() {
    let home = Home::new();
    let (texts, quit) = played_live(&home, "hello2 -l", "DEMO2EVM", 1);
    assert_eq!(texts, [quit, "HELLO msg sent: \"HELLO: 1\""]);
    let [to_first, joined, plain] = [
        "HELLO msg sent to evm_id=0: \"HELLO: 1\"",
        "HELLO msg sent: \"HELLO1\"",
        "HELLO msg sent: \"HELLO: 1\"",
    ];
    for (line, tag, hello, sent) in [
        ("hello3 -l", "DEMO3EVM", to_first, 1),
        ("hello3 -l --place same", "DEMO3EVM", to_first, 1),
        ("hello4 -l --place same 3", "DEMO3EVM", joined, 3),
        ("hello4 -l", "DEMO3EVM", joined, 1),
        ("hello5 -l 3", "DEMO5EVM", plain, 3),
        ("hello5 -l --fds 3", "DEMO5EVM", plain, 3),
        ("hello5 -l --wake always 3", "DEMO5EVM", plain, 3),
    ] {
        // The rate is not checked: two threads on a busy machine take turns of milliseconds.
        let (texts, quit) = played_live(&home, line, tag, 0);
        let is_sent = |text: &&String| *text == hello;
        assert_eq!(texts.iter().filter(is_sent).count(), sent, "{line}: {texts:?}");
        assert!(texts.iter().any(|it| it == quit), "{line}: {texts:?}");
        assert_eq!(texts.len(), sent + 1, "{line}: {texts:?}");
    }
}

#[test]
fn one_thread_serves_a_thousand_under_the_limits_of_this_machine() {
    let home = Home::new();
    for demo in ["hello4", "hello5"] {
        let mut count = 0;
        // On a busy machine the clients may need more than a second.
        for seconds in [1, 10, 60] {
            let said = home.run(&format!("{demo} -l -n --seconds {seconds} 1000")).code(0);
            let lines: Vec<&str> = said.out.lines().collect();
            let sent = lines.iter().filter(|line| line.starts_with("HELLO msg sent")).count();
            assert_eq!(sent, 1000, "{demo}: {sent} clients said hello");
            count = ending(&lines);
            if count >= 1000 {
                break;
            }
        }
        assert!(count >= 1000, "{demo}: {count} messages");
    }
}

#[test]
fn too_many_threads_are_refused_before_the_first_starts() {
    let home = Home::new();
    for demo in ["hello4", "hello5"] {
        let under = |limit_kib: &str| {
            let line =
                format!("ulimit -v {limit_kib} && exec handover {demo} -l -n --seconds 1 1000");
            said(home.shell(&line))
        };
        let mut enough = String::new();
        for limit_kib in ["110000", "140000"] {
            let said =
                under(limit_kib).code(1).tells(&["the threads of this demo need", "ulimit -v"]);
            assert!(said.out.is_empty() && said.err.lines().count() == 1, "{said}");
            assert!(said.took < Duration::from_secs(150), "{said}");
            let told = Regex::new(r"allow more with `ulimit -v (\d+)`$").expect("a form");
            let told = told.captures(said.err.trim_end()).unwrap_or_else(|| panic!("{said}"));
            enough = told[1].to_string();
        }
        let said = under(&enough).code(0);
        let sent = said.out.lines().filter(|line| line.starts_with("HELLO msg sent")).count();
        assert_eq!(sent, 1000, "{enough}: {sent} clients said hello");
    }
    // The address space of the demo's one additional thread.
    let said = said(home.shell("ulimit -d 4000 && exec handover hello3 -l --seconds 0.2"));
    said.code(1).tells(&["the threads of this demo need", "`ulimit -d` leaves"]);
}

#[test]
fn topic_counts_deliveries_not_posts() {
    let home = Home::new();
    // Four clients say hello, and each hears the answer, which would come ten seconds later, that
    // is after the end: four messages.
    let pause = "IDLE timer set: 10 s";
    let (texts, count) = interrupted_after(&home, "hello5 4", "DEMO5EVM", pause);
    assert_eq!(count, 4, "{texts:?}");
    assert_eq!(texts.iter().filter(|text| *text == pause).count(), 1);
}

#[test]
fn server_without_clients_waits_for_its_quit_timer() {
    let home = Home::new();
    for demo in ["hello4", "hello5"] {
        let said = home.run(&format!("{demo} -n --seconds 0.05 0")).code(0);
        let lines: Vec<&str> = said.out.lines().collect();
        assert_eq!(ending(&lines), 0, "{said}");
        assert_eq!(lines[0], "QUIT timer set: 50 ms", "{said}");
    }
}

#[test]
fn verbosity_is_none_some_or_all() {
    let home = Home::new();
    // On a busy machine no message may be received within half a second.
    let lines = |flag: &str, awaited: &str| {
        let mut out = String::new();
        for seconds in ["0.5", "5", "60"] {
            let said = home.run(&format!("hello3 {flag} --seconds {seconds}")).code(0);
            assert!(said.err.is_empty(), "{said}");
            out = said.out;
            if out.contains(awaited) {
                break;
            }
        }
        out
    };
    assert_eq!(lines("-q", ""), "");
    let normal = lines("-n", "");
    assert!(normal.starts_with("QUIT timer set") || normal.starts_with("HELLO msg"), "{normal}");
    assert!(!normal.contains("(cb entry)"), "{normal}");
    let verbose = lines("-v", "(cb entry) HELLO: 1");
    assert!(verbose.contains("DEMO3EVM] (cb entry) HELLO: 1"), "{verbose}");
    assert!(!verbose.contains("DEMO3EVM] sent HELLO"), "{verbose}");
    // The machine's own lines are logged under its own module.
    assert!(verbose.contains("handover_event::"), "{verbose}");
    for flag in ["-t", "-g"] {
        let sent = "DEMO3EVM] sent HELLO: 1";
        assert!(lines(flag, sent).contains(sent));
    }
}

#[test]
fn signal_ends_demo_with_the_count_so_far() {
    let home = Home::new();
    for line in ["hello1 -l", "hello1", "hello2 -l", "hello3", "hello4 -l 5", "hello5 5"] {
        for signal in [Signal::INT, Signal::TERM] {
            let running = home.start(home.handover(line.split(' ')));
            let out = home.path().join("out");
            wait_until("it has begun", || {
                std::fs::read_to_string(&out).expect("a file").contains("HELLO msg sent")
            });
            // hello2: a terminal signals both processes.
            running.signal_all(signal);
            let said = running.finish().code(130).tells(&["interrupted"]);
            let lines = said.out.lines().map(|line| line.split_once("] ").map_or("", |it| it.1));
            let lines: Vec<&str> = lines.collect();
            ending(&lines);
            assert!(lines[lines.len() - 3].starts_with("Interrupted ("), "{said}");
            assert!(said.took < Duration::from_secs(150), "{said}");
        }
    }
    assert!(home.processes().is_empty(), "a process was left behind");
}

#[test]
fn second_process_ends_with_the_first_and_its_death_is_reported() {
    let home = Home::new();
    for kills_first in [true, false] {
        let running = home.start(home.handover(["hello2", "-l"]));
        let mut both = Vec::new();
        wait_until("two processes", || {
            both = home.processes();
            both.len() == 2
        });
        let first = running.id();
        let victim = both.into_iter().find(|id| (*id == first) == kills_first);
        let victim = crate::common::pid(victim.expect("a process"));
        rustix::process::kill_process(victim, Signal::KILL).expect("it runs");
        let said = running.finish();
        if !kills_first {
            let said = said.code(1).tells(&["the second process has disconnected"]);
            assert!(said.err.lines().count() == 1, "{said}");
        }
        wait_until("no process", || home.processes().is_empty());
    }
}

#[test]
fn interrupt_prints_figures_of_the_first_process_if_the_second_is_stopped() {
    let home = Home::new();
    let running = home.start(home.handover(["hello2", "-l"]));
    let out = home.path().join("out");
    wait_until("it has begun", || {
        std::fs::read_to_string(&out).expect("a file").contains("HELLO msg sent")
    });
    let second = home.processes().into_iter().find(|id| *id != running.id());
    let second = crate::common::pid(second.expect("it runs"));
    rustix::process::kill_process(second, Signal::STOP).expect("it runs");
    running.signal(Signal::INT);
    let said = running.finish().code(130).tells(&["Figures of the first process only: "]);
    ending(&texts(&said, "DEMO2EVM"));
    assert!(home.processes().is_empty());
}

#[test]
fn closed_output_ends_demo_early() {
    let home = Home::new();
    let said = said(home.shell("handover hello3 | head -n 2"));
    let said = said.code(0);
    assert_eq!(said.out.lines().count(), 2, "{said}");
    assert!(said.err.is_empty() && said.took < Duration::from_secs(150), "{said}");
}

#[test]
fn full_disk_is_reported() {
    let home = Home::new();
    let said = said(home.shell("handover hello3 > /dev/full"));
    said.code(1).tells(&["standard output", "No space left"]);
}

#[test]
fn missing_system_log_is_refused_before_the_demo_starts() {
    if std::os::unix::net::UnixDatagram::unbound()
        .and_then(|socket| socket.connect("/dev/log"))
        .is_ok()
    {
        return crate::common::skipped("a missing system log", "this machine has one");
    }
    let home = Home::new();
    let said = home.run("hello1 -s --seconds 0.1").code(1).tells(&["-s: /dev/log", "omit -s"]);
    assert!(said.out.is_empty() && said.err.lines().count() == 1, "{said}");
}

#[test]
fn wrong_command_line_of_a_demo_is_refused_in_one_line() {
    let home = Home::new();
    for (line, words) in [
        ("hello1 --seconds 0", &["--seconds <SECONDS>", "'0'", "0.001..=31536000"][..]),
        ("hello3 --seconds -1", &["--seconds", "'-1'", "0.001..=31536000"]),
        ("hello1 --seconds soon", &["--seconds", "'soon'", "must be a number in"]),
        ("hello1 --seconds inf", &["'inf'", "must lie in"]),
        ("hello1 --seconds NaN", &["'NaN'", "must lie in"]),
        ("hello1 --via post", &["--via", "'post'", "call, pass"]),
        ("hello1 --wake always", &["--wake always", "--via call", "--via pass"]),
        ("hello1 --via pass --wake never", &["--wake", "'never'", "always, asleep"]),
        ("hello3 --lookup hash", &["--lookup", "'hash'", "direct, search, match"]),
        ("hello3 --ids 0", &["--ids", "'0'", "1..=65534"]),
        ("hello3 --ids 65535", &["--ids", "'65535'", "1..=65534"]),
        ("hello3 --lookup match --ids 3", &["--ids 3", "--lookup match", "direct or search"]),
        ("hello3 --place nowhere", &["--place", "nowhere", "near"]),
        ("hello1 -x", &["-x", "--help"]),
        ("hello1 5", &["'5'"]),
        ("hello4 many", &["'many'", "num_additional_threads", "0..=1024"]),
        ("hello4 1025", &["'1025'", "0..=1024"]),
        ("hello5 -1", &["'-1'", "0..=1024"]),
        ("hello5 1 2", &["'2'"]),
        ("hello1 -q -v", &["--quiet", "--verbose"]),
    ] {
        let said = home.run(line).code(2).tells(words);
        assert!(said.out.is_empty() && said.err.lines().count() == 1, "{line}: {said}");
    }
    let said = said_to(home.handover(["hello2", "--child"]), b"no socket".to_vec());
    let said = said.code(2).tells(&["--child", "not a socket"]);
    assert_eq!(said.err.lines().count(), 1, "{said}");
}

#[test]
fn help_lists_original_options_and_the_meaning_of_the_count() {
    let home = Home::new();
    for demo in ["hello1", "hello2", "hello3", "hello4", "hello5"] {
        for flag in ["-h", "--help"] {
            let said = home.ok(&format!("{demo} {flag}"));
            for word in [
                "-q, --quiet",
                "-v, --verbose",
                "-l, --liveloop",
                "-t, --trace",
                "-g, --debug",
                "-s, --syslog",
                "-n, --no-header",
                "-h, --help",
                "--seconds",
                "--place",
            ] {
                assert!(said.contains(word), "{demo} {flag}, {word}: {said}");
            }
            let words: Vec<&str> = said.split_whitespace().collect();
            assert!(words.join(" ").contains("in all threads, each counted once"), "{said}");
            let takes_threads = ["hello4", "hello5"].contains(&demo);
            assert_eq!(said.contains("[num_additional_threads]"), takes_threads, "{said}");
            assert!(!said.contains("--child"), "{said}");
        }
    }
}
