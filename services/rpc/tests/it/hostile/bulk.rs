//! Tests with lies about memory: handles, rights, offsets, lengths, files and addresses.

use super::peers::*;
use handover_rpc::engine::{
    BulkMessage, CheckWord, FileId, FrameHeader, FrameKind, HelpRequest, SegmentLocation,
    TRANSFER_NUMBER_LIMIT,
};
use handover_rpc::{
    Bulk, BulkConfig, BulkError, BulkHandle, BulkMemory, BulkPart, BulkPath, BulkRefusal,
    CloseReason, Config, ConnectionsConfig, Endpoint, FrameError, Peer, Rights, WithdrawError,
};
use rustix::fs::{SealFlags, fstat};
use rustix::io::Errno;
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

const LENT_BYTES: usize = 1000;
/// Bit in the numbers of data frames that belong to a push.
const PUSH_NUMBER_BIT: u64 = TRANSFER_NUMBER_LIMIT;

/// Server that lends memory: one readable, one writable.
struct Lender {
    house: House,
    read: BulkHandle,
    write: BulkHandle,
    written: BulkMemory,
}

impl Lender {
    fn new(how: &str) -> Self {
        Self::configured(how, Config::default())
    }

    fn configured(how: &str, config: Config) -> Self {
        let pattern: Vec<u8> = (0..LENT_BYTES).map(|at| at as u8).collect();
        let (read, written) = (BulkMemory::plain(pattern), BulkMemory::plain(vec![9; LENT_BYTES]));
        let mut handles = Vec::new();
        let house = House::configured(how, config, |server| {
            for (memory, rights) in [(&read, Rights::Read), (&written, Rights::Write)] {
                handles.push(server.register_memory(memory, rights).unwrap());
            }
        });
        Self { house, read: handles[0], write: handles[1], written }
    }

    fn stranger(&self, how: &str) -> Box<dyn Raw> {
        match how.starts_with("sm") {
            true => Box::new(Hostile::welcomed(&self.house.place)),
            false => Box::new(Wire::welcomed(&self.house.place)),
        }
    }

    /// Returns `true` if the writable memory is unchanged outside of `from..to`.
    fn is_untouched_outside(&self, from: usize, to: usize) -> bool {
        let bytes = self.written.to_vec();
        bytes[..from].iter().chain(&bytes[to..]).all(|it| *it == 9)
    }
}

const EACH: [&str; 2] = ["tcp://127.0.0.1:0", "sm://"];

#[test]
fn whoever_lies_about_handles_rights_and_places_is_refused_and_served_on() {
    for how in EACH {
        let mut lender = Lender::new(how);
        let mut stranger = lender.stranger(how);
        let (read, write) = (lender.read, lender.write);
        let (unknown, rights, outside) =
            (BulkRefusal::Unknown, BulkRefusal::Rights, BulkRefusal::Outside);
        let end = LENT_BYTES as u64;
        let reads = [
            (forged(&read, |it| it.0 += 100), 0, 1, unknown),
            (forged(&read, |it| it.0 = u64::MAX), 0, 1, unknown),
            (forged(&read, |it| it.1 ^= 1 << 127), 0, 1, unknown),
            (forged(&read, |it| it.2 *= 2), 0, 2 * end, outside),
            (forged(&read, |it| it.2 = u64::MAX), 0, 1, outside),
            (forged(&read, |it| it.3 = Rights::ReadWrite), 0, 1, rights),
            (write, 0, 1, rights),
            (forged(&write, |it| it.3 = Rights::Read), 0, 1, rights),
            (read, end, 1, outside),
            (read, 1, end, outside),
            (read, u64::MAX, 1, outside),
            (read, u64::MAX, u64::MAX, outside),
            (read, 1, u64::MAX, outside),
        ];
        for (number, (handle, offset, bytes, why)) in reads.into_iter().enumerate() {
            let transfer = number as u64;
            stranger.says(&BulkMessage::Read { transfer, handle, offset, bytes });
            let refused = BulkMessage::Refused { transfer, why };
            assert_eq!(stranger.hears_bulk(), Some(refused), "{how} read {number}");
        }
        let writes = [
            (read, 0, 1, rights),
            (forged(&read, |it| it.3 = Rights::Write), 0, 1, rights),
            (forged(&write, |it| it.1 += 1), 0, 1, unknown),
            (write, end - 9, 10, outside),
            (write, u64::MAX - 8, 10, outside),
        ];
        for (number, (handle, offset, bytes, why)) in writes.into_iter().enumerate() {
            let transfer = 1000 + number as u64;
            stranger.says(&BulkMessage::Write { transfer, handle, offset, bytes });
            // The stranger does not wait for the answer.
            stranger.say(FrameKind::Data, 0, transfer | PUSH_NUMBER_BIT, &vec![1; bytes as usize]);
            let refused = BulkMessage::Refused { transfer, why };
            assert_eq!(stranger.hears_bulk(), Some(refused), "{how} write {number}");
        }
        assert!(lender.is_untouched_outside(0, 0), "{how}");
        stranger.says(&BulkMessage::Read { transfer: 5, handle: read, offset: 990, bytes: 10 });
        let (header, body) = stranger.hears().expect("data");
        assert_eq!((header.kind, header.method, header.call), (FrameKind::Data, 0, 5));
        assert!(body.iter().copied().eq((990..1000u32).map(|at| at as u8)));
        stranger.says(&BulkMessage::Write { transfer: 6, handle: write, offset: 10, bytes: 5 });
        stranger.say(FrameKind::Data, 0, 6 | PUSH_NUMBER_BIT, &[7; 5]);
        assert_eq!(stranger.hears_bulk(), Some(BulkMessage::Done { transfer: 6 }));
        assert_eq!(lender.written.to_vec()[10..15], [7; 5]);
        assert!(lender.is_untouched_outside(10, 15), "{how}");
        stranger.is_served();
        lender.house.is_in_order();
    }
}

