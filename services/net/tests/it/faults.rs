//! Faults on real loopback sockets: each is reported to the handler with its reason, and all other
//! connections are still served.

use handover_net::engine::{BytesCodec, LengthPrefixCodec, TimeoutError, WaterMarkCrossing};
use handover_net::{
    AcceptPolicy, CloseReason, Config, Conn, ConnHandle, ConnKey, ConnectOptions, Connections,
    FullConnectionsPolicy, Handler, Net, NetBuilder, NetError, Reactor, WriteError,
};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType, bind, send,
    sendmsg, socket,
};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Time limit, at least ten times as long as any step takes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Length of the reply to the message `pour`, in bytes. The kernel does not accept as much at once.
const POURED_BYTES: u64 = 1 << 24;
/// Duration of the handler call for a message that makes the thread stall.
const STALL: Duration = Duration::from_millis(1500);

/// Event that a handler reports to the test.
#[derive(Debug)]
enum Event {
    Accepted(ConnHandle<u64>),
    Connected(u64),
    Message(Vec<u8>),
    /// Result of a write after an overflow of the send queue.
    WrittenLate(Result<(), WriteError>),
    Crossed(WaterMarkCrossing),
    Triggered,
    Closed(u64, String),
    Panicked(String),
    Housekept(u32),
}

/// Echo handler that executes some messages as commands.
struct Echo(Sender<Event>);

type Peer<'a> = Conn<'a, LengthPrefixCodec, u64>;

impl Handler for Echo {
    type Codec = LengthPrefixCodec;
    type Data = u64;

    fn on_accept(&mut self, conn: &mut Peer<'_>) {
        let _ = self.0.send(Event::Accepted(conn.handle()));
    }

    fn on_connect(&mut self, conn: &mut Peer<'_>) {
        let _ = self.0.send(Event::Connected(*conn.data_mut()));
        let _ = conn.send(b"hello from the client");
    }

    fn on_message(&mut self, conn: &mut Peer<'_>, message: &[u8]) {
        *conn.data_mut() += 1;
        match message {
            b"panic" => panic!("requested panic"),
            b"close" => conn.close(),
            b"abort" => conn.abort(),
            b"flood" => {
                while conn.write(&[0; 1000]).is_ok() {}
                let _ = self.0.send(Event::WrittenLate(conn.write(b"late")));
            }
            b"pour" => drop(conn.write(&vec![0; POURED_BYTES as usize])),
            b"pour and close" => {
                let _ = conn.write(&vec![0; POURED_BYTES as usize]);
                conn.close();
            }
            b"stall" => {
                let _ = self.0.send(Event::Message(message.to_vec()));
                std::thread::sleep(STALL);
            }
            b"tell" => drop(self.0.send(Event::Message(message.to_vec()))),
            b"hello from the client" => drop(self.0.send(Event::Message(message.to_vec()))),
            _ => match message.strip_prefix(b"connect and stall: ") {
                Some(address) => {
                    let address = std::str::from_utf8(address).unwrap();
                    let address: SocketAddr = address.parse().unwrap();
                    conn.connections().connect(address, 7).unwrap();
                    std::thread::sleep(STALL);
                }
                None => drop(conn.send(message)),
            },
        }
    }

    fn on_crossing(&mut self, _: &mut Peer<'_>, crossing: WaterMarkCrossing) {
        let _ = self.0.send(Event::Crossed(crossing));
    }

    fn on_trigger(&mut self, conn: &mut Peer<'_>) {
        let _ = self.0.send(Event::Triggered);
        let _ = conn.send(b"triggered");
    }

    fn on_close(
        &mut self,
        _: &mut Connections<'_, LengthPrefixCodec, u64>,
        _: ConnKey,
        data: u64,
        why: &CloseReason,
    ) {
        let _ = self.0.send(Event::Closed(data, why.to_string()));
    }

    fn on_panic(&mut self, message: &str) {
        let _ = self.0.send(Event::Panicked(message.into()));
    }

    fn housekeep(&mut self, connections: &mut Connections<'_, LengthPrefixCodec, u64>) {
        let _ = self.0.send(Event::Housekept(connections.len()));
    }
}

/// Server with one thread, and the events of its handler.
struct Service {
    net: Net<Echo>,
    events: Receiver<Event>,
}

fn here() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Builder of a server of several threads, the first of which accepts for all.
fn round_robin(threads_count: u32) -> NetBuilder {
    NetBuilder::new().threads(threads_count).listen(here()).accept_policy(AcceptPolicy::RoundRobin)
}

fn serve(config: Config) -> Service {
    let (sender, events) = channel();
    let codec = LengthPrefixCodec::new(1 << 16);
    let make = move |_| Echo(sender.clone());
    let net = NetBuilder::new().listen(here()).config(config).start(codec, make).unwrap();
    Service { net, events }
}

impl Service {
    fn address(&self) -> SocketAddr {
        self.net.addresses()[0]
    }

    fn connect(&self) -> (TcpStream, ConnHandle<u64>) {
        let peer = TcpStream::connect(self.address()).unwrap();
        peer.set_read_timeout(Some(TIMEOUT)).unwrap();
        match self.next() {
            Event::Accepted(handle) => (peer, handle),
            other => panic!("expected Event::Accepted, got {other:?}"),
        }
    }

    fn next(&self) -> Event {
        self.events.recv_timeout(TIMEOUT).expect("no handler call before the timeout")
    }

    fn closed(&self) -> (u64, String) {
        loop {
            if let Event::Closed(data, why) = self.next() {
                return (data, why);
            }
        }
    }

    /// Asserts that another connection is served normally.
    fn assert_serves_others(&self) {
        let (mut peer, _) = self.connect();
        ask(&mut peer, b"are you well?");
        drop(peer);
        assert_eq!(self.closed(), (1, CloseReason::Peer.to_string()));
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&length.to_be_bytes(), message].concat()
}

