//! Tests with peers that are killed at a chosen stage.

use crate::house::*;
use crate::kills::{HANDLES, MEMORY_BYTES, owner};
use handover_rpc::{
    Address, Bulk, BulkError, BulkHandle, BulkMemory, BulkPart, CallError, Calling, CloseReason,
    Endpoint, EndpointError, Failure, Method, Peer,
};
use rustix::process::{Signal, getpid, kill_process};
use std::io::Read;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Role: listens without completing a handshake.
pub fn listen(how: &str) -> ExitCode {
    let (_server, address) = server(how);
    say(address);
    wait_for_the_end()
}

/// Blocks until the parent process closes this one's input.
fn wait_for_the_end() -> ExitCode {
    // The parent never writes to it.
    let _ = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

fn die_now() -> Result<(), Failure> {
    kill_process(getpid(), Signal::KILL).expect("it is this one");
    Ok(())
}

/// Number of the call of `count` that is not answered any more.
const LAST: u32 = 25;

/// Role: serves, and kills itself in its handlers.
pub fn die(how: &str) -> ExitCode {
    let (mut server, address) = server(how);
    server.start_pool().expect("threads");
    server.register("die", 0, |_, ()| die_now()).expect("a name");
    server.register_pooled("die-pooled", 0, |()| die_now()).expect("a name");
    let count = |_: &mut handover_rpc::Context<'_>, number: u32| {
        if number == LAST {
            die_now()?;
        }
        Ok(number)
    };
    server.register("count", 0, count).expect("a name");
    say(address);
    server.serve();
    ExitCode::SUCCESS
}

/// Role: sends many requests, and takes no answer.
pub fn ask(address: &str) -> ExitCode {
    let (mut client, peer) = connected(&address.parse().expect("an address"));
    let calls: Result<Vec<_>, _> =
        (0..20).map(|_| client.start::<_, Vec<u8>>(peer, ECHO, &vec![7u8; 100_000])).collect();
    say(calls.expect("there is room").len());
    wait_for_the_end()
}

const GONE: CallError = CallError::Disconnected(CloseReason::ClosedByPeer);

pub fn of_a_call() {
    for how in EACH {
        let mut worst = Worst::default();
        // A server that listens without completing a handshake.
        let (refused, noticed, killed) = killed_in_handshake(how);
        let why = CloseReason::ClosedByPeer;
        assert!(
            matches!(&refused, Err(EndpointError::Handshake { why: it, .. }) if *it == why),
            "{how}: {refused:?}"
        );
        worst.noticed_at(noticed, killed, how);
        // A server that is killed in a handler, in its own thread and in the pool.
        for name in ["die", "die-pooled"] {
            let server = Other::start("die", how);
            let (mut client, peer) = connected(&server.address());
            let began = Instant::now();
            let died = client.call::<_, ()>(peer, Method::new(name), &());
            assert_eq!(died, Err(GONE), "{how} {name}");
            assert!(began.elapsed() < SOON * SLACK, "{how} {name}");
        }
        // A server that has not read the request.
        let server = Other::start("serve", how);
        let (mut client, peer) = connected(&server.address());
        server.signal(Signal::STOP);
        let asked = client.start::<_, Vec<u8>>(peer, ECHO, &vec![1u8; 100_000]).expect("room");
        let killed = server.kill();
        assert_eq!(client.wait(asked), Err(GONE), "{how}");
        worst.noticed(killed, how);
        // A client that has not taken its answers.
        let (mut server, address) = crate::house::server(how);
        let address = address.to_string();
        let starting = std::thread::spawn(move || Other::start("ask", &address));
        while !starting.is_finished() || server.stats().requests_count == 0 {
            server.progress(Duration::from_millis(1));
        }
        let killed = starting.join().expect("no panic").kill();
        until_peers(&mut server, 0);
        worst.noticed(killed, how);
        println!("  {how}: {worst}");
    }
}

/// Kills a server that listens without completing a handshake, while an endpoint connects to it.
/// Returns the result of connecting, its time, and the time of the kill.
fn killed_in_handshake(how: &str) -> (Result<Peer, EndpointError>, Instant, Killed) {
    let mut alive = Duration::from_millis(10);
    loop {
        let server = Other::start("listen", how);
        let address = server.address();
        let killer = killed_after(alive, server);
        let connected = endpoint().connect(&address);
        let (noticed, killed) = (Instant::now(), killer.join().expect("no panic"));
        // If this thread got the CPU late, the server was killed before the handshake had begun.
        let is_too_early =
            matches!(connected, Err(EndpointError::SystemCall { call: "connect" | "sendmsg", .. }));
        if !is_too_early || alive > 20 * SOON {
            return (connected, noticed, killed);
        }
        alive *= 2;
    }
}

