//! Tests with handshakes, messages and answers that lie.

use super::peers::*;
use crate::gate::gate;
use handover_rpc::engine::{
    BulkMessage, FRAME_HEADER_BYTES, FrameHeader, FrameKind, HELLO_BYTES, Hello,
};
use handover_rpc::{
    Bulk, BulkError, BulkMemory, BulkPart, CallError, Calling, Config, ConnectionsConfig, Context,
    Endpoint, Method, PoolConfig, Rights,
};
use proptest::test_runner::{Config as Cases, TestRunner};
use rustix::fs::SealFlags;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

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
    // Without a segment, and with another protocol.
    for greeting in [hello().encode(), [b'x'; HELLO_BYTES]] {
        let mut socket = knock(&place);
        socket.write_all(&greeting).unwrap();
        assert!(is_disconnected(&mut socket));
    }
    house.is_in_order();
}

#[test]
fn request_after_urgent_data_is_read_without_another_notification() {
    let mut server = Endpoint::new(Config::default().spin_max(Duration::ZERO)).unwrap();
    server.register("echo", 0, |_, number: u64| Ok(number)).unwrap();
    let address = server.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
    let place = address.without_scheme().to_string();
    let wire = std::thread::spawn(move || Wire::welcomed(&place));
    while !wire.is_finished() || server.stats().peers_count == 0 {
        server.progress(10 * MS);
    }
    let mut wire = wire.join().unwrap();
    wire.say(FrameKind::Request, ECHO.word(), 1, &[42]);
    wire.say_urgent_byte();
    wire.say(FrameKind::Request, ECHO.word(), 2, &[42]);
    let begun = Instant::now();
    while server.stats().requests_count < 2 {
        assert!(begun.elapsed() < Duration::from_secs(10), "the second request was not read");
        server.progress(10 * MS);
    }
}

/// Returns a hello with another protocol version.
fn of_another_version(hello: &Hello) -> [u8; HELLO_BYTES] {
    let mut bytes = hello.encode();
    bytes[8..10].copy_from_slice(&99u16.to_le_bytes());
    bytes
}

#[test]
fn whoever_speaks_another_version_is_told_which_one_is_spoken_here_and_turned_away() {
    let mut house = House::new("sm://");
    let mut socket = knock(&house.place);
    socket.write_all(&of_another_version(&hello())).unwrap();
    let mut answer = [0; HELLO_BYTES];
    socket.read_exact(&mut answer).unwrap();
    assert!(Hello::decode(&answer).is_ok(), "by which the other side knows our version");
    assert!(is_disconnected(&mut socket));
    house.is_in_order();
}

#[test]
fn whoever_listens_and_speaks_otherwise_is_named_and_left() {
    let mut client = Endpoint::new(Config::default()).unwrap();
    let other_version = of_another_version(&stream_hello());
    let mut too_short = stream_hello();
    too_short.message_bytes_max = 63;
    let this = handover_rpc::engine::PROTOCOL_VERSION;
    for (answer, said) in [
        (&other_version[..], format!("the peer uses protocol version 99, this endpoint {this}")),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "the peer does not speak the protocol of handover-rpc".into(),
        ),
        (
            &too_short.encode(),
            "the peer was disconnected: the peer sent a value that the protocol does not allow"
                .into(),
        ),
        (b"handover", "the peer has closed the connection".into()),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        let answer = answer.to_vec();
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; HELLO_BYTES]).unwrap();
            stream.write_all(&answer).unwrap();
        });
        let refused = client.connect(&address.parse().unwrap()).unwrap_err().to_string();
        other.join().unwrap();
        assert!(refused.starts_with(&format!("handshake with {address} failed: ")), "{refused}");
        assert!(refused.contains(&said), "{refused}");
    }
    assert_eq!((client.stats().peers_count, client.stats().turned_away_count), (0, 4));
}

