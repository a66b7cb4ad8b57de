//! Tests of transfers in halves, of which each side copies one.

#[path = "../raw/deny.rs"]
mod deny;

use handover_rpc::{
    Bulk, BulkConfig, BulkError, BulkHandle, BulkMemory, BulkPart, BulkRefusal, BulkStats, Calling,
    Config, Endpoint, Method, Peer, Rights, Stopper,
};
use std::thread::JoinHandle;
use std::time::Duration;

const BYTES: usize = 5 << 20;

/// Owner of memory, which serves in its own thread.
struct Owner {
    memory: BulkMemory,
    handle: BulkHandle,
    stopper: Stopper,
    thread: Option<JoinHandle<Endpoint>>,
}

impl Owner {
    fn end(&mut self) -> Endpoint {
        self.stopper.stop();
        self.thread.take().expect("it serves").join().expect("no panic")
    }
}

fn pattern(side: u8) -> Vec<u8> {
    (0..BYTES as u32).map(|at| (at / 7) as u8 ^ side).collect()
}

fn filled(memory: BulkMemory, side: u8) -> BulkMemory {
    memory.write(0, &pattern(side));
    memory
}

/// Allocates memory that the peer must let the kernel copy if `is_plain`, and can map otherwise.
fn allocate(is_plain: bool) -> BulkMemory {
    match is_plain {
        true => BulkMemory::plain(vec![0; BYTES]),
        false => BulkMemory::shared(BYTES).unwrap(),
    }
}

fn meet(address: &str, memory: BulkMemory, rights: Rights) -> (Owner, Endpoint, Peer) {
    meet_configured([Config::default(), Config::default()], address, memory, rights)
}

/// Starts an owner with the first configuration, and connects an endpoint with the second one.
fn meet_configured(
    [owner, mover]: [Config; 2],
    address: &str,
    memory: BulkMemory,
    rights: Rights,
) -> (Owner, Endpoint, Peer) {
    let mut owner = Endpoint::new(owner).unwrap();
    let address = owner.listen(&address.parse().unwrap()).unwrap();
    let handle = owner.register_memory(&memory, rights).unwrap();
    owner.register("noop", 0, |_, ()| Ok(())).unwrap();
    let stopper = owner.stopper();
    let thread = std::thread::spawn(move || {
        owner.serve();
        owner
    });
    let mut mover = Endpoint::new(mover).unwrap();
    let peer = mover.connect(&address).unwrap();
    (Owner { memory, handle, stopper, thread: Some(thread) }, mover, peer)
}

fn without_process_vm() -> Config {
    Config::default().bulk(BulkConfig::default().uses_process_vm(false))
}

/// Length and offsets of a part; none of them is a multiple of a page.
const PART_BYTES: usize = 3_000_001;
const THEIRS: usize = 77;
const OURS: usize = 5;

fn part(handle: &BulkHandle) -> BulkPart {
    BulkPart::new(PART_BYTES as u64).offsets(THEIRS as u64, OURS as u64).halved(handle)
}

/// Returns the mover's memory after a pull of that part.
fn pulled() -> Vec<u8> {
    let mut bytes = pattern(2);
    bytes[OURS..OURS + PART_BYTES].copy_from_slice(&pattern(1)[THEIRS..THEIRS + PART_BYTES]);
    bytes
}

/// Pulls a part and pushes the whole memory, in halves. Checks that all bytes have arrived, and
/// returns their number.
fn pull_and_push(
    (owner, mover, peer): (&Owner, &mut Endpoint, Peer),
    ours: &BulkMemory,
    handle: &BulkHandle,
) -> u64 {
    mover.pull(peer, &owner.handle, ours, part(handle)).unwrap();
    assert!(ours.to_vec() == pulled());
    let all = BulkPart::new(BYTES as u64).halved(handle);
    mover.push(peer, &owner.handle, ours, all).unwrap();
    assert!(owner.memory.to_vec() == pulled());
    (PART_BYTES + BYTES) as u64
}

/// Checks that the two numbers are the halves of `bytes`, except for a few pages.
fn assert_are_halves(one: u64, other: u64, bytes: u64) {
    assert_eq!(one + other, bytes);
    assert!(one.abs_diff(other) < bytes / 50, "halves: {one} and {other}");
}

