//! Tests with peers that are killed at random times.

use crate::house::*;
use handover_rpc::{
    Address, Bulk, BulkError, BulkHandle, BulkMemory, BulkPart, CallError, Calling, CloseReason,
    Endpoint, EndpointError, Method, Peer, Rights,
};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Long enough for several pieces.
pub const MEMORY_BYTES: usize = 3 << 20;
pub const HANDLES: Method = Method::new("handles");

/// Creates a server that owns memory of both kinds, and returns their handles.
pub fn owner(how: &str) -> (Endpoint, Address, [(BulkHandle, BulkMemory); 2]) {
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

pub fn own(how: &str) -> ExitCode {
    let (mut owner, address, _owned) = owner(how);
    say(address);
    owner.serve();
    ExitCode::SUCCESS
}

/// Role: transfers without end, pieces of any length, in both directions.
pub fn move_memory(address: &str) -> ExitCode {
    let (mut mover, peer) = connected(&address.parse().expect("an address"));
    let handles: [BulkHandle; 2] = mover.call(peer, HANDLES, &()).expect("it tells");
    let memory = BulkMemory::shared(MEMORY_BYTES).expect("memory");
    say("connected");
    while transfers_come_out(&mut mover, peer, &handles, &memory) {}
    ExitCode::FAILURE
}

/// Role: attaches both memories, and then only waits.
pub fn attach(address: &str) -> ExitCode {
    let (mut mover, peer) = connected(&address.parse().expect("an address"));
    let handles: [BulkHandle; 2] = mover.call(peer, HANDLES, &()).expect("it tells");
    let memory = BulkMemory::shared(1).expect("memory");
    for handle in &handles {
        mover.pull(peer, handle, &memory, BulkPart::new(1)).expect("it is there");
    }
    say("attached");
    mover.serve_while_connected(peer);
    ExitCode::SUCCESS
}

/// Runs a few transfers at the same time. Returns `false` if the peer is gone.
fn transfers_come_out(
    mover: &mut Endpoint,
    peer: Peer,
    handles: &[BulkHandle; 2],
    memory: &BulkMemory,
) -> bool {
    let mut under_way = Vec::new();
    for _ in 0..1 + random_below(5) {
        let bytes = [1, 4096, 70_000, MEMORY_BYTES as u64][random_below(4) as usize];
        let part = BulkPart::new(bytes);
        let handle = &handles[random_below(2) as usize];
        let started = match random_below(2) {
            0 => mover.start_pull(peer, handle, memory, part),
            _ => mover.start_push(peer, handle, memory, part),
        };
        match started {
            Ok(transfer) => under_way.push(transfer),
            Err(BulkError::Disconnected(_) | BulkError::Stale) => return false,
            Err(other) => panic!("{other}"),
        }
    }
    let mut alive = true;
    while let Some((_, result)) = mover.wait_any_transfer(&mut under_way) {
        match result {
            Ok(()) => {}
            Err(BulkError::Disconnected(CloseReason::ClosedByPeer)) => alive = false,
            Err(other) => panic!("{other}"),
        }
    }
    alive
}

/// Kills that child after a random time, while `meanwhile` runs until it notices. Returns when it
/// noticed.
fn killed_while(role: Other, alive_us_max: u64, meanwhile: impl FnOnce()) -> (Instant, Killed) {
    let alive_us = random_below(alive_us_max);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_micros(alive_us));
        role.kill()
    });
    meanwhile();
    (Instant::now(), killer.join().expect("no panic"))
}

pub fn owners_are_killed() {
    let memory = BulkMemory::shared(MEMORY_BYTES).expect("memory");
    for how in EACH {
        let mut worst = Worst::default();
        for turn in 0..kills_count() {
            let owner = Other::start("own", how);
            let (mut mover, peer) = connected(&owner.address());
            let handles: [BulkHandle; 2] = mover.call(peer, HANDLES, &()).expect("it tells");
            let (noticed, killed) = killed_while(owner, 6000, || {
                while transfers_come_out(&mut mover, peer, &handles, &memory) {}
            });
            worst.noticed_at(noticed, killed, format_args!("{how}, turn {turn}"));
            assert!(!mover.is_connected(peer));
        }
        println!("  {how}: {worst}");
    }
}

