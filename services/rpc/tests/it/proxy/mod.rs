//! Tests of calls and transfers through networks that delay, split, stall, reset and end: results
//! must be correct, or errors.
//!
//! `HANDOVER_LONG=1` cuts 200 connections in each way instead of a few.

mod relay;

use handover_rpc::{
    Address, Bulk, BulkError, BulkHandle, BulkMemory, BulkPart, CallError, Calling, CloseReason,
    Config, ConnectionsConfig, Endpoint, EndpointError, Method, Peer, Rights, Stopper,
};
use relay::{Cut, FAIR, Relay, Weather};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ECHO: Method = Method::new("echo");
const HANDLE: Method = Method::new("handle");
const OWNED_BYTES: usize = 300_000;
/// Limit for events that should happen at once: ten times what a busy machine takes.
const SOON: Duration = Duration::from_secs(60);

fn config() -> Config {
    Config::default().connections(ConnectionsConfig::default().queued_bytes_max(1 << 20))
}

struct Server {
    address: Address,
    stopper: Stopper,
    thread: Option<JoinHandle<Endpoint>>,
}

impl Server {
    fn new() -> Self {
        let mut server = Endpoint::new(config()).unwrap();
        let address = server.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
        let echo = |_: &mut handover_rpc::Context<'_>, bytes: &[u8], answer: &mut Vec<u8>| {
            answer.extend_from_slice(bytes);
            Ok(())
        };
        server.register_bytes("echo", 0, echo).unwrap();
        let owned = BulkMemory::plain(pattern(OWNED_BYTES, 0));
        let handle = server.register_memory(&owned, Rights::ReadWrite).unwrap();
        server.register("handle", 0, move |_, ()| Ok(handle)).unwrap();
        let stopper = server.stopper();
        let serve = move || {
            server.serve();
            server
        };
        Self { address, stopper, thread: Some(std::thread::spawn(serve)) }
    }

    fn relayed(&self, weather: Weather) -> (Relay, Address) {
        let relay = Relay::new(self.address.without_scheme(), weather);
        let address = Address::Tcp(relay.address.to_string());
        (relay, address)
    }

    /// Stops the server, and checks that all its peers leave.
    fn ends_alone(mut self) {
        self.stopper.stop();
        let mut server = self.thread.take().unwrap().join().expect("the server panicked");
        let began = Instant::now();
        while server.stats().peers_count > 0 && began.elapsed() < SOON {
            server.progress(Duration::from_millis(5));
        }
        assert_eq!(server.stats().peers_count, 0);
    }
}

fn pattern(bytes: usize, salt: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8 ^ salt).collect()
}

/// Makes calls of all lengths, many at a time, and transfers in both directions, and checks them.
/// Returns the first error.
fn all_sorts(client: &mut Endpoint, peer: Peer, salt: u8) -> Result<(), Failed> {
    let lengths = [0, 1, 23, 24, 25, 4096, 70_000];
    let mut calls = Vec::new();
    for (number, length) in lengths.iter().cycle().take(21).enumerate() {
        let sent = pattern(*length, salt ^ number as u8);
        calls.push((client.start::<_, Vec<u8>>(peer, ECHO, &sent)?, sent));
    }
    for (call, sent) in calls {
        assert!(client.wait(call)? == sent, "another answer");
    }
    let handle: BulkHandle = client.call(peer, HANDLE, &())?;
    let ours = BulkMemory::plain(pattern(OWNED_BYTES, salt));
    let all = BulkPart::new(OWNED_BYTES as u64);
    client.push(peer, &handle, &ours, all)?;
    let back = BulkMemory::plain(vec![0; OWNED_BYTES]);
    let mut pulls = Vec::new();
    for at in (0..OWNED_BYTES as u64).step_by(OWNED_BYTES / 10) {
        let part = BulkPart::new(OWNED_BYTES as u64 / 10).offsets(at, at);
        pulls.push(client.start_pull(peer, &handle, &back, part)?);
    }
    while let Some((_, result)) = client.wait_any_transfer(&mut pulls) {
        result?;
    }
    assert!(back.to_vec() == ours.to_vec(), "other bytes");
    Ok(())
}

#[derive(Debug)]
enum Failed {
    Connecting(EndpointError),
    Calling(CallError),
    Moving(BulkError),
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Failed::Calling(error)
    }
}

impl From<BulkError> for Failed {
    fn from(error: BulkError) -> Self {
        Failed::Moving(error)
    }
}

