//! TLS on real sockets: our client and server with each other, with untrusted peers, and with
//! OpenSSL's tools.

use handover_net::engine::{LinesCodec, TimeoutError, TlsState};
use handover_net::tls::{
    ClientOptions, Identity, RootCertificates, ServerOptions, ServerVerification, TlsClientConfig,
    TlsError, TlsServerConfig,
};
use handover_net::{
    CloseReason, Config, Conn, ConnKey, ConnectOptions, Connections, Handler, ListenOptions, Net,
    NetBuilder, Stats,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Time limit, at least ten times as long as any step takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Data of a client connection that asks the server to suspend it.
const SUSPEND: u64 = 1;

#[derive(Debug, PartialEq)]
enum Event {
    Accepted { resumed: bool, alpn: Option<Vec<u8>> },
    Connected,
    Message(String),
    Closed(String),
}

/// Handler that answers lines in capitals; as a client it sends hello first.
struct Uppercase(Sender<Event>);

type Peer<'a> = Conn<'a, LinesCodec, u64>;

impl Handler for Uppercase {
    type Codec = LinesCodec;
    type Data = u64;

    fn on_accept(&mut self, conn: &mut Peer<'_>) {
        let (resumed, alpn) = match conn.tls_session() {
            Some(session) => {
                assert!(session.version().starts_with("TLS 1."), "{}", session.version());
                assert!(session.cipher_suite().contains("AES"), "{}", session.cipher_suite());
                (session.is_resumed(), session.alpn().map(<[u8]>::to_vec))
            }
            None => (false, None),
        };
        let _ = self.0.send(Event::Accepted { resumed, alpn });
    }

    fn on_connect(&mut self, conn: &mut Peer<'_>) {
        let certificate = conn.tls_session().and_then(|it| it.peer_certificate().map(<[u8]>::len));
        assert!(certificate.is_none_or(|it| it > 100));
        let _ = self.0.send(Event::Connected);
        // The data decides what the client sends.
        let word: &[u8] =
            if *conn.data_mut() == SUSPEND { b"suspend" } else { b"hello from the client" };
        let _ = conn.send(word);
    }

    fn on_message(&mut self, conn: &mut Peer<'_>, line: &[u8]) {
        let line = String::from_utf8_lossy(line).into_owned();
        if line == "stall" {
            let _ = self.0.send(Event::Message(line));
            return std::thread::sleep(Duration::from_millis(1500));
        }
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
        let _ = self.0.send(Event::Message(line));
    }

    fn on_close(
        &mut self,
        _: &mut Connections<'_, LinesCodec, u64>,
        _: ConnKey,
        _: u64,
        why: &CloseReason,
    ) {
        let _ = self.0.send(Event::Closed(why.to_string()));
    }
}

struct Service {
    net: Net<Uppercase>,
    events: Receiver<Event>,
    identity: Identity,
}

fn serve(config: Config, options: ServerOptions) -> Service {
    let identity = Identity::generate(&["localhost", "127.0.0.1"]).unwrap();
    let server = TlsServerConfig::new(&identity, options).unwrap();
    let (sender, events) = channel();
    let here = ListenOptions::new("127.0.0.1:0".parse().unwrap()).with_tls(&server);
    let make = move |_| Uppercase(sender.clone());
    let net = NetBuilder::new().listen(here).config(config).start(LinesCodec::new(1 << 16), make);
    Service { net: net.unwrap(), events, identity }
}

impl Service {
    fn address(&self) -> SocketAddr {
        self.net.addresses()[0]
    }

    fn next(&self) -> Event {
        self.events.recv_timeout(TIMEOUT).expect("no handler call before the timeout")
    }

    fn closed(&self) -> String {
        loop {
            if let Event::Closed(why) = self.next() {
                return why;
            }
        }
    }

    fn stop(self) -> Stats {
        self.net.stop(TIMEOUT).unwrap().0
    }
}

/// Starts a thread that has outgoing connections only.
fn clients() -> (Net<Uppercase>, Receiver<Event>) {
    let (sender, events) = channel();
    let make = move |_| Uppercase(sender.clone());
    let codec = LinesCodec::new(1 << 16);
    (NetBuilder::new().start(codec, make).unwrap(), events)
}

fn trusting(identity: &Identity) -> TlsClientConfig {
    let verify = ServerVerification::Roots(RootCertificates::from_identity(identity).unwrap());
    TlsClientConfig::new(verify, ClientOptions::default().alpn(vec![b"shout".into()])).unwrap()
}

#[test]
fn own_client_and_server_exchange_messages_and_resume_session() {
    let options = ServerOptions::default().alpn(vec![b"shout".into()]);
    let service = serve(Config::default(), options);
    let client = trusting(&service.identity);
    let (net, client_events) = clients();
    for resumed in [false, true] {
        let options =
            ConnectOptions::new(service.address()).with_tls(&client, "localhost").unwrap();
        net.connect(options, 0).unwrap();
        assert_eq!(service.next(), Event::Accepted { resumed, alpn: Some(b"shout".into()) });
        assert_eq!(client_events.recv_timeout(TIMEOUT).unwrap(), Event::Connected);
        let answer = Event::Message("HELLO FROM THE CLIENT".into());
        assert_eq!(client_events.recv_timeout(TIMEOUT).unwrap(), answer);
        assert_eq!(service.next(), Event::Message("hello from the client".into()));
    }
    // The client ends both connections with a close_notify, which the server receives.
    net.stop(TIMEOUT).unwrap();
    for _ in 0..2 {
        assert_eq!(service.closed(), CloseReason::Peer.to_string());
    }
    let stats = service.stop();
    assert_eq!((stats.handshakes_count, stats.resumed_count, stats.tls_failed_count), (2, 1, 0));
}

#[test]
fn stop_sends_close_notify_to_connected_client() {
    let service = serve(Config::default(), ServerOptions::default());
    let (net, client_events) = clients();
    let options = ConnectOptions::new(service.address());
    net.connect(options.with_tls(&trusting(&service.identity), "127.0.0.1").unwrap(), 0).unwrap();
    assert_eq!(client_events.recv_timeout(TIMEOUT).unwrap(), Event::Connected);
    let answer = Event::Message("HELLO FROM THE CLIENT".into());
    assert_eq!(client_events.recv_timeout(TIMEOUT).unwrap(), answer);
    service.stop();
    let ended = Event::Closed(CloseReason::Peer.to_string());
    assert_eq!(client_events.recv_timeout(TIMEOUT).unwrap(), ended);
}

#[test]
fn wrong_name_or_unknown_issuer_fails_handshake() {
    let service = serve(Config::default(), ServerOptions::default());
    let (net, client_events) = clients();
    let stranger = Identity::generate(&["localhost"]).unwrap();
    for (client, name, expected) in [
        (trusting(&service.identity), "elsewhere.test", "issued for other names: "),
        (trusting(&stranger), "localhost", "of an unknown issuer"),
    ] {
        net.connect(ConnectOptions::new(service.address()).with_tls(&client, name).unwrap(), 7)
            .unwrap();
        match client_events.recv_timeout(TIMEOUT).unwrap() {
            Event::Closed(why) => {
                let expected = format!("the peer's certificate is not valid: {expected}");
                assert!(why.starts_with(&expected), "{why}");
            }
            other => panic!("{other:?}"),
        }
        let why = service.closed();
        assert!(why.starts_with("the peer sent a TLS alert: "), "{why}");
    }
    assert!(
        ConnectOptions::new(service.address())
            .with_tls(&trusting(&stranger), "no name at all")
            .is_err()
    );
    assert_eq!(service.stop().tls_failed_count, 2);
}

#[test]
fn failed_handshake_closes_connection_without_on_accept() {
    let config = Config::default().handshake_timeout(Duration::from_millis(200));
    let service = serve(config, ServerOptions::default());
    let silent = TcpStream::connect(service.address()).unwrap();
    let late = Event::Closed(CloseReason::TimedOut(TimeoutError::Handshake).to_string());
    assert_eq!(service.next(), late);
    drop(silent);
    let stats = service.stop();
    assert_eq!((stats.handshakes_count, stats.timed_out_count), (0, 1));
    // The others must not time out, even if this thread does not get the CPU.
    let service = serve(Config::default(), ServerOptions::default());
    let mut loud = TcpStream::connect(service.address()).unwrap();
    loud.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let why = service.closed();
    assert!(why.starts_with("received bytes are not TLS: "), "{why}");
    let mut alert = Vec::new();
    loud.read_to_end(&mut alert).unwrap();
    assert_eq!(alert.first(), Some(&21), "an alert");
    drop(TcpStream::connect(service.address()).unwrap());
    let cut = Event::Closed(CloseReason::Tls(TlsError::NoCloseNotify).to_string());
    assert_eq!(service.next(), cut);
    let stats = service.stop();
    assert_eq!((stats.handshakes_count, stats.timed_out_count), (0, 0));
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

/// Reads lines up to one that begins with `prefix`; returns the rest of that line.
fn read_until_line(lines: &mut impl BufRead, prefix: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "end of the output before {prefix}");
        if let Some(rest) = line.trim_end().strip_prefix(prefix) {
            return rest.to_owned();
        }
    }
}

