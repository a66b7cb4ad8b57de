//! CPU cost of an echo for the server's thread: messages of 64 bytes, `DEPTH` of them in flight on
//! each of `CONNECTIONS` connections, with and without TLS. Figures hold for this machine at this
//! moment; `handover run net/load` compares with peers.
//!
//! `net-echo-cost [CONNECTIONS [DEPTH [MILLISECONDS]]]`

use handover_base::usage;
use handover_net::engine::{LengthPrefixCodec, TlsState};
use handover_net::tls::{
    ClientOptions, Identity, ServerOptions, ServerVerification, TlsClientConfig, TlsServerConfig,
};
use handover_net::{Config, Conn, Handler, ListenOptions, NetBuilder, Stats};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Length of a message in bytes, length prefix included.
const MESSAGE_BYTES: usize = 64;

/// Handler that echoes messages and records the CPU time of its thread.
struct Echo {
    cpu_ns: u64,
}

impl Handler for Echo {
    type Codec = LengthPrefixCodec;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, ()>, message: &[u8]) {
        let _ = conn.send(message);
    }

    fn housekeep(&mut self, _: &mut handover_net::Connections<'_, LengthPrefixCodec, ()>) {
        self.cpu_ns = usage::thread_usage().cpu_ns();
    }
}

/// Runs a client on one connection that keeps `depth` messages in flight until `until`.
fn run_client(address: SocketAddr, client: Option<TlsClientConfig>, depth: usize, until: Instant) {
    let failed = "exchange with the server";
    let mut stream = TcpStream::connect(address).expect(failed);
    stream.set_nodelay(true).expect(failed);
    let mut tls = client.map(|it| TlsState::new_client(&it, "localhost", 0).expect("valid name"));
    let mut message = [b'x'; MESSAGE_BYTES];
    message[..4].copy_from_slice(&(MESSAGE_BYTES as u32 - 4).to_be_bytes());
    let messages = message.repeat(depth);
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    match &mut tls {
        // The messages wait in `tls` until the handshake is done.
        Some(tls) => {
            tls.open_records(&mut [], &mut plain, &mut out)
                .expect("cannot create the TLS client hello");
            tls.seal_messages(&messages, &[], &mut out)
                .expect("cannot buffer the messages until the handshake is done");
        }
        None => out.extend_from_slice(&messages),
    }
    stream.write_all(&out).expect(failed);
    let mut buffer = vec![0; 1 << 16];
    let mut received_bytes = 0;
    while Instant::now() < until {
        let count = stream.read(&mut buffer).expect(failed);
        out.clear();
        let before = received_bytes / MESSAGE_BYTES;
        match &mut tls {
            Some(tls) => {
                plain.clear();
                tls.open_records(&mut buffer[..count], &mut plain, &mut out)
                    .expect("cannot decrypt the server's records");
                received_bytes += plain.len();
            }
            None => received_bytes += count,
        }
        let more = &messages[..(received_bytes / MESSAGE_BYTES - before) * MESSAGE_BYTES];
        match &mut tls {
            Some(tls) => tls.seal_messages(more, &[], &mut out).expect("seal messages"),
            None => out.extend_from_slice(more),
        }
        stream.write_all(&out).expect(failed);
    }
}

/// Runs an echo server with clients for `span`. Returns its counters and the CPU time of its
/// thread, in ns.
fn measure(connections: usize, depth: usize, span: Duration, with_tls: bool) -> (Stats, u64) {
    let identity = Identity::generate(&["localhost"]).expect("valid name");
    let server = TlsServerConfig::new(&identity, ServerOptions::default()).expect("valid identity");
    let client =
        TlsClientConfig::new(ServerVerification::Nothing, ClientOptions::default()).expect("valid");
    let mut listen = ListenOptions::new("127.0.0.1:0".parse().expect("valid address"));
    if with_tls {
        listen = listen.with_tls(&server);
    }
    let config = Config::default().housekeep_interval(Duration::from_millis(10));
    let codec = LengthPrefixCodec::new(1 << 16);
    let net = NetBuilder::new()
        .listen(listen)
        .config(config)
        .start(codec, |_| Echo { cpu_ns: 0 })
        .expect("cannot start the server");
    let address = net.addresses()[0];
    let until = Instant::now() + span;
    let clients: Vec<_> = (0..connections)
        .map(|_| {
            let client = with_tls.then(|| client.clone());
            std::thread::spawn(move || run_client(address, client, depth, until))
        })
        .collect();
    clients.into_iter().for_each(|it| it.join().expect("the client thread panicked"));
    let (stats, handlers) = net.stop(Duration::from_secs(1)).expect("cannot stop the server");
    (stats, handlers.iter().map(|it| it.cpu_ns).sum())
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|it| it.parse::<usize>());
    let mut next = |default| arguments.next().and_then(Result::ok).unwrap_or(default);
    let (connections, depth, span_ms) = (next(4), next(64), next(200));
    let span = Duration::from_millis(span_ms as u64);
    println!("{connections} connections, {depth} messages of 64 bytes in flight on each");
    for (with_tls, name) in [(false, "plain"), (true, "TLS")] {
        let (stats, cpu_ns) = measure(connections, depth, span, with_tls);
        let messages = stats.messages_count.max(1);
        println!(
            "{name:5}  {:>9} messages, {:>6.1} ns of CPU each, {:>5.1} messages a read, {:.2} sends a read",
            stats.messages_count,
            cpu_ns as f64 / messages as f64,
            messages as f64 / stats.reads_count.max(1) as f64,
            stats.sends_count as f64 / stats.reads_count.max(1) as f64,
        );
    }
}
