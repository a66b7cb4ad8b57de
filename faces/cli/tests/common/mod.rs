//! Helpers that run the built binary as a user would, in temporary folders.

// Each test program uses some of these helpers.
#![allow(dead_code)]

use handover_record::Document;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit of every command and wait: far more than any run needs on busy CPUs in an unoptimised
/// build.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// Returns the binary: the one built with these tests, or one of another profile, named by
/// `HANDOVER_BINARY`.
pub fn binary() -> &'static Path {
    static NAMED: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| std::env::var_os("HANDOVER_BINARY").map(PathBuf::from));
    NAMED.as_deref().unwrap_or_else(|| assert_cmd::cargo::cargo_bin!("handover"))
}

/// A user's folders: the data folder, and the working directory of commands.
pub struct Home(TempDir);

impl Home {
    /// Creates empty folders; there is no store yet.
    pub fn new() -> Home {
        let home = Home(tempfile::tempdir().expect("a folder"));
        fs::create_dir(home.cwd()).expect("a folder");
        home
    }

    /// Returns the folder around both.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the working directory of commands.
    pub fn cwd(&self) -> PathBuf {
        self.path().join("cwd")
    }

    /// Returns the data folder, which the first run creates.
    pub fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Returns the path of the store.
    pub fn db(&self) -> PathBuf {
        self.data().join("handover/results.db")
    }

    /// Returns a command for a program in these folders, with a minimal environment.
    pub fn program(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path()).env("XDG_DATA_HOME", self.data());
        command.env("LANG", "C.UTF-8").env("TERM", "xterm").current_dir(self.cwd());
        command
    }

    /// Returns a command for `handover` with these arguments.
    pub fn handover<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.program(binary());
        command.args(words);
        command
    }

    /// Returns a command for a shell line in which `handover` is the binary.
    pub fn shell(&self, line: &str) -> Command {
        let links = self.path().join("bin");
        if !links.exists() {
            fs::create_dir(&links).expect("a folder");
            std::os::unix::fs::symlink(binary(), links.join("handover")).expect("a link");
        }
        let mut command = self.program("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", links.display())).arg("-c").arg(line);
        command
    }

    /// Runs `handover` with arguments split at whitespace, until it ends.
    pub fn run(&self, line: &str) -> Said {
        said(self.handover(line.split_whitespace()))
    }

    /// Runs `handover`, which must exit with 0, and returns its standard output.
    pub fn ok(&self, line: &str) -> String {
        self.run(line).code(0).out
    }

    /// Runs `handover` with an output pipe that has no reader.
    pub fn unread(&self, line: &str) -> Said {
        said_unread(self.handover(line.split_whitespace()))
    }

    /// Returns the last run, from `show --json`.
    pub fn last(&self) -> Document {
        document(&self.ok("show --json"))
    }

    /// Returns the runs, from `runs --json`.
    pub fn runs(&self) -> Vec<Value> {
        json(&self.ok("runs --json"))["runs"].as_array().expect("runs").clone()
    }

    /// Returns the result of SQLite's own integrity check of the store.
    pub fn integrity(&self) -> String {
        let store = rusqlite::Connection::open(self.db()).expect("a store");
        store.query_one("PRAGMA integrity_check", [], |row| row.get(0)).expect("a verdict")
    }

    /// Starts a command in the background.
    pub fn start(&self, mut command: Command) -> Running<'_> {
        let file = |name| File::create(self.path().join(name)).expect("a file");
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).process_group(0);
        let child = command.spawn().expect("it starts");
        Running { home: self, child, ended: None, began: Instant::now() }
    }

    /// Returns the ids of the processes that run with these folders.
    pub fn processes(&self) -> Vec<u32> {
        let here = format!("HOME={}\0", self.path().display()).into_bytes();
        let ids = fs::read_dir("/proc")
            .expect("/proc")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        ids.filter(|id| environment(*id).windows(here.len()).any(|window| window == here)).collect()
    }
}

/// Returns a process's environment; empty if the process has ended. During exec a process has no
/// environment for a moment; that is waited for, as the process would otherwise count as ended and
/// show up later among those of the next test step.
fn environment(id: u32) -> Vec<u8> {
    let until = Instant::now() + Duration::from_millis(200);
    loop {
        let found = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        let runs = || fs::read_link(format!("/proc/{id}/exe")).is_ok();
        if !found.is_empty() || !runs() || Instant::now() > until {
            return found;
        }
        sleep(Duration::from_millis(1));
    }
}

/// Returns an unused address: on a loopback IP of its own, so that no other process is given it.
pub fn free_address() -> SocketAddr {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    // Relaxed: a counter.
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let listener = TcpListener::bind((Ipv4Addr::new(127, number, high, low), 0));
    listener.and_then(|it| it.local_addr()).expect("a port")
}

/// Waits for a condition to become true.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < until, "not within {DEADLINE:?}: {what}");
        sleep(Duration::from_millis(2));
    }
}

/// A program in the background; it is killed with its process group if a test ends first.
pub struct Running<'a> {
    home: &'a Home,
    child: Child,
    ended: Option<ExitStatus>,
    began: Instant,
}

