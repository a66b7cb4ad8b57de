//! TLS configuration of servers and clients, usable by any number of connections.

use super::error::SetupError;
use super::identity::{Identity, RootCertificates, crypto_provider};
use crate::engine::TlsState;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, aws_lc_rs::Ticketer, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use std::sync::Arc;

/// Policy for the certificates of a server's clients: none requested, optional, or required.
#[derive(Debug, Clone, Default)]
pub enum ClientAuth {
    /// All clients are served, and none is asked for a certificate.
    #[default]
    None,
    /// A client need not send a certificate; if it does, one of these roots must have issued it.
    Optional(RootCertificates),
    /// Only clients with a certificate issued by one of these roots are served.
    Required(RootCertificates),
}

/// TLS options of a server, besides its certificate and key.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// ALPN protocols, the preferred one first. If empty, none is negotiated; otherwise the
    /// handshake fails with a client that offers only others.
    pub alpn: Vec<Vec<u8>>,
    /// Policy of authenticating clients. Default: clients are not authenticated.
    pub client_auth: ClientAuth,
    /// `true` to send each message as a TLS record of its own. Default `false`: the replies to one
    /// read share as few records as possible, which costs less CPU time.
    pub record_per_message: bool,
    /// Number of tickets that a client gets to resume its session. With 0 every handshake is a full
    /// one. Default 2.
    pub tickets_count: u32,
}

handover_base::setters!(ServerOptions {
    alpn: Vec<Vec<u8>>,
    client_auth: ClientAuth,
    record_per_message: bool,
    tickets_count: u32,
});

impl Default for ServerOptions {
    fn default() -> Self {
        let (alpn, client_auth) = (Vec::new(), ClientAuth::default());
        Self { alpn, client_auth, record_per_message: false, tickets_count: 2 }
    }
}

/// TLS configuration of a server; clones share it among listeners, threads and connections.
#[derive(Clone)]
pub struct TlsServerConfig {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) record_per_message: bool,
}

impl TlsServerConfig {
    /// Creates the configuration of a server that presents the certificate of `identity`.
    ///
    /// # Errors
    /// [`SetupError`] for unusable roots, or if there is no randomness for tickets.
    pub fn new(identity: &Identity, options: ServerOptions) -> Result<Self, SetupError> {
        let provider = crypto_provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(SetupError::from_rustls)?;
        let verifier = |roots: &RootCertificates| {
            WebPkiClientVerifier::builder_with_provider(roots.rustls_store(), Arc::clone(&provider))
        };
        let verifier_error =
            |error: rustls::server::VerifierBuilderError| SetupError::Refused(error.to_string());
        let builder = match &options.client_auth {
            ClientAuth::None => builder.with_no_client_auth(),
            ClientAuth::Optional(roots) => {
                let verifier =
                    verifier(roots).allow_unauthenticated().build().map_err(verifier_error)?;
                builder.with_client_cert_verifier(verifier)
            }
            ClientAuth::Required(roots) => {
                builder.with_client_cert_verifier(verifier(roots).build().map_err(verifier_error)?)
            }
        };
        let mut config = builder
            .with_single_cert(identity.certificate_chain().to_vec(), identity.private_key())
            .map_err(SetupError::from_rustls)?;
        config.alpn_protocols = options.alpn;
        config.send_tls13_tickets = options.tickets_count as usize;
        // The ticket holds the session: nothing is stored here, and every thread can resume it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if options.tickets_count > 0 {
            config.ticketer = Ticketer::new().map_err(SetupError::from_rustls)?;
        }
        let record_per_message = options.record_per_message;
        Ok(Self { config: Arc::new(config), record_per_message })
    }
}

handover_base::debug_struct!(TlsServerConfig);

/// Policy by which a client verifies the server's certificate: by root certificates, or not at all.
#[derive(Debug, Clone)]
pub enum ServerVerification {
    /// The certificate must be unexpired, issued by one of these roots, and contain the server's
    /// name.
    Roots(RootCertificates),
    /// Any certificate is accepted, so that a man in the middle can read and change everything. For
    /// measurements only.
    Nothing,
}

/// TLS options of a client, besides its policy for verifying servers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientOptions {
    /// ALPN protocols, the preferred one first. If empty, none is negotiated.
    pub alpn: Vec<Vec<u8>>,
    /// Certificate and key with which the client authenticates itself if a server requests it.
    pub identity: Option<Identity>,
    /// `true` to send each message as a TLS record of its own; see
    /// [`ServerOptions::record_per_message`].
    pub record_per_message: bool,
    /// Maximum number of servers whose sessions are stored for resumption; 0 disables resumption.
    /// Default 256.
    pub sessions_max: u32,
}

handover_base::setters!(ClientOptions {
    alpn: Vec<Vec<u8>>,
    identity: Option<Identity>,
    record_per_message: bool,
    sessions_max: u32,
});

impl Default for ClientOptions {
    fn default() -> Self {
        Self { alpn: Vec::new(), identity: None, record_per_message: false, sessions_max: 256 }
    }
}

/// TLS configuration of a client; clones share it among threads and connections.
#[derive(Clone)]
pub struct TlsClientConfig {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) record_per_message: bool,
}

impl TlsClientConfig {
    /// Creates the configuration of a client that verifies servers by the policy `verify`.
    ///
    /// # Errors
    /// [`SetupError`] for an unusable identity.
    pub fn new(verify: ServerVerification, options: ClientOptions) -> Result<Self, SetupError> {
        let provider = crypto_provider();
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(SetupError::from_rustls)?;
        let builder = match verify {
            ServerVerification::Roots(roots) => {
                builder.with_root_certificates(roots.rustls_store())
            }
            ServerVerification::Nothing => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificateVerifier { algorithms })),
        };
        let mut config = match options.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder
                .with_client_auth_cert(
                    identity.certificate_chain().to_vec(),
                    identity.private_key(),
                )
                .map_err(SetupError::from_rustls)?,
        };
        config.alpn_protocols = options.alpn;
        config.resumption = match options.sessions_max {
            0 => Resumption::disabled(),
            sessions_max => Resumption::in_memory_sessions(sessions_max as usize),
        };
        let record_per_message = options.record_per_message;
        Ok(Self { config: Arc::new(config), record_per_message })
    }
}

handover_base::debug_struct!(TlsClientConfig);

/// TLS configuration of a client, with the name of the server to connect to.
#[derive(Debug)]
pub(crate) struct NamedTlsClient {
    client: TlsClientConfig,
    name: ServerName<'static>,
}

impl NamedTlsClient {
    /// Creates the configuration for connecting to a server. The server's certificate must be valid
    /// for `name`, a DNS name or an address.
    pub(crate) fn new(client: &TlsClientConfig, name: &str) -> Result<Self, SetupError> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_no_name| SetupError::Name(name.to_owned()))?;
        Ok(Self { client: client.clone(), name })
    }

    /// Creates the TLS state of one connection, whose handshake starts at `now_ns`.
    pub(crate) fn start_handshake(&self, now_ns: u64) -> Result<TlsState, SetupError> {
        TlsState::new_client_for(&self.client, self.name.clone(), now_ns)
    }
}

/// Verifier that accepts any certificate, but checks that the server has the certificate's private
/// key.
#[derive(Debug)]
struct AnyCertificateVerifier {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyCertificateVerifier {
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