#[test]
fn whoever_sends_other_data_than_was_agreed_on_is_disconnected() {
    type Lie = fn(&mut dyn Raw, BulkHandle);
    fn data(raw: &mut dyn Raw, offset: u64, bytes: usize) {
        raw.say(FrameKind::Data, offset, 7 | PUSH_NUMBER_BIT, &vec![1; bytes]);
    }
    let lies: [(&str, Lie); 14] = [
        ("not from its beginning", |raw, _| data(raw, 1, 10)),
        ("far outside", |raw, _| data(raw, u64::MAX, 1)),
        ("where counting begins again", |raw, _| data(raw, u64::MAX - 49, 100)),
        ("too much", |raw, _| data(raw, 0, 101)),
        ("the same twice", |raw, _| {
            data(raw, 0, 60);
            data(raw, 0, 60);
        }),
        ("a gap", |raw, _| {
            data(raw, 0, 60);
            data(raw, 61, 39);
        }),
        ("nothing", |raw, _| data(raw, 0, 0)),
        ("the same transfer once more", |raw, handle| {
            raw.says(&BulkMessage::Write { transfer: 7, handle, offset: 10, bytes: 100 });
        }),
        ("a number that there is not", |raw, handle| {
            let transfer = TRANSFER_NUMBER_LIMIT;
            raw.says(&BulkMessage::Read { transfer, handle, offset: 0, bytes: 1 });
        }),
        ("memory that nobody has asked for", |raw, handle| {
            let check_word = CheckWord { address: 0, word: 0 };
            raw.says(&BulkMessage::Attached {
                id: handle_id(&handle),
                segments: vec![],
                check_word,
            });
        }),
        ("a refusal that nobody has asked for", |raw, handle| {
            let why = BulkRefusal::Unknown;
            raw.says(&BulkMessage::AttachRefused { id: handle_id(&handle), why });
        }),
        ("no word at all", |raw, _| raw.say(FrameKind::Bulk, 0, 0, &[0xff; 40])),
        ("an empty word", |raw, _| raw.say(FrameKind::Bulk, 0, 0, &[])),
        ("more behind a word", |raw, _| {
            let word = BulkMessage::Cancel { transfer: 1 }.encode(Vec::new());
            raw.say(FrameKind::Bulk, 0, 0, &[&word[..], &[0]].concat());
        }),
    ];
    for how in EACH {
        let mut lender = Lender::new(how);
        for (name, lie) in lies {
            let mut stranger = lender.stranger(how);
            let handle = lender.write;
            stranger.says(&BulkMessage::Write { transfer: 7, handle, offset: 10, bytes: 100 });
            lie(&mut *stranger, handle);
            assert!(stranger.is_disconnected(), "{how}: {name}");
        }
        if how.starts_with("tcp") {
            // Memory cannot be attached over a stream.
            let mut stranger = lender.stranger(how);
            stranger.says(&BulkMessage::Attach(lender.read));
            assert!(stranger.is_disconnected());
        }
        assert!(lender.is_untouched_outside(10, 110), "{how}");
        lender.house.is_in_order();
    }
}