#[test]
fn delayed_and_split_messages_arrive_intact() {
    let server = Server::new();
    let drizzle = Weather { piece_bytes_max: 900, delay_max: Duration::from_micros(300), ..FAIR };
    for weather in [FAIR, drizzle, Weather { piece_bytes_max: 23, seed: 2, ..FAIR }] {
        let (_relay, address) = server.relayed(weather);
        let mut client = Endpoint::new(config()).unwrap();
        let peer = client.connect(&address).unwrap();
        all_sorts(&mut client, peer, weather.seed as u8).unwrap();
        assert_eq!(client.stats().late_count, 0);
    }
    server.ends_alone();
}

#[test]
fn deadlines_pass_while_the_proxy_stalls_and_later_calls_succeed() {
    let server = Server::new();
    let (relay, address) = server.relayed(FAIR);
    let mut client = Endpoint::new(config()).unwrap();
    let peer = client.connect(&address).unwrap();
    let handle: BulkHandle = client.call(peer, HANDLE, &()).unwrap();
    let ours = BulkMemory::plain(vec![9; 1000]);
    relay.stall(true);
    let (began, timeout) = (Instant::now(), Duration::from_millis(20));
    let late = client.call_within::<_, Vec<u8>>(peer, ECHO, &vec![1u8; 100], timeout);
    assert_eq!(late, Err(CallError::Deadline));
    let part = BulkPart::new(500).timeout(timeout);
    assert_eq!(client.pull(peer, &handle, &ours, part), Err(BulkError::Deadline));
    assert_eq!(client.push(peer, &handle, &ours, part), Err(BulkError::Deadline));
    assert!(began.elapsed() >= 3 * timeout && began.elapsed() < SOON);
    // Queued bytes have a limit, and an unanswered handshake has a timeout.
    let refused = (0..10_000u32).find_map(|_| client.send(peer, ECHO, &vec![0u8; 1 << 16]).err());
    assert_eq!(refused, Some(CallError::Full));
    let mut hurried = config();
    hurried.connections.handshake_timeout = Duration::from_millis(30);
    let silent = Endpoint::new(hurried).unwrap().connect(&address).unwrap_err().to_string();
    assert_eq!(silent, format!("handshake with {address} timed out after 30ms"));
    relay.stall(false);
    while client.call::<_, Vec<u8>>(peer, ECHO, &Vec::<u8>::new()) == Err(CallError::Full) {
        client.progress(Duration::from_millis(1));
    }
    all_sorts(&mut client, peer, 3).unwrap();
    assert!(ours.to_vec() == [9; 1000], "what came late went nowhere");
    assert_eq!(client.bulk_stats().refused_count, 0);
    drop(client);
    drop(relay);
    server.ends_alone();
}

#[test]
fn cut_connection_is_an_error_and_a_new_one_works() {
    let cuts_count = if std::env::var_os("HANDOVER_LONG").is_some() { 200 } else { 8 };
    let server = Server::new();
    for how in [Cut::End, Cut::Reset] {
        for number in 0..cuts_count {
            let seed = number + 1000 * how as u64;
            // Some cuts fall into the handshake, others into each kind of frame.
            let at = match number % 4 {
                0 => seed % 60,
                _ => seed * 7919 * 17 % 1_000_000,
            };
            let piece_bytes_max = if at < 60 { 7 } else { 5000 };
            let weather = Weather { piece_bytes_max, cut: Some((at, how)), seed, ..FAIR };
            let (relay, address) = server.relayed(weather);
            let mut client = Endpoint::new(config()).unwrap();
            let began = Instant::now();
            let outcome = match client.connect(&address) {
                Ok(peer) => all_sorts(&mut client, peer, seed as u8),
                Err(error) => Err(Failed::Connecting(error)),
            };
            assert!(began.elapsed() < SOON, "{how:?} {at}");
            match outcome {
                // The connection's end is reported to calls under way, or to the next ones.
                Err(
                    Failed::Connecting(EndpointError::Handshake {
                        why: CloseReason::ClosedByPeer,
                        ..
                    })
                    | Failed::Calling(
                        CallError::Disconnected(CloseReason::ClosedByPeer) | CallError::Stale,
                    )
                    | Failed::Moving(
                        BulkError::Disconnected(CloseReason::ClosedByPeer) | BulkError::Stale,
                    ),
                ) => {}
                other => panic!("{how:?} behind {at} bytes: {other:?}"),
            }
            assert_eq!(client.stats().peers_count, 0);
            drop(relay);
        }
        let mut client = Endpoint::new(config()).unwrap();
        let peer = client.connect(&server.address).unwrap();
        all_sorts(&mut client, peer, 5).unwrap();
    }
    server.ends_alone();
}
