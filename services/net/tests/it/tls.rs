//! TLS without a socket: two ends on a simulated network that cuts and delays by a seed, and peers
//! that must not be trusted.

use handover_net::Config;
use handover_net::engine::{
    Codec, LengthPrefixCodec, OpenedRecords, ProtocolState, TimeoutError, TlsState,
};
use handover_net::tls::{
    ClientAuth, ClientOptions, Identity, RootCertificates, ServerOptions, ServerVerification,
    TlsClientConfig, TlsError, TlsServerConfig,
};
use rcgen::{CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use std::ops::ControlFlow;

/// Reproducible random generator: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n.max(1)
    }
}

/// One end: its TLS, the bytes it has to send, and the plaintext it has received.
struct Endpoint {
    tls: TlsState,
    out: Vec<u8>,
    received: Vec<u8>,
    ready: bool,
    ended: bool,
}

impl Endpoint {
    fn new(tls: TlsState) -> Self {
        let (out, received) = (Vec::new(), Vec::new());
        Self { tls, out, received, ready: false, ended: false }
    }

    fn open(&mut self, sealed: &[u8]) -> Result<(), TlsError> {
        let mut sealed = sealed.to_vec();
        let OpenedRecords { is_ready, is_ended } =
            self.tls.open_records(&mut sealed, &mut self.received, &mut self.out)?;
        assert!(!(self.ready && is_ready), "the handshake was reported as done twice");
        self.ready |= is_ready;
        self.ended |= is_ended;
        Ok(())
    }

    fn seal(&mut self, plain: &[u8]) {
        self.tls.seal_messages(plain, &[], &mut self.out).unwrap();
    }
}

/// Both ends of one connection: the client, the server.
struct Pair([Endpoint; 2]);

impl Pair {
    fn new(client: &TlsClientConfig, server: &TlsServerConfig, name: &str) -> Self {
        let client = TlsState::new_client(client, name, 0).unwrap();
        Self([Endpoint::new(client), Endpoint::new(TlsState::new_server(server, 0).unwrap())])
    }

    /// Carries bytes between the ends until none are left, at most `bytes_max` at a time; returns
    /// the first error of each end.
    fn run(&mut self, random: &mut Random, bytes_max: usize) -> [Option<TlsError>; 2] {
        let mut errors = [None, None];
        if !self.0[0].tls.is_handshake_complete() && self.0[0].out.is_empty() {
            self.0[0].open(&[]).unwrap();
        }
        while let Some(from) = (0..2).find(|&it| !self.0[it].out.is_empty()) {
            // Now and then the other end sends first.
            let from = match self.0[1 - from].out.is_empty() || random.below(2) == 0 {
                true => from,
                false => 1 - from,
            };
            let count = (1 + random.below(bytes_max)).min(self.0[from].out.len());
            let sealed: Vec<u8> = self.0[from].out.drain(..count).collect();
            let to = 1 - from;
            if errors[to].is_none() {
                errors[to] = self.0[to].open(&sealed).err();
            }
        }
        errors
    }
}

fn identity() -> Identity {
    Identity::generate(&["localhost", "127.0.0.1"]).unwrap()
}

fn server(identity: &Identity, options: ServerOptions) -> TlsServerConfig {
    TlsServerConfig::new(identity, options).unwrap()
}

fn trusting(identity: &Identity) -> TlsClientConfig {
    let verify = ServerVerification::Roots(RootCertificates::from_identity(identity).unwrap());
    TlsClientConfig::new(verify, ClientOptions::default()).unwrap()
}

/// Returns an authority's roots and an identity that the authority has issued.
fn issued(name: &str, change: impl FnOnce(&mut CertificateParams)) -> (RootCertificates, Identity) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let own = format!("authority of {:?}", key.public_key_raw());
    params.distinguished_name.push(DnType::CommonName, &own[..40]);
    let authority = CertifiedIssuer::self_signed(params, key).unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let roots = RootCertificates::from_pem(&pem("CERTIFICATE", authority.der())).unwrap();
    let shown = pem("CERTIFICATE", certificate.der());
    let key = pem("PRIVATE KEY", &key.serialize_der());
    (roots, Identity::from_pem(&shown, &key).unwrap())
}