fn handle_id(handle: &BulkHandle) -> u64 {
    let mut id = 0;
    forged(handle, |it| id = it.0);
    id
}

#[test]
fn words_about_what_there_is_not_change_nothing() {
    for how in EACH {
        let mut lender = Lender::new(how);
        let mut stranger = lender.stranger(how);
        let (transfer, why) = (5, BulkRefusal::Full);
        for call in [5, 5 | PUSH_NUMBER_BIT, u64::MAX] {
            stranger.say(FrameKind::Data, 0, call, &[1; 200]);
        }
        stranger.says(&BulkMessage::Cancel { transfer });
        stranger.says(&BulkMessage::Done { transfer });
        stranger.says(&BulkMessage::Refused { transfer, why });
        stranger.says(&BulkMessage::Detached { id: 0 });
        stranger.says(&BulkMessage::Detached { id: u64::MAX });
        stranger.say(FrameKind::Cancel, 0, 5, &[]);
        stranger.is_served();
        assert!(lender.is_untouched_outside(0, 0), "{how}");
        lender.house.is_in_order();
    }
}

/// Lets a client pull a range from a hostile owner. Returns the result, and the target range of the
/// client's memory. Checks that the rest of the memory is unchanged.
fn pulled(hostile: impl FnOnce(Wire) + Send + 'static) -> (Result<(), BulkError>, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let owner = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        hostile(Wire::visited(stream));
    });
    let mut client = Endpoint::new(Config::default()).unwrap();
    let peer = client.connect(&address.parse().unwrap()).unwrap();
    let handle = made_up((1, 2, 500, Rights::ReadWrite));
    let ours = BulkMemory::plain(vec![9; 300]);
    let outcome = client.pull(peer, &handle, &ours, BulkPart::new(100).offsets(50, 100));
    drop(client);
    owner.join().unwrap();
    let bytes = ours.to_vec();
    assert!(bytes[..100].iter().chain(&bytes[200..]).all(|it| *it == 9), "outside of the piece");
    (outcome, bytes[100..200].to_vec())
}

