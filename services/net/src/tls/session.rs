//! What a handshake has come to.

use crate::engine::Tls;
use rustls::ProtocolVersion;

/// What the handshake of a connection has come to.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    tls: &'a Tls,
}

impl<'a> Session<'a> {
    pub(crate) fn new(tls: &'a Tls) -> Self {
        Self { tls }
    }

    /// The protocol of ALPN that both sides speak, if one was chosen.
    #[must_use]
    pub fn alpn(&self) -> Option<&'a [u8]> {
        self.tls.common().alpn_protocol()
    }

    /// Whether an earlier session was resumed, so that nobody has shown a certificate anew.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.tls.is_resumed().unwrap_or(false)
    }

    /// The version: `TLS 1.3` or `TLS 1.2`.
    #[must_use]
    pub fn version(&self) -> &'static str {
        match self.tls.common().protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLS 1.3",
            Some(ProtocolVersion::TLSv1_2) => "TLS 1.2",
            _ => "TLS",
        }
    }

    /// The cipher suite, by its name.
    #[must_use]
    pub fn cipher_suite(&self) -> &'static str {
        self.tls
            .common()
            .negotiated_cipher_suite()
            .and_then(|suite| suite.suite().as_str())
            .unwrap_or("unknown")
    }

    /// The peer's own certificate, as DER, if it has shown one.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&'a [u8]> {
        self.tls.common().peer_certificates()?.first().map(AsRef::as_ref)
    }
}