#[test]
fn whoever_lies_in_shared_memory_is_disconnected() {
    let mut house = House::new("sm://");
    let request = |body_bytes: u64| [1u64 << 32 | body_bytes, ECHO.word(), 5];
    let outside = [
        ([0, 0, 0], 0),                              // Kind 0.
        ([99 << 32, 0, 0], 0),                       // Unknown kind.
        ([1 << 40 | 1 << 32, 0, 0], 0),              // Reserved bits.
        (request(u64::from(MESSAGE_MAX) + 1), 0),    // Longer than agreed.
        (request(97), u64::from(SHARED_BYTES) - 96), // Ends one byte outside.
        (request(97), u64::from(SHARED_BYTES)),      // Begins outside.
        (request(97), u64::MAX - 96),                // The end overflows.
        (request(97), u64::MAX),
        (request(97), 1 << 32), // Truncated to 32 bits, it would be inside.
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
fn whoever_says_to_have_read_what_was_never_sent_is_disconnected() {
    let mut house = House::new("sm://");
    let mut hostile = Hostile::welcomed(&house.place);
    // The connector's read position, far ahead of the truth. The server reads it when its slots are
    // full.
    hostile.write(TAKEN_AT, &[u64::MAX / 2]);
    for number in 0..u64::from(2 * SLOTS) {
        hostile.publish([1 << 32, 0, number], 0);
        hostile.is_heard_but(0);
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
            // Some of the values are almost valid.
            let value = match kind {
                0 => value,
                1 => value % 8,
                2 => (1 + value % 8) * (1 << 32) + value % 200,
                _ => value % (2 * u64::from(SHARED_BYTES)),
            };
            // Most writes hit the slots.
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
    let max = Config::default().connections.message_bytes_max;
    let good =
        FrameHeader { body_bytes: 1, kind: FrameKind::Request, method: ECHO.word(), call: 3 };
    let long = FrameHeader { body_bytes: max + 1, ..good }.encode();
    let mut kind = good.encode();
    kind[4] = 0;
    let mut reserved = good.encode();
    reserved[7] = 1;
    for (number, bytes) in
        [&long[..], &kind, &reserved, &[0xff; FRAME_HEADER_BYTES]].into_iter().enumerate()
    {
        let mut stream = TcpStream::connect(&house.place).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let hello = Hello {
            message_bytes_max: max,
            slots_count: 0,
            shared_bytes: 0,
            spins: false,
            has_secret: false,
            uses_ucx: false,
        };
        stream.write_all(&hello.encode()).unwrap();
        stream.write_all(&good.encode()).unwrap();
        stream.write_all(&[42]).unwrap();
        let mut answer = [0; HELLO_BYTES + FRAME_HEADER_BYTES + 1];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer.last(), Some(&42), "as long as it is polite");
        stream.write_all(bytes).unwrap();
        assert!(is_disconnected(&mut stream), "number {number}");
    }
    house.is_in_order();
}

#[test]
fn answers_that_nobody_asked_for_are_dropped() {
    let (open, wait) = gate();
    let held = Method::new("held");
    let mut house = House::with("tcp://127.0.0.1:0", |server| {
        let held = move |_: &mut Context<'_>, number: u64| {
            wait();
            Ok(number)
        };
        server.register("held", 0, held).unwrap();
    });
    // A hostile server: a client makes one call, and gets other answers too.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let hostile = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello_bytes = [0; HELLO_BYTES];
        stream.read_exact(&mut hello_bytes).unwrap();
        stream.write_all(&hello_bytes).unwrap();
        let mut asked = [0; FRAME_HEADER_BYTES + 1];
        stream.read_exact(&mut asked).unwrap();
        let mut answers = Vec::new();
        for call in (0..50).chain([u64::MAX]) {
            // One of them is for the call, and only its first answer counts.
            for body in [call as u8, 99] {
                let header =
                    FrameHeader { body_bytes: 1, kind: FrameKind::Response, method: 0, call };
                answers.extend(header.encode().into_iter().chain([body]));
            }
        }
        stream.write_all(&answers).unwrap();
        // Waits until the other end is closed.
        let _ = stream.read(&mut asked);
    });
    // Answered after the hostile answers to it have come.
    let other = house.client.start::<_, u64>(house.peer, held, &1u64).unwrap();
    let peer = house.client.connect(&address.parse().unwrap()).unwrap();
    let asked = house.client.start::<_, u8>(peer, ECHO, &1u8).unwrap();
    let answered = house.client.wait(asked).unwrap();
    assert_ne!(answered, 99, "the second answer");
    drop(open);
    assert_eq!(house.client.wait(other), Ok(1), "another peer's answer does not count");
    house.client.disconnect(peer);
    hostile.join().unwrap();
    house.is_in_order();
}

