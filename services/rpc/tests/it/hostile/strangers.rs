//! Tests with peers that cannot authenticate: both sides get an error at once, and no such peer is
//! let in.

use super::peers::{SOON, stream_hello};
use handover_rpc::engine::{
    HELLO_BYTES, HandshakeRole, Hello, NO_PROOF, NONCE_BYTES, PROOF_BYTES, Secret,
};
use handover_rpc::{
    AccessConfig, Address, AuthenticationError, Calling, CloseReason, Config, ConnectionsConfig,
    Endpoint, EndpointError, Method, Peer, UdsPeers,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SECRET: &[u8] = b"known to both sides";
const ECHO: Method = Method::new("echo");

/// Creates an endpoint that listens at that address.
fn listening(how: &str, config: Config, secret: Option<&[u8]>) -> (Endpoint, Address) {
    let mut server = Endpoint::new(config).unwrap();
    if let Some(secret) = secret {
        server.set_secret(secret).unwrap();
    }
    server.register("echo", 0, |_, number: u64| Ok(number)).unwrap();
    let address = server.listen(&how.parse().unwrap()).unwrap();
    (server, address)
}

type Connected = Result<(Endpoint, Peer), EndpointError>;

/// Connects to that address in its own thread.
fn connecting(address: &Address, config: Config, secret: Option<&[u8]>) -> JoinHandle<Connected> {
    let (address, secret) = (address.clone(), secret.map(<[u8]>::to_vec));
    std::thread::spawn(move || {
        let mut client = Endpoint::new(config)?;
        if let Some(secret) = secret {
            client.set_secret(&secret)?;
        }
        let peer = client.connect(&address)?;
        Ok((client, peer))
    })
}

/// Serves until that thread has ended, and this side has settled its connection.
fn settled<T>(server: &mut Endpoint, client: JoinHandle<T>) -> T {
    let began = Instant::now();
    let is_settled = |server: &Endpoint| {
        let stats = server.stats();
        stats.turned_away_count + u64::from(stats.peers_count) + stats.closed_count > 0
    };
    while !client.is_finished() || !is_settled(server) {
        server.progress(std::time::Duration::from_millis(1));
        assert!(began.elapsed() < 4 * SOON, "it hangs");
    }
    client.join().unwrap()
}

/// Returns the reason that the client gets for the server's refusal.
fn refusal(server: &mut Endpoint, client: JoinHandle<Connected>) -> CloseReason {
    let refused = settled(server, client).map(|_| ()).unwrap_err();
    let stats = server.stats();
    assert_eq!((stats.peers_count, stats.turned_away_count), (0, 1), "{refused}");
    match refused {
        EndpointError::Handshake { why, .. } => why,
        other => panic!("{other}"),
    }
}

/// Checks that the client's calls are answered.
fn is_served(server: &mut Endpoint, client: JoinHandle<Connected>) {
    let (mut client, peer) = settled(server, client).unwrap();
    let asking =
        std::thread::spawn(move || client.call_within::<_, u64>(peer, ECHO, &7u64, 4 * SOON));
    assert_eq!(settled(server, asking), Ok(7));
}

#[test]
fn peers_that_know_the_secret_are_served_and_others_are_told_why_not() {
    let tcp = || listening("tcp://127.0.0.1:0", Config::default(), Some(SECRET));
    let (mut server, address) = tcp();
    is_served(&mut server, connecting(&address, Config::default(), Some(SECRET)));

    use AuthenticationError::{NoSecret, SecretRequired, WrongSecret};
    let other = b"known to nobody else".as_slice();
    for (ours, its, why) in [
        (Some(SECRET), Some(other), WrongSecret),
        (Some(SECRET), None, SecretRequired),
        (None, Some(SECRET), NoSecret),
    ] {
        let (mut server, address) = listening("tcp://127.0.0.1:0", Config::default(), ours);
        let client = connecting(&address, Config::default(), its);
        assert_eq!(refusal(&mut server, client), CloseReason::Authentication(why));
    }
}

#[test]
fn a_secret_is_read_from_a_file_and_a_short_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, [SECRET, b"\n"].concat()).unwrap();
    let secret_file = Some(file.to_str().unwrap().to_owned());
    let config = Config::default().access(AccessConfig::default().secret_file(secret_file));
    let (mut server, address) = listening("tcp://127.0.0.1:0", config.clone(), None);
    assert!(
        !serde_json::to_string(&server.dump()).unwrap().contains("known to both"),
        "the secret itself"
    );
    is_served(&mut server, connecting(&address, Config::default(), Some(SECRET)));

    std::fs::write(&file, "fifteen letters\n").unwrap();
    let refused = Endpoint::new(config.clone()).unwrap_err().to_string();
    let words = "the secret has 15 bytes, at least 16 are needed";
    assert_eq!(refused, format!("{}: {words}", file.display()));
    std::fs::remove_file(&file).unwrap();
    let refused = Endpoint::new(config).unwrap_err().to_string();
    assert!(refused.starts_with(&format!("{}: ", file.display())), "{refused}");
}

