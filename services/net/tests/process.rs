//! A server in a process of its own under stress: SIGTERM under load, thousands of peers that
//! connect and send nothing, thousands of idle ones, few descriptors. The server is this same
//! program, started with an argument that says what to serve.
//!
//! With `HANDOVER_LONG=1` there are 10,000 silent and 10,000 idle peers, as far as the limit of
//! open files of this process allows.

use handover_net::engine::{LengthPrefixCodec, TlsState};
use handover_net::tls::{
    ClientOptions, Identity, ServerOptions, ServerVerification, TlsClientConfig, TlsServerConfig,
};
use handover_net::{AcceptPolicy, Config, Conn, Handler, ListenOptions, NetBuilder};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Time limit, at least ten times as long as any step takes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Handshake timeout of the server of silent connections.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|it| it == "--serve") {
        return serve(&arguments[at + 1]);
    }
    if arguments.iter().any(|it| it == "--list") {
        for (name, _) in TESTS {
            println!("{name}: test");
        }
        return;
    }
    // Like the standard harness: arguments that are not options select tests by name.
    let picked: Vec<&String> = arguments[1..].iter().filter(|it| !it.starts_with('-')).collect();
    for (name, test) in TESTS {
        if picked.is_empty() || picked.iter().any(|it| name.contains(it.as_str())) {
            let begin = Instant::now();
            test();
            println!("test {name} ... ok ({} ms)", begin.elapsed().as_millis());
        }
    }
}

const TESTS: [(&str, fn()); 4] = [
    ("sigterm_answers_every_accepted_message", on_sigterm),
    ("silent_connections_time_out_and_use_little_memory", silent_connections),
    ("idle_connection_takes_at_most_64_bytes_or_4_kib_with_tls", idle_memory),
    ("server_with_64_descriptors_recovers_when_some_are_freed", few_descriptors),
];

struct Echo;

impl Handler for Echo {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        let _ = conn.send(message);
    }
}

/// Runs the server: prints its address, serves until SIGTERM, prints its counters.
fn serve(what: &str) {
    let terminated = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&terminated)).unwrap();
    if what == "few" {
        let before = getrlimit(Resource::Nofile);
        let few = Rlimit { current: Some(64), maximum: before.maximum };
        setrlimit(Resource::Nofile, few).unwrap();
    }
    let mut listen = ListenOptions::new("127.0.0.1:0".parse().unwrap());
    if matches!(what, "tls" | "silent") {
        let identity = Identity::generate(&["localhost"]).unwrap();
        listen =
            listen.with_tls(&TlsServerConfig::new(&identity, ServerOptions::default()).unwrap());
    }
    let handshake_timeout = match what {
        "silent" => HANDSHAKE_TIMEOUT,
        // A client that loses its CPU during a handshake must not time out in the other tests.
        _ => TIMEOUT,
    };
    let config = Config::default().handshake_timeout(handshake_timeout);
    let codec = LengthPrefixCodec::new(1 << 16);
    let net = NetBuilder::new()
        .threads(2)
        .listen(listen)
        .accept_policy(AcceptPolicy::RoundRobin)
        .config(config)
        .start(codec, |_| Echo)
        .unwrap();
    println!("{}", net.addresses()[0]);
    // Relaxed: a flag on which no other access depends.
    while !terminated.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (stats, _) = net.stop(TIMEOUT).unwrap();
    println!("{} {} {}", stats.messages_count, stats.accepted_count, stats.timed_out_count);
}