#[test]
fn whoever_connects_and_says_nothing_is_turned_away_and_keeps_nobody_waiting() {
    // First a timeout that is long enough for another client to connect meanwhile, then one that is
    // short enough to wait for.
    for (timeout_ms, is_beside_others) in [(60_000, true), (50, false)] {
        let limits =
            ConnectionsConfig::default().handshake_timeout(Duration::from_millis(timeout_ms));
        let config = Config::default().connections(limits);
        let mut server = Endpoint::new(config).unwrap();
        let address = server.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
        let stopper = server.stopper();
        let thread = std::thread::spawn(move || {
            server.serve();
            server.stats()
        });
        let began = Instant::now();
        let mut silent = TcpStream::connect(address.without_scheme()).unwrap();
        silent.set_read_timeout(Some(SOON)).unwrap();
        silent.write_all(b"hand").unwrap();
        if is_beside_others {
            let mut client = Endpoint::new(Config::default()).unwrap();
            client.connect(&address).unwrap();
        } else {
            assert!(is_disconnected(&mut silent));
            assert!(began.elapsed() >= Duration::from_millis(40));
        }
        stopper.stop();
        let expected = u64::from(!is_beside_others);
        assert_eq!(thread.join().unwrap().turned_away_count, expected);
    }
}

/// Sends requests for a pooled handler from a peer that reads no answers, and checks how many of
/// them begin.
fn pooled_requests_of_a_peer_that_does_not_read(fibers: bool) {
    const REQUESTS: u64 = 500;
    const QUEUED_BYTES_MAX: u32 = 64 << 10;
    let (begun, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (counts, is_open) = (Arc::clone(&begun), Arc::clone(&gate));
    let config = Config::default()
        .connections(ConnectionsConfig::default().queued_bytes_max(QUEUED_BYTES_MAX))
        .pool(PoolConfig::default().fibers(fibers));
    let mut house = House::configured("sm://", config, move |server| {
        server.start_pool().unwrap();
        let long = move |()| {
            counts.fetch_add(1, Ordering::SeqCst);
            while !is_open.load(Ordering::SeqCst) {
                std::thread::sleep(MS);
            }
            Ok(vec![7u8; 4000])
        };
        server.register_pooled("long", 0, long).unwrap();
    });
    let long = Method::new("long");
    let mut hostile = Hostile::welcomed(&house.place);
    for call in 0..REQUESTS {
        hostile.say(FrameKind::Request, long.word(), call, &[]);
    }
    hostile.is_heard_but(0);
    gate.store(true, Ordering::SeqCst);
    // These come after all of them, and are answered anyway. If peers take turns, at most a few
    // begin between any two of these; with a single queue, these would come last.
    for _ in 0..20 {
        let answer: Vec<u8> = house.client.call(house.peer, long, &()).unwrap();
        assert_eq!(answer, [7; 4000]);
    }
    // Half of the queue limit, the requests of two threads, and what the segment holds.
    let begun_max = QUEUED_BYTES_MAX / 2 / 4000 + 1 + 2 + 2 + 20;
    let count = begun.load(Ordering::SeqCst);
    assert!(count <= begun_max, "{count} have begun, where {begun_max} may");
    // No answer is lost: a peer that reads late gets all of them.
    let mut answered: Vec<u64> = Vec::new();
    for _ in 0..REQUESTS {
        let (header, body) = hostile.hears().expect("an answer");
        assert_eq!((header.kind, body.len()), (FrameKind::Response, 4002));
        answered.push(header.call);
    }
    answered.sort_unstable();
    assert!(answered.into_iter().eq(0..REQUESTS));
    assert_eq!(begun.load(Ordering::SeqCst), REQUESTS as u32 + 20);
    house.is_in_order();
}

#[test]
fn peer_that_fills_the_pool_leaves_room_for_others() {
    const REQUESTS: u64 = 100;
    let gate = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&gate);
    let config = Config::default().pool(PoolConfig::default().queue_max(16));
    let mut house = House::configured("sm://", config, move |server| {
        server.start_pool().unwrap();
        let slow = move |()| {
            while !is_open.load(Ordering::SeqCst) {
                std::thread::sleep(MS);
            }
            Ok(7u8)
        };
        server.register_pooled("slow", 0, slow).unwrap();
    });
    let slow = Method::new("slow");
    let mut hostile = Hostile::welcomed(&house.place);
    for call in 0..REQUESTS {
        hostile.say(FrameKind::Request, slow.word(), call, &[]);
    }
    hostile.is_heard_but(0);
    let calls: Vec<_> =
        (0..3).map(|_| house.client.start::<_, u8>(house.peer, slow, &()).unwrap()).collect();
    // The server has received these requests once it has answered another.
    house.is_in_order();
    gate.store(true, Ordering::SeqCst);
    for call in calls {
        assert_eq!(house.client.wait(call), Ok(7));
    }
}