fn pem(what: &str, der: &[u8]) -> Vec<u8> {
    use base64::prelude::{BASE64_STANDARD, Engine};
    let letters = BASE64_STANDARD.encode(der);
    format!("-----BEGIN {what}-----\n{letters}\n-----END {what}-----\n").into_bytes()
}

#[test]
fn plaintext_arrives_in_order_for_any_split() {
    let identity = identity();
    let server = server(&identity, ServerOptions::default());
    let client = trusting(&identity);
    for seed in 1..=12_u64 {
        let mut random = Random(seed * 7_919);
        let bytes_max = [1, 7, 100, 70_000][seed as usize % 4];
        let mut pair = Pair::new(&client, &server, "localhost");
        // Written before the handshake has begun: it waits.
        pair.0[0].seal(b"early bird");
        assert_eq!(pair.0[0].tls.early_plaintext_bytes(), 10);
        assert_eq!(pair.run(&mut random, bytes_max), [None, None], "seed {seed}");
        assert!(pair.0.iter().all(|it| it.ready && it.tls.is_handshake_complete()));
        assert_eq!(pair.0[1].received, b"early bird");
        pair.0[1].received.clear();
        let bytes: Vec<u8> = (0..60_000_u32).map(|it| (it % 251) as u8).collect();
        let mut expected = [Vec::new(), Vec::new()];
        for _ in 0..4 {
            for (from, expected) in expected.iter_mut().enumerate() {
                let part = &bytes[..random.below(if bytes_max > 10 { bytes.len() } else { 500 })];
                pair.0[from].seal(part);
                expected.extend_from_slice(part);
            }
            assert_eq!(pair.run(&mut random, bytes_max), [None, None], "seed {seed}");
        }
        assert!(
            pair.0[1].received == expected[0] && pair.0[0].received == expected[1],
            "seed {seed}"
        );
        assert_eq!(pair.0.each_ref().map(|it| it.tls.heap_bytes()), [0, 0], "buffers are held");
        for from in [0, 1] {
            let mut out = Vec::new();
            pair.0[from].tls.append_close_notify(&mut out);
            pair.0[from].out = out;
            assert_eq!(pair.run(&mut random, bytes_max), [None, None]);
            assert!(pair.0[1 - from].ended);
        }
    }
}

#[test]
fn session_resumes_only_with_tickets_and_session_cache() {
    let identity = identity();
    for (tickets_count, sessions_max, expected) in
        [(2, 16, [false, true, true]), (0, 16, [false; 3]), (2, 0, [false; 3])]
    {
        let options = ServerOptions::default().tickets_count(tickets_count);
        let server = server(&identity, options);
        let verify = ServerVerification::Roots(RootCertificates::from_identity(&identity).unwrap());
        let options = ClientOptions::default().sessions_max(sessions_max);
        let client = TlsClientConfig::new(verify, options).unwrap();
        let resumed = [(); 3].map(|()| {
            let mut pair = Pair::new(&client, &server, "localhost");
            assert_eq!(pair.run(&mut Random(1), 2_000), [None, None]);
            let [client, server] = pair.0.each_ref().map(|it| it.tls.is_resumed().unwrap());
            assert_eq!(client, server);
            client
        });
        assert_eq!(resumed, expected, "{tickets_count} tickets, {sessions_max} sessions");
    }
}

#[test]
fn invalid_server_certificate_is_refused() {
    let (roots, expired) = issued("localhost", |it| {
        it.not_before = date_time_ymd(2000, 1, 1);
        it.not_after = date_time_ymd(2001, 1, 1);
    });
    let (other_roots, other) = issued("elsewhere.test", |_| {});
    let (_, stranger) = issued("localhost", |_| {});
    for (shown, roots, expected) in [
        (&expired, &roots, "expired"),
        (&other, &other_roots, "issued for other names: "),
        (&stranger, &roots, "of an unknown issuer"),
    ] {
        let server = server(shown, ServerOptions::default());
        let client = TlsClientConfig::new(
            ServerVerification::Roots(roots.clone()),
            ClientOptions::default(),
        )
        .unwrap();
        let mut pair = Pair::new(&client, &server, "localhost");
        let [ours, theirs] = pair.run(&mut Random(3), 500);
        assert!(
            matches!(&ours, Some(TlsError::Certificate(why)) if why.starts_with(expected)),
            "{ours:?} instead of {expected}"
        );
        assert!(matches!(theirs, Some(TlsError::Alert(_))), "got no alert: {theirs:?}");
        // A client that verifies nothing accepts any server.
        let client =
            TlsClientConfig::new(ServerVerification::Nothing, ClientOptions::default()).unwrap();
        let mut pair = Pair::new(&client, &server, "localhost");
        assert_eq!(pair.run(&mut Random(3), 500), [None, None]);
    }
}

