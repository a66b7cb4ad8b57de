//! Tests of bulk transfers, over each transport, by each path, and with every kind of memory.

use crate::gate::gate;
use crate::hostile::peers::forged;
use handover_rpc::{
    Address, Bulk, BulkConfig, BulkError, BulkHandle, BulkMemory, BulkPart, BulkPath, BulkRefusal,
    Calling, Config, Context, Endpoint, Failure, MemoryError, Method, Peer, Rights, Stopper,
    WithdrawError,
};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Liveness limit, far longer than anything here takes.
const LIVENESS: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);
/// Length of the memory that the server lets others read.
const OWNED_BYTES: usize = 6 << 20;
const HANDLE: Method = Method::new("handle");

/// Transport and configuration, with the expected path for each kind of memory.
struct Way {
    how: &'static str,
    config: Config,
    shared: BulkPath,
    plain: BulkPath,
}

fn ways() -> Vec<Way> {
    let way = |how, config, shared, plain| Way { how, config, shared, plain };
    let usual = Config::default().bulk(BulkConfig::default().streamed_bytes_min(1 << 18));
    let (mapped, process, messages) = (BulkPath::Mapped, BulkPath::Process, BulkPath::Messages);
    let (mut blind, mut strict) = (usual.clone(), usual.clone());
    blind.bulk.uses_process_vm = false;
    strict.bulk.maps = false;
    let mut small = strict.clone();
    small.connections.message_bytes_max = 64;
    small.shared_memory.shared_bytes = 4096;
    let mut ways = vec![
        way("sm://", usual.clone(), mapped, process),
        way("sm://", blind, mapped, messages),
        way("sm://", strict, messages, messages),
        way("sm://", small.clone(), messages, messages),
        way("uds://", usual.clone(), messages, messages),
        way("tcp://127.0.0.1:0", usual.clone(), messages, messages),
        way("tcp://127.0.0.1:0", small.clone(), messages, messages),
    ];
    if cfg!(feature = "tls") {
        for config in [usual, small] {
            ways.push(way(
                "tls://127.0.0.1:0",
                crate::credentials::with_tls(config),
                messages,
                messages,
            ));
        }
    }
    ways
}

/// Server that transfers its callers' memories as they ask.
struct Server {
    address: Address,
    stopper: Stopper,
    thread: Option<JoinHandle<Endpoint>>,
    /// Keeps the server busy in the method `hold` until it is dropped.
    open: Option<Sender<()>>,
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(1, error.to_string())
}

impl Server {
    fn new(way: &Way) -> Self {
        let mut server = Endpoint::new(way.config.clone()).unwrap();
        let address = server.listen(&way.how.parse().unwrap()).unwrap();
        server.register("turn-over", 0, turn_over).unwrap();
        server.register("echo", 0, |_, number: u64| Ok(number)).unwrap();
        let (open, wait) = gate();
        let hold = move |_: &mut Context<'_>, ()| {
            wait();
            Ok(())
        };
        server.register("hold", 0, hold).unwrap();
        let memory = BulkMemory::shared(OWNED_BYTES).unwrap();
        memory.write(0, &pattern(OWNED_BYTES));
        let handle = server.register_memory(&memory, Rights::Read).unwrap();
        server.register("handle", 0, move |_, ()| Ok(handle)).unwrap();
        let stopper = server.stopper();
        let mut new = Self { address, stopper, thread: None, open: Some(open) };
        new.serve(server);
        new
    }

    fn serve(&mut self, mut server: Endpoint) {
        self.thread = Some(std::thread::spawn(move || {
            server.serve();
            server
        }));
    }

    /// Stops the serving thread, and returns the endpoint.
    fn take_over(&mut self) -> Endpoint {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap()
    }

    fn client(&self, way: &Way) -> (Endpoint, Peer) {
        let mut client = Endpoint::new(way.config.clone()).unwrap();
        let peer = client.connect(&self.address).unwrap();
        (client, peer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.open = None;
        self.stopper.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(!matches!(ended, Some(Err(_))) || std::thread::panicking(), "the server panicked");
    }
}

