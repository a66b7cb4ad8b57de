//! Peers that are killed, stopped and started again: an error in time, and nothing left behind.
//!
//! `HANDOVER_LONG=1` kills 200 of each side over each transport in place of a few.

use handover_rpc::{
    Address, Bulk, BulkError, BulkHandle, BulkMemory, BulkPart, CallError, Calling, Config,
    Endpoint, Gone, Method, Peer, Rights,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const EACH: [&str; 3] = ["sm://", "uds://", "tcp://127.0.0.1:0"];
const ECHO: Method = Method::named("echo");
/// By when an error is promised, and the slack of a busy machine.
const SOON: Duration = Duration::from_millis(100);
const SLACK: u32 = 10;

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("a_server_that_is_killed_is_an_error_in_time", servers_are_killed),
    ("a_client_that_is_killed_is_forgotten_in_time", clients_are_killed),
    ("an_owner_that_is_killed_in_a_transfer_is_an_error_in_time", owners_are_killed),
    ("memory_comes_back_from_a_peer_that_is_killed_in_a_transfer", movers_are_killed),
    ("a_server_that_is_stopped_does_not_stop_a_deadline", a_server_is_stopped),
    ("a_server_that_was_started_again_is_found_again", a_server_is_restarted),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("serve") => return serve(&arguments[1]),
        Some("call") => return call(&arguments[1]),
        Some("own") => return own(&arguments[1]),
        Some("move") => return move_memory(&arguments[1]),
        Some("--list") => {
            TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let wanted: Vec<&String> = arguments.iter().filter(|it| !it.starts_with('-')).collect();
    let mut passed = 0;
    for (name, test) in TESTS {
        if wanted.is_empty() || wanted.iter().any(|it| name.contains(it.as_str())) {
            let before = open_files();
            let began = Instant::now();
            test();
            assert_eq!(open_files(), before, "{name} leaves descriptors behind");
            println!("test {name} ... ok ({:.1} s)", began.elapsed().as_secs_f64());
            passed += 1;
        }
    }
    println!("test result: ok. {passed} passed; 0 failed");
    ExitCode::SUCCESS
}

fn kills_count() -> u32 {
    if std::env::var_os("HANDOVER_LONG").is_some() { 200 } else { 5 }
}

/// What this process has open: paths, without the numbers that differ each time.
fn open_files() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("proc is mounted");
    let paths = entries.flatten().filter_map(|it| std::fs::read_link(it.path()).ok());
    let kind = |path: std::path::PathBuf| {
        path.to_string_lossy().split([':', '[']).next().unwrap_or_default().to_string()
    };
    let mut open: Vec<String> = paths.map(kind).filter(|it| !it.starts_with("/proc")).collect();
    open.sort();
    open
}

fn shared_files() -> usize {
    // A machine without it has nothing to leave there.
    std::fs::read_dir("/dev/shm").map_or(0, Iterator::count)
}

/// As random as the moment of a kill need be.
fn random_below(limit: u64) -> u64 {
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut it| it.read_exact(&mut bytes));
    read.expect("there is one");
    u64::from_le_bytes(bytes) % limit
}

/// This program again, in another role, and the first line that it says.
fn start(role: &str, argument: &str) -> (Child, ChildStdin, String) {
    let mut child = Command::new(std::env::current_exe().expect("it runs"))
        .args([role, argument])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs again");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("it says something");
    let stdin = child.stdin.take().expect("piped");
    (child, stdin, line.trim().to_string())
}

fn say(line: impl std::fmt::Display) {
    let mut stdout = std::io::stdout();
    let said = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    said.expect("who has started this listens");
}

fn server(how: &str) -> (Endpoint, Address) {
    let mut server = Endpoint::new(Config::default()).expect("an endpoint");
    let address = server.listen(&how.parse().expect("an address")).expect("a free one");
    let echo = |_: &mut handover_rpc::Context<'_>, bytes: &[u8], answer: &mut Vec<u8>| {
        answer.extend_from_slice(bytes);
        Ok(())
    };
    server.register_bytes("echo", 0, echo).expect("a name");
    (server, address)
}

/// Long enough that it takes several pieces.
const MEMORY_BYTES: usize = 3 << 20;
const HANDLES: Method = Method::named("handles");

/// A server that owns memory of both kinds, and tells the handles.
fn owner(how: &str) -> (Endpoint, Address, [(BulkHandle, BulkMemory); 2]) {
    let (mut owner, address) = server(how);
    let shared = BulkMemory::shared(MEMORY_BYTES).expect("memory");
    let owned = [shared, BulkMemory::plain(vec![0; MEMORY_BYTES])].map(|memory| {
        let handle = owner.register_memory(&memory, Rights::ReadWrite).expect("room");
        (handle, memory)
    });
    let handles = [owned[0].0, owned[1].0];
    owner.register("handles", 0, move |_, ()| Ok(handles)).expect("a name");
    (owner, address, owned)
}