#[test]
fn required_client_certificate_is_enforced() {
    let (roots, shown) = issued("client.test", |_| {});
    let (_, stranger) = issued("client.test", |_| {});
    let identity = identity();
    let client = |identity: Option<Identity>| {
        let options = ClientOptions::default().identity(identity);
        TlsClientConfig::new(ServerVerification::Nothing, options).unwrap()
    };
    let server_with =
        |client_auth| server(&identity, ServerOptions::default().client_auth(client_auth));
    let must = server_with(ClientAuth::Required(roots.clone()));
    let may = server_with(ClientAuth::Optional(roots));
    let run = |server: &TlsServerConfig, shown: Option<&Identity>| {
        let mut pair = Pair::new(&client(shown.cloned()), server, "localhost");
        let [_, refused] = pair.run(&mut Random(5), 3_000);
        refused
    };
    assert_eq!(run(&must, Some(&shown)), None);
    assert_eq!(run(&must, None), Some(TlsError::NoCertificate));
    let unknown = Some(TlsError::Certificate("of an unknown issuer".into()));
    assert_eq!(run(&must, Some(&stranger)), unknown);
    assert_eq!(run(&may, None), None);
    assert_eq!(run(&may, Some(&shown)), None);
    assert_eq!(run(&may, Some(&stranger)), unknown);
}

#[test]
fn handshake_fails_without_common_alpn_protocol() {
    let identity = identity();
    let alpn = |names: &[&str]| names.iter().map(|it| it.as_bytes().to_vec()).collect::<Vec<_>>();
    let run = |theirs: &[&str], ours: &[&str]| {
        let options = ServerOptions::default().alpn(alpn(theirs));
        let server = server(&identity, options);
        let options = ClientOptions::default().alpn(alpn(ours));
        let client = TlsClientConfig::new(ServerVerification::Nothing, options).unwrap();
        Pair::new(&client, &server, "localhost").run(&mut Random(9), 400)
    };
    assert_eq!(run(&["echo/2", "echo/1"], &["echo/1"]), [None, None]);
    let [ours, theirs] = run(&["echo/2"], &["echo/1"]);
    assert!(matches!(ours, Some(TlsError::Alert(_))), "{ours:?}");
    assert!(matches!(theirs, Some(TlsError::Incompatible(_))), "{theirs:?}");
}

#[test]
fn garbage_instead_of_client_hello_is_answered_with_alert() {
    let server = server(&identity(), ServerOptions::default());
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        &[0; 64],
        &[0x16, 3, 1, 0, 4, 1, 0, 0, 0],
    ] {
        let mut end = Endpoint::new(TlsState::new_server(&server, 0).unwrap());
        let refused = end.open(garbage).unwrap_err();
        assert!(matches!(refused, TlsError::NotTls(_)), "{refused:?}");
        // An alert is record type 21.
        assert_eq!(end.out.first(), Some(&21), "{garbage:?}");
    }
}

#[test]
fn tampered_record_closes_the_connection() {
    let identity = identity();
    let server = server(&identity, ServerOptions::default());
    let mut pair = Pair::new(&trusting(&identity), &server, "localhost");
    assert_eq!(pair.run(&mut Random(1), 5_000), [None, None]);
    pair.0[0].seal(b"one pound");
    *pair.0[0].out.last_mut().unwrap() ^= 1;
    let [ours, theirs] = pair.run(&mut Random(1), 5_000);
    assert!(matches!(theirs, Some(TlsError::Failed(_))), "{theirs:?}");
    assert!(matches!(ours, Some(TlsError::Alert(_))), "{ours:?}");
    assert!(pair.0[1].received.is_empty());
}

