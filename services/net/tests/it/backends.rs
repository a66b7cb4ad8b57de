//! Behaviour of sockets that does not depend on the backend. With the feature `io-uring` both
//! backends are tested; if the kernel refuses to create a ring, that backend is skipped with a
//! message.

use handover_net::engine::LengthPrefixed;
use handover_net::tls::{Client, ClientOptions, Identity, Server, ServerOptions, Verify};
use handover_net::{
    Backend, CloseReason, Config, Conn, Dial, Handler, Key, Listen, Net, Room, Spread,
};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Time limit, at least ten times as long as any step takes.
const SOON: Duration = Duration::from_secs(60);

/// Echo handler; as a client it sends hello first. Reports messages and closed connections.
struct Echo(Sender<Result<Vec<u8>, CloseReason>>);

impl Handler for Echo {
    type Codec = LengthPrefixed;
    type Data = bool;

    fn on_connect(&mut self, conn: &mut Conn<'_, LengthPrefixed, bool>) {
        let _ = conn.send(b"hello");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, LengthPrefixed, bool>, message: &[u8]) {
        // `true` marks a client's connection.
        match *conn.data() {
            true => drop(self.0.send(Ok(message.to_vec()))),
            false => drop(conn.send(message)),
        }
    }

    fn on_close(
        &mut self,
        _: &mut Room<'_, LengthPrefixed, bool>,
        _: Key,
        _: bool,
        why: &CloseReason,
    ) {
        let _ = self.0.send(Err(why.clone()));
    }
}

type Told = Receiver<Result<Vec<u8>, CloseReason>>;

fn start(config: Config, listens: &[Listen]) -> (Net<Echo>, Told) {
    let (sender, told) = channel();
    let codec = LengthPrefixed::new(1 << 20);
    let make = move |_| Echo(sender.clone());
    let net = Net::start_at(2, listens, Spread::ReusePort, config, codec, make);
    (net.unwrap(), told)
}

fn here() -> Listen {
    Listen::at("127.0.0.1:0".parse().unwrap())
}

/// Returns one configuration per available backend.
fn configs() -> Vec<Config> {
    #[allow(unused_mut)]
    let mut configs = vec![Config::default()];
    #[cfg(feature = "io-uring")]
    {
        let config = Config { backend: Backend::Uring, ..Config::default() };
        let codec = LengthPrefixed::new(100);
        let tried = Net::start(1, &[], Spread::ReusePort, config, codec, |_| Echo(channel().0));
        match tried {
            Ok(_) => configs.push(config),
            Err(refused) => println!("skipped: io_uring: {refused}"),
        }
    }
    configs
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

fn connect(net: &Net<Echo>) -> TcpStream {
    let peer = TcpStream::connect(net.addresses()[0]).unwrap();
    peer.set_read_timeout(Some(SOON)).unwrap();
    peer
}

#[test]
fn epoll_is_what_is_taken_unless_another_is_asked_for() {
    assert_eq!(Config::default().backend, Backend::Epoll);
}

#[test]
fn all_that_many_peers_say_comes_back_however_much_it_is() {
    for config in configs() {
        let (net, _told) = start(config, &[here()]);
        let talks: Vec<_> = (0..40_usize)
            .map(|number| {
                let mut peer = connect(&net);
                std::thread::spawn(move || {
                    // The largest exceed a socket's buffer, so that the server has to queue.
                    for turn in 1..6 {
                        let message = vec![number as u8; (number * turn * turn * turn * 97).max(1)];
                        let (mut writes, said) = (peer.try_clone().unwrap(), framed(&message));
                        let writing = std::thread::spawn(move || writes.write_all(&said).unwrap());
                        let mut reply = vec![0; message.len() + 4];
                        peer.read_exact(&mut reply).unwrap();
                        assert!(reply == framed(&message), "{number}, {turn}");
                        writing.join().unwrap();
                    }
                })
            })
            .collect();
        talks.into_iter().for_each(|talk| talk.join().unwrap());
        let (stats, _) = net.stop(SOON).unwrap();
        assert_eq!((stats.accepted_count, stats.messages_count), (40, 200), "{config:?}");
    }
}

#[test]
fn an_end_and_a_reset_are_seen_and_who_is_closed_is_told_at_once() {
    for config in configs() {
        let (net, told) = start(Config { idle_timeout_ms: 100, ..config }, &[here()]);
        // One after another, each in the slot of the previous one.
        for _ in 0..50 {
            let mut peer = connect(&net);
            peer.write_all(&framed(b"x")).unwrap();
            peer.read_exact(&mut [0; 5]).unwrap();
            drop(peer);
            assert_eq!(told.recv_timeout(SOON).unwrap(), Err(CloseReason::Peer), "{config:?}");
        }
        let mut peer = connect(&net);
        peer.write_all(&framed(b"x")).unwrap();
        peer.write_all(&[0xff; 4]).unwrap();
        peer.read_exact(&mut [0; 5]).unwrap();
        assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
        assert!(matches!(told.recv_timeout(SOON).unwrap(), Err(CloseReason::Broken(_))));
        // The server closes an idle connection, and the peer sees that.
        let mut idle = connect(&net);
        match idle.read(&mut [0; 1]) {
            Ok(count) => assert_eq!(count, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        assert_eq!(told.recv_timeout(SOON).unwrap(), Err(CloseReason::Idle));
        net.stop(SOON).unwrap();
    }
}

#[test]
fn clients_connect_in_the_clear_and_by_tls_and_what_cannot_be_reached_is_reported() {
    for config in configs() {
        let identity = Identity::made_for(&["localhost"]).unwrap();
        let server = Server::new(&identity, ServerOptions::default()).unwrap();
        let (net, _told) = start(config, &[here(), here().tls(&server)]);
        let (ours, heard) = start(config, &[]);
        let client = Client::new(Verify::Nothing, ClientOptions::default()).unwrap();
        ours.dial(Dial::to(net.addresses()[0]), true).unwrap();
        let by_tls = Dial::to(net.addresses()[1]).tls(&client, "localhost").unwrap();
        ours.dial(by_tls, true).unwrap();
        for _ in 0..2 {
            assert_eq!(heard.recv_timeout(SOON).unwrap(), Ok(b"hello".to_vec()), "{config:?}");
        }
        net.stop(SOON).unwrap();
        for _ in 0..2 {
            assert_eq!(heard.recv_timeout(SOON).unwrap(), Err(CloseReason::Peer), "{config:?}");
        }
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        ours.dial(Dial::to(nobody), true).unwrap();
        let why = heard.recv_timeout(SOON).unwrap();
        assert!(matches!(why, Err(CloseReason::Unconnected(_))), "{why:?}");
        ours.stop(SOON).unwrap();
    }
}
