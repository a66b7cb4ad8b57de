//! Output on a terminal and elsewhere, narrow, without colour, without Unicode.

use crate::common::{Home, wait_until};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, SpecialCodeIndex, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// Returns the number of columns of a line.
fn columns(line: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(line)
}

#[test]
fn no_line_is_wider_than_a_terminal_of_forty_columns() {
    let home = Home::new();
    let line = "run lock notify rpc --profile smoke --no-report";
    let mut command = home.handover(line.split(' '));
    command.env("COLUMNS", "40");
    let said = crate::common::said(command).code(0);
    let mut command = home.handover(["show"]);
    command.env("COLUMNS", "40");
    let shown = crate::common::said(command).code(0).out;
    for line in shown.lines() {
        assert!(columns(line) <= 40, "{} columns: {line}", columns(line));
    }
    // The line with the store's path follows the table, and the path is not broken.
    let told = said.out.strip_prefix(&shown).expect("the table comes first");
    let below = told.lines().filter(|line| !line.starts_with("not built into this binary: "));
    assert_eq!(below.count(), 1, "{told}");
    for it in &home.last().records {
        assert!(shown.contains(&it.id), "{} is not in it: {shown}", it.id);
    }
}

#[test]
fn locale_without_unicode_gets_ascii() {
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
fn invalid_width_is_ignored() {
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

/// A terminal with a program on it.
struct Tty {
    ours: File,
    theirs: File,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    child: Child,
}

impl Tty {
    fn start(mut command: Command, width: u16) -> Tty {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&ours).expect("its other end");
        unlockpt(&ours).expect("its other end");
        let name = ptsname(&ours, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = rustix::fs::open(name, flags, Mode::empty());
        let theirs = File::from(theirs.expect("its other end"));
        let size = Winsize { ws_row: 25, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size).expect("its size");
        let end = || Stdio::from(theirs.try_clone().expect("an end"));
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it starts");
        let ours = File::from(ours);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (kept, mut from) = (shown.clone(), ours.try_clone().expect("our end"));
        let reader = thread::spawn(move || {
            let mut some = [0; 4096];
            // Reading ends with an error when the last writer closes the terminal.
            while let Ok(count @ 1..) = from.read(&mut some) {
                kept.lock().expect("what was shown").extend_from_slice(&some[..count]);
            }
        });
        Tty { ours, theirs, shown, reader, child }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("what was shown")).into_owned()
    }

    /// Waits until the terminal has shown `text`.
    fn wait_for(&self, text: &str) {
        wait_until(text, || self.shown().contains(text));
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("keys");
    }

    /// Returns `true` if typed text is echoed line by line, and Ctrl-Z works, as a shell needs it.
    fn is_usual(&self) -> bool {
        let modes = tcgetattr(&self.theirs).expect("its modes");
        modes.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
            && modes.special_codes[SpecialCodeIndex::VSUSP] != 0
    }

    /// Waits for the program to end; returns its status and all that it has shown.
    fn end(self) -> (ExitStatus, String) {
        let Tty { ours, theirs, shown, reader, mut child } = self;
        wait_until("its end", || child.try_wait().expect("a child").is_some());
        let status = child.wait().expect("a child");
        drop(theirs);
        reader.join().expect("a reader");
        drop(ours);
        let shown = shown.lock().expect("what was shown");
        (status, String::from_utf8_lossy(&shown).into_owned())
    }
}

/// Runs a command on a terminal of its own, which must succeed; returns all that it shows.
fn on_a_terminal(command: Command, width: u16) -> String {
    let (status, shown) = Tty::start(command, width).end();
    assert!(status.success(), "{status}: {shown}");
    shown
}

#[test]
fn colour_is_used_only_on_terminals_that_accept_it() {
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

/// Escape sequences that enter and leave the alternate screen.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

#[test]
fn run_on_a_terminal_shows_the_live_view_then_the_table() {
    let home = Home::new();
    let words = ["run", "clock", "lock/free", "--profile", "smoke", "--no-report"];
    let shown = on_a_terminal(home.handover(words), 100);
    let (view, after) = shown.split_once(LEAVE).expect("the view is left");
    let (before, view) = view.split_once(ENTER).expect("the view is entered");
    assert!(view.contains("handover, smoke profile") && view.contains("lock/free"), "{view}");
    assert!(!before.contains("clock/now") && after.contains("clock/now"), "{after}");
    assert!(
        after.contains("A figure is the median over passes") && !after.contains(ENTER),
        "{after}"
    );
    assert!(!shown.contains("clock/now measured"), "no lines of a log beside it: {shown}");
}

#[test]
fn plain_output_has_one_line_per_benchmark() {
    let home = Home::new();
    let words = ["run", "clock/now", "--profile", "smoke", "--no-report"];
    let plainly = |name: &str, value: &str, option: &[&'static str], width: u16| {
        let mut command = home.handover(words.into_iter().chain(option.iter().copied()));
        command.env(name, value);
        let shown = on_a_terminal(command, width);
        assert!(shown.contains("clock/now measured") && !shown.contains(ENTER), "{name}: {shown}");
    };
    plainly("NO_COLOR", "1", &[], 100);
    plainly("TERM", "dumb", &[], 100);
    plainly("TERM", "xterm", &["--plain"], 100);
    plainly("TERM", "xterm", &[], 30);
}

#[test]
fn key_q_ends_the_run_keeps_measurements_and_restores_the_terminal() {
    let home = Home::new();
    let words = ["run", "clock/now", "floor/empty", "--time", "10s", "--no-report"];
    let mut tty = Tty::start(home.handover(words), 100);
    tty.wait_for("q ends the run");
    assert!(!tty.is_usual(), "keys come one by one");
    wait_until("a figure", || home.run("show last --json").out.contains("\"median\""));
    tty.press("xq");
    wait_until("its end", || tty.child.try_wait().expect("a child").is_some());
    assert!(tty.is_usual(), "as it was");
    let (status, shown) = tty.end();
    assert_eq!(status.code(), Some(130), "{shown}");
    let (_, after) = shown.split_once(LEAVE).expect("the view is left");
    // The amount measured so far depends on the machine; all of it is in the table and in the
    // store.
    assert!(after.contains("not finished"), "{after}");
    let run = home.last();
    assert!(!run.run.complete && run.records.iter().all(|it| after.contains(&it.id)), "{after}");
}

#[test]
fn second_signal_ends_the_run_at_once_and_restores_the_terminal() {
    let home = Home::new();
    let words = ["run", "clock/now", "--time", "10s", "--no-report"];
    let mut tty = Tty::start(home.handover(words), 100);
    tty.wait_for("q ends the run");
    let id = Pid::from_child(&tty.child);
    // The run may have ended by the first signal before the second: both results are correct.
    for _ in 0..2 {
        let _ = kill_process(id, Signal::TERM);
    }
    wait_until("its end", || tty.child.try_wait().expect("a child").is_some());
    assert!(tty.is_usual(), "as it was");
    let (status, shown) = tty.end();
    assert_eq!(status.code(), Some(130), "{shown}");
    assert!(shown.contains(LEAVE), "{shown}");
}

#[test]
fn load_on_a_terminal_shows_progress_and_keeps_the_log_lines() {
    let home = Home::new();
    let line = "evh_perf -e -c -p 0 --duration 0.8 --clients 3";
    let words = line.split(' ');
    let texts = ["messages/s", "mean latency", " 3 connections", "Perf test completed"];
    let mut shown = on_a_terminal(home.handover(words.clone()), 100);
    if !texts.iter().all(|text| shown.contains(text)) {
        // The thread that shows the progress got no CPU during the load.
        let longer = line.replace("0.8", "20");
        shown = on_a_terminal(home.handover(longer.split(' ')), 100);
    }
    for text in texts {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let said = crate::common::said(home.handover(words)).code(0);
    assert!(!said.out.contains("messages/s ") && !said.err.contains("mean latency"), "{said}");
    assert!(!said.out.contains('\x1b') && !said.err.contains('\x1b'), "{said}");
}