#[test]
fn seal_makes_one_record_per_turn_or_per_message() {
    let identity = identity();
    for (record_per_message, expected) in [(false, 1), (true, 3)] {
        let options = ServerOptions::default().record_per_message(record_per_message);
        let server = server(&identity, options);
        let mut pair = Pair::new(&trusting(&identity), &server, "localhost");
        assert_eq!(pair.run(&mut Random(1), 5_000), [None, None]);
        let mut out = Vec::new();
        pair.0[1].tls.seal_messages(b"onetwothree", &[3, 6, 11], &mut out).unwrap();
        let (mut rest, mut records_count) = (&out[..], 0);
        while let [_, _, _, high, low, ..] = *rest {
            rest = &rest[5 + usize::from(u16::from_be_bytes([high, low]))..];
            records_count += 1;
        }
        assert_eq!(records_count, expected);
        pair.0[1].out = out;
        assert_eq!(pair.run(&mut Random(1), 5_000), [None, None]);
        assert_eq!(pair.0[0].received, b"onetwothree");
    }
}

#[test]
fn link_enforces_handshake_timeout_and_frees_buffers_when_idle() {
    let limits = Config::default()
        .connection_limits()
        .queued_bytes_max(1_000)
        .high_bytes(500)
        .low_bytes(100)
        .message_timeout_ns(0)
        .write_timeout_ns(0)
        .handshake_timeout_ns(5_000);
    let identity = identity();
    let server = server(&identity, ServerOptions::default());
    let mut protocol = ProtocolState::with_tls(TlsState::new_server(&server, 100).unwrap());
    assert_eq!(protocol.deadline_ns(&limits), Some(5_100));
    assert_eq!(protocol.exceeded_timeout(&limits, 5_100), Some(TimeoutError::Handshake));
    let bare = protocol.heap_bytes();
    // Bytes written before the end of the handshake are kept, as many as the queue allows.
    assert_eq!(protocol.seal_and_queue(&[7; 900], &limits, 0).unwrap(), None);
    assert!(protocol.seal_and_queue(&[7; 200], &limits, 0).is_err());
    assert_eq!((protocol.queued_bytes(), protocol.unsent_bytes().len()), (900, 0));

    let mut client =
        Endpoint::new(TlsState::new_client(&trusting(&identity), "localhost", 0).unwrap());
    client.open(&[]).unwrap();
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let mut sealed = std::mem::take(&mut client.out);
        protocol.open_records(&mut sealed, &mut plain, &mut out, 200).unwrap();
        client.open(&std::mem::take(&mut out)).unwrap();
    }
    assert_eq!(client.received, [7; 900]);
    assert_eq!((protocol.deadline_ns(&limits), protocol.heap_bytes()), (None, bare));
    let codec = LengthPrefixCodec::new(100);
    let mut framed = Vec::new();
    codec.encode(b"hello", &mut framed).unwrap();
    client.seal(&framed);
    // The message timeout applies to an incomplete record.
    let mut records = std::mem::take(&mut client.out);
    let (first, second) = records.split_at_mut(7);
    let limits = limits.message_timeout_ns(1_000);
    for (now_ns, part) in (7_000..).step_by(100).zip(first.chunks_mut(3)) {
        protocol.open_records(part, &mut plain, &mut out, now_ns).unwrap();
        assert_eq!(protocol.deadline_ns(&limits), Some(8_000));
    }
    assert_eq!(protocol.exceeded_timeout(&limits, 7_999), None);
    assert_eq!(protocol.exceeded_timeout(&limits, 8_000), Some(TimeoutError::Message));
    protocol.open_records(second, &mut plain, &mut out, 7_900).unwrap();
    assert_eq!(protocol.deadline_ns(&limits), None);
    let mut received = Vec::new();
    let each = |message: &[u8]| {
        received.extend_from_slice(message);
        ControlFlow::Continue(())
    };
    protocol.deliver_messages(&plain, &codec, 0, each).unwrap();
    assert_eq!((received, protocol.heap_bytes()), (b"hello".to_vec(), bare));
}