/// Reads the client's request, and returns its transfer number.
fn asked(wire: &mut Wire) -> u64 {
    match wire.hears_bulk() {
        Some(BulkMessage::Read { transfer, offset: 50, bytes: 100, .. }) => transfer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_owner_that_sends_other_data_than_was_asked_for_is_left() {
    type Lie = fn(&mut Wire, u64);
    let lies: [(&str, Lie); 6] = [
        ("more than was asked for", |wire, call| wire.say(FrameKind::Data, 0, call, &[1; 101])),
        ("not from its beginning", |wire, call| wire.say(FrameKind::Data, 50, call, &[1; 100])),
        ("far outside", |wire, call| wire.say(FrameKind::Data, u64::MAX - 99, call, &[1; 100])),
        ("the same twice", |wire, call| {
            wire.say(FrameKind::Data, 0, call, &[1; 60]);
            wire.say(FrameKind::Data, 0, call, &[1; 60]);
        }),
        ("done, and nothing was sent", |wire, transfer| {
            wire.says(&BulkMessage::Done { transfer });
        }),
        ("memory of an address, on a stream", |wire, _| {
            let check_word = CheckWord { address: 0, word: 0 };
            let segments = vec![SegmentLocation::Process { address: 4096, bytes: 500 }];
            wire.says(&BulkMessage::Attached { id: 1, segments, check_word });
        }),
    ];
    for (name, lie) in lies {
        let (outcome, _) = pulled(move |mut wire| {
            let transfer = asked(&mut wire);
            lie(&mut wire, transfer);
            assert!(wire.is_disconnected(), "{name}");
        });
        let refused = CloseReason::Protocol(FrameError::Bulk);
        assert_eq!(outcome, Err(BulkError::Disconnected(refused)), "{name}");
    }
}

#[test]
fn data_of_other_transfers_does_not_count_and_a_refusal_does() {
    let (outcome, came) = pulled(|mut wire| {
        let transfer = asked(&mut wire);
        for other in [transfer + 1, transfer | PUSH_NUMBER_BIT, transfer | 1 << 40, u64::MAX] {
            wire.say(FrameKind::Data, 0, other, &[66; 100]);
        }
        wire.say(FrameKind::Data, 0, transfer, &[5; 99]);
        wire.say(FrameKind::Data, 99, transfer, &[6; 1]);
        assert!(wire.is_disconnected());
    });
    assert_eq!(outcome, Ok(()));
    assert_eq!((&came[..99], came[99]), (&[5; 99][..], 6));
    let (outcome, _) = pulled(|mut wire| {
        let transfer = asked(&mut wire);
        wire.say(FrameKind::Data, 0, transfer, &[5; 50]);
        wire.says(&BulkMessage::Refused { transfer, why: BulkRefusal::Unknown });
        // Data of a refused transfer is a violation.
        wire.say(FrameKind::Data, 50, transfer, &[6; 50]);
        assert!(wire.is_disconnected());
    });
    assert_eq!(outcome, Err(BulkError::Refused(BulkRefusal::Unknown)));
}

#[test]
fn an_owner_that_has_received_what_was_not_sent_yet_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let owner = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut wire = Wire::visited(stream);
        let Some(BulkMessage::Write { transfer, .. }) = wire.hears_bulk() else { panic!() };
        wire.says(&BulkMessage::Done { transfer });
        assert!(wire.is_disconnected());
    });
    let mut client = Endpoint::new(Config::default()).unwrap();
    let peer = client.connect(&address.parse().unwrap()).unwrap();
    // More than the kernel takes while nobody reads.
    let bytes = 64 << 20;
    let handle = made_up((1, 2, bytes, Rights::Write));
    let ours = BulkMemory::plain(vec![9; bytes as usize]);
    let outcome = client.push(peer, &handle, &ours, BulkPart::new(bytes));
    assert_eq!(outcome, Err(BulkError::Disconnected(CloseReason::Protocol(FrameError::Bulk))));
    owner.join().unwrap();
    assert_eq!(ours.into_vecs().expect("it is not sent any more").len(), 1);
}

/// Passes a file to the server, and returns a location that announces it with `told_bytes` bytes.
fn pass_file(
    hostile: &mut Hostile,
    bytes: u64,
    seals: SealFlags,
    told_bytes: u64,
) -> SegmentLocation {
    let file = memory(bytes, seals);
    let stat = fstat(&file).unwrap();
    pass(&hostile.socket, b"!", file.as_fd());
    let file = FileId { device: stat.st_dev, inode: stat.st_ino };
    SegmentLocation::File { bytes: told_bytes, file }
}

/// Lets an endpoint pull from a hostile owner in shared memory. Returns the result and the path.
fn attached(
    hostile: impl FnOnce(Hostile) + Send + 'static,
) -> (Result<(), BulkError>, Option<BulkPath>) {
    transferred(Endpoint::pull, hostile)
}

/// [`Bulk::pull`] or [`Bulk::push`].
type Transferring =
    fn(&mut Endpoint, Peer, &BulkHandle, &BulkMemory, BulkPart) -> Result<(), BulkError>;

/// Lets an endpoint pull from a hostile owner in shared memory, or push to it.
fn transferred(
    transferring: Transferring,
    hostile: impl FnOnce(Hostile) + Send + 'static,
) -> (Result<(), BulkError>, Option<BulkPath>) {
    let mut client = Endpoint::new(Config::default()).unwrap();
    let address = client.listen(&"sm://".parse().unwrap()).unwrap();
    let place = address.without_scheme().to_string();
    let owner = std::thread::spawn(move || hostile(Hostile::welcomed(&place)));
    let began = Instant::now();
    while client.stats().peers_count == 0 && began.elapsed() < SOON {
        client.progress(Duration::from_millis(10));
    }
    let peer = client.peers().next().expect("it has come");
    let handle = made_up((1, 2, 500, Rights::ReadWrite));
    let ours = BulkMemory::plain(vec![9; 300]);
    let part = BulkPart::new(100).offsets(50, 100);
    let outcome = transferring(&mut client, peer, &handle, &ours, part);
    let path = client.bulk_path(peer, &handle);
    drop(client);
    owner.join().unwrap();
    let bytes = ours.to_vec();
    assert!(bytes[..100].iter().chain(&bytes[200..]).all(|it| *it == 9), "outside of the piece");
    (outcome, path)
}