/// Pulls the whole memory in pieces, many at a time, and pushes it back with every byte inverted.
/// Returns the path.
fn turn_over(
    context: &mut Context<'_>,
    (handle, piece, shared): (BulkHandle, u64, bool),
) -> Result<u8, Failure> {
    let (peer, bytes) = (context.peer(), handle.len_bytes());
    let ours = match shared {
        true => BulkMemory::shared(bytes as usize).map_err(failed)?,
        false => BulkMemory::plain(vec![0; bytes as usize]),
    };
    let parts = || {
        let starts = (0..bytes).step_by(piece as usize);
        starts.map(|at| BulkPart::new(piece.min(bytes - at)).offsets(at, at))
    };
    let pulls = parts().map(|part| context.start_pull(peer, &handle, &ours, part));
    let mut pulls = pulls.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    while let Some((_, result)) = context.wait_any_transfer(&mut pulls) {
        result.map_err(failed)?;
    }
    let inverted: Vec<u8> = ours.to_vec().iter().map(|byte| !byte).collect();
    ours.write(0, &inverted);
    for part in parts() {
        context.push(peer, &handle, &ours, part).map_err(failed)?;
    }
    Ok(match context.bulk_path(peer, &handle) {
        Some(BulkPath::Mapped) => 0,
        Some(BulkPath::Process) => 1,
        Some(BulkPath::Messages) => 2,
        Some(BulkPath::Remote) | None => 3,
    })
}