fn own(how: &str) -> ExitCode {
    let (mut owner, address, _owned) = owner(how);
    say(address);
    owner.serve();
    ExitCode::SUCCESS
}

/// Moves without end, pieces of any length, both ways.
fn move_memory(address: &str) -> ExitCode {
    let mut mover = Endpoint::new(Config::default()).expect("an endpoint");
    let peer = mover.connect(&address.parse().expect("an address")).expect("it listens");
    let handles: [BulkHandle; 2] = mover.call(peer, HANDLES, &()).expect("it tells");
    let memory = BulkMemory::shared(MEMORY_BYTES).expect("memory");
    say("connected");
    while transfers_come_out(&mut mover, peer, &handles, &memory) {}
    ExitCode::FAILURE
}

/// A few transfers at a time: false when the peer is gone.
fn transfers_come_out(
    mover: &mut Endpoint,
    peer: Peer,
    handles: &[BulkHandle; 2],
    memory: &BulkMemory,
) -> bool {
    let mut under_way = Vec::new();
    for _ in 0..1 + random_below(5) {
        let bytes = [1, 4096, 70_000, MEMORY_BYTES as u64][random_below(4) as usize];
        let part = BulkPart::of(bytes);
        let handle = &handles[random_below(2) as usize];
        let started = match random_below(2) {
            0 => mover.start_pull(peer, handle, memory, part),
            _ => mover.start_push(peer, handle, memory, part),
        };
        match started {
            Ok(transfer) => under_way.push(transfer),
            Err(BulkError::Gone(_) | BulkError::Stale) => return false,
            Err(other) => panic!("{other}"),
        }
    }
    let mut alive = true;
    while let Some((_, result)) = mover.wait_any_transfer(&mut under_way) {
        match result {
            Ok(()) => {}
            Err(BulkError::Gone(Gone::HungUp)) => alive = false,
            Err(other) => panic!("{other}"),
        }
    }
    alive
}

fn owners_are_killed() {
    let before = shared_files();
    let memory = BulkMemory::shared(MEMORY_BYTES).expect("memory");
    for how in EACH {
        let mut worst = Duration::ZERO;
        for turn in 0..kills_count() {
            let mut mover = Endpoint::new(Config::default()).expect("an endpoint");
            let (mut child, _stdin, address) = start("own", how);
            let peer = mover.connect(&address.parse().expect("an address")).expect("it listens");
            let handles: [BulkHandle; 2] = mover.call(peer, HANDLES, &()).expect("it tells");
            let alive_us = random_below(6000);
            let killer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(alive_us));
                child.kill().expect("it runs");
                let killed = Instant::now();
                child.wait().expect("it was killed");
                killed
            });
            while transfers_come_out(&mut mover, peer, &handles, &memory) {}
            let noticed = Instant::now();
            let killed = killer.join().expect("no panic");
            let took = noticed.saturating_duration_since(killed);
            worst = worst.max(took);
            assert!(took < SOON * SLACK, "{how}: {took:?} after the kill, turn {turn}");
            assert!(!mover.is_connected(peer));
        }
        println!("  {how}: an error at most {worst:?} after the kill");
    }
    assert_eq!(shared_files(), before, "something is left in /dev/shm");
}

fn movers_are_killed() {
    let before = shared_files();
    for how in EACH {
        let (mut owner, address, owned) = owner(how);
        for _ in 0..kills_count() {
            let address = address.to_string();
            let movers = std::thread::spawn(move || {
                let (mut child, _stdin, said) = start("move", &address);
                assert_eq!(said, "connected");
                std::thread::sleep(Duration::from_micros(random_below(6000)));
                child.kill().expect("it runs");
                child.wait().expect("it was killed");
                Instant::now()
            });
            while !movers.is_finished() {
                owner.progress(Duration::from_millis(5));
            }
            let killed = movers.join().expect("no panic");
            while owner.stats().peers_count > 0 {
                owner.progress(SOON);
                assert!(killed.elapsed() < SOON * SLACK, "{how}: it is not forgotten");
            }
        }
        for (handle, memory) in owned {
            let withdrawn = owner.withdraw_memory(&handle, Duration::ZERO);
            assert_eq!(withdrawn, Ok(()), "{how}: nobody has it any more");
            assert_eq!(memory.into_vecs().expect("it is free").concat().len(), MEMORY_BYTES);
        }
    }
    assert_eq!(shared_files(), before, "something is left in /dev/shm");
}

fn serve(how: &str) -> ExitCode {
    let (mut server, address) = server(how);
    say(address);
    server.serve();
    ExitCode::SUCCESS
}

/// Calls without end, short and long in turn, many at a time.
fn call(address: &str) -> ExitCode {
    let mut client = Endpoint::new(Config::default()).expect("an endpoint");
    let peer = client.connect(&address.parse().expect("an address")).expect("it listens");
    say("connected");
    loop {
        if !calls_come_back(&mut client, peer) {
            return ExitCode::FAILURE;
        }
    }
}

