//! Tests with peers in different pid namespaces, and in network namespaces joined by a virtual
//! cable that loses packets, delays them and is pulled.

use crate::house::*;
use crate::kills::{HANDLES, MEMORY_BYTES};
use handover_rpc::{
    Address, Bulk, BulkHandle, BulkMemory, BulkPart, CallError, Calling, CloseReason, Endpoint,
    EndpointError, Method, Peer, Rights,
};
use std::io::ErrorKind;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const HERE: &str = "10.77.0.1/24";
const THERE: &str = "10.77.0.2/24";
const PLACE: &str = "tcp://10.77.0.2:0";
const BYTES: usize = 1 << 20;
const FINE: &str = "fine";
const SECOND: Duration = Duration::from_secs(1);
/// Maximum time until a silent connection is closed.
const SILENCE_MAX: Duration = Duration::from_secs(40);

pub fn namespaces() {
    let what = "two network namespaces";
    let program = std::env::current_exe().expect("it runs");
    let dummy = ["-rn", "ip", "link", "add", "near", "type", "veth", "peer", "name", "far"];
    if let Some(why) = refused("unshare", &dummy).or_else(|| refused("nsenter", &["--version"])) {
        return skipped(what, &why);
    }
    let mut here = Other::of(Command::new("unshare").arg("-rn").arg(program).args(["apart", ""]));
    while !here.said.is_empty() && here.said != FINE {
        println!("{}", here.said);
        here.hear();
    }
    assert_eq!(here.said, FINE);
}

/// Tests an owner of memory and a process that transfers, each in this pid namespace or in its own,
/// like two containers that share a network namespace.
pub fn pid_namespaces() {
    let own_namespace = ["--pid", "--fork", "--kill-child"];
    if let Some(why) = refused("unshare", &[&own_namespace[..], &["true"]].concat()) {
        return skipped("pid namespaces", &why);
    }
    let start = |role: &str, argument: &str, is_apart: bool| {
        let program = std::env::current_exe().expect("it runs");
        let mut command = Command::new(if is_apart { "unshare".into() } else { program.clone() });
        if is_apart {
            command.args(own_namespace).arg(program);
        }
        Other::of(command.args([role, argument]))
    };
    for (owner_is_apart, mover_is_apart) in [(false, true), (true, false), (true, true)] {
        let owner = start("own", "sm://", owner_is_apart);
        let mover = start("transfer", &owner.said, mover_is_apart);
        assert_eq!(mover.said, FINE, "owner apart: {owner_is_apart}, mover: {mover_is_apart}");
    }
}

/// Role: pushes into each kind of an owner's memory, and pulls the same bytes back.
pub fn transfer(address: &str) -> ExitCode {
    let (mut mover, peer) = connected(&address.parse().expect("an address"));
    let handles: [BulkHandle; 2] = mover.call(peer, HANDLES, &()).expect("it tells");
    for (number, handle) in (1u8..).zip(handles) {
        for bytes in [5000, MEMORY_BYTES] {
            let sent: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 ^ number).collect();
            for shared in [false, true] {
                let [ours, back] = [sent.clone(), vec![0; bytes]].map(|content| match shared {
                    false => BulkMemory::plain(content),
                    true => {
                        let memory = BulkMemory::shared(bytes).expect("memory");
                        memory.write(0, &content);
                        memory
                    }
                });
                let part = BulkPart::new(bytes as u64).timeout(10 * SECOND);
                let ours_handle = mover.register_memory(&ours, Rights::Read).expect("room");
                let back_handle = mover.register_memory(&back, Rights::Write).expect("room");
                let what = format!("{bytes} bytes, memory {number}, shared here: {shared}");
                let pushed = mover.push(peer, &handle, &ours, part.halved(&ours_handle));
                assert_eq!(pushed, Ok(()), "{what}");
                let pulled = mover.pull(peer, &handle, &back, part.halved(&back_handle));
                assert_eq!(pulled, Ok(()), "{what}");
                assert!(back.to_vec() == sent, "other bytes came back: {what}");
            }
        }
    }
    say(FINE);
    ExitCode::SUCCESS
}

fn ip(line: &str) {
    run("ip", &line.split(' ').collect::<Vec<_>>());
}

fn run(program: &str, arguments: &[&str]) {
    if let Some(why) = refused(program, arguments) {
        panic!("{why}");
    }
}

/// Role: serves in another network namespace, once that has its address.
pub fn there(how: &str) -> ExitCode {
    let mut server = endpoint();
    let began = Instant::now();
    let address = loop {
        match server.listen(&how.parse().expect("an address")) {
            Ok(address) => break address,
            Err(EndpointError::SystemCall { call: "bind", error, .. })
                if error.kind() == ErrorKind::AddrNotAvailable && began.elapsed() < 10 * SECOND =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(other) => panic!("{other}"),
        }
    };
    let shared = server.listen(&"sm://".parse().expect("an address")).expect("a free one");
    let memory = BulkMemory::shared(BYTES).expect("memory");
    let handle = server.register_memory(&memory, Rights::ReadWrite).expect("room");
    server.register("handle", 0, move |_, ()| Ok(handle)).expect("a name");
    server.register("echo", 0, |_, bytes: Vec<u8>| Ok(bytes)).expect("a name");
    server.start_pool().expect("threads");
    let late = |()| {
        std::thread::sleep(2 * SILENCE_MAX);
        Ok(())
    };
    server.register_pooled("late", 0, late).expect("a name");
    say(address);
    say(shared);
    server.serve();
    ExitCode::SUCCESS
}

