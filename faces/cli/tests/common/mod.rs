//! The built binary, run as a person would run it, in folders of its own.

// Each test program uses a part of this.
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

/// What takes longer than this hangs: far more than any run here needs on busy CPUs, unoptimised.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// The binary: the one built with these tests, or one of another profile, named by `HANDOVER_BINARY`.
pub fn binary() -> &'static Path {
    static NAMED: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| std::env::var_os("HANDOVER_BINARY").map(PathBuf::from));
    NAMED.as_deref().unwrap_or_else(|| assert_cmd::cargo::cargo_bin!("handover"))
}

/// A person's folders: where results are kept, and where commands are typed.
pub struct Home(TempDir);

impl Home {
    /// Empty folders; no store yet.
    pub fn new() -> Home {
        let home = Home(tempfile::tempdir().expect("a folder"));
        fs::create_dir(home.cwd()).expect("a folder");
        home
    }

    /// The folder around both.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Where commands are typed.
    pub fn cwd(&self) -> PathBuf {
        self.path().join("cwd")
    }

    /// Where data is kept; made by the first run.
    pub fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// The store.
    pub fn db(&self) -> PathBuf {
        self.data().join("handover/results.db")
    }

    /// A program in these folders, with nothing else in its environment.
    pub fn program(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path()).env("XDG_DATA_HOME", self.data());
        command.env("LANG", "C.UTF-8").env("TERM", "xterm").current_dir(self.cwd());
        command
    }

    /// `handover` with these words.
    pub fn handover<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.program(binary());
        command.args(words);
        command
    }

    /// A line of shell in which `handover` is the binary.
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

    /// Runs `handover` with words as a shell splits them (no quotes), to its end.
    pub fn run(&self, line: &str) -> Said {
        said(self.handover(line.split_whitespace()))
    }

    /// The same, which must exit 0; what it printed.
    pub fn ok(&self, line: &str) -> String {
        self.run(line).code(0).out
    }

    /// The last run, as `show --json` gives it.
    pub fn last(&self) -> Document {
        document(&self.ok("show --json"))
    }

    /// The runs, as `runs --json` gives them.
    pub fn runs(&self) -> Vec<Value> {
        json(&self.ok("runs --json"))["runs"].as_array().expect("runs").clone()
    }

    /// What SQLite itself thinks of the store.
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

    /// The processes that run in these folders, by id.
    pub fn processes(&self) -> Vec<u32> {
        let here = format!("HOME={}\0", self.path().display()).into_bytes();
        let ids = fs::read_dir("/proc")
            .expect("/proc")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        ids.filter(|id| environment(*id).windows(here.len()).any(|window| window == here)).collect()
    }
}

/// What a process was started with; empty where it has ended. A process that is just becoming
/// another program has none for a moment, and is waited for: taken for ended, it would turn up
/// later, among the processes of the next thing that is tried.
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

/// An address at which nobody listens, and which nobody else is given: it is of an IP address of its own.
pub fn free_address() -> SocketAddr {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    // Relaxed: a count.
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let listener = TcpListener::bind((Ipv4Addr::new(127, number, high, low), 0));
    listener.and_then(|it| it.local_addr()).expect("a port")
}

/// Waits for something to become true.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < until, "not within {DEADLINE:?}: {what}");
        sleep(Duration::from_millis(2));
    }
}

/// A program in the background; killed with its whole group if a test ends without it.
pub struct Running<'a> {
    home: &'a Home,
    child: Child,
    ended: Option<ExitStatus>,
    began: Instant,
}

impl Running<'_> {
    /// Its process id, which is its group's too.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has told on standard error so far.
    pub fn told(&self) -> String {
        text(fs::read(self.home.path().join("err")).expect("a file"))
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.ended = self.ended.or(self.child.try_wait().expect("a child"));
        self.ended.is_some()
    }

    /// Waits until it tells this.
    pub fn wait_for(&mut self, words: &str) {
        wait_until(words, || {
            let found = self.told().contains(words);
            assert!(found || !self.has_ended(), "it ended without {words:?}: {}", self.told());
            found
        });
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        // One that has ended is no error.
        let _ = kill_process(pid(self.id()), signal);
    }

    /// Sends it to it and to its whole group, as a terminal does.
    pub fn signal_all(&self, signal: Signal) {
        let _ = kill_process_group(pid(self.id()), signal);
    }

    /// Waits for its end.
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
            // It has been killed: this ends.
            let _ = self.child.wait();
        }
    }
}

/// A process's id, typed.
pub fn pid(id: u32) -> Pid {
    i32::try_from(id).ok().and_then(Pid::from_raw).expect("a process id")
}

/// What a program printed, and how it ended.
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

    /// Checks that standard error tells all of this.
    #[track_caller]
    pub fn tells(self, words: &[&str]) -> Said {
        for words in words {
            assert!(self.err.contains(words), "{words:?} is not told: {self}");
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

/// Runs a command to its end, which must come in time.
pub fn said(command: Command) -> Said {
    said_to(command, Vec::new())
}

/// The same, with something on standard input.
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

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}

/// A JSON document, and nothing else.
#[track_caller]
pub fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("one JSON document")
}

/// A run with its records: one JSON document, and nothing else.
#[track_caller]
pub fn document(text: &str) -> Document {
    serde_json::from_str(text).expect("one document")
}

/// What was measured: the id of every benchmark, once, in order.
pub fn benchmarks(document: &Document) -> Vec<&str> {
    let mut all: Vec<&str> = document.records.iter().map(|record| record.spec.as_str()).collect();
    all.dedup();
    all
}

/// Everything below a folder, with what the files hold, in order.
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

/// Says that something cannot be tested here.
pub fn skipped(what: &str, why: &str) {
    // Not by println, which the test harness keeps for itself.
    let _ = writeln!(std::io::stderr(), "skipped: {what}: {why}");
}

/// Returns `true` if a table has a row of this id: whole or, where lines are short, below the name of its rung.
#[allow(dead_code)] // not every test program looks at tables
pub fn shows(table: &str, id: &str) -> bool {
    let below = id.split_once('/').map(|(_, rest)| format!("\n  {rest} "));
    table.contains(id) || below.is_some_and(|row| table.contains(&row))
}
