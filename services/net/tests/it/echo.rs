//! Echo over real sockets: plain and with TLS, as server and as client.

use handover_net::engine::LengthPrefixCodec;
use handover_net::tls::{
    ClientOptions, Identity, ServerOptions, ServerVerification, TlsClientConfig, TlsServerConfig,
};
use handover_net::{
    CloseReason, Config, Conn, ConnKey, ConnectOptions, Connections, Handler, ListenOptions, Net,
    NetBuilder,
};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Time limit, at least ten times as long as any step takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Echo handler; as a client it sends hello first. Reports messages and closed connections.
struct Echo(Sender<Result<Vec<u8>, String>>);

impl Handler for Echo {
    type Codec = LengthPrefixCodec;
    type Data = bool;

    fn on_connect(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, bool>) {
        let _ = conn.send(b"hello");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixCodec, bool>, message: &[u8]) {
        // `true` marks a client's connection.
        match *conn.data_mut() {
            true => drop(self.0.send(Ok(message.to_vec()))),
            false => drop(conn.send(message)),
        }
    }

    fn on_close(
        &mut self,
        _: &mut Connections<'_, LengthPrefixCodec, bool>,
        _: ConnKey,
        _: bool,
        why: &CloseReason,
    ) {
        let _ = self.0.send(Err(why.to_string()));
    }
}

type Events = Receiver<Result<Vec<u8>, String>>;

fn start(config: Config, listens: &[ListenOptions]) -> (Net<Echo>, Events) {
    let (sender, events) = channel();
    let codec = LengthPrefixCodec::new(1 << 20);
    let make = move |_| Echo(sender.clone());
    let builder = NetBuilder::new().threads(2).config(config);
    let builder = listens.iter().cloned().fold(builder, NetBuilder::listen);
    (builder.start(codec, make).unwrap(), events)
}

fn here() -> ListenOptions {
    ListenOptions::new("127.0.0.1:0".parse().unwrap())
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

fn connect(net: &Net<Echo>) -> TcpStream {
    let peer = TcpStream::connect(net.addresses()[0]).unwrap();
    peer.set_read_timeout(Some(TIMEOUT)).unwrap();
    peer
}

#[test]
fn messages_of_all_sizes_from_many_peers_are_echoed() {
    let (net, _told) = start(Config::default(), &[here()]);
    let threads: Vec<_> = (0..40_usize)
        .map(|number| {
            let mut peer = connect(&net);
            std::thread::spawn(move || {
                // The largest exceed a socket's buffer, so that the server has to queue.
                for turn in 1..6 {
                    let message = vec![number as u8; (number * turn * turn * turn * 97).max(1)];
                    let (mut writes, frame) = (peer.try_clone().unwrap(), framed(&message));
                    let writing = std::thread::spawn(move || writes.write_all(&frame).unwrap());
                    let mut reply = vec![0; message.len() + 4];
                    peer.read_exact(&mut reply).unwrap();
                    assert!(reply == framed(&message), "client {number}: wrong reply {turn}");
                    writing.join().unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let (stats, _) = net.stop(TIMEOUT).unwrap();
    assert_eq!((stats.accepted_count, stats.messages_count), (40, 200));
}

#[test]
fn shutdown_is_reported_and_invalid_or_idle_connection_is_closed() {
    let (net, events) = start(Config::default(), &[here()]);
    // One after another, each in the slot of the previous one.
    for _ in 0..50 {
        let mut peer = connect(&net);
        peer.write_all(&framed(b"x")).unwrap();
        peer.read_exact(&mut [0; 5]).unwrap();
        drop(peer);
        assert_eq!(events.recv_timeout(TIMEOUT).unwrap(), Err(CloseReason::Peer.to_string()));
    }
    let mut peer = connect(&net);
    peer.write_all(&framed(b"x")).unwrap();
    peer.write_all(&[0xff; 4]).unwrap();
    peer.read_exact(&mut [0; 5]).unwrap();
    assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
    let why = events.recv_timeout(TIMEOUT).unwrap().unwrap_err();
    assert!(why.contains("exceeds the codec's limit"), "{why}");
    net.stop(TIMEOUT).unwrap();
    // Another server closes an idle connection, and the peer sees that. The connections above would
    // be idle for too long whenever this thread does not get the CPU.
    let (net, events) =
        start(Config::default().idle_timeout(Duration::from_millis(100)), &[here()]);
    let mut idle = connect(&net);
    match idle.read(&mut [0; 1]) {
        Ok(count) => assert_eq!(count, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    assert_eq!(events.recv_timeout(TIMEOUT).unwrap(), Err(CloseReason::Idle.to_string()));
    net.stop(TIMEOUT).unwrap();
}

#[test]
fn clients_connect_plain_and_with_tls_and_failed_connect_is_reported() {
    let identity = Identity::generate(&["localhost"]).unwrap();
    let server = TlsServerConfig::new(&identity, ServerOptions::default()).unwrap();
    let (net, _told) = start(Config::default(), &[here(), here().with_tls(&server)]);
    let (client_net, client_events) = start(Config::default(), &[]);
    let client =
        TlsClientConfig::new(ServerVerification::Nothing, ClientOptions::default()).unwrap();
    client_net.connect(net.addresses()[0], true).unwrap();
    let by_tls = ConnectOptions::new(net.addresses()[1]).with_tls(&client, "localhost").unwrap();
    client_net.connect(by_tls, true).unwrap();
    for _ in 0..2 {
        assert_eq!(client_events.recv_timeout(TIMEOUT).unwrap(), Ok(b"hello".to_vec()));
    }
    net.stop(TIMEOUT).unwrap();
    for _ in 0..2 {
        assert_eq!(
            client_events.recv_timeout(TIMEOUT).unwrap(),
            Err(CloseReason::Peer.to_string())
        );
    }
    let (_socket, address) = super::faults::refusing_socket();
    client_net.connect(address, true).unwrap();
    let why = client_events.recv_timeout(TIMEOUT).unwrap().unwrap_err();
    assert!(why.starts_with("cannot connect: "), "{why}");
    client_net.stop(TIMEOUT).unwrap();
}