/// Waits for the request to attach, answers with those locations, and then sends the data as a
/// message.
fn answers(
    hostile: &mut Hostile,
    with: impl FnOnce(&mut Hostile) -> (Vec<SegmentLocation>, CheckWord),
) -> Option<()> {
    let Some(BulkMessage::Attach(_)) = hostile.hears_bulk() else { panic!("it asks first") };
    let (segments, check_word) = with(hostile);
    hostile.says(&BulkMessage::Attached { id: 1, segments, check_word });
    match hostile.hears_bulk()? {
        BulkMessage::Detached { id: 1 } => {}
        other => panic!("{other:?}"),
    }
    let Some(BulkMessage::Read { transfer, .. }) = hostile.hears_bulk() else { panic!() };
    hostile.say(FrameKind::Data, 0, transfer, &[5; 100]);
    Some(())
}

const NO_WORD: CheckWord = CheckWord { address: 0, word: 0 };

#[test]
fn files_and_addresses_that_are_not_what_they_are_said_to_be_are_not_touched() {
    type Lie = fn(&mut Hostile) -> (Vec<SegmentLocation>, CheckWord);
    let lies: [(&str, Lie); 7] = [
        ("a file that was not passed", |_| {
            let file = FileId { device: 1, inode: 2 };
            (vec![SegmentLocation::File { bytes: 500, file }], NO_WORD)
        }),
        ("a file that can be cut off", |hostile| {
            (vec![pass_file(hostile, 500, SealFlags::GROW, 500)], NO_WORD)
        }),
        ("a file that is too short", |hostile| {
            (vec![pass_file(hostile, 499, SealFlags::SHRINK, 500)], NO_WORD)
        }),
        ("a file that cannot be written", |hostile| {
            let seals = SealFlags::SHRINK | SealFlags::WRITE;
            (vec![pass_file(hostile, 500, seals, 500)], NO_WORD)
        }),
        ("a good file and one that is not", |hostile| {
            let good = pass_file(hostile, 200, SealFlags::SHRINK, 200);
            (vec![good, pass_file(hostile, 100, SealFlags::SHRINK, 300)], NO_WORD)
        }),
        ("an address without a check word", |_| {
            (vec![SegmentLocation::Process { address: 4096, bytes: 500 }], NO_WORD)
        }),
        ("an address with a check word of another's", |_| {
            static WORD: [u8; 16] = [7; 16];
            let check_word = CheckWord { address: WORD.as_ptr() as u64, word: 8 };
            (vec![SegmentLocation::Process { address: 4096, bytes: 500 }], check_word)
        }),
    ];
    for (name, lie) in lies {
        let (outcome, path) = attached(move |mut hostile| {
            answers(&mut hostile, lie).expect("it goes by messages then");
            assert!(hostile.is_disconnected());
        });
        assert_eq!((outcome, path), (Ok(()), Some(BulkPath::Messages)), "{name}");
    }
}

#[test]
fn lengths_and_numbers_that_do_not_fit_the_handle_end_the_connection() {
    type Lie = fn(&mut Hostile) -> Vec<SegmentLocation>;
    let lies: [(&str, Lie); 5] = [
        ("nothing", |_| vec![]),
        ("too little", |hostile| vec![pass_file(hostile, 499, SealFlags::SHRINK, 499)]),
        ("too much", |hostile| vec![pass_file(hostile, 501, SealFlags::SHRINK, 501)]),
        ("where counting begins again", |_| {
            let most = SegmentLocation::Process { address: 0, bytes: u64::MAX };
            vec![most, SegmentLocation::Process { address: 0, bytes: 501 }]
        }),
        ("an address where counting begins again", |_| {
            vec![SegmentLocation::Process { address: u64::MAX - 100, bytes: 500 }]
        }),
    ];
    for (name, lie) in lies {
        let (outcome, _) = attached(move |mut hostile| {
            answers_and_is_left(&mut hostile, 1, lie);
        });
        let refused = CloseReason::Protocol(FrameError::Bulk);
        assert_eq!(outcome, Err(BulkError::Disconnected(refused.clone())), "{name}");
    }
    let (outcome, _) = attached(|mut hostile| answers_and_is_left(&mut hostile, 2, |_| vec![]));
    assert_eq!(
        outcome,
        Err(BulkError::Disconnected(CloseReason::Protocol(FrameError::Bulk))),
        "another's"
    );
}