/// Role: in its own network namespace, creates another one and the cable between them.
pub fn here() -> ExitCode {
    let program = std::env::current_exe().expect("it runs");
    let mut there =
        Other::spawned(Command::new("unshare").arg("-n").arg(program).args(["there", PLACE]));
    let id = there.id().to_string();
    // unshare replaces itself by the program after entering the namespace, so it may not be there
    // yet.
    let ours = std::fs::read_link("/proc/self/ns/net").expect("proc is mounted");
    while std::fs::read_link(format!("/proc/{id}/ns/net")).ok().as_ref() == Some(&ours) {
        std::thread::sleep(Duration::from_millis(1));
    }
    ip(&format!("link add near type veth peer name far netns {id}"));
    ip(&format!("addr add {HERE} dev near"));
    ip("link set near up");
    for line in [&format!("addr add {THERE} dev far")[..], "link set far up", "link set lo up"] {
        let words: Vec<&str> = ["-t", &id, "-n", "ip"].into_iter().chain(line.split(' ')).collect();
        run("nsenter", &words);
    }
    there.hear();
    let address = there.address();
    there.hear();
    let shared = there.address();
    let (mut client, mut peer) = connected(&address);
    // Abstract socket names belong to a network namespace.
    let apart = client.connect(&shared).expect_err("it is another host's").to_string();
    assert_eq!(apart, format!("connect for {shared} failed: Connection refused (os error 111)"));
    all_sorts(&mut client, peer, 1);
    // Delayed, lost, duplicated and reordered packets.
    let weather = "qdisc add dev near root netem delay 1ms 1ms loss 2% duplicate 2% reorder 20%";
    match refused("tc", &weather.split(' ').collect::<Vec<_>>()) {
        Some(why) => skipped("a cable that loses and delays", &why),
        None => {
            all_sorts(&mut client, peer, 2);
            run("tc", &["qdisc", "del", "dev", "near", "root"]);
        }
    }
    ip("link set near down");
    let (began, timeout) = (Instant::now(), Duration::from_millis(50));
    let late = client.call_within::<_, Vec<u8>>(peer, ECHO, &vec![1u8; 10], timeout);
    assert_eq!(late, Err(CallError::Deadline));
    assert!(began.elapsed() < timeout + SOON * SLACK);
    ip("link set near up");
    all_sorts(&mut client, peer, 3);
    if is_long() {
        silence_is_the_end(&address, true);
        silence_is_the_end(&address, false);
        // That connection used the same cable, and was closed too.
        (client, peer) = connected(&address);
    }
    let asked = client.start::<_, ()>(peer, Method::new("late"), &()).expect("room");
    assert_eq!(client.test(asked), None);
    let killed = there.kill();
    assert_eq!(client.wait(asked), Err(CallError::Disconnected(CloseReason::ClosedByPeer)));
    Worst::default().noticed(killed, "over a cable");
    say(FINE);
    ExitCode::SUCCESS
}

/// Checks that a call without a deadline ends if the cable is pulled: while the connection is idle,
/// or before the request is acknowledged.
fn silence_is_the_end(address: &Address, is_acknowledged: bool) {
    let (mut client, peer) = connected(address);
    let start = |client: &mut Endpoint| {
        client.start::<_, ()>(peer, Method::new("late"), &()).expect("room")
    };
    let mut asked = start(&mut client);
    std::thread::sleep(SECOND);
    ip("link set near down");
    if !is_acknowledged {
        asked = start(&mut client);
    }
    let began = Instant::now();
    let ended = client.wait(asked);
    println!("  a silent cable: {ended:?} within {:?}", began.elapsed());
    assert!(matches!(ended, Err(CallError::Disconnected(_))));
    // Not at once: a cable may be plugged in again.
    assert!((5 * SECOND..SILENCE_MAX).contains(&began.elapsed()));
    ip("link set near up");
}

fn all_sorts(client: &mut Endpoint, peer: Peer, salt: u8) {
    for length in [0, 1, 3000, 100_000] {
        let sent = vec![salt; length];
        assert!(client.call::<_, Vec<u8>>(peer, ECHO, &sent) == Ok(sent), "{length} bytes");
    }
    let handle: BulkHandle = client.call(peer, Method::new("handle"), &()).expect("it tells");
    let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8 ^ salt).collect();
    let (ours, back) = (BulkMemory::plain(sent), BulkMemory::plain(vec![0; BYTES]));
    client.push(peer, &handle, &ours, BulkPart::new(BYTES as u64)).expect("it has room");
    client.pull(peer, &handle, &back, BulkPart::new(BYTES as u64)).expect("it is there");
    assert!(back.to_vec() == ours.to_vec(), "other bytes came back");
}
