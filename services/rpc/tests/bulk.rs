//! Bulk transfers, over each transport and by each path, of every kind of memory.

use handover_rpc::{
    Address, Bulk, BulkHandle, BulkMemory, BulkPart, BulkPath, Calling, Config, Context, Endpoint,
    Failure, Method, Peer, Rights, Stopper,
};
use std::thread::JoinHandle;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A way to go, and by which path memory of either kind is reached then.
struct Way {
    how: &'static str,
    config: Config,
    shared: BulkPath,
    plain: BulkPath,
}

fn ways() -> Vec<Way> {
    let way = |how, config, shared, plain| Way { how, config, shared, plain };
    let usual = Config { streamed_bytes_min: 1 << 18, ..Config::default() };
    let (mapped, process, messages) = (BulkPath::Mapped, BulkPath::Process, BulkPath::Messages);
    let blind = Config { bulk_looks_into_processes: false, ..usual.clone() };
    let strict = Config { bulk_maps: false, ..usual.clone() };
    let small = Config { message_bytes_max: 64, shared_bytes: 4096, ..strict.clone() };
    vec![
        way("sm://", usual.clone(), mapped, process),
        way("sm://", blind, mapped, messages),
        way("sm://", strict, messages, messages),
        way("sm://", small.clone(), messages, messages),
        way("uds://", usual.clone(), messages, messages),
        way("tcp://127.0.0.1:0", usual, messages, messages),
        way("tcp://127.0.0.1:0", small, messages, messages),
    ]
}

/// An endpoint that owns nothing and does what it is told with others' memory.
struct Server {
    address: Address,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
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
        let stopper = server.stopper();
        let thread = Some(std::thread::spawn(move || server.serve()));
        Self { address, stopper, thread }
    }

    fn client(&self, way: &Way) -> (Endpoint, Peer) {
        let mut client = Endpoint::new(way.config.clone()).unwrap();
        let peer = client.connect(&self.address).unwrap();
        (client, peer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking(), "the server panicked");
    }
}

/// Pulls all of it in pieces, many at a time, and pushes it back with every byte inverted. By which path.
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
        starts.map(|at| BulkPart::of(piece.min(bytes - at)).at(at, at))
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
        None => 3,
    })
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
}

#[test]
fn memory_of_every_kind_is_pulled_and_pushed_over_every_transport() {
    for way in ways() {
        let server = Server::new(&way);
        let (mut client, peer) = server.client(&way);
        for (bytes, piece) in [(1, 1), (4096, 4096), (100_003, 10_007), (3 << 20, 3 << 20)] {
            if way.config.message_bytes_max < 1000 && bytes > 10_000 {
                continue; // Thousands of messages.
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
                let turn_over = Method::named("turn-over");
                let asked = (handle, piece as u64, kind == "shared");
                let path: u8 = client.call(peer, turn_over, &asked).unwrap();
                let path = [BulkPath::Mapped, BulkPath::Process, BulkPath::Messages][path as usize];
                assert_eq!(path, expected, "{} {kind} {:?}", way.how, way.config);
                let inverted: Vec<u8> = sent.iter().map(|byte| !byte).collect();
                assert!(memory.to_vec() == inverted, "{} {kind} {bytes}", way.how);
                assert_eq!(client.withdraw_memory(&handle, SECOND), Ok(()));
                let back = memory.into_vecs().expect("nobody uses it any more");
                assert_eq!(back.concat(), inverted);
            }
        }
    }
}
