//! TLS on real sockets: our client and server with each other, with untrusted peers, and with
//! OpenSSL's tools.

use handover_net::engine::{Lines, TimedOut};
use handover_net::tls::{
    Client, ClientOptions, Identity, Roots, Server, ServerOptions, TlsError, Verify,
};
use handover_net::{
    CloseReason, Config, Conn, Dial, Handler, Key, Listen, Net, Room, Spread, Stats,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Time limit, at least ten times as long as any step takes.
const SOON: Duration = Duration::from_secs(60);

/// Data of a client connection that asks the server to suspend it.
const SUSPEND: u64 = 1;

#[derive(Debug, PartialEq)]
enum Told {
    Accepted { resumed: bool, alpn: Option<Vec<u8>> },
    Connected,
    Message(String),
    Closed(CloseReason),
}

/// Handler that answers lines in capitals; as a client it sends hello first.
struct Shout(Sender<Told>);

type Peer<'a> = Conn<'a, Lines, u64>;

impl Handler for Shout {
    type Codec = Lines;
    type Data = u64;

    fn on_accept(&mut self, conn: &mut Peer<'_>) {
        let (resumed, alpn) = match conn.session() {
            Some(session) => {
                assert!(session.version().starts_with("TLS 1."), "{}", session.version());
                assert!(session.cipher_suite().contains("AES"), "{}", session.cipher_suite());
                (session.is_resumed(), session.alpn().map(<[u8]>::to_vec))
            }
            None => (false, None),
        };
        let _ = self.0.send(Told::Accepted { resumed, alpn });
    }

    fn on_connect(&mut self, conn: &mut Peer<'_>) {
        let certificate = conn.session().and_then(|it| it.peer_certificate().map(<[u8]>::len));
        assert!(certificate.is_none_or(|it| it > 100));
        let _ = self.0.send(Told::Connected);
        // The data decides what the client sends.
        let word: &[u8] =
            if *conn.data() == SUSPEND { b"suspend" } else { b"hello from the client" };
        let _ = conn.send(word);
    }

    fn on_message(&mut self, conn: &mut Peer<'_>, line: &[u8]) {
        let line = String::from_utf8_lossy(line).into_owned();
        match line.as_str() {
            "close" => conn.close(),
            "suspend" => conn.suspend(),
            // Lower case comes from a client and is answered; a client ignores the answer in
            // capitals.
            _ if line.chars().any(char::is_lowercase) => {
                drop(conn.send(line.to_uppercase().as_bytes()));
            }
            _ => {}
        }
        let _ = self.0.send(Told::Message(line));
    }

    fn on_close(&mut self, _: &mut Room<'_, Lines, u64>, _: Key, _: u64, why: &CloseReason) {
        let _ = self.0.send(Told::Closed(why.clone()));
    }
}

struct Served {
    net: Net<Shout>,
    told: Receiver<Told>,
    identity: Identity,
}

fn serve(config: Config, options: ServerOptions) -> Served {
    let identity = Identity::made_for(&["localhost", "127.0.0.1"]).unwrap();
    let server = Server::new(&identity, options).unwrap();
    let (sender, told) = channel();
    let here = [Listen::at("127.0.0.1:0".parse().unwrap()).tls(&server)];
    let make = move |_| Shout(sender.clone());
    let net = Net::start_at(1, &here, Spread::ReusePort, config, Lines::new(1 << 16), make);
    Served { net: net.unwrap(), told, identity }
}

impl Served {
    fn address(&self) -> SocketAddr {
        self.net.addresses()[0]
    }

    fn next(&self) -> Told {
        self.told.recv_timeout(SOON).expect("the handler is called")
    }

    fn closed(&self) -> CloseReason {
        loop {
            if let Told::Closed(why) = self.next() {
                return why;
            }
        }
    }

    fn stop(self) -> Stats {
        self.net.stop(SOON).unwrap().0
    }
}

/// Starts a thread that has outgoing connections only.
fn clients() -> (Net<Shout>, Receiver<Told>) {
    let (sender, told) = channel();
    let make = move |_| Shout(sender.clone());
    let codec = Lines::new(1 << 16);
    let net = Net::start(1, &[], Spread::ReusePort, Config::default(), codec, make).unwrap();
    (net, told)
}

fn trusting(identity: &Identity) -> Client {
    let verify = Verify::Roots(Roots::of(identity).unwrap());
    Client::new(verify, ClientOptions { alpn: vec![b"shout".into()], ..Default::default() })
        .unwrap()
}

#[test]
fn a_client_of_ours_talks_to_a_server_of_ours_and_resumes_its_session() {
    let options = ServerOptions { alpn: vec![b"shout".into()], ..ServerOptions::default() };
    let served = serve(Config::default(), options);
    let client = trusting(&served.identity);
    let (net, heard) = clients();
    for resumed in [false, true] {
        let dial = Dial::to(served.address()).tls(&client, "localhost").unwrap();
        net.dial(dial, 0).unwrap();
        assert_eq!(served.next(), Told::Accepted { resumed, alpn: Some(b"shout".into()) });
        assert_eq!(heard.recv_timeout(SOON).unwrap(), Told::Connected);
        let answer = Told::Message("HELLO FROM THE CLIENT".into());
        assert_eq!(heard.recv_timeout(SOON).unwrap(), answer);
        assert_eq!(served.next(), Told::Message("hello from the client".into()));
    }
    // The client ends both connections with a close_notify, which the server receives.
    net.stop(SOON).unwrap();
    assert_eq!([(); 2].map(|()| served.closed()), [CloseReason::Peer, CloseReason::Peer]);
    let stats = served.stop();
    assert_eq!((stats.handshakes_count, stats.resumed_count, stats.tls_failed_count), (2, 1, 0));
}

#[test]
fn a_stop_says_good_bye_to_a_client_that_is_not_finished() {
    let served = serve(Config::default(), ServerOptions::default());
    let (net, heard) = clients();
    let dial = Dial::to(served.address());
    net.dial(dial.tls(&trusting(&served.identity), "127.0.0.1").unwrap(), 0).unwrap();
    assert_eq!(heard.recv_timeout(SOON).unwrap(), Told::Connected);
    let answer = Told::Message("HELLO FROM THE CLIENT".into());
    assert_eq!(heard.recv_timeout(SOON).unwrap(), answer);
    served.stop();
    assert_eq!(heard.recv_timeout(SOON).unwrap(), Told::Closed(CloseReason::Peer));
}

#[test]
fn a_server_whose_name_is_another_or_whom_nobody_knows_is_not_talked_to() {
    let served = serve(Config::default(), ServerOptions::default());
    let (net, heard) = clients();
    let stranger = Identity::made_for(&["localhost"]).unwrap();
    for (client, name, expected) in [
        (trusting(&served.identity), "elsewhere.test", "for another name: "),
        (trusting(&stranger), "localhost", "of an unknown issuer"),
    ] {
        net.dial(Dial::to(served.address()).tls(&client, name).unwrap(), 7).unwrap();
        match heard.recv_timeout(SOON).unwrap() {
            Told::Closed(CloseReason::Tls(TlsError::Certificate(why))) => {
                assert!(why.starts_with(expected), "{why}");
            }
            other => panic!("{other:?}"),
        }
        let why = served.closed();
        assert!(matches!(why, CloseReason::Tls(TlsError::Alert(_))), "{why:?}");
    }
    assert!(Dial::to(served.address()).tls(&trusting(&stranger), "no name at all").is_err());
    assert_eq!(served.stop().tls_failed_count, 2);
}

#[test]
fn whoever_does_not_shake_hands_is_closed_and_the_handler_knows_nothing_of_it_before() {
    let config = Config { handshake_timeout_ms: 200, ..Config::default() };
    let served = serve(config, ServerOptions::default());
    let silent = TcpStream::connect(served.address()).unwrap();
    let late = Told::Closed(CloseReason::TimedOut(TimedOut::Handshake));
    assert_eq!(served.next(), late);
    drop(silent);
    let mut loud = TcpStream::connect(served.address()).unwrap();
    loud.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let why = served.closed();
    assert!(matches!(why, CloseReason::Tls(TlsError::NotTls(_))), "{why:?}");
    let mut alert = Vec::new();
    loud.read_to_end(&mut alert).unwrap();
    assert_eq!(alert.first(), Some(&21), "an alert");
    drop(TcpStream::connect(served.address()).unwrap());
    assert_eq!(served.next(), Told::Closed(CloseReason::Tls(TlsError::Unfinished)));
    let stats = served.stop();
    assert_eq!((stats.handshakes_count, stats.timed_out_count), (0, 1));
}

/// Starts the `openssl` tool; `None`, with a message, if there is none.
fn openssl(arguments: &[&str]) -> Option<Child> {
    let started = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    if started.is_err() {
        println!("skipped: there is no openssl here to be a peer");
    }
    started.ok()
}

/// Reads lines up to `expected`.
fn hear(lines: &mut impl BufRead, expected: &str) {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the end instead of {expected}");
        if line.trim_end() == expected {
            return;
        }
    }
}

