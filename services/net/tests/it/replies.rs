//! Order of replies: they arrive as they were written, whether they are messages sent back
//! unchanged or new ones, by whichever call, in the clear and by TLS.

use handover_net::engine::{Codec, LengthPrefixCodec, LinesCodec};
use handover_net::tls::TlsServerConfig;
use handover_net::{CloseReason, Config, Conn, ConnKey, Connections, Handler, Reactor, Stopper};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

/// Commands, one per first letter of a message.
const COMMANDS: &[u8] = b"abcdefgh";

/// Returns the replies that a message asks for.
fn expected_replies(message: &[u8]) -> Vec<Vec<u8>> {
    let own = |it: &[u8]| it.to_vec();
    match message[0] {
        b'a' => vec![own(message)],
        b'b' => vec![own(message), own(message)],
        b'c' => vec![own(&message[1..])],
        b'd' => vec![],
        b'e' => vec![message.to_ascii_uppercase()],
        b'f' => vec![own(b"written")],
        b'g' => vec![own(b"by its key")],
        _ => vec![own(message), own(b"between"), own(message)],
    }
}

struct CommandHandler<C> {
    codec: C,
    stopper: Option<Stopper<()>>,
}

impl<C: Codec> Handler for CommandHandler<C> {
    type Codec = C;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, C, ()>, message: &[u8]) {
        let key = conn.key();
        let done = match message[0] {
            b'a' => conn.send(message),
            b'b' => conn.send(message).and_then(|()| conn.send(message)),
            b'c' => conn.send(&message[1..]),
            b'd' => Ok(()),
            b'e' => conn.send(&message.to_ascii_uppercase()),
            b'f' => {
                let mut frame = Vec::new();
                self.codec.encode(b"written", &mut frame).expect("encode a short message");
                conn.write(&frame)
            }
            b'g' => conn.connections().send(key, b"by its key"),
            _ => conn
                .send(message)
                .and_then(|()| conn.connections().send(key, b"between"))
                .and_then(|()| conn.send(message)),
        };
        done.expect("send a reply");
    }

    fn on_close(&mut self, _: &mut Connections<'_, C, ()>, _: ConnKey, (): (), why: &CloseReason) {
        assert!(matches!(why, CloseReason::Peer), "{why}");
        self.stopper.as_ref().expect("stopper is set before run").stop(Duration::ZERO);
    }
}

/// Reproducible random generator: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }
}

/// Returns the framed messages of a run and the framed replies expected for them.
fn requests(codec: &impl Codec, random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for number in 0..400 {
        // Runs of the same command, so that many messages are sent back together.
        let letter = if number % 4 == 0 { random.below(COMMANDS.len()) } else { 0 };
        let mut message = vec![COMMANDS[letter]];
        message.extend((0..random.below(60)).map(|at| b'a' + ((at + number) % 26) as u8));
        codec.encode(&message, &mut requests).unwrap();
        expected_replies(&message).iter().for_each(|it| codec.encode(it, &mut expected).unwrap());
    }
    (requests, expected)
}

/// Runs a server against a client `receive`, which sends the messages in random pieces and gets the
/// number of reply bytes to expect.
fn exchange(
    codec: impl Codec,
    seed: u64,
    server: Option<&TlsServerConfig>,
    receive: impl FnOnce(&TcpStream, &[u8], Random, usize) -> Vec<u8> + Send + 'static,
) {
    let mut random = Random(seed);
    let (requests, expected) = requests(&codec, &mut random);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    near.set_nodelay(true).unwrap();
    // Less space for replies than one read may cause: some are sent before the others are written.
    let config = Config::default()
        .read_bytes(2_048)
        .queued_bytes_max(1_500)
        .high_water_bytes(1_400)
        .low_water_bytes(100);
    let handler = CommandHandler { codec: codec.clone(), stopper: None };
    let mut reactor = Reactor::new(config, codec, handler).unwrap();
    let stopper = reactor.stopper();
    reactor.handler_mut().stopper = Some(stopper);
    match server {
        None => reactor.adopt(far).unwrap(),
        Some(server) => reactor.adopt_tls(far, server).unwrap(),
    };
    let peer =
        std::thread::spawn(move || receive(&near, &requests, random, expected.len()).eq(&expected));
    reactor.run().unwrap();
    assert!(peer.join().unwrap(), "seed {seed}");
}