#[test]
fn openssl_client_is_answered_in_tls_1_2_and_1_3() {
    let service = serve(Config::default(), ServerOptions::default());
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, service.identity.certificate_pem()).unwrap();
    for version in ["-tls1_3", "-tls1_2"] {
        let to = service.address().to_string();
        let arguments = ["s_client", "-quiet", "-connect", &to, version];
        let verified = ["-verify_return_error", "-servername", "localhost", "-CAfile"];
        let arguments = [&arguments[..], &verified[..], &[ca.to_str().unwrap()]].concat();
        let Some(mut peer) = openssl(&arguments) else { return };
        let mut answers = BufReader::new(peer.stdout.take().unwrap());
        peer.stdin.as_mut().unwrap().write_all(b"good day\n").unwrap();
        assert_eq!(read_until_line(&mut answers, "GOOD DAY"), "");
        assert!(matches!(service.next(), Event::Accepted { resumed: false, alpn: None }));
        assert_eq!(service.next(), Event::Message("good day".into()));
        peer.stdin.as_mut().unwrap().write_all(b"close\n").unwrap();
        assert!(peer.wait().unwrap().success(), "{version}");
        assert_eq!(service.closed(), CloseReason::Local.to_string());
    }
    assert_eq!(service.stop().handshakes_count, 2);
}

