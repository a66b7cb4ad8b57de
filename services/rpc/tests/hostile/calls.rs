//! Peers that do not keep to the protocol: they are disconnected, and nobody else is disturbed.

use handover_rpc::engine::{BulkMessage, HEADER_BYTES, HELLO_BYTES, Header, Hello, Kind};
use handover_rpc::{
    Bulk, BulkHandle, BulkMemory, Calling, Config, Endpoint, Method, Peer, Rights, Stopper,
    WithdrawError,
};
use proptest::test_runner::{Config as Cases, TestRunner};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ECHO: Method = Method::named("echo");
const SLOTS: u32 = 4;
const SHARED_BYTES: u32 = 8192;
const MESSAGE_MAX: u32 = 4096;
/// What a peer who is disconnected is given to notice it, with slack.
const SOON: Duration = Duration::from_secs(5);

/// A server, and a client in good order beside the hostile ones.
struct House {
    place: String,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
    client: Endpoint,
    peer: Peer,
}

impl House {
    fn new(how: &str) -> Self {
        let mut server = Endpoint::new(Config::default()).unwrap();
        let address = server.listen(&how.parse().unwrap()).unwrap();
        server.register("echo", 0, |_, number: u64| Ok(number)).unwrap();
        let stopper = server.stopper();
        let thread = Some(std::thread::spawn(move || server.serve()));
        let mut client = Endpoint::new(Config::default()).unwrap();
        let peer = client.connect(&address).unwrap();
        Self { place: address.place().to_string(), stopper, thread, client, peer }
    }

    fn is_in_order(&mut self) {
        assert_eq!(self.client.call::<_, u64>(self.peer, ECHO, &7u64), Ok(7));
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking(), "the server panicked");
    }
}

fn hello() -> Hello {
    let (slots_count, shared_bytes) = (SLOTS, SHARED_BYTES);
    Hello { message_bytes_max: MESSAGE_MAX, slots_count, shared_bytes, spins: false }
}

/// As the segment is laid out: what two sides say, slots of two directions, bodies of two directions.
const SIDE_BYTES: u64 = 256;
const SLOT_BYTES: u64 = 128;
const SLOTS_AT: u64 = 2 * SIDE_BYTES;
const TOTAL_BYTES: u64 = 2 * (SIDE_BYTES + SLOTS as u64 * SLOT_BYTES + SHARED_BYTES as u64);

struct Hostile {
    socket: UnixStream,
    memory: std::fs::File,
}

