//! Tests with peers that are stopped, and peers that are restarted.

use crate::fork;
use crate::house::*;
use crate::kills::HANDLES;
use handover_rpc::{
    Bulk, BulkError, BulkHandle, BulkMemory, BulkPart, CallError, Calling, CloseReason, Config,
    ConnectionsConfig, Endpoint, WithdrawError,
};
use rustix::process::Signal;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(30);

pub fn calls_to_a_stopped_server_time_out_and_later_ones_succeed() {
    for how in EACH {
        let server = Other::start("serve", how);
        let (mut client, peer) = connected(&server.address());
        server.signal(Signal::STOP);
        let began = Instant::now();
        let late = client.call_within::<_, u64>(peer, ECHO, &5u64, TIMEOUT);
        assert_eq!(late, Err(CallError::Deadline), "{how}");
        assert!(began.elapsed() >= TIMEOUT && began.elapsed() < TIMEOUT + SOON * SLACK);
        // The kernel accepts the connection, but the stopped server does not answer the handshake.
        let hurried = Config::default()
            .connections(ConnectionsConfig::default().handshake_timeout(Duration::from_millis(30)));
        let mut other = Endpoint::new(hurried).expect("an endpoint");
        let silent = other.connect(&server.address()).expect_err("it is stopped").to_string();
        assert_eq!(silent, format!("handshake with {} timed out after 30ms", server.said));
        server.signal(Signal::CONT);
        assert_eq!(client.call::<_, u64>(peer, ECHO, &6u64), Ok(6), "{how}: it goes on");
    }
}

pub fn an_owner_is_stopped() {
    for how in EACH {
        let owner = Other::start("own", how);
        let (mut mover, peer) = connected(&owner.address());
        let handles: [BulkHandle; 2] = mover.call(peer, HANDLES, &()).expect("it tells");
        let ours = BulkMemory::plain(vec![9; 1000]);
        owner.signal(Signal::STOP);
        let part = BulkPart::new(1000);
        for handle in &handles {
            let began = Instant::now();
            let late = mover.pull(peer, handle, &ours, part.timeout(TIMEOUT));
            assert_eq!(late, Err(BulkError::Deadline), "{how}");
            assert!(began.elapsed() >= TIMEOUT && began.elapsed() < TIMEOUT + SOON * SLACK);
        }
        owner.signal(Signal::CONT);
        for handle in &handles {
            assert_eq!(mover.pull(peer, handle, &ours, part), Ok(()), "{how}: it goes on");
        }
        assert_eq!(ours.to_vec(), [0; 1000], "{how}");
    }
    // An owner withdraws memory that a stopped peer has attached.
    let (mut owner, address, [_, (handle, memory)]) = crate::kills::owner("sm://");
    let mover = crate::stages::attached(&mut owner, &address);
    mover.signal(Signal::STOP);
    let in_use = Err(WithdrawError::InUse { peers_count: 1 });
    assert_eq!(owner.withdraw_memory(&handle, TIMEOUT), in_use);
    let memory = memory.into_vecs().expect_err("it may be written to");
    mover.signal(Signal::CONT);
    assert_eq!(owner.withdraw_memory(&handle, SOON * SLACK), Ok(()));
    assert!(memory.into_vecs().is_ok());
}

pub fn client_gets_an_error_and_reconnects_when_its_server_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("socket");
    let name = format!("again-{}", std::process::id());
    let mut client = endpoint();
    for address in [format!("sm://{name}"), format!("uds://{}", place.display()), free_port()] {
        for _ in 0..3 {
            let server = Other::start("serve", &address);
            assert_eq!(server.said, address);
            let peer = client.connect(&server.address()).expect("it listens");
            assert_eq!(client.call::<_, u64>(peer, ECHO, &5u64), Ok(5));
            server.kill();
            let gone = client.call::<_, u64>(peer, ECHO, &5u64);
            assert_eq!(gone, Err(CallError::Disconnected(CloseReason::ClosedByPeer)), "{address}");
            // Connects while the server is not running.
            let nobody = client.connect(&address.parse().expect("an address"));
            let said = nobody.expect_err("nobody listens").to_string();
            assert_eq!(
                said,
                format!("connect for {address} failed: Connection refused (os error 111)")
            );
        }
    }
    // The last server was killed, so its socket file is still there without a listener.
    assert!(place.exists());
}

/// A forked child drops the parent's endpoints, of which a thread of the parent serves one: the
/// child ends, and the sockets, their locks and the connections stay.
pub fn child_drops_a_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("socket");
    let address = format!("uds://{}", place.display()).parse().expect("an address");
    let mut server = endpoint();
    server.register("echo", 0, |_, number: u64| Ok(number)).expect("a new name");
    server.listen(&address).expect("the path is free");
    let idle_place = folder.path().join("idle");
    let mut idle = endpoint();
    idle.register("echo", 0, |_, number: u64| Ok(number)).expect("a new name");
    idle.start_pool().expect("threads");
    let idle_address = format!("uds://{}", idle_place.display()).parse().expect("an address");
    idle.listen(&idle_address).expect("the path is free");
    let idle = idle.start_progress().expect("a thread");
    let (mut idle_client, idle_peer) = connected(&idle_address);
    let mut idle = Some(idle.stop());
    let mut server = Some(server.start_progress().expect("a thread"));
    let status = fork::run_in_child(|| {
        drop(idle.take());
        drop(server.take());
    });
    assert_eq!(status, 0);
    for place in [&place, &idle_place] {
        assert!(place.exists() && place.with_extension("lock").exists(), "{place:?}");
    }
    let (mut client, peer) = connected(&address);
    assert_eq!(client.call::<_, u64>(peer, ECHO, &5u64), Ok(5));
    let idle = idle.map(|it| it.start_progress().expect("a thread"));
    assert_eq!(idle_client.call::<_, u64>(idle_peer, ECHO, &6u64), Ok(6));
    drop((idle, server));
    assert!(!place.exists() && !idle_place.exists());
}

/// Returns the address of a free port that no other process gets: on a loopback address derived
/// from this process's id.
fn free_port() -> String {
    let [_, a, b, c] = (std::process::id() + (1 << 23)).to_be_bytes();
    let listener = std::net::TcpListener::bind((Ipv4Addr::new(127, a, b, c), 0)).expect("a port");
    format!("tcp://{}", listener.local_addr().expect("bound"))
}
