//! How it looks: on a terminal and on none, narrow, without colour, without Unicode.

use crate::common::{DEADLINE, Home, wait_until};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

/// Columns that a line takes.
fn columns(line: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(line)
}

#[test]
fn no_line_is_wider_than_forty_columns_where_there_are_forty() {
    let home = Home::new();
    let mut command = home.handover(["run", "*", "--profile", "smoke", "--no-report"]);
    command.env("COLUMNS", "40");
    let said = crate::common::said(command).code(0);
    let mut command = home.handover(["show"]);
    command.env("COLUMNS", "40");
    let shown = crate::common::said(command).code(0).out;
    for line in shown.lines() {
        assert!(columns(line) <= 40, "{} columns: {line}", columns(line));
    }
    // Under the table stands where it is stored, and a path is not broken.
    let told = said.out.strip_prefix(&shown).expect("the table comes first");
    assert_eq!(told.lines().count(), 1, "{told}");
    for it in &home.last().records {
        assert!(shown.contains(&it.id), "{} is not in it: {shown}", it.id);
    }
}

#[test]
fn a_locale_without_unicode_gets_none() {
    let home = Home::new();
    home.ok("run clock lock --profile smoke --no-report");
    for (name, value) in [("LANG", "C"), ("LC_ALL", "POSIX"), ("LC_CTYPE", "en_US.ISO-8859-1")] {
        for width in ["40", "120"] {
            let mut command = home.handover(["show"]);
            command.env(name, value).env("COLUMNS", width);
            let said = crate::common::said(command).code(0);
            assert!(
                said.out.is_ascii() && said.out.contains("clock/now"),
                "{name}={value}: {said}"
            );
        }
    }
    assert!(!home.ok("show").is_ascii());
}

#[test]
fn a_width_that_is_none_is_passed_over() {
    let home = Home::new();
    let usual = home.ok("run clock/now --profile smoke --no-report");
    for width in ["", "0", "x", "-5", "99999999999999999999", "1"] {
        let mut command = home.handover(["show"]);
        command.env("COLUMNS", width);
        let said = crate::common::said(command).code(0);
        assert!(said.out.contains("clock/now"), "COLUMNS={width}: {said}");
    }
    assert!(usual.starts_with(&home.ok("show")));
}

/// Runs a command on a terminal of its own; what it shows there.
fn on_a_terminal(mut command: Command, width: u16) -> String {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).expect("its other end");
    unlockpt(&ours).expect("its other end");
    let name = ptsname(&ours, Vec::new()).expect("its name");
    let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
    let theirs = File::from(theirs.expect("its other end"));
    let size = Winsize { ws_row: 25, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&theirs, size).expect("its size");
    let end = || Stdio::from(theirs.try_clone().expect("an end"));
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it starts");
    drop((command, theirs));
    let (to, from) = channel();
    thread::spawn(move || {
        let mut shown = Vec::new();
        // Ends with an error when the last writer closes its end: that is how terminals end.
        let _ = File::from(ours).read_to_end(&mut shown);
        to.send(shown)
    });
    wait_until("its end", || child.try_wait().expect("a child").is_some());
    assert!(child.wait().expect("a child").success());
    let shown = from.recv_timeout(DEADLINE).expect("what it showed");
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    let home = Home::new();
    let without = home.ok("run clock/now --profile smoke --no-report");
    assert!(!without.contains('\x1b'), "{without}");
    let shown = |name: &str, value: &str| {
        let mut command = home.handover(["show"]);
        command.env(name, value);
        on_a_terminal(command, 100)
    };
    assert!(shown("TERM", "xterm").contains("\x1b["));
    assert!(shown("NO_COLOR", "").contains("\x1b["), "set to nothing is not set");
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = shown(name, value);
        assert!(!shown.contains('\x1b') && shown.contains("clock/now"), "{name}={value}: {shown}");
    }
}

#[test]
fn a_run_on_a_terminal_shows_its_progress_and_then_the_table() {
    let home = Home::new();
    for (width, no_color) in [(100, "0"), (40, "1")] {
        let words = ["run", "clock", "lock/free", "--profile", "smoke", "--no-report"];
        let mut command = home.handover(words);
        command.env("NO_COLOR", no_color);
        let shown = on_a_terminal(command, width);
        assert!(shown.contains("clock/rdtsc") && shown.contains("cannot see"), "{shown}");
        // A bar in the place of the lines that a log gets.
        assert!(shown.contains('%') && !shown.contains("clock/now measured"), "{shown}");
    }
}

#[test]
fn a_load_on_a_terminal_shows_how_it_goes_and_leaves_the_lines_that_a_log_gets() {
    let home = Home::new();
    let words = "evh_perf -e -c -p 0 --duration 0.8 --clients 3".split(' ');
    let shown = on_a_terminal(home.handover(words.clone()), 100);
    for text in ["messages/s", "mean latency", " 3 connections", "Perf test completed"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let said = crate::common::said(home.handover(words)).code(0);
    assert!(!said.out.contains("messages/s ") && !said.err.contains("mean latency"), "{said}");
    assert!(!said.out.contains('\x1b') && !said.err.contains('\x1b'), "{said}");
}