/// Kills a child in that role at a random time, and waits until the endpoint has noticed.
fn is_forgotten(
    endpoint: &mut Endpoint,
    role: &'static str,
    address: &Address,
) -> (Instant, Killed) {
    let (address, began) = (address.to_string(), Instant::now());
    let killer = std::thread::spawn(move || {
        let other = Other::start(role, &address);
        assert_eq!(other.said, "connected");
        std::thread::sleep(Duration::from_micros(random_below(6000)));
        other.kill()
    });
    let before = endpoint.stats().closed_count;
    while endpoint.stats().closed_count == before {
        endpoint.progress(Duration::from_millis(5));
        assert!(began.elapsed() < SOON * SLACK, "{:?}", endpoint.stats());
    }
    (Instant::now(), killer.join().expect("no panic"))
}

pub fn movers_are_killed() {
    for how in EACH {
        let (mut owner, address, owned) = owner(how);
        let mut worst = Worst::default();
        for turn in 0..kills_count() {
            let (noticed, killed) = is_forgotten(&mut owner, "move", &address);
            worst.noticed_at(noticed, killed, format_args!("{how}, turn {turn}"));
        }
        println!("  {how}: {worst}");
        for (handle, memory) in owned {
            let withdrawn = owner.withdraw_memory(&handle, Duration::ZERO);
            assert_eq!(withdrawn, Ok(()), "{how}: nobody has it any more");
            assert_eq!(memory.into_vecs().expect("it is free").concat().len(), MEMORY_BYTES);
        }
    }
}

/// Role: calls without end, short and long ones in turn, many at the same time.
pub fn call(address: &str) -> ExitCode {
    let (mut client, peer) = connected(&address.parse().expect("an address"));
    say("connected");
    loop {
        if !calls_come_back(&mut client, peer) {
            return ExitCode::FAILURE;
        }
    }
}

/// Makes one to a dozen calls of any length. Returns `false` if the peer is gone.
fn calls_come_back(client: &mut Endpoint, peer: Peer) -> bool {
    let lengths = [0, 1, 40, 90, 3000, 100_000];
    let count = 1 + random_below(12);
    let mut calls = Vec::new();
    for _ in 0..count {
        // A string is encoded in one piece; encoding bytes one by one in a debug build would take
        // longer than a kill may go unnoticed.
        let sent = "7".repeat(lengths[random_below(6) as usize]);
        match client.start::<_, String>(peer, ECHO, &sent) {
            Ok(call) => calls.push((call, sent)),
            Err(CallError::Disconnected(_) | CallError::Stale) => return false,
            Err(other) => panic!("{other}"),
        }
    }
    let mut alive = true;
    for (call, sent) in calls {
        match client.wait(call) {
            Ok(came) => assert!(came == sent),
            Err(CallError::Disconnected(CloseReason::ClosedByPeer)) => alive = false,
            Err(other) => panic!("{other}"),
        }
    }
    alive
}

pub fn servers_are_killed() {
    for how in EACH {
        let mut client = endpoint();
        let mut worst = Worst::default();
        for turn in 0..kills_count() {
            let server = Other::start("serve", how);
            let peer = client.connect(&server.address()).expect("it listens");
            let (noticed, killed) =
                killed_while(server, 4000, || while calls_come_back(&mut client, peer) {});
            worst.noticed_at(noticed, killed, format_args!("{how}, turn {turn}"));
            assert!(!client.is_connected(peer));
            assert_eq!(client.stats().peers_count, 0);
        }
        println!("  {how}: {worst}");
    }
}

pub fn clients_are_killed() {
    for how in EACH {
        let (mut server, address) = server(how);
        let mut worst = Worst::default();
        for turn in 0..kills_count() {
            let (noticed, killed) = is_forgotten(&mut server, "call", &address);
            worst.noticed_at(noticed, killed, format_args!("{how}, turn {turn}"));
        }
        println!("  {how}: {worst}");
        assert!(server.stats().closed_count >= u64::from(kills_count()), "{how}");
    }
}

