//! Helpers of all tests here: this program in other roles, and checks for leaked resources.

use handover_rpc::{Address, Config, Endpoint, Method, Peer};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

pub const EACH: [&str; 3] = ["sm://", "uds://", "tcp://127.0.0.1:0"];
pub const ECHO: Method = Method::new("echo");
/// Time within which an error is promised, and the slack for a busy machine.
pub const SOON: Duration = Duration::from_millis(100);
pub const SLACK: u32 = 100;

pub fn is_long() -> bool {
    std::env::var_os("HANDOVER_LONG").is_some()
}

pub fn kills_count() -> u32 {
    if is_long() { 200 } else { 5 }
}

/// Open files and mappings of this process. Shared memory has no name, so no file of it can be
/// left.
#[derive(Debug, PartialEq)]
pub struct Belongings {
    files: Vec<String>,
    mapped_count: usize,
}

impl Belongings {
    pub fn now() -> Self {
        let entries = std::fs::read_dir("/proc/self/fd").expect("proc is mounted");
        let paths = entries.flatten().filter_map(|it| std::fs::read_link(it.path()).ok());
        // Removes inode numbers and the like, which differ each time.
        let kind = |path: std::path::PathBuf| {
            path.to_string_lossy().split([':', '[']).next().unwrap_or_default().to_string()
        };
        let mut files: Vec<_> = paths.map(kind).filter(|it| !it.starts_with("/proc")).collect();
        files.sort();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("proc is mounted");
        let mapped_count = maps.lines().filter(|line| line.contains("/memfd:handover")).count();
        Self { files, mapped_count }
    }
}

/// Returns a random number below `limit`.
pub fn random_below(limit: u64) -> u64 {
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut it| it.read_exact(&mut bytes));
    read.expect("there is one");
    u64::from_le_bytes(bytes) % limit
}

/// Child process that runs this program in another role; dropping this kills the child.
pub struct Other {
    child: Child,
    /// Closed when this is dropped, which ends a child that waits for it.
    _stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Last line that the child printed.
    pub said: String,
}

impl Other {
    pub fn start(role: &str, argument: &str) -> Self {
        let program = std::env::current_exe().expect("it runs");
        Self::of(Command::new(program).args([role, argument]))
    }

    pub fn of(command: &mut Command) -> Self {
        let mut other = Self::spawned(command);
        other.hear();
        other
    }

    /// Starts the child without waiting for its first line.
    pub fn spawned(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it runs again");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, _stdin: stdin, stdout, said: String::new() }
    }

    /// Reads the next line of the child; it is empty after the child's end.
    pub fn hear(&mut self) -> &str {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it says something");
        self.said = line.trim().to_string();
        &self.said
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn address(&self) -> Address {
        self.said.parse().unwrap_or_else(|error| panic!("{:?}: {error}", self.said))
    }

    /// Sends a signal. After SIGSTOP, waits until the process has stopped.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process"), signal).expect("it is ours");
        if signal == Signal::STOP {
            let stopped = waitpid(pid, WaitOptions::UNTRACED).expect("a child");
            assert!(stopped.is_some_and(|(_, status)| status.stopped()));
        }
    }

    pub fn kill(mut self) -> Killed {
        self.child.kill().expect("it runs");
        let at = Instant::now();
        self.child.wait().expect("it was killed");
        Killed { at, ended: Instant::now() }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // The child may have ended, and been waited for, before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Time at which a process was killed, and time at which it had ended; in between, the kernel
/// closes its files.
#[derive(Debug, Clone, Copy)]
pub struct Killed {
    at: Instant,
    ended: Instant,
}

/// Longest time until a kill was noticed.
#[derive(Debug, Default)]
pub struct Worst {
    after_kill: Duration,
    after_disconnect: Duration,
}

impl Worst {
    /// Records that a kill was noticed now.
    pub fn noticed(&mut self, killed: Killed, what: impl fmt::Display) {
        self.noticed_at(Instant::now(), killed, what);
    }

    pub fn noticed_at(&mut self, noticed: Instant, killed: Killed, what: impl fmt::Display) {
        let took = noticed.saturating_duration_since(killed.at);
        assert!(took < SOON * SLACK, "{what}: {took:?} after the kill");
        self.after_kill = self.after_kill.max(took);
        self.after_disconnect =
            self.after_disconnect.max(noticed.saturating_duration_since(killed.ended));
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after_kill, after_disconnect } = self;
        write!(
            f,
            "noticed at most {after_kill:?} after the kill, {after_disconnect:?} after the end"
        )
    }
}

pub fn say(line: impl fmt::Display) {
    let mut stdout = std::io::stdout();
    let said = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    said.expect("who has started this listens");
}

pub fn endpoint() -> Endpoint {
    Endpoint::new(Config::default()).expect("an endpoint")
}

pub fn connected(address: &Address) -> (Endpoint, Peer) {
    let mut client = endpoint();
    let peer = client.connect(address).expect("it listens");
    (client, peer)
}

pub fn server(how: &str) -> (Endpoint, Address) {
    let mut server = endpoint();
    let address = server.listen(&how.parse().expect("an address")).expect("a free one");
    let echo = |_: &mut handover_rpc::Context<'_>, bytes: &[u8], answer: &mut Vec<u8>| {
        answer.extend_from_slice(bytes);
        Ok(())
    };
    server.register_bytes("echo", 0, echo).expect("a name");
    (server, address)
}

pub fn serve(how: &str) -> ExitCode {
    let (mut server, address) = server(how);
    say(address);
    server.serve();
    ExitCode::SUCCESS
}

/// Runs turns until `peers_count` peers are connected.
pub fn until_peers(endpoint: &mut Endpoint, peers_count: u32) {
    let began = Instant::now();
    while endpoint.stats().peers_count != peers_count {
        endpoint.progress(Duration::from_millis(5));
        assert!(began.elapsed() < SOON * SLACK, "{:?}", endpoint.stats());
    }
}

/// Returns the error of that program, or `None` if it succeeds.
pub fn refused(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
            Some(format!("{program} {}: {said}", arguments.join(" ")))
        }
        Err(error) => Some(format!("{program}: {error}")),
    }
}

/// Prints that a test cannot run here.
pub fn skipped(what: &str, why: &str) {
    println!("skipped: {what}: {why}");
}
