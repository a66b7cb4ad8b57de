//! TLS: the same load through records, and what a handshake takes of either side.

use super::load::{Client, NetLoad, PARTS, Talking, Told, connections, first_messages};
use super::servers::Echo;
use handover_base::clock;
use handover_harness::{Fault, Handover, Party, Region, Rig, Role, Samples, Workload};
use handover_net::engine::Tls;
use handover_net::tls::{self, ClientOptions, Identity, ServerOptions, Verify};
use handover_record::{Part, Spec};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

fn refused(error: impl std::fmt::Display) -> Fault {
    Fault::new(error.to_string())
}

/// Both ends' configuration, with a certificate made on the spot.
pub(super) fn ends(record_per_message: bool) -> Result<(tls::Client, tls::Server), Fault> {
    let identity = Identity::made_for(&["localhost"]).map_err(refused)?;
    let options = ServerOptions { record_per_message, ..ServerOptions::default() };
    let server = tls::Server::new(&identity, options).map_err(refused)?;
    let options = ClientOptions { record_per_message, ..ClientOptions::default() };
    let client = tls::Client::new(Verify::Nothing, options).map_err(refused)?;
    Ok((client, server))
}

/// The client's side of a connection, and where each of its messages ends.
pub(super) struct Sealed {
    tls: Tls,
    ends: Vec<usize>,
}