/// Kills the process after that time, in another thread.
fn killed_after(alive: Duration, other: Other) -> std::thread::JoinHandle<Killed> {
    std::thread::spawn(move || {
        std::thread::sleep(alive);
        other.kill()
    })
}

pub fn answers_sent_before_a_kill_arrive() {
    // With pauses, the last calls are started after the server's death.
    for (how, pause) in EACH.iter().flat_map(|how| [(how, 0), (how, 2)]) {
        let server = Other::start("die", how);
        let (mut client, peer) = connected(&server.address());
        let count = Method::new("count");
        let start = |number| {
            std::thread::sleep(Duration::from_millis(pause));
            client.start::<_, u32>(peer, count, &number)
        };
        let calls: Vec<_> = (0..2 * LAST).map(start).collect();
        for (number, call) in (0..).zip(calls) {
            let expected = if number < LAST { Ok(number) } else { Err(GONE) };
            let answer = call.and_then(|call| client.wait(call));
            assert_eq!(answer, expected, "{how} {number}, pauses of {pause} ms");
        }
    }
}

/// Starts an owner and connects to it. Returns the handle of its shared (0) or plain (1) memory.
fn owned(how: &str, which: usize) -> (Other, Endpoint, Peer, BulkHandle) {
    let owner = Other::start("own", how);
    let (mut mover, peer) = connected(&owner.address());
    let handles: [BulkHandle; 2] = mover.call(peer, HANDLES, &()).expect("it tells");
    (owner, mover, peer, handles[which])
}

pub fn of_a_transfer() {
    let ours = BulkMemory::plain(vec![0; MEMORY_BYTES]);
    let all = BulkPart::new(MEMORY_BYTES as u64);
    let gone = || Err(BulkError::Disconnected(CloseReason::ClosedByPeer));
    for how in EACH {
        let mut worst = Worst::default();
        for which in [0, 1] {
            // An owner that has not read the requests.
            let (owner, mut mover, peer, handle) = owned(how, which);
            owner.signal(Signal::STOP);
            let pull = mover.start_pull(peer, &handle, &ours, all).expect("room");
            let push = mover.start_push(peer, &handle, &ours, all).expect("room");
            let killed = owner.kill();
            assert_eq!(mover.wait_transfer(pull), gone(), "{how} {which}");
            assert_eq!(mover.wait_transfer(push), gone(), "{how} {which}");
            worst.noticed(killed, how);
            // An owner that is killed while data is under way.
            let (owner, mut mover, peer, handle) = owned(how, which);
            mover.pull(peer, &handle, &ours, BulkPart::new(1)).expect("it is there");
            let mut pulls = pulls(&mut mover, peer, &handle, &ours);
            let before = moved(&mut mover);
            while moved(&mut mover) == before {
                mover.progress(Duration::from_millis(1));
            }
            let killed = owner.kill();
            let failed = loop {
                match mover.wait_any_transfer(&mut pulls) {
                    Some((_, Ok(()))) => {}
                    Some((_, failed)) => break failed,
                    // Mapped memory outlives its owner.
                    None => match mover.start_pull(peer, &handle, &ours, all) {
                        Ok(pull) => pulls.push(pull),
                        Err(BulkError::Stale) => break gone(),
                        Err(other) => break Err(other),
                    },
                }
            };
            assert_eq!(failed, gone(), "{how} {which}");
            worst.noticed(killed, how);
        }
        println!("  {how}: {worst}");
    }
    assert!(ours.into_vecs().is_ok(), "nobody uses it any more");
    // An owner that withdraws memory while the peer that has it attached is killed.
    let (mut owner, address, [_, (handle, memory)]) = owner("sm://");
    let mover = attached(&mut owner, &address);
    mover.signal(Signal::STOP);
    let killer = killed_after(Duration::from_millis(10), mover);
    assert_eq!(owner.withdraw_memory(&handle, SOON * SLACK), Ok(()));
    Worst::default().noticed(killer.join().expect("no panic"), "a mover");
    assert!(memory.into_vecs().is_ok());
}

/// Starts a peer that has that owner's memories attached.
pub fn attached(owner: &mut Endpoint, address: &Address) -> Other {
    let address = address.to_string();
    let starting = std::thread::spawn(move || Other::start("attach", &address));
    while !starting.is_finished() {
        owner.progress(Duration::from_millis(1));
    }
    starting.join().expect("no panic")
}

fn pulls(
    mover: &mut Endpoint,
    peer: Peer,
    handle: &BulkHandle,
    ours: &BulkMemory,
) -> Vec<handover_rpc::Transfer> {
    let all = BulkPart::new(MEMORY_BYTES as u64);
    (0..5).map(|_| mover.start_pull(peer, handle, ours, all).expect("room")).collect()
}

fn moved(mover: &mut Endpoint) -> u64 {
    let stats = mover.bulk_stats();
    stats.mapped_bytes + stats.process_bytes + stats.message_bytes
}