impl Running<'_> {
    /// Returns the process id, which is also the id of its group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the standard error so far.
    pub fn told(&self) -> String {
        text(fs::read(self.home.path().join("err")).expect("a file"))
    }

    /// Returns `true` if the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.ended = self.ended.or(self.child.try_wait().expect("a child"));
        self.ended.is_some()
    }

    /// Waits until standard error contains `words`.
    pub fn wait_for(&mut self, words: &str) {
        wait_until(words, || {
            // Tested first: a process that writes the words and ends afterwards has written them.
            let has_ended = self.has_ended();
            let found = self.told().contains(words);
            assert!(found || !has_ended, "it ended without {words:?}: {}", self.told());
            found
        });
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: Signal) {
        // The process may have ended, which is not an error.
        let _ = kill_process(pid(self.id()), signal);
    }

    /// Sends a signal to the process and its group, as a terminal does.
    pub fn signal_all(&self, signal: Signal) {
        let _ = kill_process_group(pid(self.id()), signal);
    }

    /// Waits for the process to end.
    pub fn finish(mut self) -> Said {
        wait_until("its end", || self.has_ended());
        let out = text(fs::read(self.home.path().join("out")).expect("a file"));
        let status = self.ended.expect("it has ended");
        Said { status, out, err: self.told(), took: self.began.elapsed() }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.signal_all(Signal::KILL);
            // The process has been killed, so this wait ends.
            let _ = self.child.wait();
        }
    }
}

/// Converts a process id.
pub fn pid(id: u32) -> Pid {
    i32::try_from(id).ok().and_then(Pid::from_raw).expect("a process id")
}

/// Output and exit status of a program.
#[derive(Debug)]
pub struct Said {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

impl Said {
    /// Checks the exit code, and that nothing panicked.
    #[track_caller]
    pub fn code(self, code: i32) -> Said {
        assert_eq!(self.status.code(), Some(code), "{self}");
        self.calm()
    }

    /// Checks that nothing panicked.
    #[track_caller]
    pub fn calm(self) -> Said {
        assert!(!self.err.contains("panicked") && !self.err.contains("RUST_BACKTRACE"), "{self}");
        self
    }

    /// Checks that standard error contains all of `words`.
    #[track_caller]
    pub fn tells(self, words: &[&str]) -> Said {
        for words in words {
            assert!(self.err.contains(words), "{words:?} is not on standard error: {self}");
        }
        self
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Said { status, out, err, took } = self;
        write!(f, "{status} after {took:?}\n--- stdout\n{out}\n--- stderr\n{err}")
    }
}

/// Runs a command until it ends, which must be within the time limit.
pub fn said(command: Command) -> Said {
    said_to(command, Vec::new())
}

/// Runs a command with this standard input.
pub fn said_to(command: Command, input: Vec<u8>) -> Said {
    let began = Instant::now();
    let mut command = assert_cmd::Command::from_std(command);
    let output = command.write_stdin(input).timeout(DEADLINE).output().expect("it starts");
    let took = began.elapsed();
    let said =
        Said { status: output.status, out: text(output.stdout), err: text(output.stderr), took };
    assert!(took < DEADLINE || said.status.signal().is_none(), "it hung: {said}");
    said
}

/// Runs a command with an output pipe that has no reader.
pub fn said_unread(mut command: Command) -> Said {
    let began = Instant::now();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = command.stdin(Stdio::null()).stdout(writer).output().expect("it starts");
    let (out, err) = (text(output.stdout), text(output.stderr));
    Said { status: output.status, out, err, took: began.elapsed() }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}

/// Writes a script that can be run at once. Another process writes the file: a child that another
/// test starts meanwhile would inherit this process's descriptor, and as long as the child has not
/// called exec, the file would be too busy to be executed.
pub fn write_script(path: &Path, text: impl Into<String>) {
    let mut command = Command::new("sh");
    command.args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(path);
    said_to(command, text.into().into_bytes()).code(0);
}

/// Parses one JSON document, with nothing after it.
#[track_caller]
pub fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("one JSON document")
}

/// Parses a run with its records: one JSON document, with nothing after it.
#[track_caller]
pub fn document(text: &str) -> Document {
    serde_json::from_str(text).expect("one document")
}

/// Returns the ids of the benchmarks measured, each once, in order.
pub fn benchmarks(document: &Document) -> Vec<&str> {
    let mut all: Vec<&str> = document.records.iter().map(|record| record.spec.as_str()).collect();
    all.dedup();
    all
}

/// Returns everything below a folder, with the content of files, sorted.
pub fn tree(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return found;
    };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let kind = fs::symlink_metadata(&path).expect("an entry");
        found.push((path.clone(), kind.is_file().then(|| fs::read(&path).unwrap_or_default())));
        if kind.is_dir() {
            found.extend(tree(&path));
        }
    }
    found.sort();
    found
}

/// Reports that something cannot be tested here.
pub fn skipped(what: &str, why: &str) {
    // Not by println, which the test harness captures.
    let _ = writeln!(std::io::stderr(), "skipped: {what}: {why}");
}

/// Returns `true` if a table has a row of this id: in full or, in narrow tables, below the name of
/// its rung.
#[allow(dead_code)] // not every test program looks at tables
pub fn shows(table: &str, id: &str) -> bool {
    let below = id.split_once('/').map(|(_, rest)| format!("\n  {rest} "));
    table.contains(id) || below.is_some_and(|row| table.contains(&row))
}