#[test]
fn pooled_requests_of_a_peer_that_reads_no_answers_do_not_begin() {
    pooled_requests_of_a_peer_that_does_not_read(false);
}

#[test]
fn pooled_requests_on_fibers_of_a_peer_that_reads_no_answers_do_not_begin() {
    pooled_requests_of_a_peer_that_does_not_read(true);
}

/// Returns a server whose method `long` answers with that many bytes, and its place.
fn server_with_long_answers(answer_bytes: usize, queued_bytes_max: usize) -> (Endpoint, String) {
    let config = Config::default()
        .connections(ConnectionsConfig::default().queued_bytes_max(queued_bytes_max as u32));
    let mut server = Endpoint::new(config).unwrap();
    let answer_at_length = move |_: &mut Context<'_>, _: &[u8], answer: &mut Vec<u8>| {
        answer.resize(answer_bytes, 0);
        Ok(())
    };
    server.register_bytes("long", 0, answer_at_length).unwrap();
    let place =
        server.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap().without_scheme().to_string();
    (server, place)
}

#[test]
fn answers_to_deferred_requests_are_queued_within_the_limit() {
    // Far more than the sockets' buffers hold.
    const REQUESTS_COUNT: u64 = 200;
    const ANSWER_BYTES: usize = 1 << 19;
    const QUEUED_BYTES_MAX: usize = 1 << 22;
    // More than were sent or queued before.
    const ANSWERS_BEFORE_PAUSE_COUNT: u64 = 40;
    let long = Method::new("long");
    let (mut server, place) = server_with_long_answers(ANSWER_BYTES, QUEUED_BYTES_MAX);
    let ((open, wait), (end_pause, pause)) = (gate(), gate());
    let (tell, is_paused) = std::sync::mpsc::channel();
    let peer = std::thread::spawn(move || {
        let mut wire = Wire::that_takes(1 << 20, &place);
        for call in 0..REQUESTS_COUNT {
            wire.say(FrameKind::Request, long.word(), call, &[]);
        }
        wait();
        for call in 0..REQUESTS_COUNT {
            if call == ANSWERS_BEFORE_PAUSE_COUNT {
                tell.send(()).unwrap();
                pause();
            }
            let (header, body) = wire.hears().expect("it is served");
            assert_eq!((header.call, body.len()), (call, ANSWER_BYTES));
        }
    });
    let began = Instant::now();
    let mut proceed = || {
        assert!(began.elapsed() < SOON);
        server.progress(MS);
        let dump = server.dump();
        let queued_bytes = dump.peers.iter().map(|it| it.queued_bytes).max();
        assert!(queued_bytes <= Some(QUEUED_BYTES_MAX), "{queued_bytes:?}");
        (dump.stats.requests_count, dump.requests_waiting_count as u64)
    };
    let deferred_count = loop {
        let (handled_count, deferred_count) = proceed();
        if handled_count + deferred_count == REQUESTS_COUNT {
            break deferred_count;
        }
    };
    assert!(deferred_count > 100, "{deferred_count}");
    drop(open);
    while is_paused.try_recv().is_err() {
        proceed();
    }
    drop(end_pause);
    while !peer.is_finished() {
        proceed();
    }
    peer.join().unwrap();
}

