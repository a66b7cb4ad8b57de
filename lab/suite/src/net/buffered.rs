//! Compared implementations: TLS libraries by their usual interfaces, which have their own buffers.
//! rustls with a hand-written epoll loop and in tokio's tasks, and OpenSSL.

use super::handshake::{HandshakeCost, HandshakeSides, ticks_since};
use super::load::LoadArgs;
use super::secured::{TlsLoadServer, generate_identity};
#[cfg(handover_openssl)]
use super::servers::buffer_bytes;
#[cfg(feature = "peers")]
use super::servers::echo_until_closed;
use super::servers::{complete_messages_bytes, new_buffer};
use super::wait::{create_epoll_set, wait_for_events};
#[cfg(handover_openssl)]
use crate::raw::peers::servers::serve_by_openssl;
use handover_base::clock;
use handover_base::usage::{self, Usage};
use handover_harness::Fault;
use handover_net::tls::Identity;
use rustix::event::epoll;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::NoServerSessionStorage;
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, HandshakeKind, RootCertStore, ServerConfig,
    ServerConnection, SideData,
};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

fn certificate(identity: &Identity) -> Result<CertificateDer<'static>, Fault> {
    CertificateDer::from_pem_slice(identity.certificate_pem().as_bytes()).map_err(Fault::from_error)
}

/// Creates a rustls server configuration with session tickets and no stored sessions, like this
/// project's server.
fn new_server_config(identity: &Identity) -> Result<Arc<ServerConfig>, Fault> {
    let key =
        PrivateKeyDer::from_pem_slice(identity.key_pem().as_bytes()).map_err(Fault::from_error)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(Fault::from_error)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate(identity)?], key)
        .map_err(Fault::from_error)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = Ticketer::new().map_err(Fault::from_error)?;
    Ok(Arc::new(config))
}