/// Returns the hello and nonce that a stranger sends, and those that a server with a secret
/// answers.
fn opening(place: &str) -> (TcpStream, Vec<u8>, Vec<u8>) {
    let mut stream = TcpStream::connect(place).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let hello = Hello { has_secret: true, ..stream_hello() };
    let sent = [&hello.encode()[..], &[7; NONCE_BYTES]].concat();
    stream.write_all(&sent).unwrap();
    let mut came = vec![0; HELLO_BYTES + NONCE_BYTES];
    stream.read_exact(&mut came).unwrap();
    (stream, sent, came)
}

#[test]
fn no_proof_is_given_to_a_peer_that_gives_none_and_a_recorded_one_is_worth_nothing() {
    let (mut server, address) = listening("tcp://127.0.0.1:0", Config::default(), Some(SECRET));
    let place = address.without_scheme().to_owned();
    let stranger = std::thread::spawn(move || {
        let secret = Secret::new(SECRET).unwrap();
        // A proof recorded on another connection: the server's random number differs.
        let (_, sent, came) = opening(&place);
        let recorded = secret.compute_proof(HandshakeRole::Connector, &sent, &came);
        let reflected =
            |sent: &[u8], came: &[u8]| secret.compute_proof(HandshakeRole::Acceptor, sent, came);
        for proof in [
            Box::new(|_: &[u8], _: &[u8]| [1u8; PROOF_BYTES]) as Box<dyn Fn(&[u8], &[u8]) -> _>,
            Box::new(|_: &[u8], _: &[u8]| NO_PROOF),
            Box::new(move |_: &[u8], _: &[u8]| recorded),
            Box::new(reflected),
        ] {
            let (mut stream, sent, came) = opening(&place);
            // Bytes after the proof are not read as a request.
            stream.write_all(&[&proof(&sent, &came)[..], &[1; 100]].concat()).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, NO_PROOF, "zeros, and the end");
        }
        let (mut stream, sent, came) = opening(&place);
        stream.write_all(&secret.compute_proof(HandshakeRole::Connector, &sent, &came)).unwrap();
        let mut proof = [0; PROOF_BYTES];
        stream.read_exact(&mut proof).unwrap();
        assert!(secret.is_valid_proof(&proof, HandshakeRole::Acceptor, &sent, &came));
    });
    settled(&mut server, stranger);
    assert!(server.stats().turned_away_count >= 4);
}

#[test]
fn a_stranger_that_goes_silent_in_the_handshake_is_turned_away_in_time() {
    // Long enough for the stranger's first message.
    let config = Config::default()
        .connections(ConnectionsConfig::default().handshake_timeout(Duration::from_millis(1000)));
    let (mut server, address) = listening("tcp://127.0.0.1:0", config, Some(SECRET));
    let place = address.without_scheme().to_owned();
    let stranger = std::thread::spawn(move || {
        let (mut stream, ..) = opening(&place);
        let mut rest = Vec::new();
        // The end, or a reset.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
    });
    settled(&mut server, stranger);
    assert_eq!(server.stats().turned_away_count, 1);
}