impl Sealed {
    /// Shakes hands, one after the other.
    pub(super) fn shake(
        stream: &TcpStream,
        client: &tls::Client,
        ends: Vec<usize>,
    ) -> Result<Self, Fault> {
        stream.set_nonblocking(true)?;
        let mut tls = Tls::client(client, "localhost", 0).map_err(refused)?;
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        tls.open(&mut [], &mut plain, &mut out).map_err(refused)?;
        let mut buffer = vec![0; 1 << 14];
        let mut stream_ref = stream;
        loop {
            // A few hundred bytes, for which there is room.
            stream_ref.write_all(&out)?;
            out.clear();
            if tls.is_ready() {
                return Ok(Self { tls, ends });
            }
            poll(&mut [PollFd::new(stream, PollFlags::IN)], None)?;
            match stream_ref.read(&mut buffer) {
                Ok(0) => return Err(Fault::new("the server has ended the handshake")),
                Ok(count) => {
                    tls.open(&mut buffer[..count], &mut plain, &mut out).map_err(refused)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Has one message echoed, and forgets what it knows of the connection.
    pub(super) fn echo(mut self, mut stream: &TcpStream, message: &[u8]) -> Result<(), Fault> {
        let (mut plain, mut out, mut buffer) = (Vec::new(), Vec::new(), [0; 4096]);
        self.tls.seal(message, &[], &mut out).map_err(refused)?;
        stream.set_nonblocking(false)?;
        stream.write_all(&out)?;
        out.clear();
        while plain.len() < message.len() {
            match stream.read(&mut buffer)? {
                0 => return Err(Fault::new("the server has ended the connection")),
                // Tickets come with it.
                count => self.tls.open(&mut buffer[..count], &mut plain, &mut out),
            }
            .map_err(refused)?;
        }
        match plain == message {
            true => Ok(()),
            false => Err(Fault::new("the echo is not what was sent")),
        }
    }
}

impl Talking for Sealed {
    fn seal<'a>(&'a mut self, plain: &'a [u8], sealed: &'a mut Vec<u8>) -> Result<&'a [u8], Fault> {
        sealed.clear();
        let count = self.ends.partition_point(|&end| end <= plain.len());
        self.tls.seal(plain, &self.ends[..count], sealed).map_err(refused)?;
        Ok(sealed)
    }

    fn open<'a>(
        &'a mut self,
        came: &'a mut [u8],
        plain: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Fault> {
        plain.clear();
        let mut out = Vec::new();
        self.tls.open(came, plain, &mut out).map_err(refused)?;
        match out.is_empty() {
            true => Ok(plain),
            false => Err(Fault::new("the server wants new keys in the middle of a round")),
        }
    }

    fn part(&mut self, sealed: &mut Vec<u8>) {
        self.tls.part(sealed);
    }
}

/// The benchmark: with all that goes together in one record, or with a record for each message.
pub(super) struct Load<const EACH: bool> {
    ends: Vec<(TcpStream, TcpStream)>,
    client: tls::Client,
    server: tls::Server,
    load: NetLoad,
    told: Region<Told>,
}

impl<const EACH: bool> Handover for Load<EACH> {
    type Args = NetLoad;
    const SPEC: Spec = Spec {
        id: "net/tls",
        what: "messages over connections by TLS, batched in records or a record for each",
        parts: PARTS,
        classic: Some("evh_perf"),
        hands_over: true,
        floor: Some("floor/socket"),
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn roles(_: &NetLoad) -> Vec<Role> {
        vec![Role::measured("client"), Role::serving("server")]
    }

    fn rig(load: &NetLoad, rig: &mut Rig) -> Result<Self, Fault> {
        let (client, server) = ends(EACH)?;
        let told = rig.region()?;
        Ok(Self { ends: connections(load, rig)?, client, server, load: *load, told })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if party.index > 0 {
            let streams: Result<_, _> = self.ends.iter().map(|(_, far)| far.try_clone()).collect();
            let streams: Vec<TcpStream> = streams?;
            return self.told.timed(|| {
                Echo::serve(streams.len(), &self.load, |reactor| {
                    streams
                        .into_iter()
                        .try_for_each(|stream| reactor.adopt_tls(stream, &self.server).map(drop))
                })
            });
        }
        let message_bytes = usize::try_from(self.load.message_bytes.0).unwrap_or(usize::MAX);
        let message_ends = || (1..=self.load.depth as usize).map(|it| it * message_bytes).collect();
        let talks: Result<Vec<_>, Fault> = self
            .ends
            .iter()
            .map(|(near, _)| Ok((near, Sealed::shake(near, &self.client, message_ends())?)))
            .collect();
        let mut client = Client::begin(talks?, &self.load)?;
        client.play(out)?;
        let messages_count = client.end()?;
        // Handshakes, and the messages before the first that is timed, are not the server's share.
        self.told.note(messages_count - first_messages(&self.load), out);
        Ok(())
    }
}

/// The parts of a handshake.
const FULL: usize = 0;
const RESUMED: usize = 1;
const CLIENT: usize = 2;

/// Handshakes without a network: each side's share by itself.
pub(super) struct Handshake {
    identity: Identity,
    client: tls::Client,
    server: tls::Server,
}

impl Handshake {
    /// One handshake: the ticks that each side took, and whether a session was resumed.
    fn shake(&self, client: &tls::Client) -> Result<(u64, u64, bool), Fault> {
        let (mut client_ticks, mut server_ticks) = (0, 0);
        let timed = |sum: &mut u64, began: u64| *sum += clock::ticks().saturating_sub(began);
        let began = clock::ticks();
        let mut near = Tls::client(client, "localhost", 0).map_err(refused)?;
        timed(&mut client_ticks, began);
        let began = clock::ticks();
        let mut far = Tls::server(&self.server, 0).map_err(refused)?;
        timed(&mut server_ticks, began);
        let (mut plain, mut to_far, mut to_near) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let began = clock::ticks();
            near.open(&mut to_near, &mut plain, &mut to_far).map_err(refused)?;
            timed(&mut client_ticks, began);
            to_near.clear();
            if to_far.is_empty() {
                break;
            }
            let began = clock::ticks();
            far.open(&mut to_far, &mut plain, &mut to_near).map_err(refused)?;
            timed(&mut server_ticks, began);
            to_far.clear();
        }
        match (near.is_ready(), far.is_ready(), far.is_resumed()) {
            (true, true, Some(is_resumed)) => Ok((server_ticks, client_ticks, is_resumed)),
            _ => Err(Fault::new("the handshake has no end")),
        }
    }

    /// A client that knows of no session.
    fn fresh(&self) -> Result<tls::Client, Fault> {
        let roots = tls::Roots::of(&self.identity).map_err(refused)?;
        tls::Client::new(Verify::Roots(roots), ClientOptions::default()).map_err(refused)
    }
}

impl Workload for Handshake {
    type Args = ();
    const SPEC: Spec = Spec {
        id: "net/handshake",
        what: "a handshake of TLS 1.3 without a network, each side by itself",
        parts: &[
            Part::new("full", "the server's share of one with certificates"),
            Part::new("resumed", "the server's share of one that resumes a session")
                .floor("floor/agreement"),
            Part::new(
                "client",
                "the client's share of a full one, the server's certificate verified",
            ),
        ],
        floor: Some("floor/signature"),
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };

    fn rig((): &(), _: &mut Rig) -> Result<Self, Fault> {
        let identity = Identity::made_for(&["localhost"]).map_err(refused)?;
        let server = tls::Server::new(&identity, ServerOptions::default()).map_err(refused)?;
        let client = tls::Client::new(Verify::Nothing, ClientOptions::default());
        Ok(Self { identity, server, client: client.map_err(refused)? })
    }

    fn check(&mut self) -> Result<(), Fault> {
        let is_resumed = [(); 2].map(|()| self.shake(&self.client).map(|(.., it)| it));
        match is_resumed {
            [Ok(false), Ok(true)] => Ok(()),
            [Err(fault), _] | [_, Err(fault)] => Err(fault),
            other => Err(Fault::new(format!("resumed: {other:?}"))),
        }
    }

    fn sample(&mut self, out: &mut Samples) {
        // The first has nothing to resume.
        let fresh = self.fresh().and_then(|fresh| self.shake(&self.client).map(|_| fresh));
        let mut fresh = fresh.unwrap_or_else(|fault| panic!("{fault}"));
        while out.running() {
            let (server_ticks, client_ticks, is_resumed) =
                self.shake(&fresh).unwrap_or_else(|fault| panic!("{fault}"));
            assert!(!is_resumed, "nobody's session was resumed");
            out.note(FULL, server_ticks);
            out.note(CLIENT, client_ticks);
            let (server_ticks, _, is_resumed) =
                self.shake(&self.client).unwrap_or_else(|fault| panic!("{fault}"));
            assert!(is_resumed, "a session that was there was not resumed");
            out.note(RESUMED, server_ticks);
            fresh = self.fresh().unwrap_or_else(|fault| panic!("{fault}"));
        }
    }
}
