//! Errors of TLS, in setup and on a connection.

use rustls::{CertificateError, Error, InconsistentKeys};
use std::path::PathBuf;

/// Error of creating an identity, roots, or the TLS configuration of a server or client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A file could not be read, or does not contain the expected certificate or key.
    #[error("{}: {why}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Text that says what is wrong with the file.
        why: String,
    },
    /// The PEM input holds no certificate or no key.
    #[error("no {what} in the PEM data: {why}")]
    Pem {
        /// Kind of PEM section that was expected.
        what: &'static str,
        /// Text that says what is wrong with the PEM data.
        why: String,
    },
    /// The private key does not belong to the certificate.
    #[error("the private key does not match the certificate")]
    KeyMismatch,
    /// The server's name is neither a DNS name nor an IP address.
    #[error("{0:?} is neither a DNS name nor an address")]
    Name(String),
    /// No certificate could be generated for these names.
    #[error("cannot generate a certificate: {0}")]
    Generate(String),
    /// The identity, the roots or the options cannot be used for TLS.
    #[error("cannot use the identity, roots or options for TLS: {0}")]
    Refused(String),
}

impl SetupError {
    pub(crate) fn from_rustls(error: Error) -> Self {
        match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Self::KeyMismatch,
            error => Self::Refused(error.to_string()),
        }
    }
}

/// Error of the TLS protocol on a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The received bytes are not TLS.
    #[error("received bytes are not TLS: {0}")]
    NotTls(String),
    /// The peer sent no certificate, although one is required.
    #[error("the peer sent no certificate, and one is required")]
    NoCertificate,
    /// The peer's certificate is not valid. For example, it is expired, issued for another name, or
    /// of an unknown issuer.
    #[error("the peer's certificate is not valid: {0}")]
    Certificate(String),
    /// The peer closed the connection with a TLS alert; usually it does not trust our certificate.
    #[error("the peer sent a TLS alert: {0}")]
    Alert(String),
    /// Client and server share no TLS version, cipher suite or ALPN protocol.
    #[error("no common TLS version, cipher suite or ALPN protocol: {0}")]
    Incompatible(String),
    /// The peer closed the stream without `close_notify`, during the handshake or where data may be
    /// missing.
    #[error("the peer closed the connection without TLS close_notify: data may be missing")]
    NoCloseNotify,
    /// Another TLS error; usually the peer violated the protocol.
    #[error("TLS failed: {0}")]
    Failed(String),
}

impl TlsError {
    pub(crate) fn from_rustls(error: Error) -> Self {
        match error {
            Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => {
                Self::NotTls(error.to_string())
            }
            Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
                Self::NotTls(error.to_string())
            }
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::InvalidCertificate(why) => Self::Certificate(certificate_error_text(&why)),
            Error::AlertReceived(alert) => Self::Alert(format!("{alert:?}")),
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => {
                Self::Incompatible(error.to_string())
            }
            error => Self::Failed(error.to_string()),
        }
    }
}

/// Returns a description of what is wrong with a certificate, in plain words for common errors.
fn certificate_error_text(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "not valid yet".into()
        }
        CertificateError::UnknownIssuer => "of an unknown issuer".into(),
        CertificateError::BadSignature => "not signed by the issuer that it names".into(),
        CertificateError::NotValidForName => "issued for another name".into(),
        CertificateError::NotValidForNameContext { presented, .. } => {
            format!("issued for other names: {names}", names = presented.join(", "))
        }
        other => other.to_string(),
    }
}