#[test]
fn peer_that_reads_neither_answers_nor_refusals_is_disconnected() {
    // Far more than are answered, deferred, and refused within the limit.
    const REQUESTS_COUNT: u64 = 20_000;
    const ANSWER_BYTES: usize = 1 << 13;
    const QUEUED_BYTES_MAX: usize = 1 << 16;
    let long = Method::new("long");
    let (mut server, place) = server_with_long_answers(ANSWER_BYTES, QUEUED_BYTES_MAX);
    let (open, wait) = gate();
    let peer = std::thread::spawn(move || {
        let mut wire = Wire::that_takes(1 << 14, &place);
        for call in 0..REQUESTS_COUNT {
            wire.say(FrameKind::Request, long.word(), call, &[]);
        }
        wait();
    });
    let began = Instant::now();
    while server.stats().closed_count == 0 {
        assert!(began.elapsed() < SOON, "{:?}", server.dump());
        server.progress(MS);
        let queued_bytes = server.dump().peers.iter().map(|it| it.queued_bytes).max();
        assert!(queued_bytes <= Some(QUEUED_BYTES_MAX), "{queued_bytes:?}");
    }
    drop(open);
    peer.join().unwrap();
}

#[test]
fn requests_of_one_peer_that_were_put_off_leave_others_their_turn() {
    const REQUESTS: u64 = 300;
    let order = Arc::new(Mutex::new(Vec::new()));
    let (notes, held) = (Arc::clone(&order), Arc::new(AtomicBool::new(true)));
    let is_held = Arc::clone(&held);
    let mut house = House::with("tcp://127.0.0.1:0", move |server| {
        let hold = move |context: &mut Context<'_>, ()| {
            let (holder, silent) = (context.peer(), Method::new("silent"));
            // While a handler waits for an answer, requests are put off.
            while is_held.load(Ordering::SeqCst) {
                let late = context.call_within::<_, ()>(holder, silent, &(), MS);
                assert_eq!(late, Err(CallError::Deadline));
            }
            Ok(())
        };
        server.register("hold", 0, hold).unwrap();
        let note = move |context: &mut Context<'_>, ()| {
            notes.lock().unwrap().push(context.peer());
            Ok(())
        };
        server.register("note", 0, note).unwrap();
    });
    let (hold, note) = (Method::new("hold"), Method::new("note"));
    let mut holder = Wire::welcomed(&house.place);
    holder.say(FrameKind::Request, hold.word(), 1, &[]);
    holder.hears().expect("its handler waits for an answer");
    let mut many = Wire::welcomed(&house.place);
    for call in 0..REQUESTS {
        many.say(FrameKind::Request, note.word(), call, &[]);
    }
    // A refusal shows that the frames sent before it were read: it is not put off.
    let unknown = made_up((u64::MAX, 0, 1, Rights::Read));
    let (handle, offset, bytes) = (unknown, 0, 1);
    many.says(&BulkMessage::Read { transfer: 1, handle, offset, bytes });
    assert!(matches!(many.hears_bulk(), Some(BulkMessage::Refused { .. })));
    let one = house.client.start::<_, ()>(house.peer, note, &()).unwrap();
    let ours = BulkMemory::plain(vec![0]);
    let refused = house.client.pull(house.peer, &unknown, &ours, BulkPart::new(1));
    assert!(matches!(refused, Err(BulkError::Refused(_))));
    held.store(false, Ordering::SeqCst);
    assert_eq!(house.client.wait(one), Ok(()));
    let order = order.lock().unwrap().clone();
    let before = order.iter().take_while(|peer| **peer == order[0]).count();
    assert!(before <= 64, "{before} requests of one peer before the other's");
}