fn receive_plain(
    mut near: &TcpStream,
    requests: &[u8],
    mut random: Random,
    _expected_bytes: usize,
) -> Vec<u8> {
    let mut received = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| near.try_clone().unwrap().read_to_end(&mut received).unwrap());
        let mut rest = requests;
        while !rest.is_empty() {
            let (now, later) = rest.split_at((1 + random.below(3_000)).min(rest.len()));
            near.write_all(now).unwrap();
            rest = later;
        }
        near.shutdown(Shutdown::Write).unwrap();
    });
    received
}

const SEEDS: std::ops::Range<u64> = 1..20;

#[test]
fn unchanged_and_written_replies_keep_their_order() {
    SEEDS.for_each(|seed| exchange(LengthPrefixCodec::new(100), seed, None, receive_plain));
    SEEDS.for_each(|seed| {
        exchange(LengthPrefixCodec::new(100).with_header(0), seed, None, receive_plain);
    });
}

#[test]
fn inexact_codec_encodes_each_reply() {
    SEEDS.for_each(|seed| exchange(LinesCodec::new(100), seed, None, receive_plain));
}

#[cfg(feature = "tls")]
mod secured {
    use super::*;
    use handover_net::engine::TlsState;
    use handover_net::tls::{
        ClientOptions, Identity, ServerOptions, ServerVerification, TlsClientConfig,
    };

    #[test]
    fn replies_keep_their_order_with_tls() {
        let identity = Identity::generate(&["localhost"]).unwrap();
        for record_per_message in [false, true] {
            let options = ServerOptions::default().record_per_message(record_per_message);
            let server = TlsServerConfig::new(&identity, options).unwrap();
            let client =
                TlsClientConfig::new(ServerVerification::Nothing, ClientOptions::default())
                    .unwrap();
            SEEDS.step_by(4).for_each(|seed| {
                let client = client.clone();
                exchange(
                    LengthPrefixCodec::new(100),
                    seed,
                    Some(&server),
                    move |near, requests, random, bytes| {
                        receive_tls(near, &client, requests, random, bytes)
                    },
                );
            });
        }
    }

    /// Sends and receives in turns, each time as much as there is space for.
    fn receive_tls(
        mut near: &TcpStream,
        client: &TlsClientConfig,
        requests: &[u8],
        mut random: Random,
        expected_bytes: usize,
    ) -> Vec<u8> {
        let mut tls = TlsState::new_client(client, "localhost", 0).unwrap();
        let (mut received, mut out, mut buffer) = (Vec::new(), Vec::new(), [0; 4_096]);
        tls.open_records(&mut [], &mut received, &mut out).unwrap();
        let mut rest = requests;
        loop {
            if tls.is_handshake_complete() && !rest.is_empty() {
                let (now, later) = rest.split_at((1 + random.below(3_000)).min(rest.len()));
                tls.seal_messages(now, &[], &mut out).unwrap();
                rest = later;
            }
            if rest.is_empty() && received.len() >= expected_bytes {
                tls.append_close_notify(&mut out);
                near.write_all(&out).unwrap();
                near.shutdown(Shutdown::Write).unwrap();
                return received;
            }
            near.write_all(&out).unwrap();
            out.clear();
            // More bytes may be in flight than have arrived.
            near.set_read_timeout(Some(Duration::from_millis(1 + 20 * u64::from(rest.is_empty()))))
                .unwrap();
            if let Ok(count) = near.read(&mut buffer) {
                tls.open_records(&mut buffer[..count], &mut received, &mut out).unwrap();
            }
        }
    }
}