/// Client-side view of the server process.
struct Served {
    process: Child,
    lines: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Served {
    fn start(what: &str) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut command = Command::new(own);
        let mut process = command.args(["--serve", what]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.trim().parse().expect("parse the server's address");
        Self { process, lines, address }
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let peer = TcpStream::connect(self.address)?;
        peer.set_read_timeout(Some(TIMEOUT))?;
        Ok(peer)
    }

    /// Returns the server's `RssAnon` in kB.
    fn resident_kb(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    fn terminate(&self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Waits for the server's end and returns its counters: messages, connections, timeouts.
    fn ended(mut self) -> [u64; 3] {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert!(self.process.wait().unwrap().success());
        let counts: Vec<u64> = line.split_whitespace().map(|it| it.parse().unwrap()).collect();
        counts.try_into().expect("the server printed other than three counts")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Fails if the process has ended, as it should have.
        let _ = self.process.kill();
    }
}

fn framed(number: u64) -> [u8; 12] {
    let mut message = [0; 12];
    message[3] = 8;
    message[4..].copy_from_slice(&number.to_be_bytes());
    message
}

/// Writes numbered messages until a write fails, reads answers until the end, and signals the first
/// one. Returns the number of answers, which must be consecutive from the first.
fn talk(peer: TcpStream, first: &Sender<()>) -> u64 {
    let mut writer = peer.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let mut number = 0;
        loop {
            let lot: Vec<u8> = (number..number + 320).flat_map(framed).collect();
            number += 320;
            if writer.write_all(&lot).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    let (mut answers, mut reply) = (0, [0; 12]);
    let mut reader = BufReader::with_capacity(1 << 16, &peer);
    loop {
        match reader.read_exact(&mut reply) {
            Ok(()) => assert_eq!(reply, framed(answers), "the reply differs from the message"),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => {
                panic!("{error} instead of the end of the stream after {answers} answers")
            }
        }
        if answers == 0 {
            first.send(()).unwrap();
        }
        answers += 1;
    }
    let _ = peer.shutdown(std::net::Shutdown::Both);
    writing.join().unwrap();
    answers
}

fn on_sigterm() {
    let served = Served::start("plain");
    let (first, firsts) = channel();
    let clients: Vec<_> = (0..6)
        .map(|_| {
            let (peer, first) = (served.connect().unwrap(), first.clone());
            std::thread::spawn(move || talk(peer, &first))
        })
        .collect();
    // All clients have had an answer.
    (0..6).for_each(|_| firsts.recv_timeout(TIMEOUT).unwrap());
    served.terminate();
    let answers: u64 = clients.into_iter().map(|it| it.join().unwrap()).sum();
    let [messages, accepted, _] = served.ended();
    assert!(answers > 0);
    assert_eq!((messages, accepted), (answers, 6), "messages were read and not answered");
}

fn silent_connections() {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let is_long = std::env::var_os("HANDOVER_LONG").is_some();
    let wanted = if is_long { 10_000 } else { 500 };
    let count = wanted.min(limit.saturating_sub(100));
    let served = Served::start("silent");
    let before_kb = served.resident_kb();
    let begin = Instant::now();
    let mut silent: Vec<_> = (0..count).map(|_| served.connect().unwrap()).collect();
    println!("{count} have connected in {} ms", begin.elapsed().as_millis());
    let held_kb = served.resident_kb().saturating_sub(before_kb);
    // Some 3 KiB each before any byte has arrived; the bound is ten times that.
    assert!(held_kb < 30 * count + 4_096, "{held_kb} kB are held for {count} silent connections");
    for peer in &mut silent {
        assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0, "the connection was not closed in order");
    }
    served.terminate();
    let [_, accepted, timed_out] = served.ended();
    assert_eq!((accepted, timed_out), (count, count));
}

/// Returns the `RssAnon` that each of `count` idle connections adds, after one answer on each.
fn idle_connection_bytes(what: &str, count: u64) -> u64 {
    let served = Served::start(what);
    let verify = ServerVerification::Nothing;
    let client = TlsClientConfig::new(verify, ClientOptions::default()).unwrap();
    let client = (what == "tls").then_some(&client);
    let ask = || {
        let mut peer = served.connect().unwrap();
        answered(&mut peer, client);
        peer
    };
    let first = ask();
    std::thread::sleep(Duration::from_millis(20));
    let before_bytes = served.resident_kb() * 1024;
    let held: Vec<_> = (1..count).map(|_| ask()).collect();
    std::thread::sleep(Duration::from_millis(20));
    let grown_bytes = (served.resident_kb() * 1024).saturating_sub(before_bytes);
    drop((first, held));
    served.terminate();
    grown_bytes / (count - 1)
}

/// Sends one message and receives its echo.
fn answered(peer: &mut TcpStream, client: Option<&TlsClientConfig>) {
    let mut reply = [0; 4096];
    let Some(client) = client else {
        peer.write_all(&framed(7)).unwrap();
        peer.read_exact(&mut reply[..12]).unwrap();
        assert_eq!(reply[..12], framed(7));
        return;
    };
    let mut tls = TlsState::new_client(client, "localhost", 0).unwrap();
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    tls.open_records(&mut [], &mut plain, &mut out).unwrap();
    tls.seal_messages(&framed(7), &[], &mut out).unwrap();
    while plain.len() < 12 {
        peer.write_all(&out).unwrap();
        out.clear();
        let count = peer.read(&mut reply).unwrap();
        assert!(count > 0, "the server closed the connection");
        tls.open_records(&mut reply[..count], &mut plain, &mut out).unwrap();
    }
    assert_eq!(plain, framed(7));
}

fn idle_memory() {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let is_long = std::env::var_os("HANDOVER_LONG").is_some();
    let wanted = if is_long { 10_000 } else { 3_000 };
    let count = wanted.min(limit.saturating_sub(100));
    let plain = idle_connection_bytes("plain", count);
    // Memory comes in whole pages and slab blocks, a large share for few connections.
    let slack = 256 * 1024 / count;
    assert!(plain <= 64 + slack, "{plain} bytes for each of {count} connections");
    let count = if is_long { count } else { count / 10 };
    let sealed = idle_connection_bytes("tls", count);
    let slack = 256 * 1024 / count;
    assert!(sealed <= 4096 + slack, "{sealed} bytes for each of {count} TLS connections");
    println!("{plain} bytes each, and {sealed} by TLS");
}

fn few_descriptors() {
    let served = Served::start("few");
    let is_served = |peer: &mut TcpStream| {
        let mut reply = [0; 12];
        peer.write_all(&framed(7)).unwrap();
        peer.read_exact(&mut reply).is_ok() && reply == framed(7)
    };
    // The kernel completes all connections; the server accepts as many as it has descriptors for.
    let mut peers: Vec<_> = (0..100).map(|_| served.connect().unwrap()).collect();
    assert!(is_served(&mut peers[0]));
    let mut late = peers.split_off(50);
    // Closing the accepted ones makes space for all others.
    drop(peers);
    for peer in &mut late {
        assert!(is_served(peer), "a connection was not served");
    }
    drop(late);
    served.terminate();
    let [messages, accepted, _] = served.ended();
    assert_eq!((messages, accepted), (51, 100));
}