/// One call, or a dozen, of any length: false when the peer is gone.
fn calls_come_back(client: &mut Endpoint, peer: Peer) -> bool {
    let lengths = [0, 1, 40, 90, 3000, 100_000];
    let count = 1 + random_below(12);
    let mut calls = Vec::new();
    for _ in 0..count {
        let sent = vec![7u8; lengths[random_below(6) as usize]];
        match client.start::<_, Vec<u8>>(peer, ECHO, &sent) {
            Ok(call) => calls.push((call, sent)),
            Err(CallError::Gone(_) | CallError::Stale) => return false,
            Err(other) => panic!("{other}"),
        }
    }
    let mut alive = true;
    for (call, sent) in calls {
        match client.wait(call) {
            Ok(came) => assert!(came == sent),
            Err(CallError::Gone(Gone::HungUp)) => alive = false,
            Err(other) => panic!("{other}"),
        }
    }
    alive
}

fn servers_are_killed() {
    let before = shared_files();
    for how in EACH {
        let mut client = Endpoint::new(Config::default()).expect("an endpoint");
        let mut worst = Duration::ZERO;
        for turn in 0..kills_count() {
            let (mut child, _stdin, address) = start("serve", how);
            let peer = client.connect(&address.parse().expect("an address")).expect("it listens");
            let pid = child.id();
            let alive_us = random_below(4000);
            let killer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(alive_us));
                child.kill().expect("it runs");
                let killed = Instant::now();
                child.wait().expect("it was killed");
                killed
            });
            while calls_come_back(&mut client, peer) {}
            let noticed = Instant::now();
            let killed = killer.join().expect("no panic");
            let took = noticed.saturating_duration_since(killed);
            worst = worst.max(took);
            assert!(took < SOON * SLACK, "{how}: {took:?} after {pid} was killed, turn {turn}");
            assert!(!client.is_connected(peer));
            assert_eq!(client.stats().peers_count, 0);
        }
        println!("  {how}: an error at most {worst:?} after the kill");
    }
    assert_eq!(shared_files(), before, "something is left in /dev/shm");
}

fn clients_are_killed() {
    let before = shared_files();
    for how in EACH {
        let (mut server, address) = server(how);
        for _ in 0..kills_count() {
            let clients = std::thread::spawn({
                let address = address.to_string();
                move || {
                    let (mut child, _stdin, said) = start("call", &address);
                    assert_eq!(said, "connected");
                    std::thread::sleep(Duration::from_micros(random_below(4000)));
                    child.kill().expect("it runs");
                    child.wait().expect("it was killed");
                    Instant::now()
                }
            });
            while !clients.is_finished() {
                server.progress(Duration::from_millis(5));
            }
            let killed = clients.join().expect("no panic");
            while server.stats().peers_count > 0 {
                server.progress(SOON);
                assert!(killed.elapsed() < SOON * SLACK, "{how}: it is not forgotten");
            }
        }
        assert!(server.stats().gone_count >= u64::from(kills_count()), "{how}");
    }
    assert_eq!(shared_files(), before, "something is left in /dev/shm");
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("a process"), signal).expect("it is ours");
}

fn a_server_is_stopped() {
    for how in EACH {
        let (mut child, _stdin, address) = start("serve", how);
        let mut client = Endpoint::new(Config::default()).expect("an endpoint");
        let peer = client.connect(&address.parse().expect("an address")).expect("it listens");
        signal(&child, rustix::process::Signal::STOP);
        let began = Instant::now();
        let timeout = Duration::from_millis(30);
        let late = client.call_within::<_, u64>(peer, ECHO, &5u64, timeout);
        assert_eq!(late, Err(CallError::Deadline), "{how}");
        assert!(began.elapsed() >= timeout && began.elapsed() < timeout + SOON * SLACK);
        signal(&child, rustix::process::Signal::CONT);
        assert_eq!(client.call::<_, u64>(peer, ECHO, &6u64), Ok(6), "{how}: it goes on");
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
    }
}

fn a_server_is_restarted() {
    let place = std::env::temp_dir().join(format!("handover-rpc-again-{}", std::process::id()));
    let name = format!("again-{}", std::process::id());
    let mut client = Endpoint::new(Config::default()).expect("an endpoint");
    for address in [format!("sm://{name}"), format!("uds://{}", place.display())] {
        for _ in 0..3 {
            let (mut child, _stdin, said) = start("serve", &address);
            assert_eq!(said, address);
            let peer = client.connect(&address.parse().expect("an address")).expect("it listens");
            assert_eq!(client.call::<_, u64>(peer, ECHO, &5u64), Ok(5));
            child.kill().expect("it runs");
            child.wait().expect("it was killed");
            let gone = client.call::<_, u64>(peer, ECHO, &5u64);
            assert_eq!(gone, Err(CallError::Gone(Gone::HungUp)), "{address}");
        }
    }
    // The last one was killed, and its socket's file is still there: nobody listens there any more.
    assert!(place.exists());
    std::fs::remove_file(&place).expect("it is ours");
}