fn each_peer_copies_a_half(owner_is_plain: bool, mover_is_plain: bool) {
    let memory = filled(allocate(owner_is_plain), 1);
    let (mut owner, mut mover, peer) = meet("sm://", memory, Rights::ReadWrite);
    let ours = filled(allocate(mover_is_plain), 2);
    let handle = mover.register_memory(&ours, Rights::ReadWrite).unwrap();
    let moved = pull_and_push((&owner, &mut mover, peer), &ours, &handle);
    let many: Vec<_> = (0..4u64)
        .map(|at| {
            let part = BulkPart::new(1 << 20).offsets(at << 20, at << 20).halved(&handle);
            mover.start_push(peer, &owner.handle, &ours, part).unwrap()
        })
        .collect();
    for transfer in many {
        assert_eq!(mover.wait_transfer(transfer), Ok(()));
    }
    // Otherwise each endpoint would wait for the other one to release its memory.
    mover.disconnect(peer);
    let copied = |stats: BulkStats, is_plain| match is_plain {
        true => stats.process_bytes,
        false => stats.mapped_bytes,
    };
    let own = copied(mover.bulk_stats(), owner_is_plain);
    let its = copied(owner.end().bulk_stats(), mover_is_plain);
    assert_are_halves(own, its, moved + (4 << 20));
}

#[test]
fn each_peer_copies_a_half_and_all_bytes_arrive() {
    each_peer_copies_a_half(false, false);
}

#[test]
fn each_peer_copies_a_half_of_plain_memory() {
    for (owner_is_plain, mover_is_plain) in [(true, true), (true, false), (false, true)] {
        each_peer_copies_a_half(owner_is_plain, mover_is_plain);
    }
}

#[test]
fn peer_that_cannot_access_the_memory_sends_its_half_in_messages() {
    let configs = [without_process_vm(), Config::default()];
    let memory = filled(allocate(true), 1);
    let (mut owner, mut mover, peer) = meet_configured(configs, "sm://", memory, Rights::ReadWrite);
    let ours = filled(allocate(true), 2);
    let handle = mover.register_memory(&ours, Rights::ReadWrite).unwrap();
    let moved = pull_and_push((&owner, &mut mover, peer), &ours, &handle);
    mover.disconnect(peer);
    let (own, its) = (mover.bulk_stats(), owner.end().bulk_stats());
    assert_are_halves(own.process_bytes, own.message_bytes, moved);
    assert_eq!((its.process_bytes, its.message_bytes), (0, own.message_bytes));
}

#[test]
fn own_half_goes_in_messages_if_the_kernel_revokes_the_access() {
    for pushes in [false, true] {
        // In a thread of its own, which keeps the filter until its end.
        let moving = std::thread::spawn(move || {
            let memory = filled(allocate(true), 1);
            let (mut owner, mut mover, peer) = meet("sm://", memory, Rights::ReadWrite);
            let ours = filled(allocate(true), 2);
            let handle = mover.register_memory(&ours, Rights::ReadWrite).unwrap();
            // Attaches the memory, and changes nothing.
            mover.push(peer, &owner.handle, &filled(allocate(true), 1), BulkPart::new(8)).unwrap();
            deny::process_copies().unwrap();
            // The access is denied to the first transfer; the second one is under way.
            let last = BulkPart::new(1 << 20).offsets(4 << 20, 4 << 20).halved(&handle);
            let transfers = [part(&handle), last].map(|part| match pushes {
                true => mover.start_push(peer, &owner.handle, &ours, part).unwrap(),
                false => mover.start_pull(peer, &owner.handle, &ours, part).unwrap(),
            });
            for transfer in transfers {
                assert_eq!(mover.wait_transfer(transfer), Ok(()));
            }
            let (from, from_at, to, to_at, memory) = match pushes {
                true => (pattern(2), OURS, pattern(1), THEIRS, &owner.memory),
                false => (pattern(1), THEIRS, pattern(2), OURS, &ours),
            };
            let mut expected = to;
            expected[to_at..to_at + PART_BYTES]
                .copy_from_slice(&from[from_at..from_at + PART_BYTES]);
            expected[4 << 20..].copy_from_slice(&from[4 << 20..]);
            assert!(memory.to_vec() == expected);
            mover.disconnect(peer);
            let (own, its) = (mover.bulk_stats(), owner.end().bulk_stats());
            assert_eq!((own.process_bytes, own.denied_count), (8, 1));
            let moved = PART_BYTES as u64 + (1 << 20);
            assert_are_halves(own.message_bytes, its.process_bytes, moved);
        });
        moving.join().unwrap();
    }
}