fn answers_and_is_left(
    hostile: &mut Hostile,
    id: u64,
    with: fn(&mut Hostile) -> Vec<SegmentLocation>,
) {
    let Some(BulkMessage::Attach(_)) = hostile.hears_bulk() else { panic!("it asks first") };
    let segments = with(hostile);
    hostile.says(&BulkMessage::Attached { id, segments, check_word: NO_WORD });
    assert!(hostile.is_disconnected());
}

#[test]
fn an_address_at_which_nothing_is_is_the_transfer_s_error_and_no_crash() {
    let ways: [(Transferring, &str); 2] =
        [(Endpoint::pull, "process_vm_readv"), (Endpoint::push, "process_vm_writev")];
    let addresses = [8, 1 << 47, u64::MAX - 4096];
    for (address, (way, call)) in addresses.into_iter().flat_map(|it| ways.map(|way| (it, way))) {
        let (outcome, path) = transferred(way, move |mut hostile| {
            let Some(BulkMessage::Attach(_)) = hostile.hears_bulk() else { panic!() };
            // The process is the right one: the check word is there.
            let word = 0x1234_5678_9abc_def0_u128 << 7;
            let there = Box::new(word.to_ne_bytes());
            let check_word = CheckWord { address: there.as_ptr() as u64, word };
            let segments = vec![SegmentLocation::Process { address, bytes: 500 }];
            hostile.says(&BulkMessage::Attached { id: 1, segments, check_word });
            assert!(hostile.is_disconnected());
            drop(there);
        });
        match path {
            Some(BulkPath::Process) => {
                let Err(BulkError::Memory(failed)) = outcome else { panic!("{outcome:?}") };
                assert_eq!(failed.call, call);
                assert_eq!(failed.error.raw_os_error(), Some(Errno::FAULT.raw_os_error()));
            }
            other => panic!("{other:?} {outcome:?}"),
        }
    }
}

#[test]
fn whoever_is_sent_away_is_told_so_although_memory_is_lent_to_it() {
    let mut server = Endpoint::new(Config::default()).unwrap();
    let address = server.listen(&"sm://".parse().unwrap()).unwrap();
    let memory = BulkMemory::plain(vec![0; 100]);
    let handle = server.register_memory(&memory, Rights::Write).unwrap();
    let mut hostile = connect(address.without_scheme(), &hello(), TOTAL_BYTES, SealFlags::SHRINK);
    let began = Instant::now();
    while server.stats().peers_count == 0 && began.elapsed() < SOON {
        server.progress(Duration::from_millis(10));
    }
    hostile.says(&BulkMessage::Attach(handle));
    server.progress(SOON);
    let in_use = Err(WithdrawError::InUse { peers_count: 1 });
    assert_eq!(server.withdraw_memory(&handle, Duration::ZERO), in_use);
    hostile.publish([0, 0, 0], 0); // Not a valid message.
    while server.stats().peers_count > 0 && began.elapsed() < SOON {
        server.progress(Duration::from_millis(10));
    }
    assert!(hostile.is_disconnected());
    assert_eq!(server.withdraw_memory(&handle, Duration::ZERO), Ok(()));
    let memory = memory.into_vecs().expect_err("it may still be writing");
    drop(hostile);
    server.progress(Duration::from_millis(10));
    assert_eq!(memory.into_vecs().expect("it has hung up"), [[0; 100]]);
}