#[test]
fn openssl_server_is_verified_and_answers() {
    let identity = Identity::generate(&["localhost"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("certificate.pem"), path("key.pem"));
    std::fs::write(&certificate, identity.certificate_pem()).unwrap();
    std::fs::write(&key, identity.key_pem()).unwrap();
    let files = ["-cert", &certificate, "-key", &key];
    let arguments = [&["s_server", "-accept", "127.0.0.1:0", "-naccept", "1"], &files[..]].concat();
    let Some(mut peer) = openssl(&arguments) else { return };
    let mut lines = BufReader::new(peer.stdout.take().unwrap());
    // It prints the address, as the kernel has chosen the port.
    let address = read_until_line(&mut lines, "ACCEPT ").parse().unwrap();
    let (net, client_events) = clients();
    let options = ConnectOptions::new(address);
    net.connect(options.with_tls(&trusting(&identity), "localhost").unwrap(), 0).unwrap();
    assert_eq!(client_events.recv_timeout(TIMEOUT).unwrap(), Event::Connected);
    assert_eq!(read_until_line(&mut lines, "hello from the client"), "");
    peer.stdin.as_mut().unwrap().write_all(b"GOOD EVENING\n").unwrap();
    assert_eq!(client_events.recv_timeout(TIMEOUT).unwrap(), Event::Message("GOOD EVENING".into()));
    net.stop(TIMEOUT).unwrap();
    drop(peer.stdin.take());
    assert!(peer.wait().unwrap().success());
}

#[test]
fn close_notify_of_suspended_peer_is_detected() {
    let service = serve(Config::default(), ServerOptions::default());
    let (net, client_events) = clients();
    let options = ConnectOptions::new(service.address());
    let options = options.with_tls(&trusting(&service.identity), "localhost").unwrap();
    net.connect(options, SUSPEND).unwrap();
    assert_eq!(client_events.recv_timeout(TIMEOUT).unwrap(), Event::Connected);
    assert!(matches!(service.next(), Event::Accepted { .. }));
    assert_eq!(service.next(), Event::Message("suspend".into()));
    net.stop(TIMEOUT).unwrap();
    assert_eq!(service.closed(), CloseReason::Peer.to_string());
}

#[test]
fn incomplete_record_does_not_time_out_while_earlier_messages_are_handled() {
    // The connection is not read before each line is answered: each reply crosses the mark.
    let marks = Config::default().high_water_bytes(1).low_water_bytes(0);
    let service = serve(marks.message_timeout(Duration::from_secs(1)), ServerOptions::default());
    let mut peer = TcpStream::connect(service.address()).unwrap();
    peer.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut tls = TlsState::new_client(&trusting(&service.identity), "localhost", 0).unwrap();
    let (mut buffer, mut count, mut received, mut out) = ([0; 4096], 0, Vec::new(), Vec::new());
    loop {
        let opened = tls.open_records(&mut buffer[..count], &mut received, &mut out).unwrap();
        peer.write_all(&out).unwrap();
        out.clear();
        if opened.is_ready {
            break;
        }
        count = peer.read(&mut buffer).unwrap();
    }
    tls.seal_messages(b"first\nstall\nthird\nfourth\n", &[], &mut out).unwrap();
    let first_bytes = out.len() + 10;
    tls.seal_messages(b"fifth\n", &[], &mut out).unwrap();
    peer.write_all(&out[..first_bytes]).unwrap();
    while service.next() != Event::Message("stall".into()) {}
    peer.write_all(&out[first_bytes..]).unwrap();
    while !received.ends_with(b"FIFTH\n") {
        count = peer.read(&mut buffer).unwrap();
        assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&received));
        tls.open_records(&mut buffer[..count], &mut received, &mut Vec::new()).unwrap();
    }
    assert_eq!(received, b"FIRST\nTHIRD\nFOURTH\nFIFTH\n");
}