/// Role: connects without end, and ends each connection by `disconnect` or by dropping the
/// endpoint.
pub fn greet(address: &str) -> ExitCode {
    let address = address.parse().expect("an address");
    say("connected");
    loop {
        let mut client = endpoint();
        let Ok(peer) = client.connect(&address) else { return ExitCode::FAILURE };
        if random_below(2) == 0 {
            client.disconnect(peer);
        }
    }
}

pub fn greeters_are_killed() {
    for how in EACH {
        let mut worst = Worst::default();
        for turn in 0..kills_count() {
            // Kills the acceptor.
            let server = Other::start("serve", how);
            let address = server.address();
            let (noticed, killed) = killed_while(server, 3000, || {
                loop {
                    match endpoint().connect(&address) {
                        Ok(_) => {}
                        Err(EndpointError::Handshake {
                            why: CloseReason::ClosedByPeer, ..
                        }) => break,
                        Err(EndpointError::SystemCall { call: "connect" | "sendmsg", .. }) => break,
                        Err(other) => panic!("{other}"),
                    }
                }
            });
            worst.noticed_at(noticed, killed, format_args!("{how}, turn {turn}"));
            // Kills the connector.
            let (mut server, address) = crate::house::server(how);
            let address = address.to_string();
            let killer = std::thread::spawn(move || {
                let greeter = Other::start("greet", &address);
                std::thread::sleep(Duration::from_micros(random_below(3000)));
                greeter.kill()
            });
            while !killer.is_finished() {
                server.progress(Duration::from_millis(1));
            }
            let killed = killer.join().expect("no panic");
            until_peers(&mut server, 0);
            worst.noticed(killed, format_args!("{how}, turn {turn}"));
        }
        println!("  {how}: {worst}");
    }
}

/// Duplicates the connected sockets of a process, as a child that it has forked would hold them.
fn sockets_of(other: &Other) -> Result<Vec<OwnedFd>, Errno> {
    let pid = i32::try_from(other.id()).ok().and_then(Pid::from_raw).expect("a process");
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let folder = format!("/proc/{}/fd", other.id());
    let mut held = Vec::new();
    for entry in std::fs::read_dir(folder).expect("proc is mounted").flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        if target.to_string_lossy().starts_with("socket:") {
            let number = entry.file_name().to_string_lossy().parse().expect("a number");
            held.push(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?);
        }
    }
    assert!(!held.is_empty(), "it is connected");
    Ok(held)
}

pub fn held_open() {
    for how in ["sm://", "uds://"] {
        let mut worst = Worst::default();
        // A client that ends.
        let (mut server, address) = server(how);
        let address = address.to_string();
        let starting = std::thread::spawn(move || Other::start("ask", &address));
        while !starting.is_finished() || server.stats().requests_count == 0 {
            server.progress(Duration::from_millis(1));
        }
        let client = starting.join().expect("no panic");
        let held = match sockets_of(&client) {
            Ok(held) => held,
            Err(errno) => return skipped("sockets of another process", &errno.to_string()),
        };
        let killed = client.kill();
        until_peers(&mut server, 0);
        worst.noticed(killed, how);
        drop(held);
        // A server that ends while a client sleeps.
        let server = Other::start("serve", how);
        let (mut client, peer) = connected(&server.address());
        server.signal(Signal::STOP);
        let asked = client.start::<_, Vec<u8>>(peer, ECHO, &vec![1u8; 10]).expect("room");
        let held = sockets_of(&server).expect("it was allowed before");
        let killer = std::thread::spawn(move || {
            std::thread::sleep(2 * SOON);
            server.kill()
        });
        assert_eq!(
            client.wait(asked),
            Err(CallError::Disconnected(CloseReason::ClosedByPeer)),
            "{how}"
        );
        let noticed = Instant::now();
        worst.noticed_at(noticed, killer.join().expect("no panic"), how);
        drop(held);
        println!("  {how}: {worst}");
    }
}