/// Creates a rustls client configuration that trusts the server's certificate alone.
fn new_client_config(identity: &Identity) -> Result<ClientConfig, Fault> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(identity)?).map_err(Fault::from_error)?;
    Ok(ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(Fault::from_error)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// Server's end of a connection with TLS.
struct TlsConnection {
    stream: TcpStream,
    tls: ServerConnection,
    /// Decrypted bytes of a message that has not arrived completely.
    incomplete: Vec<u8>,
    has_ended: bool,
}

impl TlsConnection {
    /// Reads all available bytes and echoes complete messages.
    fn serve(&mut self, buffer: &mut [u8]) -> Result<(), Fault> {
        self.send()?;
        loop {
            match self.tls.read_tls(&mut self.stream) {
                Ok(0) => self.has_ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            let came = self.tls.process_new_packets().map_err(Fault::from_error)?;
            let mut left = came.plaintext_bytes_to_read();
            while left > 0 {
                let begun_bytes = self.incomplete.len();
                buffer[..begun_bytes].copy_from_slice(&self.incomplete);
                let count = self.tls.reader().read(&mut buffer[begun_bytes..])?;
                let filled = begun_bytes + count;
                let whole = complete_messages_bytes(&buffer[..filled]);
                self.incomplete.clear();
                self.incomplete.extend_from_slice(&buffer[whole..filled]);
                self.tls.writer().write_all(&buffer[..whole])?;
                left -= count;
            }
            self.send()?;
            if self.has_ended {
                return Ok(());
            }
        }
    }

    /// Sends TLS records until none are left or the socket buffer is full.
    fn send(&mut self) -> Result<(), Fault> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Compared implementation: a TLS echo server around epoll and rustls, without limits and
/// time-outs.
pub(super) struct EpollTls;

impl TlsLoadServer for EpollTls {
    fn serve(
        streams: Vec<TcpStream>,
        identity: &Identity,
        load: &LoadArgs,
    ) -> Result<Usage, Fault> {
        let config = new_server_config(identity)?;
        let set = create_epoll_set(&streams, epoll::EventFlags::IN | epoll::EventFlags::OUT)?;
        let mut connections = Vec::new();
        for stream in streams {
            let mut tls = ServerConnection::new(Arc::clone(&config)).map_err(Fault::from_error)?;
            // More bytes may be in transit than the default limit allows.
            tls.set_buffer_limit(None);
            connections.push(TlsConnection {
                stream,
                tls,
                incomplete: Vec::new(),
                has_ended: false,
            });
        }
        let mut buffer = new_buffer(load);
        let mut events = Vec::with_capacity(256);
        let (mut securing, mut left, mut set_up) =
            (connections.len(), connections.len(), Usage::default());
        while left > 0 {
            wait_for_events(&set, &mut events, None)?;
            for event in &events {
                let data = event.data;
                let connection = &mut connections[data.u64() as usize];
                if connection.has_ended {
                    continue;
                }
                let was_securing = connection.tls.is_handshaking();
                connection.serve(&mut buffer)?;
                if was_securing && !connection.tls.is_handshaking() {
                    securing -= 1;
                    if securing == 0 {
                        set_up = usage::thread_usage();
                    }
                }
                left -= usize::from(connection.has_ended);
            }
        }
        Ok(set_up)
    }
}

/// Compared implementation: a tokio task with a stream of tokio-rustls for each connection, all on
/// one thread.
#[cfg(feature = "peers")]
pub(super) struct TokioTls;

#[cfg(feature = "peers")]
impl TlsLoadServer for TokioTls {
    fn serve(
        streams: Vec<TcpStream>,
        identity: &Identity,
        load: &LoadArgs,
    ) -> Result<Usage, Fault> {
        let acceptor = tokio_rustls::TlsAcceptor::from(new_server_config(identity)?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let mut handshakes = Vec::new();
            for stream in streams {
                stream.set_nonblocking(true)?;
                let stream = tokio::net::TcpStream::from_std(stream)?;
                handshakes.push(tokio::spawn(acceptor.accept(stream)));
            }
            let mut secured = Vec::new();
            for handshake in handshakes {
                let stream = handshake.await.map_err(Fault::from_error)??;
                secured.push((stream, new_buffer(load)));
            }
            let usage_after_setup = usage::thread_usage();
            let tasks: Vec<_> = secured
                .into_iter()
                .map(|(stream, buffer)| tokio::spawn(echo_until_closed(stream, buffer)))
                .collect();
            for task in tasks {
                task.await.map_err(Fault::from_error)??;
            }
            Ok(usage_after_setup)
        })
    }
}

/// Compared implementation: an epoll loop around OpenSSL, in C++.
#[cfg(handover_openssl)]
pub(super) struct OpenSslTls;

#[cfg(handover_openssl)]
impl TlsLoadServer for OpenSslTls {
    fn serve(
        streams: Vec<TcpStream>,
        identity: &Identity,
        load: &LoadArgs,
    ) -> Result<Usage, Fault> {
        for stream in &streams {
            stream.set_nonblocking(true)?;
        }
        let pem = std::ffi::CString::new(identity.certificate_pem() + &identity.key_pem())
            .map_err(Fault::from_error)?;
        let mut usage_after_setup = Usage::default();
        let set_up = || usage_after_setup = usage::thread_usage();
        serve_by_openssl(streams, buffer_bytes(load), &pem, set_up)?;
        Ok(usage_after_setup)
    }
}

/// Compared implementation: a rustls client and server with the usual interface and the default
/// cipher suites.
pub(super) struct RustlsSides {
    identity: Identity,
    server: Arc<ServerConfig>,
}

impl HandshakeSides for RustlsSides {
    type Client = Arc<ClientConfig>;

    fn setup() -> Result<Self, Fault> {
        let identity = generate_identity()?;
        let server = new_server_config(&identity)?;
        Ok(Self { identity, server })
    }

    fn new_client(&self) -> Result<Self::Client, Fault> {
        new_client_config(&self.identity).map(Arc::new)
    }

    fn time_handshake(&self, client: &Self::Client) -> Result<HandshakeCost, Fault> {
        let name = ServerName::try_from("localhost").map_err(Fault::from_error)?;
        let began = clock::ticks();
        let mut near =
            ClientConnection::new(Arc::clone(client), name).map_err(Fault::from_error)?;
        let mut client_ticks = ticks_since(began);
        let began = clock::ticks();
        let mut far = ServerConnection::new(Arc::clone(&self.server)).map_err(Fault::from_error)?;
        let mut server_ticks = ticks_since(began);
        let mut bytes = Vec::new();
        while near.wants_write() || far.wants_write() {
            let began = clock::ticks();
            let said = take_output(&mut near, &mut bytes)?;
            client_ticks += ticks_since(began);
            let began = clock::ticks();
            process_input(&mut far, said)?;
            let said = take_output(&mut far, &mut bytes)?;
            server_ticks += ticks_since(began);
            let began = clock::ticks();
            process_input(&mut near, said)?;
            client_ticks += ticks_since(began);
        }
        match (near.is_handshaking() || far.is_handshaking(), far.handshake_kind()) {
            (false, Some(kind)) => {
                let is_resumed = kind == HandshakeKind::Resumed;
                Ok(HandshakeCost { client_ticks, server_ticks, is_resumed })
            }
            _ => {
                Err(Fault::new("the handshake is not complete, but no bytes are left to exchange"))
            }
        }
    }
}

/// Returns the bytes that the client or server of a handshake is ready to send.
fn take_output<'a, D: SideData>(
    side: &mut ConnectionCommon<D>,
    bytes: &'a mut Vec<u8>,
) -> Result<&'a [u8], Fault> {
    bytes.clear();
    while side.wants_write() {
        side.write_tls(bytes)?;
    }
    Ok(bytes)
}

/// Passes received bytes to the client or server of a handshake.
fn process_input<D: SideData>(
    side: &mut ConnectionCommon<D>,
    mut bytes: &[u8],
) -> Result<(), Fault> {
    while !bytes.is_empty() {
        side.read_tls(&mut bytes)?;
        side.process_new_packets().map_err(Fault::from_error)?;
    }
    Ok(())
}