/// Returns bytes of which no two pages are equal: a block of prime length, repeated.
fn pattern(bytes: usize) -> Vec<u8> {
    let block: Vec<u8> =
        (0..4099u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    let mut pattern = block.repeat(bytes.div_ceil(block.len()));
    pattern.truncate(bytes);
    pattern
}

#[test]
fn memory_of_every_kind_is_pulled_and_pushed_over_every_transport() {
    for way in ways() {
        let server = Server::new(&way);
        let (mut client, peer) = server.client(&way);
        for (bytes, piece) in [(1, 1), (4096, 4096), (100_003, 10_007), (1 << 20, 1 << 20)] {
            if way.config.connections.message_bytes_max < 1000 && bytes > 10_000 {
                continue; // Would take thousands of messages.
            }
            for (kind, expected) in
                [("shared", way.shared), ("plain", way.plain), ("both", way.plain)]
            {
                let memory = match kind {
                    "shared" => BulkMemory::shared(bytes).unwrap(),
                    "plain" => BulkMemory::plain(vec![0; bytes]),
                    _ => BulkMemory::joined([
                        BulkMemory::plain(vec![0; bytes / 3]),
                        BulkMemory::shared(bytes / 5).unwrap(),
                        BulkMemory::plain(vec![0; bytes - bytes / 3 - bytes / 5]),
                    ])
                    .unwrap(),
                };
                let sent = pattern(bytes);
                memory.write(0, &sent);
                let handle = client.register_memory(&memory, Rights::ReadWrite).unwrap();
                let turn_over = Method::new("turn-over");
                let asked = (handle, piece as u64, kind == "shared");
                let path: u8 = client.call(peer, turn_over, &asked).unwrap();
                let path = [BulkPath::Mapped, BulkPath::Process, BulkPath::Messages][path as usize];
                assert_eq!(path, expected, "{} {kind} {:?}", way.how, way.config);
                let inverted: Vec<u8> = sent.iter().map(|byte| !byte).collect();
                assert!(memory.to_vec() == inverted, "{} {kind} {bytes}", way.how);
                assert_eq!(client.withdraw_memory(&handle, LIVENESS), Ok(()));
                let back = memory.into_vecs().expect("nobody uses it any more");
                assert_eq!(back.concat(), inverted);
            }
        }
    }
}

#[test]
fn forged_handle_is_refused_by_its_owner() {
    for way in ways() {
        let server = Server::new(&way);
        let ours = BulkMemory::plain(vec![9; 100]);
        let part = BulkPart::new(50).offsets(10, 10);
        // Once before and once after the memory is attached.
        for known in [false, true] {
            let (mut client, peer) = server.client(&way);
            let handle: BulkHandle = client.call(peer, HANDLE, &()).unwrap();
            if known {
                client.pull(peer, &handle, &ours, part).unwrap();
            }
            let lies = [
                forged(&handle, |it| it.0 += 1),
                forged(&handle, |it| it.1 ^= 1),
                forged(&handle, |it| it.2 *= 2),
                forged(&handle, |it| it.3 = Rights::ReadWrite),
            ];
            for (number, lie) in lies.iter().enumerate() {
                let pulled = client.pull(peer, lie, &ours, part);
                assert!(matches!(pulled, Err(BulkError::Refused(_))), "{} {number}", way.how);
                let pushed = client.push(peer, lie, &ours, part);
                assert!(matches!(pushed, Err(BulkError::Refused(_))), "{} {number}", way.how);
            }
            let (rights, outside) = (BulkRefusal::Rights.into(), BulkRefusal::Outside.into());
            assert_eq!(client.push(peer, &handle, &ours, part), Err(rights));
            let end = OWNED_BYTES as u64;
            for theirs in [end - 49, end, u64::MAX - 49, u64::MAX] {
                let pulled =
                    client.pull(peer, &handle, &ours, BulkPart::new(50).offsets(theirs, 0));
                assert_eq!(pulled, Err(BulkError::clone(&outside)));
            }
            let beyond = client.pull(peer, &handle, &ours, BulkPart::new(50).offsets(0, 51));
            assert!(matches!(beyond, Err(BulkError::Outside { memory_bytes: 100, .. })));
            assert_eq!(client.pull(peer, &handle, &ours, part), Ok(()), "it still works");
            assert_eq!(ours.to_vec()[10..60], pattern(60)[10..]);
        }
    }
}

#[test]
fn deadline_passes_while_the_owner_is_busy_and_later_transfers_succeed() {
    for way in ways().into_iter().filter(|it| it.shared == BulkPath::Messages) {
        let mut server = Server::new(&way);
        let (mut client, peer) = server.client(&way);
        let handle: BulkHandle = client.call(peer, HANDLE, &()).unwrap();
        let ours = BulkMemory::plain(vec![0; 5000]);
        client.send(peer, Method::new("hold"), &()).unwrap();
        let began = Instant::now();
        let late = client.pull(peer, &handle, &ours, BulkPart::new(5000).timeout(10 * MS));
        assert_eq!(late, Err(BulkError::Deadline));
        assert!(began.elapsed() >= 10 * MS, "{}", way.how);
        server.open = None;
        assert_eq!(client.pull(peer, &handle, &ours, BulkPart::new(100).offsets(7, 3)), Ok(()));
        assert_eq!(ours.to_vec()[3..103], pattern(107)[7..]);
        assert_eq!(ours.to_vec()[103..], [0; 4897], "what came late went nowhere");
    }
}

#[test]
fn deadline_ends_a_transfer_that_is_only_polled_while_the_owner_is_busy() {
    // Shared memory waits to be attached here, and the rest for messages.
    for way in ways() {
        let mut server = Server::new(&way);
        let (mut client, peer) = server.client(&way);
        let handle: BulkHandle = client.call(peer, HANDLE, &()).unwrap();
        let ours = BulkMemory::plain(vec![0; 5000]);
        client.send(peer, Method::new("hold"), &()).unwrap();
        let began = Instant::now();
        let part = BulkPart::new(5000).timeout(10 * MS);
        let transfer = client.start_pull(peer, &handle, &ours, part).unwrap();
        let late = loop {
            if let Some(result) = client.test_transfer(transfer) {
                break result;
            }
            assert!(began.elapsed() < LIVENESS, "{}: the deadline is not enforced", way.how);
        };
        assert_eq!(late, Err(BulkError::Deadline), "{}", way.how);
        assert!(began.elapsed() >= 10 * MS, "{}", way.how);
        assert_eq!(client.test_transfer(transfer), Some(Err(BulkError::Stale)));
        server.open = None;
        assert_eq!(client.pull(peer, &handle, &ours, BulkPart::new(100).offsets(7, 3)), Ok(()));
        assert_eq!(ours.to_vec()[3..103], pattern(107)[7..]);
        assert_eq!(ours.to_vec()[103..], [0; 4897], "what came late went nowhere");
    }
}

#[test]
fn memory_beyond_memories_max_is_refused_until_another_is_withdrawn() {
    let config = Config::default().bulk(BulkConfig::default().memories_max(1));
    let mut endpoint = Endpoint::new(config).unwrap();
    let memory = BulkMemory::plain(vec![0; 10]);
    let first = endpoint.register_memory(&memory, Rights::Read).unwrap();
    let refused = endpoint.register_memory(&memory, Rights::Read).unwrap_err();
    assert_eq!(refused, MemoryError::TooManyMemories { memories_max: 1 });
    endpoint.withdraw_memory(&first, LIVENESS).unwrap();
    endpoint.register_memory(&memory, Rights::Read).unwrap();
}

#[test]
fn empty_memory_of_every_kind_can_be_created() {
    for memory in [BulkMemory::shared(0), BulkMemory::in_folder(&std::env::temp_dir(), 0)] {
        assert_eq!(memory.map(|it| it.to_vec()), Ok(Vec::new()));
    }
    let folder = std::env::temp_dir().join("no-such-folder-of-handover");
    assert!(BulkMemory::in_folder(&folder, 0).is_err());
}

#[test]
fn deadline_passes_while_other_transfers_are_copied() {
    for way in ways().into_iter().filter(|it| it.shared == BulkPath::Mapped) {
        let server = Server::new(&way);
        let (mut client, peer) = server.client(&way);
        let handle: BulkHandle = client.call(peer, HANDLE, &()).unwrap();
        let ours = BulkMemory::plain(vec![0; OWNED_BYTES]);
        client.pull(peer, &handle, &ours, BulkPart::new(1)).unwrap();
        let part = BulkPart::new(OWNED_BYTES as u64);
        let late = client.pull(peer, &handle, &ours, part.timeout(Duration::from_nanos(1)));
        assert_eq!(late, Err(BulkError::Deadline));
    }
}

#[test]
fn calls_are_handled_between_the_pieces_of_a_long_transfer() {
    for way in ways().into_iter().filter(|it| it.config.connections.message_bytes_max > 1000) {
        let mut server = Server::new(&way);
        let (mut client, peer) = server.client(&way);
        let handle: BulkHandle = client.call(peer, HANDLE, &()).unwrap();
        let ours = BulkMemory::shared(OWNED_BYTES).unwrap();
        let part = BulkPart::new(OWNED_BYTES as u64);
        // Both endpoints are driven by this thread, so that neither has more turns than the other.
        let mut owner = server.take_over();
        let mut transfers: Vec<_> =
            (0..100).map(|_| client.start_pull(peer, &handle, &ours, part).unwrap()).collect();
        let call = client.start::<_, u64>(peer, Method::new("echo"), &5u64).unwrap();
        let last = transfers[99];
        let mut answer = None;
        while answer.is_none() {
            owner.progress(Duration::ZERO);
            answer = client.test(call);
        }
        assert_eq!(answer, Some(Ok(5)));
        assert_eq!(client.test_transfer(last), None, "{}: the call had to wait", way.how);
        server.serve(owner);
        transfers.drain(7..99).for_each(|it| client.cancel_transfer(it));
        while let Some((_, result)) = client.wait_any_transfer(&mut transfers) {
            assert_eq!(result, Ok(()));
        }
        assert!(ours.to_vec() == pattern(OWNED_BYTES), "{}", way.how);
        assert_eq!(client.wait_transfer(last), Err(BulkError::Stale));
    }
}

#[test]
fn immediate_transfer_detects_a_disconnected_owner() {
    let way = &ways()[0];
    let server = Server::new(way);
    let (mut client, peer) = server.client(way);
    let handle: BulkHandle = client.call(peer, HANDLE, &()).unwrap();
    let (ours, part) = (BulkMemory::plain(vec![0; 100]), BulkPart::new(100));
    client.pull(peer, &handle, &ours, part).unwrap();
    drop(server);
    let began = Instant::now();
    let gone = loop {
        let transfer = client.start_pull(peer, &handle, &ours, part);
        let done = transfer.and_then(|it| client.wait_transfer(it));
        if done.is_err() || began.elapsed() > LIVENESS {
            break done;
        }
    };
    assert!(matches!(gone, Err(BulkError::Disconnected(_) | BulkError::Stale)), "{gone:?}");
}

#[test]
fn transfer_beyond_transfers_max_is_refused_and_moves_nothing() {
    for mut way in ways() {
        way.config.bulk.transfers_max = 1;
        let server = Server::new(&way);
        let (mut client, peer) = server.client(&way);
        let handle: BulkHandle = client.call(peer, HANDLE, &()).unwrap();
        let (ours, part) = (BulkMemory::plain(vec![0; 100]), BulkPart::new(100));
        // The first transfer waits until the memory is attached; later ones may be done as soon as
        // they are started.
        let first =
            client.start_pull(peer, &handle, &BulkMemory::plain(vec![0; 100]), part).unwrap();
        let second = client.start_pull(peer, &handle, &ours, part);
        assert_eq!(second.map(drop), Err(BulkError::Full), "{}", way.how);
        client.wait_transfer(first).unwrap();
        assert_eq!(ours.to_vec(), [0; 100], "{}", way.how);
        let second = client.start_pull(peer, &handle, &ours, part).unwrap();
        client.wait_transfer(second).unwrap();
        assert_eq!(ours.to_vec(), pattern(OWNED_BYTES)[..100], "{}", way.how);
    }
}

#[test]
fn cancelled_transfer_no_longer_accesses_the_memory() {
    for way in ways() {
        let server = Server::new(&way);
        let (mut client, peer) = server.client(&way);
        let handle: BulkHandle = client.call(peer, HANDLE, &()).unwrap();
        let ours = BulkMemory::plain(vec![0; 4 << 20]);
        let transfer = client.start_pull(peer, &handle, &ours, BulkPart::new(4 << 20)).unwrap();
        client.cancel_transfer(transfer);
        let vecs = ours.into_vecs().expect("nobody uses it any more");
        assert_eq!(vecs[0].len(), 4 << 20);
        assert_eq!(client.call::<_, u64>(peer, Method::new("echo"), &5u64), Ok(5));
    }
}

#[test]
fn memory_is_withdrawn_only_after_its_writer_has_released_it() {
    let way = &ways()[0];
    let mut server = Server::new(way);
    let (mut client, peer) = server.client(way);
    let memory = BulkMemory::plain(vec![1; 1000]);
    let handle = client.register_memory(&memory, Rights::ReadWrite).unwrap();
    let asked = (handle, 1000u64, false);
    client.call::<_, u8>(peer, Method::new("turn-over"), &asked).unwrap();
    client.send(peer, Method::new("hold"), &()).unwrap();
    let early = client.withdraw_memory(&handle, 10 * MS);
    assert_eq!(early, Err(WithdrawError::InUse { peers_count: 1 }));
    let memory = memory.into_vecs().expect_err("the peer may be writing");
    server.open = None;
    assert_eq!(client.withdraw_memory(&handle, LIVENESS), Ok(()));
    assert_eq!(client.withdraw_memory(&handle, LIVENESS), Err(WithdrawError::Unknown));
    assert_eq!(memory.into_vecs().unwrap(), [vec![!1; 1000]]);
    let gone = client.call::<_, u8>(peer, Method::new("turn-over"), &asked);
    assert!(gone.unwrap_err().to_string().contains("no such memory"));
}

/// Returns two connected endpoints of this process, and the second one's peer.
fn connected_pair() -> (Endpoint, Endpoint, Peer) {
    let mut owner = Endpoint::new(Config::default()).unwrap();
    let address = owner.listen(&"sm://".parse().unwrap()).unwrap();
    let connecting = std::thread::spawn(move || {
        let mut user = Endpoint::new(Config::default()).unwrap();
        let peer = user.connect(&address).unwrap();
        (user, peer)
    });
    while !connecting.is_finished() {
        owner.progress(MS);
    }
    let (user, peer) = connecting.join().unwrap();
    (owner, user, peer)
}

#[test]
fn memory_is_withdrawn_only_after_its_reader_has_released_it() {
    let (mut owner, mut reader, peer) = connected_pair();
    let memory = BulkMemory::plain(vec![1; 1000]);
    let handle = owner.register_memory(&memory, Rights::Read).unwrap();
    let reading = std::thread::spawn(move || {
        let ours = BulkMemory::plain(vec![0; 1000]);
        reader.pull(peer, &handle, &ours, BulkPart::new(1000)).unwrap();
        assert_eq!(reader.bulk_path(peer, &handle), Some(BulkPath::Process));
        reader
    });
    while !reading.is_finished() {
        owner.progress(MS);
    }
    let mut reader = reading.join().unwrap();
    let early = owner.withdraw_memory(&handle, Duration::ZERO);
    assert_eq!(early, Err(WithdrawError::InUse { peers_count: 1 }));
    let memory = memory.into_vecs().expect_err("the peer may be reading");
    reader.progress(LIVENESS);
    assert_eq!(owner.withdraw_memory(&handle, LIVENESS), Ok(()));
    assert!(memory.into_vecs().is_ok());
}

#[test]
fn peer_that_pushes_in_a_loop_releases_memory_when_it_is_withdrawn() {
    const BYTES: usize = 1 << 16;
    for memory in [BulkMemory::plain(vec![0; BYTES]), BulkMemory::shared(BYTES).unwrap()] {
        let (mut owner, mut writer, peer) = connected_pair();
        let handle = owner.register_memory(&memory, Rights::ReadWrite).unwrap();
        let (began, pushed) = std::sync::mpsc::channel();
        let pushing = std::thread::spawn(move || {
            let ours = BulkMemory::plain(vec![1; BYTES]);
            let (start, mut result) = (Instant::now(), Ok(()));
            while result.is_ok() && start.elapsed() < LIVENESS {
                result = writer.push(peer, &handle, &ours, BulkPart::new(BYTES as u64));
                let _ = began.send(());
            }
            result
        });
        // Only the first push exchanges messages.
        let mut pushes_count = 0;
        while pushes_count < 100 {
            owner.progress(MS);
            pushes_count += pushed.try_iter().count();
        }
        assert_eq!(owner.withdraw_memory(&handle, LIVENESS / 2), Ok(()));
        while !pushing.is_finished() {
            owner.progress(MS);
        }
        assert_eq!(pushing.join().unwrap(), Err(BulkRefusal::Unknown.into()));
    }
}

#[test]
fn disconnected_peer_releases_memory_that_it_may_write() {
    let way = &ways()[0];
    let mut server = Server::new(way);
    let (mut client, peer) = server.client(way);
    let memory = BulkMemory::plain(vec![1; 1000]);
    let handle = client.register_memory(&memory, Rights::Write).unwrap();
    let asked = (forged(&handle, |_| ()), 1000u64, false);
    // Pulling is not allowed, so nothing is written; but the peer has attached the memory.
    client.call::<_, u8>(peer, Method::new("turn-over"), &asked).unwrap_err();
    client.disconnect(peer);
    // A dropped endpoint waits only briefly for its peers to hang up.
    let mut other = server.take_over();
    let began = Instant::now();
    while other.stats().peers_count > 0 {
        other.progress(MS);
        assert!(began.elapsed() < LIVENESS, "the peer does not hang up");
    }
    drop(client);
    assert_eq!(memory.into_vecs().expect("the peer has hung up"), [vec![1; 1000]]);
}

#[test]
fn peers_with_writable_memory_of_each_other_close_without_waiting() {
    let way = &ways()[0];
    let mut owner = Endpoint::new(way.config.clone()).unwrap();
    let address = owner.listen(&way.how.parse().unwrap()).unwrap();
    owner.register("turn-over", 0, turn_over).unwrap();
    let lent = BulkMemory::plain(vec![3; 1000]);
    let handle = owner.register_memory(&lent, Rights::ReadWrite).unwrap();
    owner.register("handle", 0, move |_, ()| Ok(handle)).unwrap();
    let stopper = owner.stopper();
    let serving = std::thread::spawn(move || {
        owner.serve();
        owner
    });
    let mut client = Endpoint::new(way.config.clone()).unwrap();
    let peer = client.connect(&address).unwrap();
    let memory = BulkMemory::plain(vec![1; 1000]);
    let ours = client.register_memory(&memory, Rights::ReadWrite).unwrap();
    client.call::<_, u8>(peer, Method::new("turn-over"), &(ours, 1000u64, false)).unwrap();
    let theirs: BulkHandle = client.call(peer, HANDLE, &()).unwrap();
    client.push(peer, &theirs, &memory, BulkPart::new(1000)).unwrap();
    stopper.stop();
    let mut owner = serving.join().unwrap();
    // Each side disconnects before it has read the other's disconnection.
    let at_owner = owner.peers().next().unwrap();
    assert!(owner.disconnect(at_owner) && client.disconnect(peer));
    drop((owner, client));
    assert_eq!(lent.into_vecs().expect("the client is gone"), [vec![!1; 1000]]);
    assert_eq!(memory.into_vecs().expect("the owner is gone"), [vec![!1; 1000]]);
}

#[test]
fn denied_attachments_are_remembered_up_to_a_limit() {
    let config = Config::default().bulk(BulkConfig::default().uses_process_vm(false));
    let mut owner = Endpoint::new(config.clone()).unwrap();
    let address = owner.listen(&"sm://".parse().unwrap()).unwrap();
    let owned = |number: u32| BulkMemory::plain(vec![number as u8; 1]);
    let handles: Vec<_> = (0..4200)
        .map(|number| owner.register_memory(&owned(number), Rights::Read).unwrap())
        .collect();
    let stopper = owner.stopper();
    let serving = std::thread::spawn(move || owner.serve());
    let mut client = Endpoint::new(config).unwrap();
    let peer = client.connect(&address).unwrap();
    let ours = BulkMemory::plain(vec![0]);
    for (number, handle) in handles.iter().enumerate() {
        client.pull(peer, handle, &ours, BulkPart::new(1)).unwrap();
        assert_eq!(ours.to_vec(), [number as u8]);
    }
    let paths = [&handles[0], &handles[4199]].map(|it| client.bulk_path(peer, it));
    assert_eq!(paths, [None, Some(BulkPath::Messages)]);
    assert_eq!(client.pull(peer, &handles[0], &ours, BulkPart::new(1)), Ok(()));
    assert_eq!((ours.to_vec(), client.bulk_stats().denied_count), (vec![0], 4201));
    stopper.stop();
    serving.join().unwrap();
}
