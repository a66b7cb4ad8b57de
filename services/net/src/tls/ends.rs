//! The two ends of TLS, ready to be used by any number of connections.

use super::error::SetupError;
use super::identity::{Identity, Roots, provider};
use crate::engine::Tls;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, aws_lc_rs::Ticketer, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use std::fmt;
use std::sync::Arc;

/// Which clients a server talks to.
#[derive(Debug, Clone, Default)]
pub enum Clients {
    /// All; none is asked who it is.
    #[default]
    Anyone,
    /// All; those that show a certificate are verified.
    MayShow(Roots),
    /// Those that show a certificate of these.
    MustShow(Roots),
}

/// What a server offers.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The protocols of ALPN, the preferred first; none: there is no choice, and none is made. Where a
    /// client offers others only, the handshake fails.
    pub alpn: Vec<Vec<u8>>,
    /// Which clients it talks to. Default: anyone.
    pub clients: Clients,
    /// Whether each message is a record of its own. Default: all replies to what was read together are
    /// in as few records as hold them, which costs a fraction.
    pub record_per_message: bool,
    /// How many tickets a client gets by which it may resume its session; 0 has every handshake be a full
    /// one. Default 2.
    pub tickets_count: u32,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let (alpn, clients) = (Vec::new(), Clients::default());
        Self { alpn, clients, record_per_message: false, tickets_count: 2 }
    }
}

/// The server's end: one value for all its listeners, threads and connections. A clone is the same one.
#[derive(Clone)]
pub struct Server {
    config: Arc<ServerConfig>,
    record_per_message: bool,
}

impl Server {
    /// A server of that identity.
    ///
    /// # Errors
    /// [`SetupError`]: roots that are none, or no randomness for tickets.
    pub fn new(identity: &Identity, options: ServerOptions) -> Result<Self, SetupError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(SetupError::refused)?;
        let verifier = |roots: &Roots| {
            WebPkiClientVerifier::builder_with_provider(roots.store(), Arc::clone(&provider))
        };
        let refused =
            |error: rustls::server::VerifierBuilderError| SetupError::Refused(error.to_string());
        let builder = match &options.clients {
            Clients::Anyone => builder.with_no_client_auth(),
            Clients::MayShow(roots) => {
                let verifier = verifier(roots).allow_unauthenticated().build().map_err(refused)?;
                builder.with_client_cert_verifier(verifier)
            }
            Clients::MustShow(roots) => {
                builder.with_client_cert_verifier(verifier(roots).build().map_err(refused)?)
            }
        };
        let mut config = builder
            .with_single_cert(identity.chain().to_vec(), identity.key())
            .map_err(SetupError::refused)?;
        config.alpn_protocols = options.alpn;
        config.send_tls13_tickets = options.tickets_count as usize;
        // What is resumed is in the ticket: nothing is kept here, and all threads know it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if options.tickets_count > 0 {
            config.ticketer = Ticketer::new().map_err(SetupError::refused)?;
        }
        let record_per_message = options.record_per_message;
        Ok(Self { config: Arc::new(config), record_per_message })
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    pub(crate) fn has_record_per_message(&self) -> bool {
        self.record_per_message
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// Whether a client asks who the server is.
#[derive(Debug, Clone)]
pub enum Verify {
    /// Its certificate must be of one of these, for the name that is connected to, and in date.
    Roots(Roots),
    /// It may be anybody's. Whoever sits in between can read and change everything; it is for measuring.
    Nothing,
}

/// What a client offers.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The protocols of ALPN, the preferred first; none: there is no choice.
    pub alpn: Vec<Vec<u8>>,
    /// Who the client is, if a server asks.
    pub identity: Option<Identity>,
    /// As [`ServerOptions::record_per_message`].
    pub record_per_message: bool,
    /// How many servers' sessions are kept to be resumed; 0 has every handshake be a full one. Default 256.
    pub sessions_max: u32,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { alpn: Vec::new(), identity: None, record_per_message: false, sessions_max: 256 }
    }
}

/// The client's end: one value for all its threads and connections. A clone is the same one.
#[derive(Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    record_per_message: bool,
}

impl Client {
    /// A client that verifies so.
    ///
    /// # Errors
    /// [`SetupError`]: roots or an identity that do not do.
    pub fn new(verify: Verify, options: ClientOptions) -> Result<Self, SetupError> {
        let provider = provider();
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(SetupError::refused)?;
        let builder = match verify {
            Verify::Roots(roots) => builder.with_root_certificates(roots.store()),
            Verify::Nothing => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody { algorithms })),
        };
        let mut config = match options.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder
                .with_client_auth_cert(identity.chain().to_vec(), identity.key())
                .map_err(SetupError::refused)?,
        };
        config.alpn_protocols = options.alpn;
        config.resumption = match options.sessions_max {
            0 => Resumption::disabled(),
            sessions_max => Resumption::in_memory_sessions(sessions_max as usize),
        };
        let record_per_message = options.record_per_message;
        Ok(Self { config: Arc::new(config), record_per_message })
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    pub(crate) fn has_record_per_message(&self) -> bool {
        self.record_per_message
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// TLS towards a server of some name.
#[derive(Debug)]
pub(crate) struct Towards {
    client: Client,
    name: ServerName<'static>,
}

impl Towards {
    /// The name, or address, is what the server's certificate must be for.
    pub(crate) fn new(client: &Client, name: &str) -> Result<Self, SetupError> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_no_name| SetupError::Name(name.to_owned()))?;
        Ok(Self { client: client.clone(), name })
    }

    /// A connection's part of it.
    pub(crate) fn begin(&self, now_ns: u64) -> Result<Tls, SetupError> {
        Tls::towards(&self.client, self.name.clone(), now_ns)
    }
}

/// Takes any certificate; that the server has its key is verified nevertheless.
#[derive(Debug)]
struct Anybody {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