#[test]
fn unix_peers_of_other_users_are_refused_by_either_side() {
    let own = rustix::process::geteuid().as_raw();
    let others =
        |uids| Config::default().access(AccessConfig::default().uds_peers(UdsPeers::Uids(uids)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let how = format!("uds://{}", path.display());
    for (server, client) in [
        (Config::default(), Config::default()),
        (
            others(vec![own]),
            Config::default().access(AccessConfig::default().uds_peers(UdsPeers::Any)),
        ),
    ] {
        let (mut server, address) = listening(&how, server, None);
        is_served(&mut server, connecting(&address, client, None));
    }
    let (mut server, address) = listening(&how, Config::default(), None);
    let refused = settled(&mut server, connecting(&address, others(vec![own + 1]), None));
    let refused = refused.map(|_| ()).unwrap_err();
    assert!(
        matches!(refused, EndpointError::UserNotAllowed { uid, .. } if uid == own),
        "{refused}"
    );
    drop(server);

    let (mut server, address) = listening(&how, others(vec![own + 1]), None);
    let client = connecting(&address, Config::default(), None);
    assert_eq!(refusal(&mut server, client), CloseReason::ClosedByPeer);
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;
    use crate::credentials::{Authority, with_tls};
    use handover_rpc::rustls::pki_types::{CertificateDer, pem::PemObject};
    use handover_rpc::rustls::{ClientConfig, RootCertStore};
    use handover_rpc::{CallError, TlsFiles};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const HOW: &str = "tls://127.0.0.1:0";

    fn of(files: TlsFiles) -> Config {
        Config::default().access(AccessConfig::default().tls(Some(files)))
    }

    #[test]
    fn certificates_that_are_not_trusted_are_refused_with_the_reason() {
        let (ours, others) = (Authority::new("ours"), Authority::new("others"));
        let server = ours.issue(&["127.0.0.1"]);
        let mixed = others.issue(&["client"]).roots(server.roots.clone());
        for (server, client, why) in [
            (server.clone(), others.issue(&["client"]), "UnknownIssuer"),
            // The client trusts the server, but the server does not trust the client.
            (server, mixed, "received fatal alert: UnknownCA"),
            (
                ours.issue(&["10.9.8.7"]),
                ours.issue(&["client"]),
                "not valid for name \"127.0.0.1\"",
            ),
        ] {
            let (mut server, address) = listening(HOW, of(server), None);
            match refusal(&mut server, connecting(&address, of(client), None)) {
                CloseReason::Tls(said) => assert!(said.contains(why), "{said}, not {why}"),
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn a_client_without_a_certificate_is_refused_and_one_with_rustls_own_configuration_is_not() {
        let authority = Authority::new("both");
        let files = authority.issue(&["127.0.0.1"]);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&files.roots).unwrap()).unwrap();
        let provider = Arc::new(handover_rpc::rustls::crypto::aws_lc_rs::default_provider());
        let builder = || {
            ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots.clone())
        };
        let chain = vec![CertificateDer::from_pem_file(&files.certificates).unwrap()];
        let key = handover_rpc::rustls::pki_types::PrivateKeyDer::from_pem_file(&files.private_key);
        let known = builder().with_client_auth_cert(chain, key.unwrap()).unwrap();
        for (client, is_known) in [(builder().with_no_client_auth(), false), (known, true)] {
            let (mut server, address) = listening(HOW, of(files.clone()), None);
            let client = std::thread::spawn(move || {
                let mut endpoint = Endpoint::new(Config::default()).unwrap();
                endpoint.set_tls_client(Arc::new(client));
                let peer = endpoint.connect(&address)?;
                Ok((endpoint, peer))
            });
            if is_known {
                is_served(&mut server, client);
            } else {
                let why = refusal(&mut server, client).to_string();
                assert_eq!(why, "TLS failed: received fatal alert: CertificateRequired");
            }
        }
    }

    #[test]
    fn tls_and_plain_text_do_not_meet_and_neither_waits_for_ever() {
        let limits = ConnectionsConfig::default().handshake_timeout(Duration::from_secs(2));
        let config = || with_tls(Config::default().connections(limits.clone()));
        for (how, other) in
            [(HOW, Address::Tcp as fn(String) -> Address), ("tcp://127.0.0.1:0", Address::Tls)]
        {
            let (mut server, address) = listening(how, config(), None);
            let client = connecting(&other(address.without_scheme().into()), config(), None);
            let refused = settled(&mut server, client).map(|_| ()).unwrap_err();
            let is_told = matches!(
                refused,
                EndpointError::Handshake { .. } | EndpointError::HandshakeTimeout { .. }
            );
            assert!(is_told, "{refused}");
        }
    }

    #[test]
    fn tls_without_certificates_is_refused_with_the_way_out() {
        let mut endpoint = Endpoint::new(Config::default()).unwrap();
        let said = endpoint.listen(&HOW.parse().unwrap()).unwrap_err().to_string();
        assert_eq!(said, format!("{HOW}: no certificate: set `access.tls` in the configuration"));
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = Address::Tls(nobody.local_addr().unwrap().to_string());
        let said = endpoint.connect(&at).unwrap_err().to_string();
        assert_eq!(said, format!("{at}: no certificates: set `access.tls` in the configuration"));
        let files = Authority::new("no").issue(&[]).private_key("/nowhere.pem".into());
        let said = Endpoint::new(of(files)).unwrap_err().to_string();
        assert!(said.starts_with("/nowhere.pem: cannot load the private key: "), "{said}");
        let files = Authority::new("no").issue(&[]).certificates("/dev/zero".into());
        let said = Endpoint::new(of(files)).unwrap_err().to_string();
        assert_eq!(said, "/dev/zero: cannot load the certificates: longer than 16MiB");
    }

    #[test]
    fn a_connection_that_is_cut_is_told_from_one_that_was_closed() {
        let (mut server, address) = listening(HOW, with_tls(Config::default()), None);
        let never = |_: &mut handover_rpc::Context<'_>, ()| Ok(());
        server.register("never", 0, never).unwrap();
        // A relay that forwards bytes until the client's request has come, and does not forward
        // that.
        let relay = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = Address::Tls(relay.local_addr().unwrap().to_string());
        let place = address.without_scheme().to_owned();
        let (cut, when) = std::sync::mpsc::channel::<()>();
        let relaying = std::thread::spawn(move || {
            let (client, _) = relay.accept().unwrap();
            let server = TcpStream::connect(place).unwrap();
            let copy = |mut from: TcpStream, mut to: TcpStream| {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to))
            };
            copy(client.try_clone().unwrap(), server.try_clone().unwrap());
            copy(server.try_clone().unwrap(), client.try_clone().unwrap());
            when.recv().unwrap();
            client.shutdown(std::net::Shutdown::Both).unwrap();
            server.shutdown(std::net::Shutdown::Both).unwrap();
        });
        let client = connecting(&at, with_tls(Config::default()), None);
        let (mut client, peer) = settled(&mut server, client).unwrap();
        let call = client.start::<_, ()>(peer, Method::new("never"), &()).unwrap();
        cut.send(()).unwrap();
        relaying.join().unwrap();
        match client.wait(call) {
            Err(CallError::Disconnected(why)) => {
                assert_eq!(why.to_string(), "TLS failed: the connection ended without close_notify",)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Relay that passes everything on until the client is to go silent, and then a given number of
    /// its bytes.
    struct Relay {
        address: Address,
        passes_all: Arc<AtomicBool>,
        client: JoinHandle<()>,
    }

    impl Relay {
        fn new(server: &Address, more_bytes: usize) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = Address::Tls(listener.local_addr().unwrap().to_string());
            let (place, passes_all) =
                (server.without_scheme().to_owned(), Arc::new(AtomicBool::new(true)));
            let passes = Arc::clone(&passes_all);
            let client = std::thread::spawn(move || {
                let (mut client, _) = listener.accept().unwrap();
                let mut server = TcpStream::connect(place).unwrap();
                let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    // Until the server has closed the connection.
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
                let (mut bytes, mut left) = (vec![0; 1 << 16], more_bytes);
                while let Ok(count @ 1..) = client.read(&mut bytes) {
                    let passed = match passes.load(Ordering::SeqCst) {
                        true => count,
                        false => count.min(left),
                    };
                    if !passes.load(Ordering::SeqCst) {
                        left -= passed;
                    }
                    // Fails if the server has closed the connection.
                    let _ = server.write_all(&bytes[..passed]);
                }
            });
            Self { address, passes_all, client }
        }
    }

    #[test]
    fn message_that_is_begun_and_not_ended_ends_a_connection_under_tls() {
        const MESSAGE_TIMEOUT: Duration = Duration::from_millis(80);
        // Within the header of a record, within a record, between two, and within a message of
        // several records.
        for more_bytes in [3, 30, 46, 20_000] {
            let limits = ConnectionsConfig::default().message_timeout(MESSAGE_TIMEOUT);
            let config = with_tls(Config::default().connections(limits));
            let (mut server, address) = listening(HOW, config, None);
            let relay = Relay::new(&address, more_bytes);
            let client = connecting(&relay.address, with_tls(Config::default()), None);
            let (mut client, peer) = settled(&mut server, client).unwrap();
            let began = Instant::now();
            relay.passes_all.store(false, Ordering::SeqCst);
            let asking = std::thread::spawn(move || {
                client.call_within::<_, u64>(peer, ECHO, &vec![7u8; 100_000], 8 * SOON)
            });
            while server.stats().closed_count == 0 {
                server.progress(std::time::Duration::from_millis(1));
                assert!(began.elapsed() < 4 * SOON, "{more_bytes} bytes of it have come");
            }
            let took = began.elapsed();
            assert!(took >= MESSAGE_TIMEOUT);
            assert_eq!(server.stats().requests_count, 0);
            let ended = asking.join().unwrap();
            assert!(matches!(ended, Err(CallError::Disconnected(_))), "{more_bytes}: {ended:?}");
            relay.client.join().unwrap();
        }
    }

    #[test]
    fn silent_strangers_under_tls_keep_a_peer_out_for_a_part_of_their_time() {
        const HANDSHAKES_MAX: u32 = 8;
        const SILENCE: Duration = Duration::from_millis(50);
        let limits = ConnectionsConfig::default()
            .handshakes_max(HANDSHAKES_MAX)
            .handshake_timeout(16 * SILENCE);
        let config = with_tls(Config::default().connections(limits));
        let (mut server, address) = listening(HOW, config, None);
        // Half of them have begun a record.
        let strangers: Vec<TcpStream> = (0..3 * HANDSHAKES_MAX)
            .map(|number| {
                let mut stranger = TcpStream::connect(address.without_scheme()).unwrap();
                stranger.write_all(&[22, 3, 1, 2, 0, 1][..6 * (number as usize % 2)]).unwrap();
                stranger
            })
            .collect();
        let began = Instant::now();
        let client = std::thread::spawn(move || {
            // If this thread does not get to run, the client itself is silent for too long.
            loop {
                let mut client = Endpoint::new(with_tls(Config::default())).unwrap();
                match client.connect(&address) {
                    Ok(peer) => return (client, peer),
                    Err(error) => assert!(began.elapsed() < 8 * SOON, "{error}"),
                }
            }
        });
        while server.stats().peers_count == 0 {
            server.progress(std::time::Duration::from_millis(5));
            assert!(began.elapsed() < 8 * SOON, "{:?}", server.stats());
        }
        // All earlier handshakes, except those for which there was room, were turned away, each
        // after its time.
        assert!(server.stats().turned_away_count >= u64::from(2 * HANDSHAKES_MAX));
        assert!(began.elapsed() >= 2 * SILENCE);
        drop((client.join().unwrap(), strangers));
    }
}