#[test]
fn whoever_asks_for_memory_and_reads_no_answer_is_disconnected() {
    let config =
        Config::default().connections(ConnectionsConfig::default().queued_bytes_max(1 << 16));
    let mut server = Endpoint::new(config).unwrap();
    let address = server.listen(&"uds://".parse().unwrap()).unwrap();
    let name = address.without_scheme().strip_prefix('@').unwrap();
    let name = SocketAddr::from_abstract_name(name).unwrap();
    let mut hostile = UnixStream::connect_addr(&name).unwrap();
    hostile.write_all(&hello().encode()).unwrap();
    hostile.set_nonblocking(true).unwrap();
    let (handle, transfer) = (made_up((0, 0, 100, Rights::ReadWrite)), 5);
    let read = BulkMessage::Read { transfer, handle, offset: 0, bytes: 1 }.encode(Vec::new());
    let (body_bytes, kind) = (read.len() as u32, FrameKind::Bulk);
    let header = FrameHeader { body_bytes, kind, method: 0, call: 0 };
    let many = [&header.encode()[..], &read].concat().repeat(100);
    let (began, mut sent) = (Instant::now(), 0);
    while server.stats().closed_count == 0 && began.elapsed() < SOON {
        // Fails if there is no room now.
        sent = (sent + hostile.write(&many[sent..]).unwrap_or(0)) % many.len();
        server.progress(Duration::ZERO);
    }
    assert_eq!(server.stats().closed_count, 1);
    assert!(is_disconnected(&mut hostile));
}

#[test]
fn memory_that_was_withdrawn_is_free_although_a_piece_of_it_is_on_its_way() {
    const BYTES: u64 = 32 << 20;
    let mut owner = Endpoint::new(Config::default()).unwrap();
    let address = owner.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
    let memory = BulkMemory::plain(vec![5; BYTES as usize]);
    let handle = owner.register_memory(&memory, Rights::Read).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let slow = std::thread::spawn(move || {
        let mut wire = Wire::that_takes(1 << 20, address.without_scheme());
        wire.says(&BulkMessage::Read { transfer: 3, handle, offset: 0, bytes: BYTES });
        told.recv().unwrap();
        let mut came_bytes = 0;
        loop {
            let (header, body) = wire.hears().expect("it is connected");
            if header.kind != FrameKind::Data {
                let refused = BulkMessage::Refused { transfer: 3, why: BulkRefusal::Unknown };
                assert_eq!(BulkMessage::decode(&body), Ok(refused));
                return came_bytes;
            }
            assert_eq!((header.method, header.call), (came_bytes, 3));
            assert!(body.iter().all(|it| *it == 5), "other bytes than there were");
            came_bytes += body.len() as u64;
        }
    });
    let began = Instant::now();
    // Until no more data is sent.
    while owner.bulk_stats().message_bytes == 0 || owner.progress(Duration::from_millis(50)) {
        owner.progress(Duration::from_millis(1));
        assert!(began.elapsed() < SOON);
    }
    assert_eq!(owner.withdraw_memory(&handle, Duration::ZERO), Ok(()));
    let mut vecs = memory.into_vecs().expect("nothing is sent from it any more");
    vecs[0].fill(6);
    tell.send(()).unwrap();
    while !slow.is_finished() {
        owner.progress(Duration::from_millis(1));
    }
    let came_bytes = slow.join().unwrap();
    assert!((1..BYTES).contains(&came_bytes), "{came_bytes}");
}

#[test]
fn transfers_of_a_peer_beyond_transfers_max_are_refused() {
    for how in EACH {
        let config = Config::default().bulk(BulkConfig::default().transfers_max(3));
        let mut lender = Lender::configured(how, config);
        let mut stranger = lender.stranger(how);
        let (handle, offset, bytes) = (lender.write, 0, 10);
        for transfer in 0..4 {
            stranger.says(&BulkMessage::Write { transfer, handle, offset, bytes });
        }
        let refused = BulkMessage::Refused { transfer: 3, why: BulkRefusal::Full };
        assert_eq!(stranger.hears_bulk(), Some(refused), "{how}");
        stranger.says(&BulkMessage::Cancel { transfer: 0 });
        stranger.says(&BulkMessage::Write { transfer: 4, handle, offset, bytes });
        // The next message is no refusal.
        stranger.is_served();
        lender.house.is_in_order();
    }
}

