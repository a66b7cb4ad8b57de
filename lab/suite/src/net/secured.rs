//! The load of `net/load` with TLS.

use super::idle::Link;
use super::load::{
    ClientCodec, LOAD_PARTS, LoadArgs, LoadClient, ServerCpuTime, clone_far_ends,
    create_connections,
};
use super::servers::LoadHandler;
use crate::common::{bytes_to_usize, check_bytes_equal};
use handover_base::usage::Usage;
use handover_harness::{Fault, Handover, Participant, Region, Role, Samples, Setup};
use handover_net::engine::TlsState;
use handover_net::tls::{self, ClientOptions, Identity, ServerOptions, ServerVerification};
use handover_net::{Config, ListenOptions};
use handover_record::Spec;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::net::TcpStream;

pub(super) fn generate_identity() -> Result<Identity, Fault> {
    Identity::generate(&["localhost"]).map_err(Fault::from_error)
}

fn new_client_config(record_per_message: bool) -> Result<tls::TlsClientConfig, Fault> {
    let options = ClientOptions::default().record_per_message(record_per_message);
    tls::TlsClientConfig::new(ServerVerification::Nothing, options).map_err(Fault::from_error)
}

fn new_server_config(
    identity: &Identity,
    record_per_message: bool,
) -> Result<tls::TlsServerConfig, Fault> {
    let options = ServerOptions::default().record_per_message(record_per_message);
    tls::TlsServerConfig::new(identity, options).map_err(Fault::from_error)
}

/// Link: TLS with a new certificate.
pub(super) struct TlsLink {
    client: tls::TlsClientConfig,
    server: tls::TlsServerConfig,
}

impl Link for TlsLink {
    fn setup() -> Result<Self, Fault> {
        let server = new_server_config(&generate_identity()?, false)?;
        Ok(Self { client: new_client_config(false)?, server })
    }

    fn configure_listener(&self, listen: ListenOptions) -> ListenOptions {
        listen.with_tls(&self.server)
    }

    fn exchange(&self, stream: &mut TcpStream, message: &[u8]) -> Result<(), Fault> {
        TlsCodec::handshake(stream, &self.client, Vec::new())?.echo(stream, message)
    }
}

/// Encoding of a client's messages by TLS.
pub(super) struct TlsCodec {
    tls: TlsState,
    /// End offset of each message in the bytes that are encoded together.
    message_ends: Vec<usize>,
}