/// Connects, and passes a file of that many bytes, with those seals.
fn connect(place: &str, hello: &Hello, bytes: u64, seals: SealFlags) -> Hostile {
    let name = format!("handover/{place}");
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let socket = UnixStream::connect_addr(&address).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create("hostile", flags).unwrap();
    ftruncate(&memory, bytes).unwrap();
    fcntl_add_seals(&memory, seals).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [memory.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let greeting = hello.encode();
    sendmsg(&socket, &[IoSlice::new(&greeting)], &mut control, SendFlags::NOSIGNAL).unwrap();
    Hostile { socket, memory: memory.into() }
}

impl Hostile {
    fn welcomed(place: &str) -> Self {
        let mut hostile = connect(place, &hello(), TOTAL_BYTES, SealFlags::SHRINK);
        let mut answer = [0; HELLO_BYTES];
        hostile.socket.read_exact(&mut answer).unwrap();
        assert!(Hello::decode(&answer).is_ok());
        hostile
    }

    /// Writes words there, and wakes the server.
    fn write(&mut self, at: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.memory.write_all_at(&bytes, at).unwrap();
        // Refused once it is disconnected.
        let _ = self.socket.write_all(b"!");
    }

    /// Publishes message 0 of the connector.
    fn publish(&mut self, header: [u64; 3], first: u64) {
        self.write(SLOTS_AT + 8, &[header[0], header[1], header[2], first]);
        self.write(SLOTS_AT, &[1]);
    }

    fn is_disconnected(&mut self) -> bool {
        is_disconnected(&mut self.socket)
    }
}

/// Reads to the end, which comes soon, or not at all.
fn is_disconnected(stream: &mut impl Read) -> bool {
    let mut bytes = [0; 256];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

#[test]
fn whoever_lies_in_a_greeting_is_turned_away() {
    let mut house = House::new("sm://");
    let place = house.place.clone();
    let other = |change: fn(&mut Hello)| {
        let mut hello = hello();
        change(&mut hello);
        connect(&place, &hello, TOTAL_BYTES, SealFlags::SHRINK)
    };
    let none = SealFlags::empty();
    for (number, mut hostile) in [
        connect(&place, &hello(), TOTAL_BYTES, none),
        connect(&place, &hello(), TOTAL_BYTES - 1, SealFlags::SHRINK),
        other(|it| it.slots_count = 3),
        other(|it| it.slots_count = 0),
        other(|it| it.slots_count = 1 << 31),
        other(|it| it.shared_bytes = 0),
        other(|it| it.shared_bytes = 4096),
        other(|it| it.shared_bytes = 1 << 31),
        other(|it| it.message_bytes_max = u32::MAX),
        other(|it| it.message_bytes_max = 63),
        other(|it| it.message_bytes_max = 0),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(hostile.is_disconnected(), "number {number}");
    }
    // Without a segment, with another protocol, and with another version.
    for greeting in [hello().encode(), [b'x'; HELLO_BYTES], {
        let mut bytes = hello().encode();
        bytes[8] = 99;
        bytes
    }] {
        let address = SocketAddr::from_abstract_name(format!("handover/{place}")).unwrap();
        let mut socket = UnixStream::connect_addr(&address).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        socket.write_all(&greeting).unwrap();
        assert!(is_disconnected(&mut socket));
    }
    house.is_in_order();
}

#[test]
fn whoever_lies_in_shared_memory_is_disconnected() {
    let mut house = House::new("sm://");
    let request = |body_bytes: u64| [1u64 << 32 | body_bytes, ECHO.word(), 5];
    let outside = [
        ([0, 0, 0], 0),                              // No kind.
        ([99 << 32, 0, 0], 0),                       // Not of ours.
        ([1 << 40 | 1 << 32, 0, 0], 0),              // Reserved bits.
        (request(u64::from(MESSAGE_MAX) + 1), 0),    // Longer than agreed.
        (request(97), u64::from(SHARED_BYTES) - 96), // Ends one byte outside.
        (request(97), u64::from(SHARED_BYTES)),      // Begins outside.
        (request(97), u64::MAX - 96),                // Ends where counting begins again.
        (request(97), u64::MAX),
        (request(97), 1 << 32), // Cut to 32 bits it would be inside.
        ([u64::MAX; 3], u64::MAX),
    ];
    for (number, (header, first)) in outside.into_iter().enumerate() {
        let mut hostile = Hostile::welcomed(&house.place);
        hostile.publish(header, first);
        assert!(hostile.is_disconnected(), "number {number}");
        house.is_in_order();
    }
}

#[test]
fn whoever_is_sent_away_is_told_so_although_memory_is_lent_to_it() {
    let mut server = Endpoint::new(Config::default()).unwrap();
    let address = server.listen(&"sm://".parse().unwrap()).unwrap();
    let memory = BulkMemory::plain(vec![0; 100]);
    let handle = server.register_memory(&memory, Rights::Write).unwrap();
    let mut hostile = connect(address.place(), &hello(), TOTAL_BYTES, SealFlags::SHRINK);
    let began = Instant::now();
    while server.stats().peers_count == 0 && began.elapsed() < SOON {
        server.progress(Duration::from_millis(10));
    }
    let attach = BulkMessage::Attach(handle).encode(Vec::new());
    let mut words = [0u8; 96];
    words[..attach.len()].copy_from_slice(&attach);
    let words = words.as_chunks::<8>().0.iter().map(|eight| u64::from_ne_bytes(*eight));
    hostile.write(SLOTS_AT + 32, &words.collect::<Vec<_>>());
    hostile.write(SLOTS_AT + 8, &[(Kind::Bulk as u64) << 32 | attach.len() as u64, 0, 0]);
    hostile.write(SLOTS_AT, &[1]);
    server.progress(SOON);
    let in_use = Err(WithdrawError::InUse { peers_count: 1 });
    assert_eq!(server.withdraw_memory(&handle, Duration::ZERO), in_use);
    // Message 1 is none.
    hostile.write(SLOTS_AT + SLOT_BYTES + 8, &[0, 0, 0]);
    hostile.write(SLOTS_AT + SLOT_BYTES, &[2]);
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
fn whoever_says_to_have_read_what_was_never_sent_is_disconnected() {
    let mut house = House::new("sm://");
    let mut hostile = Hostile::welcomed(&house.place);
    // How far the connector has read: far ahead. The server looks when its slots are full.
    hostile.write(SIDE_BYTES / 2, &[u64::MAX / 2]);
    for number in 0..u64::from(2 * SLOTS) {
        let slot = SLOTS_AT + (number % u64::from(SLOTS)) * SLOT_BYTES;
        hostile.write(slot + 8, &[1 << 32, 0, number]);
        hostile.write(slot, &[number + 1]);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(hostile.is_disconnected());
    house.is_in_order();
}

#[test]
fn rubbish_in_shared_memory_harms_only_who_writes_it() {
    let mut house = House::new("sm://");
    let mut runner = TestRunner::new(Cases { cases: 64, ..Cases::default() });
    let rubbish = proptest::collection::vec(
        (0..TOTAL_BYTES / 8, proptest::prelude::any::<u64>(), 0u8..4),
        1..60,
    );
    let place = house.place.clone();
    let outcome = runner.run(&rubbish, |writes| {
        let mut hostile = Hostile::welcomed(&place);
        for (word, value, kind) in writes {
            // Now and then something that almost makes sense.
            let value = match kind {
                0 => value,
                1 => value % 8,
                2 => (1 + value % 6) * (1 << 32) + value % 200,
                _ => value % (2 * u64::from(SHARED_BYTES)),
            };
            // Most of it where slots are.
            let at = if kind == 0 { word } else { word % (SLOTS_AT / 8 + 16 * 8) };
            hostile.write(8 * at, &[value]);
        }
        drop(hostile);
        Ok(())
    });
    assert!(outcome.is_ok(), "{outcome:?}");
    house.is_in_order();
}

#[test]
fn whoever_lies_on_a_stream_is_disconnected() {
    let mut house = House::new("tcp://127.0.0.1:0");
    let max = Config::default().message_bytes_max;
    let good = Header { body_bytes: 1, kind: Kind::Request, method: ECHO.word(), call: 3 };
    let long = Header { body_bytes: max + 1, ..good }.encode();
    let mut kind = good.encode();
    kind[4] = 0;
    let mut reserved = good.encode();
    reserved[7] = 1;
    // Nobody has memory at hand who does not share a machine.
    let attach = bulk_frame(&BulkMessage::Attach(rubbish_handle()));
    for (number, bytes) in
        [&long[..], &kind, &reserved, &[0xff; HEADER_BYTES], &attach].into_iter().enumerate()
    {
        let mut stream = TcpStream::connect(&house.place).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let hello = Hello { message_bytes_max: max, slots_count: 0, shared_bytes: 0, spins: false };
        stream.write_all(&hello.encode()).unwrap();
        stream.write_all(&good.encode()).unwrap();
        stream.write_all(&[42]).unwrap();
        let mut answer = [0; HELLO_BYTES + HEADER_BYTES + 1];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer.last(), Some(&42), "as long as it is polite");
        stream.write_all(bytes).unwrap();
        assert!(is_disconnected(&mut stream), "number {number}");
    }
    house.is_in_order();
}

#[test]
fn answers_that_nobody_asked_for_are_dropped() {
    let mut house = House::new("tcp://127.0.0.1:0");
    // A hostile server, of which a client asks one thing while it is told others.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let hostile = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello_bytes = [0; HELLO_BYTES];
        stream.read_exact(&mut hello_bytes).unwrap();
        stream.write_all(&hello_bytes).unwrap();
        let mut asked = [0; HEADER_BYTES + 1];
        stream.read_exact(&mut asked).unwrap();
        let mut answers = Vec::new();
        for call in (0..50).chain([u64::MAX]) {
            // One of them is the one that was asked for, and only its first answer counts.
            for body in [call as u8, 99] {
                let header = Header { body_bytes: 1, kind: Kind::Response, method: 0, call };
                answers.extend(header.encode().into_iter().chain([body]));
            }
        }
        stream.write_all(&answers).unwrap();
        // Until the other end is closed.
        let _ = stream.read(&mut asked);
    });
    let other = house.client.start::<_, u64>(house.peer, ECHO, &1u64).unwrap();
    let peer = house.client.connect(&address.parse().unwrap()).unwrap();
    let asked = house.client.start::<_, u8>(peer, ECHO, &1u8).unwrap();
    let answered = house.client.wait(asked).unwrap();
    assert_ne!(answered, 99, "the second answer");
    assert_eq!(house.client.wait(other), Ok(1), "another peer's answer does not count");
    house.client.disconnect(peer);
    hostile.join().unwrap();
    house.is_in_order();
}

#[test]
fn whoever_connects_and_says_nothing_is_turned_away_and_keeps_nobody_waiting() {
    let config = Config { handshake_timeout_ms: 50, ..Config::default() };
    let mut server = Endpoint::new(config).unwrap();
    let address = server.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
    let stopper = server.stopper();
    let thread = std::thread::spawn(move || {
        server.serve();
        server.stats()
    });
    let began = Instant::now();
    let mut silent = TcpStream::connect(address.place()).unwrap();
    silent.set_read_timeout(Some(SOON)).unwrap();
    silent.write_all(b"hand").unwrap();
    let mut client = Endpoint::new(Config::default()).unwrap();
    client.connect(&address).unwrap();
    assert!(is_disconnected(&mut silent));
    assert!(began.elapsed() >= Duration::from_millis(40));
    stopper.stop();
    assert_eq!(thread.join().unwrap().turned_away_count, 1);
}

/// A handle of nothing, as its bytes say.
fn rubbish_handle() -> BulkHandle {
    let fields = (0u64, 0u128, 100u64, Rights::ReadWrite);
    postcard::from_bytes(&postcard::to_allocvec(&fields).unwrap()).unwrap()
}

/// A frame that says that.
fn bulk_frame(message: &BulkMessage) -> Vec<u8> {
    let body = message.encode(Vec::new());
    let body_bytes = body.len() as u32;
    let header = Header { body_bytes, kind: Kind::Bulk, method: 0, call: 0 };
    [&header.encode()[..], &body].concat()
}

#[test]
fn whoever_asks_for_memory_and_reads_no_answer_is_disconnected() {
    let config = Config { queued_bytes_max: 1 << 16, ..Config::default() };
    let mut server = Endpoint::new(config).unwrap();
    let address = server.listen(&"uds://".parse().unwrap()).unwrap();
    let name = address.place().strip_prefix('@').unwrap();
    let name = SocketAddr::from_abstract_name(name).unwrap();
    let mut hostile = UnixStream::connect_addr(&name).unwrap();
    hostile.write_all(&hello().encode()).unwrap();
    hostile.set_nonblocking(true).unwrap();
    let (handle, transfer) = (rubbish_handle(), 5);
    let read = BulkMessage::Read { transfer, handle, offset: 0, bytes: 1 };
    let many = bulk_frame(&read).repeat(100);
    let (began, mut sent) = (Instant::now(), 0);
    while server.stats().gone_count == 0 && began.elapsed() < SOON {
        // Refused where there is no room now.
        sent = (sent + hostile.write(&many[sent..]).unwrap_or(0)) % many.len();
        server.progress(Duration::ZERO);
    }
    assert_eq!(server.stats().gone_count, 1);
    assert!(is_disconnected(&mut hostile));
}
