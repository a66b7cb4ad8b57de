//! Fairness: peers that send much do not delay the others, measured in turns instead of time.

use handover_net::engine::LengthPrefixCodec;
use handover_net::{CloseReason, Config, Conn, ConnKey, Connections, Handler, Reactor, Stopper};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A message of 16 bytes, its length included.
const MESSAGE: [u8; 16] = *b"\0\0\0\x0ctwelve bytes";
const READ_BYTES: u32 = 1_024;
const MESSAGES_PER_READ: u64 = READ_BYTES as u64 / MESSAGE.len() as u64;

/// Echo handler that records the order of the connections' messages.
struct Turns {
    /// Connections, each with the number of its messages in a row.
    turns: Vec<(ConnKey, u64)>,
    closed: usize,
    expected: usize,
    stopper: Option<Stopper<()>>,
}

impl Handler for Turns {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        match self.turns.last_mut() {
            Some((last, count)) if *last == conn.key() => *count += 1,
            _ => self.turns.push((conn.key(), 1)),
        }
        conn.send(message).expect("the peer reads all replies");
    }

    fn on_close(
        &mut self,
        _: &mut Connections<'_, LengthPrefixCodec, ()>,
        _: ConnKey,
        (): (),
        _: &CloseReason,
    ) {
        self.closed += 1;
        if self.closed == self.expected
            && let Some(stopper) = &self.stopper
        {
            stopper.stop(Duration::ZERO);
        }
    }
}

/// Serves peers with these numbers of messages, all of which have arrived before the first turn.
fn turns(messages: &[usize]) -> (Vec<(ConnKey, u64)>, Vec<ConnKey>) {
    let config = Config::default().read_bytes(READ_BYTES);
    let handler = Turns { turns: vec![], closed: 0, expected: messages.len(), stopper: None };
    let mut reactor = Reactor::new(config, LengthPrefixCodec::new(100), handler).unwrap();
    let stopper = reactor.stopper();
    reactor.handler_mut().stopper = Some(stopper);
    let (mut keys, mut peers) = (Vec::new(), Vec::new());
    for &messages_count in messages {
        // What is written to a Unix socket can be read at the other end at once. TCP holds back the
        // last bytes until the earlier ones are acknowledged.
        let (mut near, far) = UnixStream::pair().unwrap();
        let bytes = MESSAGE.repeat(messages_count);
        near.set_nonblocking(true).unwrap();
        near.write_all(&bytes).expect("the messages do not fit the kernel's buffer");
        near.set_nonblocking(false).unwrap();
        keys.push(reactor.adopt(far).unwrap());
        peers.push(std::thread::spawn(move || {
            let mut replies = vec![0; bytes.len()];
            near.read_exact(&mut replies).unwrap();
            assert!(replies.chunks(MESSAGE.len()).all(|it| it == MESSAGE));
        }));
    }
    reactor.run().unwrap();
    for peer in peers {
        peer.join().unwrap();
    }
    (std::mem::take(&mut reactor.handler_mut().turns), keys)
}

#[test]
fn every_ready_connection_gets_one_read_before_any_gets_two() {
    let messages = [2_000; 8];
    let (turns, keys) = turns(&messages);
    let mut served_counts: HashMap<ConnKey, u64> = HashMap::new();
    let mut seen = std::collections::HashSet::new();
    for (at, &(key, count)) in turns.iter().enumerate() {
        assert!(count <= MESSAGES_PER_READ + 1, "{count} messages in a row");
        if !seen.insert(key) {
            // A second turn: all unfinished connections must have had one in between.
            let waiting =
                keys.iter().filter(|it| served_counts.get(it).copied().unwrap_or(0) < 2_000);
            let starved: Vec<_> = waiting.filter(|it| !seen.contains(it)).collect();
            assert!(starved.is_empty(), "{at}: {starved:?} waited twice");
            seen.clear();
            seen.insert(key);
        }
        *served_counts.entry(key).or_default() += count;
    }
    assert!(keys.iter().all(|it| served_counts[it] == 2_000));
}

#[test]
fn idle_connection_waits_at_most_one_turn() {
    let (turns, keys) = turns(&[2_000, 2_000, 1]);
    let small = turns.iter().position(|&(key, _)| key == keys[2]).unwrap();
    let before: u64 = turns[..small].iter().map(|&(_, count)| count).sum();
    assert!(before <= 2 * (MESSAGES_PER_READ + 1), "{before} others were handled first");
}

/// Handler that records the round in which each connection is accepted, and opens another each
/// time.
struct Accepted {
    rounds: Vec<u64>,
    address: Option<SocketAddr>,
    peers: Vec<TcpStream>,
    stopper: Option<Stopper<()>>,
}

const CONNECTIONS: usize = 200;

impl Handler for Accepted {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_accept(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>) {
        self.rounds.push(conn.connections().stats().rounds_count);
        if self.rounds.len() < CONNECTIONS {
            // The kernel reports the listener again, while other connections still wait.
            self.peers.extend(self.address.map(|it| TcpStream::connect(it).unwrap()));
        } else if let Some(stopper) = &self.stopper {
            stopper.stop(Duration::ZERO);
        }
    }

    fn on_message(&mut self, _: &mut Conn<'_, LengthPrefixCodec, ()>, _: &[u8]) {}
}

#[test]
fn listener_accepts_at_most_accepts_max_per_round() {
    const ACCEPTS_MAX: u32 = 2;
    let config = Config::default().accepts_max(ACCEPTS_MAX);
    let handler = Accepted { rounds: vec![], address: None, peers: vec![], stopper: None };
    let mut reactor = Reactor::new(config, LengthPrefixCodec::new(100), handler).unwrap();
    let address = reactor.listen("127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    let stopper = reactor.stopper();
    let handler = reactor.handler_mut();
    (handler.address, handler.stopper) = (Some(address), Some(stopper));
    handler.peers.extend((0..50).map(|_| TcpStream::connect(address).unwrap()));
    reactor.run().unwrap();
    let rounds = &reactor.handler_mut().rounds[..CONNECTIONS];
    let most = rounds.chunk_by(|one, next| one == next).map(<[u64]>::len).max().unwrap();
    assert!(most <= ACCEPTS_MAX as usize, "{most} were accepted at once");
}