#[test]
fn half_that_the_peer_refuses_as_full_is_copied_by_this_side() {
    const EACH_BYTES: usize = 1 << 17;
    let memory = filled(allocate(false), 1);
    let (mut owner, mut mover, peer) = meet("sm://", memory, Rights::Read);
    let ours = allocate(false);
    let handle = mover.register_memory(&ours, Rights::Write).unwrap();
    // Attaches the memory while the owner serves. From here on, this thread drives both.
    mover.pull(peer, &owner.handle, &ours, BulkPart::new(8)).unwrap();
    let mut owner_side = owner.end();
    let mut transfers: Vec<_> = (0..20u64)
        .map(|at| {
            let offset = at * EACH_BYTES as u64;
            let part = BulkPart::new(EACH_BYTES as u64).offsets(offset, offset).halved(&handle);
            mover.start_pull(peer, &owner.handle, &ours, part).unwrap()
        })
        .collect();
    // The owner attaches the mover's memory first, and lets 16 halves wait for it.
    while owner_side.bulk_stats().refused_count < 4 {
        owner_side.progress(Duration::ZERO);
    }
    while !transfers.is_empty() {
        owner_side.progress(Duration::ZERO);
        transfers.retain(|&transfer| match mover.test_transfer(transfer) {
            Some(result) => {
                assert_eq!(result, Ok(()));
                false
            }
            None => true,
        });
    }
    assert!(ours.to_vec()[..20 * EACH_BYTES] == pattern(1)[..20 * EACH_BYTES]);
    assert_eq!(owner_side.bulk_stats().mapped_bytes, 16 * EACH_BYTES as u64 / 2);
}

#[test]
fn transfer_that_cannot_be_halved_is_copied_by_one_peer() {
    for (address, is_plain) in [("sm://", true), ("tcp://127.0.0.1:0", false), ("uds://", true)] {
        let configs = [Config::default(), without_process_vm()];
        let memory = filled(allocate(is_plain), 1);
        let (mut owner, mut mover, peer) = meet_configured(configs, address, memory, Rights::Read);
        let ours = allocate(false);
        let handle = mover.register_memory(&ours, Rights::Write).unwrap();
        let part = BulkPart::new(BYTES as u64).halved(&handle);
        mover.pull(peer, &owner.handle, &ours, part).unwrap();
        assert!(ours.to_vec() == pattern(1), "{address}");
        let stats = owner.end().bulk_stats();
        assert_eq!((stats.mapped_bytes, stats.process_bytes), (0, 0), "{address}");
    }
}

#[test]
fn handle_of_other_memory_or_without_the_right_is_refused() {
    let shared = || BulkMemory::shared(BYTES).unwrap();
    let (mut owner, mut mover, peer) = meet("sm://", shared(), Rights::ReadWrite);
    let (ours, other) = (shared(), shared());
    let of_other = mover.register_memory(&other, Rights::ReadWrite).unwrap();
    let for_reading = mover.register_memory(&ours, Rights::Read).unwrap();
    let part = |handle| BulkPart::new(BYTES as u64).halved(handle);
    let pulled = mover.pull(peer, &owner.handle, &ours, part(&of_other));
    assert_eq!(pulled, Err(BulkError::ForeignHandle));
    let pulled = mover.pull(peer, &owner.handle, &ours, part(&owner.handle));
    assert_eq!(pulled, Err(BulkError::ForeignHandle));
    let pulled = mover.pull(peer, &owner.handle, &ours, part(&for_reading));
    assert_eq!(pulled, Err(BulkRefusal::Rights.into()));
    assert_eq!(mover.push(peer, &owner.handle, &ours, part(&for_reading)), Ok(()));
    owner.end();
}

#[test]
fn transfer_times_out_if_the_peer_does_not_copy_its_half() {
    let mut owner = Endpoint::new(Config::default()).unwrap();
    let address = owner.listen(&"sm://".parse().unwrap()).unwrap();
    let memory = filled(BulkMemory::shared(BYTES).unwrap(), 1);
    let its = owner.register_memory(&memory, Rights::Read).unwrap();
    owner.register("noop", 0, |_, ()| Ok(())).unwrap();
    let (to, from) = std::sync::mpsc::channel();
    let mover = std::thread::spawn(move || {
        let mut mover = Endpoint::new(Config::default()).unwrap();
        let peer = mover.connect(&address).unwrap();
        let ours = BulkMemory::shared(BYTES).unwrap();
        let handle = mover.register_memory(&ours, Rights::Write).unwrap();
        // Attaches the memory while the owner serves.
        mover.pull(peer, &its, &ours, BulkPart::new(8)).unwrap();
        mover.call::<_, ()>(peer, Method::new("noop"), &()).unwrap();
        // From here on, the owner does nothing until this side sends to it.
        let part = BulkPart::new(BYTES as u64).halved(&handle);
        let late = mover.pull(peer, &its, &ours, part.timeout(Duration::from_millis(30)));
        assert_eq!(late, Err(BulkError::Deadline));
        to.send(()).unwrap();
        // An answered call shows that the owner has dropped its half.
        mover.call::<_, ()>(peer, Method::new("noop"), &()).unwrap();
        let half = BYTES as u64 / 2;
        ours.write(half, &vec![0xee; BYTES / 2]);
        mover.call::<_, ()>(peer, Method::new("noop"), &()).unwrap();
        assert!(ours.to_vec()[half as usize..].iter().all(|&byte| byte == 0xee));
        mover.pull(peer, &its, &ours, part).unwrap();
        assert!(ours.to_vec() == pattern(1));
        mover.disconnect(peer);
    });
    while owner.stats().requests_count == 0 {
        owner.progress(Duration::from_millis(10));
    }
    from.recv().unwrap();
    while owner.peers().next().is_some() {
        owner.progress(Duration::from_millis(10));
    }
    mover.join().unwrap();
}