fn answer(peer: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    peer.read_exact(&mut length).unwrap();
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    peer.read_exact(&mut message).unwrap();
    message
}

fn ask(peer: &mut TcpStream, message: &[u8]) {
    peer.write_all(&framed(message)).unwrap();
    assert_eq!(answer(peer), message);
}

/// Reads until the server has ended or reset the connection; returns the number of bytes.
fn read_to_close(peer: &mut TcpStream) -> u64 {
    let mut buffer = [0; 65536];
    let mut bytes = 0;
    loop {
        match peer.read(&mut buffer) {
            Ok(0) => return bytes,
            Ok(count) => bytes += count as u64,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return bytes,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn oversized_length_closes_connection_after_earlier_replies() {
    let service = serve(Config::default());
    let (mut peer, _) = service.connect();
    peer.write_all(&[framed(b"before"), vec![0xff; 4]].concat()).unwrap();
    assert_eq!(answer(&mut peer), b"before");
    assert_eq!(read_to_close(&mut peer), 0);
    let (data, why) = service.closed();
    assert!(data == 1 && why.contains("exceeds the codec's limit"), "{why}");
    service.assert_serves_others();
}

#[test]
fn garbage_closes_only_its_own_connection_with_a_reason() {
    let service = serve(Config::default());
    let (mut other, _) = service.connect();
    let mut random = 88_172_645_463_325_252_u64;
    for length in (1..2000).step_by(37) {
        let (mut peer, _) = service.connect();
        let bytes = std::iter::repeat_with(|| {
            // Marsaglia's xorshift.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random.to_be_bytes()[0]
        });
        let garbage: Vec<u8> = bytes.take(length).collect();
        peer.write_all(&garbage).unwrap();
        drop(peer);
        let (_, why) = service.closed();
        assert!(
            why.starts_with("the peer closed the connection")
                || why.contains("exceeds the codec's limit"),
            "{why} of {garbage:?}"
        );
        ask(&mut other, b"still there");
    }
}

#[test]
fn end_of_stream_in_mid_message_is_reported_as_truncated() {
    let service = serve(Config::default());
    let (mut peer, _) = service.connect();
    peer.write_all(&framed(b"whole and half")[..9]).unwrap();
    drop(peer);
    let why = "the peer closed the connection after 9 bytes of an incomplete message";
    assert_eq!(service.closed().1, why);
    service.assert_serves_others();
}

#[test]
fn half_closed_peer_is_still_answered() {
    let service = serve(Config::default());
    let (mut peer, _) = service.connect();
    let long = vec![7; 60_000];
    peer.write_all(&framed(&long)).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(answer(&mut peer), long);
    assert_eq!(read_to_close(&mut peer), 0);
    assert_eq!(service.closed(), (1, CloseReason::Peer.to_string()));
}

#[test]
fn reset_in_mid_message_is_reported() {
    let service = serve(Config::default());
    let (mut peer, _) = service.connect();
    ask(&mut peer, b"first");
    peer.write_all(&framed(b"second")[..6]).unwrap();
    rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
    drop(peer);
    let reset = CloseReason::Reset(rustix::io::Errno::CONNRESET.into());
    assert_eq!(service.closed(), (1, reset.to_string()));
    service.assert_serves_others();
}

#[test]
fn panicking_handler_closes_only_its_connection() {
    let service = serve(Config::default());
    let (mut other, _) = service.connect();
    let (mut peer, _) = service.connect();
    peer.write_all(&framed(b"panic")).unwrap();
    assert!(matches!(service.next(), Event::Panicked(message) if message == "requested panic"));
    assert_eq!(service.closed(), (1, CloseReason::Panicked.to_string()));
    assert_eq!(read_to_close(&mut peer), 0);
    ask(&mut other, b"still there");
}

/// Returns the kind of the timer that the kernel runs for the connection from `local` to `remote`:
/// 02 is the keepalive timer, 00 is none.
fn tcp_timer(local: SocketAddr, remote: SocketAddr) -> Option<String> {
    let hex_address = |it: SocketAddr| format!("0100007F:{:04X}", it.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let words = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut found = words.filter(|it| it[1] == hex_address(local) && it[2] == hex_address(remote));
    found.next().map(|it| it[5].split_once(':').unwrap().0.to_owned())
}

#[test]
fn keepalive_timer_runs_unless_disabled() {
    for (config, timer) in [
        (Config::default(), "02"),
        (Config::default().keepalive(Duration::from_millis(1)), "02"),
        (Config::default().keepalive(Duration::ZERO), "00"),
    ] {
        let service = serve(config);
        let (mut peer, _) = service.connect();
        ask(&mut peer, b"first");
        let (here, there) = (peer.local_addr().unwrap(), peer.peer_addr().unwrap());
        // Until the sent bytes are acknowledged, another timer runs.
        let began = std::time::Instant::now();
        while tcp_timer(there, here).as_deref() != Some(timer) {
            assert!(began.elapsed() < TIMEOUT, "{:?} instead of {timer}", tcp_timer(there, here));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn trickled_message_times_out() {
    let service = serve(Config::default().message_timeout(Duration::from_millis(150)));
    let (mut peer, _) = service.connect();
    // The message is too long to be complete in time. A write fails once the server has closed.
    for byte in framed(&[7; 60_000]) {
        if peer.write_all(&[byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    assert_eq!(service.closed(), (0, CloseReason::TimedOut(TimeoutError::Message).to_string()));
}

#[test]
fn suspended_connection_does_not_time_out() {
    // Long enough even if this test gets the CPU late.
    let timeout = Duration::from_secs(1);
    let service = serve(Config::default().message_timeout(timeout).idle_timeout(timeout));
    let (mut peer, handle) = service.connect();
    let message = framed(b"in two parts");
    peer.write_all(&message[..5]).unwrap();
    handle.suspend().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    handle.resume().unwrap();
    peer.write_all(&message[5..]).unwrap();
    assert_eq!(answer(&mut peer), b"in two parts");
    // Now the timeout applies.
    peer.write_all(&message[..5]).unwrap();
    assert_eq!(read_to_close(&mut peer), 0);
}

#[test]
fn suspended_connection_does_not_time_out_when_a_stop_resumes_it() {
    let bytes_max = 2 * POURED_BYTES as u32;
    let service = serve(
        Config::default()
            .queued_bytes_max(bytes_max)
            .high_water_bytes(bytes_max)
            .message_timeout(Duration::from_secs(1)),
    );
    let (mut peer, handle) = service.connect();
    let incomplete = &framed(b"never complete")[..3];
    peer.write_all(&[&framed(b"read"), incomplete].concat()).unwrap();
    assert_eq!(answer(&mut peer), b"read");
    handle.write(vec![0; POURED_BYTES as usize]).unwrap();
    handle.suspend().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let stopping = std::thread::spawn(move || service.net.stop(TIMEOUT).unwrap());
    // The stop begins before the queued bytes are read.
    std::thread::sleep(Duration::from_millis(100));
    let poured = std::io::copy(&mut (&peer).take(POURED_BYTES), &mut std::io::sink()).unwrap();
    assert_eq!(poured, POURED_BYTES);
    drop(peer);
    stopping.join().unwrap();
}

#[test]
fn idle_connection_is_closed_after_idle_timeout() {
    let service = serve(Config::default().idle_timeout(Duration::from_secs(1)));
    let (mut peer, _) = service.connect();
    ask(&mut peer, b"first");
    assert_eq!(read_to_close(&mut peer), 0);
    assert_eq!(service.closed(), (1, CloseReason::Idle.to_string()));
}

#[test]
fn connection_that_is_not_read_does_not_become_idle() {
    let config = Config::default().idle_timeout(Duration::from_secs(1));
    let service = serve(config.queued_bytes_max(2 * POURED_BYTES as u32));
    for message in [&b"pour"[..], b"pour and close"] {
        let (mut peer, _) = service.connect();
        peer.write_all(&framed(message)).unwrap();
        assert!(matches!(service.next(), Event::Crossed(WaterMarkCrossing::High)));
        std::thread::sleep(Duration::from_millis(1500));
        std::io::copy(&mut (&peer).take(POURED_BYTES), &mut std::io::sink()).unwrap();
        if message == b"pour" {
            // The timeout starts again; within this time, idle connections are searched for twice.
            std::thread::sleep(Duration::from_millis(300));
            ask(&mut peer, b"still connected?");
            drop(peer);
            assert_eq!(service.closed().1, CloseReason::Peer.to_string());
        } else {
            assert_eq!(read_to_close(&mut peer), 0);
            drop(peer);
            assert_eq!(service.closed().1, CloseReason::Local.to_string());
        }
    }
}

#[test]
fn bytes_that_arrive_in_time_during_a_stall_prevent_a_timeout() {
    let timeout = Duration::from_secs(1);
    let config = Config::default().read_bytes(512);
    // The second part takes many reads; any of them ends the idle time.
    for config in [config.message_timeout(timeout), config.idle_timeout(timeout)] {
        let service = serve(config);
        let ((mut peer, _), (mut stalling, _)) = (service.connect(), service.connect());
        let message = framed(&[7; 10_000]);
        peer.write_all(&message[..5]).unwrap();
        // The first part is read before the thread stalls.
        ask(&mut stalling, b"first");
        stalling.write_all(&framed(b"stall")).unwrap();
        assert!(matches!(service.next(), Event::Message(_)));
        peer.write_all(&message[5..]).unwrap();
        assert_eq!(answer(&mut peer), [7; 10_000]);
    }
}

#[test]
fn connection_whose_received_messages_are_being_handled_does_not_become_idle() {
    // One message is handled in each iteration of the event loop: each reply crosses the mark.
    let marks = Config::default().high_water_bytes(1).low_water_bytes(0);
    let service = serve(marks.idle_timeout(Duration::from_secs(1)));
    let (mut peer, _) = service.connect();
    let messages: [&[u8]; 5] = [b"first", b"stall", b"third", b"fourth", b"fifth"];
    peer.write_all(&messages.map(framed).concat()).unwrap();
    for message in messages.into_iter().filter(|&message| message != b"stall") {
        assert_eq!(answer(&mut peer), message);
    }
}

#[test]
fn connection_does_not_become_idle_while_its_only_message_is_handled() {
    let service = serve(Config::default().idle_timeout(Duration::from_secs(1)));
    let ((mut peer, _), (mut other, _)) = (service.connect(), service.connect());
    peer.write_all(&framed(b"stall")).unwrap();
    assert!(matches!(service.next(), Event::Message(_)));
    // Once this is answered, the thread has searched for idle connections after the stall.
    ask(&mut other, b"other");
    ask(&mut peer, b"still connected?");
}

#[test]
fn closed_connection_with_an_incomplete_message_does_not_time_out() {
    let bytes_max = 2 * POURED_BYTES as u32;
    let service = serve(
        Config::default()
            .queued_bytes_max(bytes_max)
            .high_water_bytes(bytes_max)
            .message_timeout(Duration::from_secs(1)),
    );
    let (mut peer, handle) = service.connect();
    let incomplete = &framed(b"never complete")[..3];
    peer.write_all(&[&framed(b"read"), incomplete].concat()).unwrap();
    assert_eq!(answer(&mut peer), b"read");
    handle.write(vec![0; POURED_BYTES as usize]).unwrap();
    handle.close().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(read_to_close(&mut peer), POURED_BYTES);
    drop(peer);
    assert_eq!(service.closed(), (1, CloseReason::Local.to_string()));
}

#[test]
fn queued_bytes_are_sent_to_a_peer_that_ends_its_stream_during_a_stall() {
    let bytes_max = 2 * POURED_BYTES as u32;
    let marks = Config::default().queued_bytes_max(bytes_max).high_water_bytes(bytes_max);
    let service = serve(marks.idle_timeout(Duration::from_secs(1)));
    let (mut peer, _) = service.connect();
    peer.write_all(&[framed(b"pour"), framed(b"stall")].concat()).unwrap();
    assert!(matches!(service.next(), Event::Message(_)));
    peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_close(&mut peer), POURED_BYTES);
    assert_eq!(service.closed(), (2, CloseReason::Peer.to_string()));
}

#[test]
fn connection_established_in_time_during_a_stall_does_not_time_out() {
    let service = serve(Config::default().connect_timeout(Duration::from_secs(1)));
    let listener = TcpListener::bind(here()).unwrap();
    let (mut peer, _) = service.connect();
    let message = format!("connect and stall: {}", listener.local_addr().unwrap());
    peer.write_all(&framed(message.as_bytes())).unwrap();
    let connected = service.next();
    assert!(matches!(connected, Event::Connected(7)), "{connected:?}");
}

#[test]
fn peer_that_never_reads_is_not_read_and_hits_write_timeout() {
    // Any queued bytes are above the mark, so that the timeout cannot pass before it is crossed.
    let marks = Config::default().high_water_bytes(1).low_water_bytes(0);
    let service = serve(marks.write_timeout(Duration::from_millis(300)));
    let (mut peer, _) = service.connect();
    peer.set_write_timeout(Some(TIMEOUT)).unwrap();
    let message = framed(&[7; 60_000]);
    // Until all buffers are full and the server closes the connection.
    while peer.write_all(&message).is_ok() {}
    assert!(matches!(service.next(), Event::Crossed(WaterMarkCrossing::High)));
    assert_eq!(service.closed().1, CloseReason::TimedOut(TimeoutError::Write).to_string());
    service.assert_serves_others();
}

#[test]
fn slow_reader_receives_everything_and_both_water_marks_are_reported() {
    let service = serve(Config::default());
    let (mut peer, _) = service.connect();
    peer.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let message = framed(&[7; 60_000]);
    let mut written = 0_u64;
    let deadline = Instant::now() + TIMEOUT;
    'full: loop {
        let mut rest = &message[..];
        while !rest.is_empty() {
            match peer.write(rest) {
                Ok(count) => {
                    rest = &rest[count..];
                    written += count as u64;
                }
                Err(_) => match service.events.try_recv() {
                    Ok(Event::Crossed(WaterMarkCrossing::High)) => break 'full,
                    Ok(other) => panic!("expected Event::Crossed, got {other:?}"),
                    // The server did not get the CPU, or the event is not sent yet.
                    Err(_) => assert!(Instant::now() < deadline, "no water mark was crossed"),
                },
            }
        }
    }
    let whole_bytes = written / message.len() as u64 * message.len() as u64;
    let mut read = vec![0; usize::try_from(whole_bytes).unwrap()];
    peer.read_exact(&mut read).unwrap();
    assert!(read.chunks(message.len()).all(|it| it == message), "other bytes were received");
    assert!(matches!(service.next(), Event::Crossed(WaterMarkCrossing::Low)));
}

#[test]
fn flooding_beyond_queued_bytes_max_closes_the_connection() {
    let service = serve(Config::default().queued_bytes_max(1 << 18));
    let (mut peer, handle) = service.connect();
    peer.write_all(&framed(b"flood")).unwrap();
    let (_, why) = service.closed();
    assert!(why.contains("would exceed queued_bytes_max=262144"), "{why}");
    // A handle of a closed connection has no effect.
    handle.write(b"too late".to_vec()).unwrap();
    service.assert_serves_others();
    let (stats, _) = service.net.stop(TIMEOUT).unwrap();
    assert_eq!(stats.slow_readers_count, 1);
}

#[test]
fn write_after_an_overflow_in_the_same_call_is_refused() {
    let service = serve(Config::default().queued_bytes_max(1 << 18));
    let (mut peer, _) = service.connect();
    peer.write_all(&framed(b"flood")).unwrap();
    let late = service.next();
    assert!(matches!(late, Event::WrittenLate(Err(WriteError::Closed))), "{late:?}");
}

#[test]
fn close_sends_queued_bytes_first() {
    let service = serve(Config::default());
    let (mut peer, _) = service.connect();
    let long = vec![7; 60_000];
    peer.write_all(&[framed(&long), framed(b"close"), framed(b"ignored")].concat()).unwrap();
    assert_eq!(answer(&mut peer), long);
    assert_eq!(read_to_close(&mut peer), 0);
    drop(peer);
    assert_eq!(service.closed(), (2, CloseReason::Local.to_string()));
}

#[test]
fn handle_controls_connection_from_another_thread() {
    let service = serve(Config::default());
    let (mut peer, handle) = service.connect();
    handle.write(framed(b"out of the blue")).unwrap();
    assert_eq!(answer(&mut peer), b"out of the blue");
    handle.trigger().unwrap();
    assert_eq!(answer(&mut peer), b"triggered");
    assert!(matches!(service.next(), Event::Triggered));
    handle.suspend().unwrap();
    // Commands are executed in order: once this is answered, the connection is suspended.
    handle.trigger().unwrap();
    assert_eq!(answer(&mut peer), b"triggered");
    peer.write_all(&framed(b"who is there?")).unwrap();
    peer.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(peer.read(&mut [0; 1]).is_err());
    peer.set_read_timeout(Some(TIMEOUT)).unwrap();
    handle.resume().unwrap();
    assert_eq!(answer(&mut peer), b"who is there?");
    handle.close().unwrap();
    assert_eq!(read_to_close(&mut peer), 0);
    drop(peer);
    assert_eq!(service.closed(), (1, CloseReason::Local.to_string()));
}

#[test]
fn one_handler_serves_accepted_and_outgoing_connections() {
    let service = serve(Config::default());
    service.net.connect(service.address(), 42).unwrap();
    let mut seen = (false, false, false);
    while seen != (true, true, true) {
        match service.next() {
            Event::Accepted(_) => seen.0 = true,
            Event::Connected(data) => {
                assert_eq!(data, 42);
                seen.1 = true;
            }
            Event::Message(message) => {
                assert_eq!(message, b"hello from the client");
                seen.2 = true;
            }
            other => panic!("{other:?}"),
        }
    }
    let (stats, _) = service.net.stop(Duration::from_secs(5)).unwrap();
    assert_eq!((stats.accepted_count, stats.connected_count, stats.open_count), (1, 1, 0));
}

/// Returns a socket that is bound and does not listen, as a [`TcpStream`], and its address.
/// Connections to that address are refused. While the socket exists, no other can be bound to it.
pub(crate) fn refusing_socket() -> (TcpStream, SocketAddr) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &here()).unwrap();
    let socket = TcpStream::from(socket);
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[test]
fn refused_connect_is_reported() {
    let service = serve(Config::default());
    let (_socket, address) = refusing_socket();
    service.net.connect(address, 7).unwrap();
    let refused = CloseReason::ConnectFailed(rustix::io::Errno::CONNREFUSED.into());
    assert_eq!(service.closed(), (7, refused.to_string()));
    assert!(std::error::Error::source(&refused).is_none(), "the message contains the cause");
}

#[test]
fn connection_to_itself_counts_as_refused() {
    let service = serve(Config::default());
    // Nobody listens there any more. No other test uses this IP address, so none can take the port.
    let address = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    service.net.connect(ConnectOptions::new(address).with_source(address), 7).unwrap();
    let refused = CloseReason::ConnectFailed(rustix::io::Errno::CONNREFUSED.into());
    assert_eq!(service.closed(), (7, refused.to_string()));
}

#[test]
fn housekeep_is_called_repeatedly() {
    let service = serve(Config::default().housekeep_interval(Duration::from_millis(10)));
    assert!((0..3).all(|_| matches!(service.next(), Event::Housekept(0))));
}

#[test]
fn full_server_accepts_waiting_peer_after_a_close() {
    let service = serve(Config::default().connections_max(2));
    let (first, _) = service.connect();
    let (mut second, _) = service.connect();
    let mut third = TcpStream::connect(service.address()).unwrap();
    third.write_all(&framed(b"patient")).unwrap();
    ask(&mut second, b"still served");
    drop(first);
    assert_eq!(answer(&mut third), b"patient");
    drop((second, third));
    let (stats, _) = service.net.stop(TIMEOUT).unwrap();
    assert!(stats.accept_pauses_count >= 1);
}

#[test]
fn full_threads_accept_waiting_peer_after_a_close() {
    let (sender, _told) = channel();
    let config = Config::default().connections_max(2);
    let (codec, make) = (LengthPrefixCodec::new(100), |_| Echo(sender.clone()));
    let net = round_robin(2).config(config).start(codec, make).unwrap();
    let connect = || TcpStream::connect(net.addresses()[0]).unwrap();
    let mut peers: Vec<_> = (0..4).map(|_| connect()).collect();
    peers.iter_mut().for_each(|peer| ask(peer, b"in turn"));
    let mut fifth = connect();
    fifth.write_all(&framed(b"patient")).unwrap();
    peers.iter_mut().for_each(|peer| ask(peer, b"still served"));
    drop(peers.remove(1));
    assert_eq!(answer(&mut fifth), b"patient");
    let (stats, _) = net.stop(TIMEOUT).unwrap();
    assert_eq!((stats.accepted_count, stats.turned_away_count), (5, 0));
}

/// Handler that connects and closes the connection at once.
struct ClosesAtOnce(Sender<Event>, SocketAddr);

impl Handler for ClosesAtOnce {
    type Codec = LengthPrefixCodec;
    type Data = u64;

    fn on_connect(&mut self, conn: &mut Peer<'_>) {
        let _ = self.0.send(Event::Connected(*conn.data_mut()));
    }

    fn on_message(&mut self, _: &mut Peer<'_>, _: &[u8]) {}

    fn on_close(
        &mut self,
        _: &mut Connections<'_, LengthPrefixCodec, u64>,
        _: ConnKey,
        data: u64,
        why: &CloseReason,
    ) {
        let _ = self.0.send(Event::Closed(data, why.to_string()));
    }

    fn housekeep(&mut self, connections: &mut Connections<'_, LengthPrefixCodec, u64>) {
        let key = connections.connect(self.1, 7).unwrap();
        connections.close(key);
    }
}

#[test]
fn connection_closed_while_connecting_never_calls_on_connect() {
    let (sender, events) = channel();
    let there = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = there.local_addr().unwrap();
    let config = Config::default()
        .housekeep_interval(Duration::from_millis(5))
        .connect_timeout(Duration::from_secs(60));
    let make = |_| ClosesAtOnce(sender.clone(), address);
    let codec = LengthPrefixCodec::new(100);
    let _net = NetBuilder::new().config(config).start(codec, make).unwrap();
    for _ in 0..3 {
        match events.recv_timeout(TIMEOUT).unwrap() {
            Event::Closed(7, why) => assert_eq!(why, CloseReason::Local.to_string()),
            other => panic!("expected Event::Closed, got {other:?}"),
        }
    }
}

#[test]
fn turned_away_peer_is_closed_at_once() {
    let service =
        serve(Config::default().connections_max(1).when_full(FullConnectionsPolicy::Reject));
    let (mut first, _) = service.connect();
    let mut second = TcpStream::connect(service.address()).unwrap();
    second.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(read_to_close(&mut second), 0);
    ask(&mut first, b"still served");
    drop(first);
    assert_eq!(service.closed(), (1, CloseReason::Peer.to_string()));
    service.assert_serves_others();
}

#[test]
fn connections_beyond_per_address_limit_are_closed() {
    let service = serve(Config::default().connections_per_address_max(1));
    let (first, _) = service.connect();
    let mut second = TcpStream::connect(service.address()).unwrap();
    second.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(read_to_close(&mut second), 0);
    drop(first);
    assert_eq!(service.closed(), (0, CloseReason::Peer.to_string()));
    service.assert_serves_others();
}

#[test]
fn per_address_refusal_names_address_and_limit() {
    let config = Config::default().connections_per_address_max(1);
    let mut reactor = Reactor::new(config, LengthPrefixCodec::new(8), Echo(channel().0)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accept = || {
        let peer = TcpStream::connect(address).unwrap();
        (listener.accept().unwrap().0, peer)
    };
    let ((first, _peer), (second, _other_peer)) = (accept(), accept());
    reactor.adopt(first).unwrap();
    let refused = reactor.adopt(second).unwrap_err();
    let said =
        "cannot open a connection: 1 from 127.0.0.1 are open; raise connections_per_address_max";
    assert_eq!(refused.to_string(), said);
}

#[test]
fn connect_while_stopping_returns_stopping() {
    let config = Config::default();
    let mut reactor = Reactor::new(config, LengthPrefixCodec::new(8), Echo(channel().0)).unwrap();
    reactor.stopper().stop(Duration::ZERO);
    reactor.run().unwrap();
    let refused = reactor.connect("127.0.0.1:1".parse::<SocketAddr>().unwrap(), 5).unwrap_err();
    assert_eq!(refused.to_string(), "cannot open a connection: the thread is stopping");
}

/// Handler whose connection always has a command in the queue, until the flag is set.
struct Busy(Arc<AtomicBool>);

impl Handler for Busy {
    type Codec = BytesCodec;
    type Data = ();

    fn on_accept(&mut self, conn: &mut Conn<'_, BytesCodec, ()>) {
        conn.handle().trigger().unwrap();
    }

    fn on_trigger(&mut self, conn: &mut Conn<'_, BytesCodec, ()>) {
        if !self.0.load(SeqCst) {
            conn.handle().trigger().unwrap();
        }
    }

    fn on_message(&mut self, _: &mut Conn<'_, BytesCodec, ()>, _: &[u8]) {}
}

#[test]
fn counters_are_published_under_constant_load() {
    let is_done = Arc::new(AtomicBool::new(false));
    let handler = Busy(Arc::clone(&is_done));
    let mut reactor = Reactor::new(Config::default(), BytesCodec, handler).unwrap();
    let (ours, peer) = UnixStream::pair().unwrap();
    reactor.adopt(ours).unwrap();
    let stopper = reactor.stopper();
    let thread = std::thread::spawn(move || reactor.run().unwrap());
    let deadline = Instant::now() + TIMEOUT;
    for _ in 0..3 {
        let rounds_count = stopper.stats().rounds_count;
        while stopper.stats().rounds_count == rounds_count {
            assert!(Instant::now() < deadline, "the published counters were not updated in time");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    is_done.store(true, SeqCst);
    stopper.stop(TIMEOUT);
    drop(peer);
    assert_eq!(thread.join().unwrap().accepted_count, 1);
}

#[test]
fn stop_under_load_answers_every_received_message() {
    let service = serve(Config::default());
    let address = service.address();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            // Connected before any other client makes the server stop.
            let mut peer = TcpStream::connect(address).unwrap();
            std::thread::spawn(move || {
                let writer = peer.try_clone().unwrap();
                let writing = std::thread::spawn(move || {
                    let mut writer = writer;
                    // Until the server has ended.
                    while writer.write_all(&framed(b"tell").repeat(50)).is_ok()
                        && writer.write_all(&framed(b"more")).is_ok()
                    {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                });
                let mut answers = 0_u64;
                let mut reply = [0; 8];
                while peer.read_exact(&mut reply).is_ok() {
                    assert_eq!(reply, *framed(b"more"));
                    answers += 1;
                }
                let _ = peer.shutdown(Shutdown::Both);
                writing.join().unwrap();
                answers
            })
        })
        .collect();
    let Service { net, events } = service;
    // By then one of the four has sent more than fifty of these, and must get an answer.
    let mut silent = 0;
    while silent <= 4 * 50 {
        silent += u64::from(matches!(events.recv_timeout(TIMEOUT).unwrap(), Event::Message(_)));
    }
    let (stats, handlers) = net.stop(TIMEOUT).unwrap();
    drop(handlers);
    let answers: u64 = clients.into_iter().map(|it| it.join().unwrap()).sum();
    silent += events.into_iter().filter(|it| matches!(it, Event::Message(_))).count() as u64;
    assert!(answers > 0);
    assert_eq!(answers + silent, stats.messages_count, "some messages were read but not answered");
    assert_eq!(stats.sent_bytes, 8 * answers);
}

#[test]
fn connections_are_distributed_to_threads_in_turn() {
    let (sender, events) = channel();
    let codec = LengthPrefixCodec::new(100);
    let net = round_robin(2).start(codec, |_| Echo(sender.clone())).unwrap();
    let mut peers: Vec<_> =
        (0..4).map(|_| TcpStream::connect(net.addresses()[0]).unwrap()).collect();
    for peer in &mut peers {
        ask(peer, b"anybody?");
    }
    drop(events);
    let (_, handlers) = net.stop(Duration::ZERO).unwrap();
    assert_eq!(handlers.len(), 2);
}

#[test]
fn stop_answers_accepted_connections_not_yet_handed_over() {
    for round in 0..20 {
        let (sender, _told) = channel();
        let codec = LengthPrefixCodec::new(100);
        // Few accepts per turn, so that most connections are not accepted yet when the server
        // stops.
        let config = Config::default().accepts_max(1 + round % 3);
        let make = move |_| Echo(sender.clone());
        let net = round_robin(3).config(config).start(codec, make).unwrap();
        let peers: Vec<_> = (0..40)
            .map(|_| {
                let mut peer = TcpStream::connect(net.addresses()[0]).unwrap();
                peer.set_read_timeout(Some(TIMEOUT)).unwrap();
                peer.write_all(&framed(b"just in time")).unwrap();
                peer
            })
            .collect();
        let stopping = std::thread::spawn(move || net.stop(TIMEOUT).unwrap().0);
        for mut peer in peers {
            assert_eq!(answer(&mut peer), b"just in time", "round {round}");
            assert_eq!(read_to_close(&mut peer), 0);
        }
        let stats = stopping.join().unwrap();
        assert_eq!((stats.accepted_count, stats.messages_count), (40, 40), "round {round}");
    }
}

#[test]
fn message_after_urgent_data_is_answered() {
    let service = serve(Config::default());
    let (mut peer, handle) = service.connect();
    handle.suspend().unwrap();
    handle.trigger().unwrap();
    assert_eq!(answer(&mut peer), b"triggered");
    peer.write_all(&framed(b"before")).unwrap();
    assert_eq!(send(&peer, b"!", SendFlags::OOB), Ok(1));
    peer.write_all(&framed(b"after")).unwrap();
    handle.resume().unwrap();
    assert_eq!((answer(&mut peer), answer(&mut peer)), (b"before".to_vec(), b"after".to_vec()));
}

#[test]
fn message_after_a_descriptor_is_answered() {
    let (mut peer, far) = UnixStream::pair().unwrap();
    peer.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [far.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let first = framed(b"before");
    let parts = [IoSlice::new(&first)];
    assert_eq!(sendmsg(&peer, &parts, &mut control, SendFlags::empty()), Ok(first.len()));
    peer.write_all(&framed(b"after")).unwrap();
    let mut reactor = Reactor::new(Config::default(), LengthPrefixCodec::new(1000), Slow).unwrap();
    reactor.adopt(far).unwrap();
    let stopper = reactor.stopper();
    let running = std::thread::spawn(move || reactor.run().unwrap());
    let begun = Instant::now();
    // The answers are not read before: that would cause another notification.
    while stopper.stats().messages_count < 2 {
        assert!(begun.elapsed() < TIMEOUT / 6, "the second message was not read");
        std::thread::sleep(Duration::from_millis(1));
    }
    let expected = [framed(b"before"), framed(b"after")].concat();
    let mut received = vec![0; expected.len()];
    peer.read_exact(&mut received).unwrap();
    assert_eq!(received, expected);
    stopper.stop(TIMEOUT);
    drop(peer);
    running.join().unwrap();
}

/// Handler that waits for a signal before it handles a message.
struct Gated(Sender<()>, Receiver<()>);

impl Handler for Gated {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        if message == b"wait" {
            self.0.send(()).unwrap();
            self.1.recv_timeout(TIMEOUT).unwrap();
        }
        let _ = conn.send(message);
    }
}

#[test]
fn stop_ends_although_connections_are_handed_over_after_the_grace_period() {
    let (sender, entered) = channel();
    let (gates, ends): (Vec<_>, Vec<_>) = (0..2).map(|_| channel()).unzip();
    let mut ends = ends.into_iter();
    let make = |_| Gated(sender.clone(), ends.next().unwrap());
    let config = Config::default().message_timeout(Duration::ZERO);
    let net = round_robin(2).config(config).start(LengthPrefixCodec::new(100), make).unwrap();
    let address = net.addresses()[0];
    // The second connection belongs to the first thread, which accepts for both.
    let mut peers = [(); 2].map(|()| {
        let mut peer = TcpStream::connect(address).unwrap();
        ask(&mut peer, b"anybody?");
        peer
    });
    peers[1].write_all(&framed(b"wait")).unwrap();
    entered.recv_timeout(TIMEOUT).unwrap();
    // Accepted after the handler has returned. Their peers begin a message, and do not end it.
    let silent = [(); 4].map(|()| {
        let mut peer = TcpStream::connect(address).unwrap();
        peer.write_all(&framed(b"rest")[..5]).unwrap();
        peer
    });
    let grace = Duration::from_millis(20);
    let stopping = std::thread::spawn(move || net.stop(grace).unwrap().0);
    std::thread::sleep(10 * grace);
    gates[0].send(()).unwrap();
    let begun = Instant::now();
    while !stopping.is_finished() {
        assert!(begun.elapsed() < TIMEOUT / 2, "the threads have not stopped");
        std::thread::sleep(grace);
    }
    assert_eq!(stopping.join().unwrap().accepted_count, 6);
    drop((silent, peers));
}

#[test]
fn later_stop_request_with_a_shorter_grace_period_takes_effect() {
    let (mut peer, far) = UnixStream::pair().unwrap();
    peer.write_all(&framed(b"rest")[..5]).unwrap(); // Waits for the rest.
    let config = Config::default().message_timeout(Duration::ZERO);
    let mut reactor = Reactor::new(config, LengthPrefixCodec::new(8), Slow).unwrap();
    reactor.adopt(far).unwrap();
    let stopper = reactor.stopper();
    let running = std::thread::spawn(move || reactor.run().unwrap());
    stopper.stop(60 * TIMEOUT);
    std::thread::sleep(Duration::from_millis(30));
    stopper.stop(Duration::ZERO);
    let begun = Instant::now();
    while !running.is_finished() {
        assert!(begun.elapsed() < TIMEOUT / 2, "the thread has not stopped");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(running.join().unwrap().closed_count, 1);
}

#[test]
fn replies_before_an_invalid_message_are_followed_by_an_orderly_end() {
    let service = serve(Config::default().read_bytes(4096));
    let (mut peer, handle) = service.connect();
    handle.suspend().unwrap();
    handle.trigger().unwrap();
    assert_eq!(answer(&mut peer), b"triggered");
    // More bytes than one read takes, so that some are unread when the connection is closed.
    peer.write_all(&framed(b"before")).unwrap();
    peer.write_all(&[0xFF; 20_000]).unwrap();
    handle.resume().unwrap();
    let mut received = Vec::new();
    peer.read_to_end(&mut received).unwrap();
    assert_eq!(received, framed(b"before"));
    let (stats, _handlers) = service.net.stop(TIMEOUT).unwrap();
    assert_eq!(stats.messages_count, 1);
}

/// Echo handler that takes one millisecond per message.
struct Slow;

impl Handler for Slow {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        std::thread::sleep(Duration::from_millis(1));
        let _ = conn.send(message);
    }
}

#[test]
fn peer_sending_during_stop_gets_orderly_end() {
    // A Unix socket has no TCP window: there are always more bytes than one read takes.
    let (mut peer, far) = UnixStream::pair().unwrap();
    let config = Config::default().read_bytes(4096);
    let mut reactor = Reactor::new(config, LengthPrefixCodec::new(1000), Slow).unwrap();
    reactor.adopt(far).unwrap();
    let stopper = reactor.stopper();
    let running = std::thread::spawn(move || {
        reactor.run().unwrap();
        reactor.stats().messages_count
    });
    peer.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut writer = peer.try_clone().unwrap();
    let message = framed(&[7; 1000]);
    let mut answer = message.clone();
    let writing = std::thread::spawn(move || while writer.write_all(&message).is_ok() {});
    peer.read_exact(&mut answer).unwrap();
    stopper.stop(TIMEOUT);
    let mut answers_count = 1;
    let end = loop {
        match peer.read_exact(&mut answer) {
            Ok(()) => answers_count += 1,
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(end, ErrorKind::UnexpectedEof, "after {answers_count} answers");
    peer.shutdown(Shutdown::Both).unwrap();
    writing.join().unwrap();
    assert_eq!(running.join().unwrap(), answers_count);
}

#[test]
fn end_or_reset_of_suspended_peer_is_detected() {
    for is_reset in [false, true] {
        let service = serve(Config::default());
        let (mut peer, handle) = service.connect();
        handle.suspend().unwrap();
        handle.trigger().unwrap();
        assert_eq!(answer(&mut peer), b"triggered");
        if is_reset {
            // The server does not read this message, and its answer would have no receiver.
            peer.write_all(&framed(b"last words")).unwrap();
            rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        }
        drop(peer);
        let expected = match is_reset {
            false => CloseReason::Peer,
            true => CloseReason::Reset(rustix::io::Errno::CONNRESET.into()),
        };
        assert_eq!(service.closed(), (0, expected.to_string()));
    }
}

#[test]
fn resumed_connection_answers_messages_sent_before_shutdown() {
    let service = serve(Config::default());
    let (mut peer, handle) = service.connect();
    handle.suspend().unwrap();
    handle.trigger().unwrap();
    assert_eq!(answer(&mut peer), b"triggered");
    peer.write_all(&framed(b"last words")).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    handle.resume().unwrap();
    assert_eq!(answer(&mut peer), b"last words");
    assert_eq!(read_to_close(&mut peer), 0);
    assert_eq!(service.closed(), (1, CloseReason::Peer.to_string()));
}

/// Data of a connection that cannot be created on the first thread.
struct NotOnFirstThread;

impl Default for NotOnFirstThread {
    fn default() -> Self {
        assert_ne!(std::thread::current().name(), Some("net-0"), "on purpose");
        Self
    }
}

/// Handler whose drop takes a while, and is reported.
struct SlowToDrop(Arc<AtomicBool>);

impl Drop for SlowToDrop {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(100));
        self.0.store(true, SeqCst);
    }
}

impl Handler for SlowToDrop {
    type Codec = BytesCodec;
    type Data = NotOnFirstThread;

    fn on_message(&mut self, _conn: &mut Conn<'_, BytesCodec, NotOnFirstThread>, _: &[u8]) {}
}

#[test]
fn stop_awaits_all_threads_although_one_has_panicked() {
    let dropped: [Arc<AtomicBool>; 2] = Default::default();
    let handler = |thread: u32| SlowToDrop(Arc::clone(&dropped[thread as usize]));
    let net = round_robin(2).start(BytesCodec, handler).unwrap();
    // Each thread gets one, if the first has not ended before.
    (0..2).for_each(|_| drop(TcpStream::connect(net.addresses()[0])));
    let stopped = net.stop(TIMEOUT).map(|_| ());
    assert!(matches!(stopped, Err(NetError::ThreadUnavailable)), "{stopped:?}");
    assert!(dropped.iter().all(|it| it.load(SeqCst)));
}
