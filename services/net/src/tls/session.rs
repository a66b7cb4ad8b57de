//! Properties that a TLS handshake has negotiated.

use crate::engine::TlsState;
use rustls::ProtocolVersion;

/// Properties negotiated in a connection's TLS handshake, such as the version and the peer's
/// certificate.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    tls: &'a TlsState,
}

impl<'a> Session<'a> {
    pub(crate) fn new(tls: &'a TlsState) -> Self {
        Self { tls }
    }

    /// Returns the negotiated ALPN protocol; `None` if none was negotiated.
    #[must_use]
    pub fn alpn(&self) -> Option<&'a [u8]> {
        self.tls.rustls_state().alpn_protocol()
    }

    /// Returns `true` if an earlier session was resumed, so that no certificate was sent again.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.tls.is_resumed().unwrap_or(false)
    }

    /// Returns the TLS version: `TLS 1.3` or `TLS 1.2`.
    #[must_use]
    pub fn version(&self) -> &'static str {
        match self.tls.rustls_state().protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLS 1.3",
            Some(ProtocolVersion::TLSv1_2) => "TLS 1.2",
            _ => "TLS",
        }
    }

    /// Returns the name of the cipher suite.
    #[must_use]
    pub fn cipher_suite(&self) -> &'static str {
        self.tls
            .rustls_state()
            .negotiated_cipher_suite()
            .and_then(|suite| suite.suite().as_str())
            .unwrap_or("unknown")
    }

    /// Returns the peer's certificate in DER; `None` if the peer has sent none.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&'a [u8]> {
        self.tls.rustls_state().peer_certificates()?.first().map(AsRef::as_ref)
    }
}