impl TlsCodec {
    /// Performs the TLS handshake of a client over `stream`; returns the encoding of the
    /// connection.
    pub(super) fn handshake(
        stream: &TcpStream,
        client: &tls::TlsClientConfig,
        message_ends: Vec<usize>,
    ) -> Result<Self, Fault> {
        stream.set_nonblocking(true)?;
        let mut tls = TlsState::new_client(client, "localhost", 0).map_err(Fault::from_error)?;
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        tls.open_records(&mut [], &mut plain, &mut out).map_err(Fault::from_error)?;
        let mut buffer = vec![0; 1 << 14];
        let mut stream_ref = stream;
        loop {
            // A few hundred bytes, which fit into the socket buffer.
            stream_ref.write_all(&out)?;
            out.clear();
            if tls.is_handshake_complete() {
                return Ok(Self { tls, message_ends });
            }
            poll(&mut [PollFd::new(stream, PollFlags::IN)], None)?;
            match stream_ref.read(&mut buffer) {
                Ok(0) => {
                    return Err(Fault::new(
                        "the server closed the connection before the handshake was complete",
                    ));
                }
                Ok(count) => {
                    tls.open_records(&mut buffer[..count], &mut plain, &mut out)
                        .map_err(Fault::from_error)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends one message, checks its echo, and drops the connection's TLS state.
    pub(super) fn echo(mut self, mut stream: &TcpStream, message: &[u8]) -> Result<(), Fault> {
        let (mut plain, mut out, mut buffer) = (Vec::new(), Vec::new(), [0; 4096]);
        self.tls.seal_messages(message, &[], &mut out).map_err(Fault::from_error)?;
        stream.set_nonblocking(false)?;
        stream.write_all(&out)?;
        out.clear();
        while plain.len() < message.len() {
            match stream.read(&mut buffer)? {
                0 => return Err(Fault::new("the server has closed the connection")),
                // Session tickets come with the echo.
                count => self.tls.open_records(&mut buffer[..count], &mut plain, &mut out),
            }
            .map_err(Fault::from_error)?;
        }
        check_bytes_equal(&plain, message)
    }
}

impl ClientCodec for TlsCodec {
    fn seal<'a>(&'a mut self, plain: &'a [u8], sealed: &'a mut Vec<u8>) -> Result<&'a [u8], Fault> {
        sealed.clear();
        let count = self.message_ends.partition_point(|&end| end <= plain.len());
        self.tls
            .seal_messages(plain, &self.message_ends[..count], sealed)
            .map_err(Fault::from_error)?;
        Ok(sealed)
    }

    fn open<'a>(
        &'a mut self,
        came: &'a mut [u8],
        plain: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Fault> {
        plain.clear();
        let mut out = Vec::new();
        self.tls.open_records(came, plain, &mut out).map_err(Fault::from_error)?;
        match out.is_empty() {
            true => Ok(plain),
            false => Err(Fault::new("the server has requested a key update during a round")),
        }
    }

    fn append_close_notify(&mut self, sealed: &mut Vec<u8>) {
        self.tls.append_close_notify(sealed);
    }
}

/// A server that echoes messages with TLS until all `streams` are closed. Returns
/// the resource usage of its thread when all handshakes were complete.
pub(super) trait TlsLoadServer: Send + Sync + 'static {
    fn serve(streams: Vec<TcpStream>, identity: &Identity, load: &LoadArgs)
    -> Result<Usage, Fault>;
}

/// Server: this project's event handler with TLS. It sends a TLS record for each message if
/// `RECORD_PER_MESSAGE`, otherwise one for all messages sent together.
pub(super) struct HandoverTlsServer<const RECORD_PER_MESSAGE: bool>;

impl<const RECORD_PER_MESSAGE: bool> TlsLoadServer for HandoverTlsServer<RECORD_PER_MESSAGE> {
    fn serve(
        streams: Vec<TcpStream>,
        identity: &Identity,
        load: &LoadArgs,
    ) -> Result<Usage, Fault> {
        let server = new_server_config(identity, RECORD_PER_MESSAGE)?;
        LoadHandler::<false>::serve(Config::default(), streams.len(), load, |reactor| {
            streams.into_iter().try_for_each(|stream| reactor.adopt_tls(stream, &server).map(drop))
        })
    }
}

/// Workload: many messages in flight to a TLS server of kind `S`. If `RECORD_PER_MESSAGE`, each is
/// a TLS record.
pub(super) struct TlsLoad<S, const RECORD_PER_MESSAGE: bool> {
    /// Client's and server's end of each connection.
    ends: Vec<(TcpStream, TcpStream)>,
    identity: Identity,
    client: tls::TlsClientConfig,
    load: LoadArgs,
    server_cpu_time: Region<ServerCpuTime>,
    server: PhantomData<fn() -> S>,
}

impl<S: TlsLoadServer, const RECORD_PER_MESSAGE: bool> Handover for TlsLoad<S, RECORD_PER_MESSAGE> {
    type Args = LoadArgs;
    const SPEC: Spec = Spec::new(
        "net/tls",
        "messages over TLS connections, batched in records or with a record for each",
    )
    .floor("net/load/message")
    .classic("evh_perf")
    .parts(LOAD_PARTS)
    .hands_over();

    const ROLES: &'static [Role] = &[Role::measured("client"), Role::serving("server")];

    fn setup(load: &LoadArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let (ends, load) = (create_connections(load, setup)?, *load);
        let (identity, client, server_cpu_time) =
            (generate_identity()?, new_client_config(RECORD_PER_MESSAGE)?, setup.shared_region()?);
        Ok(Self { ends, identity, client, load, server_cpu_time, server: PhantomData })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if participant.index > 0 {
            let streams = clone_far_ends(&self.ends)?;
            return self
                .server_cpu_time
                .publish_cpu_time_of(|| S::serve(streams, &self.identity, &self.load));
        }
        let message_bytes = bytes_to_usize(self.load.message_bytes);
        let message_ends = || (1..=self.load.depth as usize).map(|it| it * message_bytes).collect();
        let connections: Result<Vec<_>, Fault> = self
            .ends
            .iter()
            .map(|(near, _)| Ok((near, TlsCodec::handshake(near, &self.client, message_ends())?)))
            .collect();
        LoadClient::start(connections?, &self.load)?.measure(&self.server_cpu_time, out)
    }
}