/// Message timeout in these tests, in ms.
const MESSAGE_TIMEOUT_MS: u32 = 80;

#[test]
fn message_that_is_begun_and_not_ended_ends_the_connection() {
    let config = Config::default().connections(
        ConnectionsConfig::default()
            .message_timeout(Duration::from_millis(MESSAGE_TIMEOUT_MS.into())),
    );
    let mut handle = None;
    let mut house = House::configured("tcp://127.0.0.1:0", config, |server| {
        let memory = BulkMemory::plain(vec![0; 1000]);
        handle = Some(server.register_memory(&memory, Rights::Write).unwrap());
    });
    let began = Instant::now();
    let mut halves: Vec<Wire> = (0..3).map(|_| Wire::welcomed(&house.place)).collect();
    let request =
        FrameHeader { body_bytes: 100, kind: FrameKind::Request, method: ECHO.word(), call: 1 };
    halves[0].say_bytes(&request.encode()[..5]);
    halves[1].say_bytes(&request.encode());
    halves[1].say_bytes(&[7; 50]);
    // Data that is received directly into its memory.
    let handle = handle.unwrap();
    halves[2].says(&BulkMessage::Write { transfer: 6, handle, offset: 0, bytes: 1000 });
    let data =
        FrameHeader { body_bytes: 1000, kind: FrameKind::Data, method: 0, call: 6 | 1 << 63 };
    halves[2].say_bytes(&data.encode());
    halves[2].say_bytes(&[7; 500]);
    // Peers that complete their messages are served, however long they are silent in between.
    let mut whole = Wire::welcomed(&house.place);
    whole.is_served();
    for (number, half) in halves.iter_mut().enumerate() {
        assert!(half.is_disconnected(), "number {number}");
        assert!(began.elapsed() >= MESSAGE_TIMEOUT_MS * MS, "number {number}");
    }
    // A byte now and then does not extend the timeout.
    let mut slow = Wire::welcomed(&house.place);
    slow.say_bytes(&request.encode());
    let began = Instant::now();
    while slow.say_bytes(&[7]) && began.elapsed() < SOON {
        std::thread::sleep(10 * MS);
    }
    assert!(slow.is_disconnected());
    whole.is_served();
    house.is_in_order();
}

#[test]
fn memory_for_a_long_message_is_given_back_while_the_peer_stays() {
    // Memory is kept for a quarter of this time; a megabyte has to arrive within the whole.
    let config = Config::default()
        .connections(ConnectionsConfig::default().message_timeout(Duration::from_millis(2000)));
    let mut server = Endpoint::new(config).unwrap();
    let address = server.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
    let long = |_: &mut Context<'_>, bytes: &[u8], _: &mut Vec<u8>| {
        assert_eq!(bytes.len(), 1 << 20);
        Ok(())
    };
    server.register_bytes("long", 0, long).unwrap();
    let place = address.without_scheme().to_string();
    let stranger = std::thread::spawn(move || {
        let mut wire = Wire::that_takes(1 << 20, &place);
        wire.say(FrameKind::Request, Method::new("long").word(), 1, &vec![1; 1 << 20]);
        wire.hears().expect("an answer");
        wire
    });
    let began = Instant::now();
    let mut most = 0;
    loop {
        server.progress(MS);
        let held: usize = server.dump().peers.iter().map(|it| it.receive_buffer_bytes).sum();
        most = most.max(held);
        if server.stats().requests_count == 1 && held <= 1 << 16 {
            break;
        }
        assert!(began.elapsed() < 10 * SOON, "{held} bytes are held");
    }
    assert!(most >= 1 << 20, "{most}");
    let stayed = stranger.join().unwrap();
    assert_eq!(server.stats().peers_count, 1);
    drop(stayed);
}