#[test]
fn half_of_a_failed_transfer_is_cancelled_at_the_peer() {
    let memory = BulkMemory::shared(BYTES).unwrap();
    let (mut owner, mut mover, peer) = meet("sm://", memory, Rights::Read);
    let ours = BulkMemory::shared(BYTES).unwrap();
    let handle = mover.register_memory(&ours, Rights::Write).unwrap();
    // Attaches the memory while the owner serves. From here on, this thread drives both.
    mover.pull(peer, &owner.handle, &ours, BulkPart::new(8)).unwrap();
    let mut owner_side = owner.end();
    let part = BulkPart::new(BYTES as u64).halved(&handle).timeout(Duration::from_nanos(1));
    let transfer = mover.start_pull(peer, &owner.handle, &ours, part).unwrap();
    assert_eq!(mover.test_transfer(transfer), Some(Err(BulkError::Deadline)));
    let call = mover.start::<_, ()>(peer, Method::new("noop"), &()).unwrap();
    while mover.test(call).is_none() {
        owner_side.progress(Duration::ZERO);
    }
    while owner_side.progress(Duration::from_millis(10)) {}
    assert_eq!(owner_side.bulk_stats().mapped_bytes, 0);
}

#[test]
fn peer_that_disconnects_before_copying_its_half_is_an_error() {
    let (mut owner, mut mover, peer) =
        meet("sm://", BulkMemory::shared(BYTES).unwrap(), Rights::Read);
    let ours = BulkMemory::shared(BYTES).unwrap();
    let handle = mover.register_memory(&ours, Rights::Write).unwrap();
    mover.pull(peer, &owner.handle, &ours, BulkPart::new(8)).unwrap();
    let idle = owner.end();
    let part = BulkPart::new(BYTES as u64).halved(&handle);
    let transfer = mover.start_pull(peer, &owner.handle, &ours, part).unwrap();
    drop(idle);
    let ended = mover.wait_transfer(transfer);
    assert!(matches!(ended, Err(BulkError::Disconnected(_))), "{ended:?}");
}

#[test]
fn owner_that_withdraws_its_memory_stops_copying_its_half() {
    const LONG: u64 = 16 << 20;
    let mut owner = Endpoint::new(Config::default()).unwrap();
    let address = owner.listen(&"sm://".parse().unwrap()).unwrap();
    let memory = BulkMemory::shared(LONG as usize).unwrap();
    let handle = owner.register_memory(&memory, Rights::Read).unwrap();
    let moving = std::thread::spawn(move || {
        let mut mover = Endpoint::new(Config::default()).unwrap();
        let peer = mover.connect(&address).unwrap();
        let ours = BulkMemory::shared(LONG as usize).unwrap();
        let own = mover.register_memory(&ours, Rights::ReadWrite).unwrap();
        mover.pull(peer, &handle, &ours, BulkPart::new(LONG).halved(&own))
    });
    while owner.bulk_stats().mapped_bytes == 0 {
        owner.progress(Duration::from_millis(1));
        assert!(!moving.is_finished());
    }
    assert_eq!(owner.withdraw_memory(&handle, Duration::ZERO), Ok(()));
    assert!(owner.bulk_stats().mapped_bytes < LONG / 2);
    assert!(memory.into_vecs().is_ok(), "nothing is copied from it any more");
    while !moving.is_finished() {
        owner.progress(Duration::from_millis(1));
    }
    assert_eq!(moving.join().unwrap(), Err(BulkError::Refused(BulkRefusal::Unknown)));
}