#[test]
fn two_transfers_of_one_number_end_the_connection() {
    for how in EACH {
        let mut lender = Lender::new(how);
        let mut stranger = lender.stranger(how);
        let (handle, offset) = (lender.write, 0);
        let write = BulkMessage::Write { transfer: 5, handle, offset, bytes: 10 };
        stranger.says(&write);
        stranger.says(&write);
        assert!(stranger.is_disconnected(), "{how}");
        lender.house.is_in_order();
    }
    let mut lender = Lender::new("sm://");
    let mut stranger = lender.stranger("sm://");
    let (handle, offset, bytes) = (lender.read, 0, LENT_BYTES as u64);
    // More than the segment has room for.
    let reads_count = 2 * u64::from(SHARED_BYTES) / bytes;
    for transfer in 0..reads_count {
        stranger.says(&BulkMessage::Read { transfer, handle, offset, bytes });
    }
    let transfer = reads_count - 1;
    stranger.says(&BulkMessage::Read { transfer, handle, offset, bytes: 1 });
    assert!(stranger.is_disconnected());
    lender.house.is_in_order();
}

/// Number of halves that a server copies, or attaches memory for, on behalf of one peer.
const TRANSFERS_FOR_PEER_MAX: u64 = 16;

/// Asks the server to copy a byte of the lent memory into the peer's memory number `id`, as the
/// owner's half of the transfer with that number.
fn ask_for_help(stranger: &mut dyn Raw, lender: &Lender, transfer: u64, id: u64) {
    let into = made_up((id, 1, LENT_BYTES as u64, Rights::Write));
    let (handle, offset, into_offset, bytes) = (lender.read, 0, 0, 1);
    let pulls = true;
    let help = HelpRequest { transfer, handle, offset, into, into_offset, bytes, pulls };
    stranger.says(&BulkMessage::Help(help));
}

/// Checks that the server asks for the location of the peer's memory with that number.
fn hears_attach(stranger: &mut dyn Raw, id: u64) {
    match stranger.hears_bulk() {
        Some(BulkMessage::Attach(handle)) => assert_eq!(handle_id(&handle), id),
        other => panic!("{other:?} in place of an Attach of memory {id}"),
    }
}

#[test]
fn halves_of_a_peer_beyond_helped_max_are_refused_until_one_ends() {
    let mut lender = Lender::new("sm://");
    let mut stranger = lender.stranger("sm://");
    // One memory, of which the peer never tells the location: all halves wait for it.
    for transfer in 0..TRANSFERS_FOR_PEER_MAX {
        ask_for_help(&mut *stranger, &lender, transfer, 5);
    }
    hears_attach(&mut *stranger, 5);
    ask_for_help(&mut *stranger, &lender, TRANSFERS_FOR_PEER_MAX, 5);
    let refused = |transfer| Some(BulkMessage::Refused { transfer, why: BulkRefusal::Full });
    assert_eq!(stranger.hears_bulk(), refused(TRANSFERS_FOR_PEER_MAX));
    // The limit is that of one peer.
    let mut other = lender.stranger("sm://");
    ask_for_help(&mut *other, &lender, 0, 5);
    hears_attach(&mut *other, 5);
    stranger.says(&BulkMessage::Cancel { transfer: 3 });
    ask_for_help(&mut *stranger, &lender, 100, 5);
    ask_for_help(&mut *stranger, &lender, 101, 5);
    assert_eq!(stranger.hears_bulk(), refused(101), "100 has the place of 3");
    stranger.is_served();
    lender.house.is_in_order();
}

#[test]
fn memories_of_a_peer_beyond_helped_max_are_not_attached_until_it_answers() {
    let mut lender = Lender::new("sm://");
    let mut stranger = lender.stranger("sm://");
    // No half is under way at any time but one; only the requests to attach remain.
    for id in 0..TRANSFERS_FOR_PEER_MAX {
        ask_for_help(&mut *stranger, &lender, id, id);
        hears_attach(&mut *stranger, id);
        stranger.says(&BulkMessage::Cancel { transfer: id });
    }
    ask_for_help(&mut *stranger, &lender, 100, 100);
    let refused = BulkMessage::Refused { transfer: 100, why: BulkRefusal::Full };
    assert_eq!(stranger.hears_bulk(), Some(refused));
    stranger.says(&BulkMessage::AttachRefused { id: 7, why: BulkRefusal::Unknown });
    ask_for_help(&mut *stranger, &lender, 101, 101);
    hears_attach(&mut *stranger, 101);
    stranger.is_served();
    lender.house.is_in_order();
}