#[test]
fn openssl_as_a_client_verifies_us_and_is_answered_in_both_versions() {
    let served = serve(Config::default(), ServerOptions::default());
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, served.identity.certificate_pem()).unwrap();
    for version in ["-tls1_3", "-tls1_2"] {
        let to = served.address().to_string();
        let arguments = ["s_client", "-quiet", "-connect", &to, version];
        let verified = ["-verify_return_error", "-servername", "localhost", "-CAfile"];
        let arguments = [&arguments[..], &verified[..], &[ca.to_str().unwrap()]].concat();
        let Some(mut peer) = openssl(&arguments) else { return };
        let mut answers = BufReader::new(peer.stdout.take().unwrap());
        peer.stdin.as_mut().unwrap().write_all(b"good day\n").unwrap();
        hear(&mut answers, "GOOD DAY");
        assert!(matches!(served.next(), Told::Accepted { resumed: false, alpn: None }));
        assert_eq!(served.next(), Told::Message("good day".into()));
        peer.stdin.as_mut().unwrap().write_all(b"close\n").unwrap();
        assert!(peer.wait().unwrap().success(), "{version}");
        assert_eq!(served.closed(), CloseReason::Ours);
    }
    assert_eq!(served.stop().handshakes_count, 2);
}

#[test]
fn openssl_as_a_server_is_verified_and_heard() {
    let identity = Identity::made_for(&["localhost"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("certificate.pem"), path("key.pem"));
    std::fs::write(&certificate, identity.certificate_pem()).unwrap();
    std::fs::write(&key, identity.key_pem()).unwrap();
    // A port that was free just now.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let accept = format!("127.0.0.1:{port}");
    let files = ["-cert", &certificate, "-key", &key];
    let arguments = [&["s_server", "-accept", &accept, "-naccept", "1"], &files[..]].concat();
    let Some(mut peer) = openssl(&arguments) else { return };
    let mut lines = BufReader::new(peer.stdout.take().unwrap());
    hear(&mut lines, "ACCEPT");
    let (net, heard) = clients();
    let dial = Dial::to(accept.parse().unwrap());
    net.dial(dial.tls(&trusting(&identity), "localhost").unwrap(), 0).unwrap();
    assert_eq!(heard.recv_timeout(SOON).unwrap(), Told::Connected);
    hear(&mut lines, "hello from the client");
    peer.stdin.as_mut().unwrap().write_all(b"GOOD EVENING\n").unwrap();
    assert_eq!(heard.recv_timeout(SOON).unwrap(), Told::Message("GOOD EVENING".into()));
    net.stop(SOON).unwrap();
    drop(peer.stdin.take());
    assert!(peer.wait().unwrap().success());
}

#[test]
fn a_peer_that_is_suspended_and_says_good_bye_is_found_out() {
    let served = serve(Config::default(), ServerOptions::default());
    let (net, heard) = clients();
    let dial = Dial::to(served.address());
    let dial = dial.tls(&trusting(&served.identity), "localhost").unwrap();
    net.dial(dial, SUSPEND).unwrap();
    assert_eq!(heard.recv_timeout(SOON).unwrap(), Told::Connected);
    assert!(matches!(served.next(), Told::Accepted { .. }));
    assert_eq!(served.next(), Told::Message("suspend".into()));
    net.stop(SOON).unwrap();
    assert_eq!(served.closed(), CloseReason::Peer);
}
