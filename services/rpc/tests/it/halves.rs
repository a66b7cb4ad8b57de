//! Tests of transfers in halves, of which each side copies one.

use handover_rpc::{
    Bulk, BulkError, BulkHandle, BulkMemory, BulkPart, BulkRefusal, Calling, Config, Endpoint,
    Method, Peer, Rights, Stopper,
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

fn meet(address: &str, memory: BulkMemory, rights: Rights) -> (Owner, Endpoint, Peer) {
    let mut owner = Endpoint::new(Config::default()).unwrap();
    let address = owner.listen(&address.parse().unwrap()).unwrap();
    let handle = owner.register_memory(&memory, rights).unwrap();
    owner.register("noop", 0, |_, ()| Ok(())).unwrap();
    let stopper = owner.stopper();
    let thread = std::thread::spawn(move || {
        owner.serve();
        owner
    });
    let mut mover = Endpoint::new(Config::default()).unwrap();
    let peer = mover.connect(&address).unwrap();
    (Owner { memory, handle, stopper, thread: Some(thread) }, mover, peer)
}

#[test]
fn each_peer_copies_a_half_and_all_bytes_arrive() {
    let shared = || BulkMemory::shared(BYTES).unwrap();
    let (mut owner, mut mover, peer) = meet("sm://", filled(shared(), 1), Rights::ReadWrite);
    let ours = filled(shared(), 2);
    let handle = mover.register_memory(&ours, Rights::ReadWrite).unwrap();
    // A length and offsets that are not multiples of a page; then the whole memory.
    let part = BulkPart::new(3_000_001).offsets(77, 5).halved(&handle);
    mover.pull(peer, &owner.handle, &ours, part).unwrap();
    let mut expected = pattern(2);
    expected[5..5 + 3_000_001].copy_from_slice(&pattern(1)[77..77 + 3_000_001]);
    assert!(ours.to_vec() == expected);
    let all = BulkPart::new(BYTES as u64).halved(&handle);
    mover.push(peer, &owner.handle, &ours, all).unwrap();
    assert!(owner.memory.to_vec() == expected);

    let many: Vec<_> = (0..4u64)
        .map(|at| {
            let part = BulkPart::new(1 << 20).offsets(at << 20, at << 20).halved(&handle);
            mover.start_push(peer, &owner.handle, &ours, part).unwrap()
        })
        .collect();
    for transfer in many {
        assert_eq!(mover.wait_transfer(transfer), Ok(()));
    }
    let owner_side = owner.end();
    let mut owner_side = owner_side;
    let (its, own) = (owner_side.bulk_stats().mapped_bytes, mover.bulk_stats().mapped_bytes);
    let moved = 3_000_001 + BYTES as u64 + (4 << 20);
    assert_eq!(its + own, moved);
    assert!(its.abs_diff(own) < moved / 50, "halves: {its} and {own}");
}

#[test]
fn transfer_that_cannot_be_halved_is_copied_by_one_peer() {
    for (address, memory) in [
        ("sm://", BulkMemory::plain(vec![0; BYTES])),
        ("tcp://127.0.0.1:0", BulkMemory::shared(BYTES).unwrap()),
        ("uds://", BulkMemory::plain(vec![0; BYTES])),
    ] {
        let (mut owner, mut mover, peer) = meet(address, filled(memory, 1), Rights::Read);
        let ours = BulkMemory::shared(BYTES).unwrap();
        let handle = mover.register_memory(&ours, Rights::Write).unwrap();
        let part = BulkPart::new(BYTES as u64).halved(&handle);
        mover.pull(peer, &owner.handle, &ours, part).unwrap();
        assert!(ours.to_vec() == pattern(1), "{address}");
        assert_eq!(owner.end().bulk_stats().mapped_bytes, 0);
    }
    // This side's memory cannot be mapped: the peer copies its half through the kernel or by messages.
    let shared = filled(BulkMemory::shared(BYTES).unwrap(), 1);
    let (mut owner, mut mover, peer) = meet("sm://", shared, Rights::Read);
    let ours = BulkMemory::plain(vec![0; BYTES]);
    let handle = mover.register_memory(&ours, Rights::Write).unwrap();
    let part = BulkPart::new(BYTES as u64).halved(&handle);
    mover.pull(peer, &owner.handle, &ours, part).unwrap();
    assert!(ours.to_vec() == pattern(1));
    assert!(owner.end().bulk_stats().process_bytes > 0);
}

#[test]
fn half_that_the_peer_refuses_as_full_is_copied_by_this_side() {
    const EACH_BYTES: usize = 1 << 17;
    let memory = filled(BulkMemory::shared(BYTES).unwrap(), 1);
    let (mut owner, mut mover, peer) = meet("sm://", memory, Rights::Read);
    let ours = BulkMemory::shared(BYTES).unwrap();
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
