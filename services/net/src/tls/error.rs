//! What goes wrong with TLS: while it is set up, and on a connection.

use rustls::{CertificateError, Error, InconsistentKeys};
use std::path::PathBuf;

/// Why an identity, a trust, or an end of TLS could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A file could not be read, or holds nothing of the kind.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is no certificate, or no key, in what was given as PEM.
    #[error("no {what} in PEM: {why}")]
    Pem {
        /// What was looked for.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The certificate is for another key.
    #[error("the private key is not the certificate's")]
    KeyMismatch,
    /// That is neither a DNS name nor an address.
    #[error("{0:?} is neither a DNS name nor an address")]
    Name(String),
    /// No certificate could be made for these names.
    #[error("no certificate could be made: {0}")]
    Unmade(String),
    /// What was given does not do for TLS.
    #[error("not usable for TLS: {0}")]
    Refused(String),
}

impl SetupError {
    pub(crate) fn refused(error: Error) -> Self {
        match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Self::KeyMismatch,
            error => Self::Refused(error.to_string()),
        }
    }
}

/// What was wrong with the TLS of a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// What came is no TLS.
    #[error("what came is not TLS: {0}")]
    NotTls(String),
    /// The peer showed no certificate, and had to.
    #[error("the peer showed no certificate")]
    NoCertificate,
    /// The peer's certificate is not to be trusted: it has expired, is for another name, is of nobody that
    /// we know.
    #[error("the peer's certificate is not valid: {0}")]
    Certificate(String),
    /// The peer ended it, and said why; most often that it does not trust our certificate.
    #[error("the peer refused: {0}")]
    Alert(String),
    /// Both sides speak TLS, and have nothing in common: no version, no cipher, no protocol of ALPN.
    #[error("nothing in common: {0}")]
    Incompatible(String),
    /// The stream ended without TLS's good-bye: in mid-handshake, or cut by somebody.
    #[error("the stream ended without a good-bye")]
    Unfinished,
    /// Something else went wrong; most often the peer broke the protocol.
    #[error("{0}")]
    Failed(String),
}

impl TlsError {
    pub(crate) fn of(error: Error) -> Self {
        match error {
            Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => {
                Self::NotTls(error.to_string())
            }
            Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
                Self::NotTls(error.to_string())
            }
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::InvalidCertificate(why) => Self::Certificate(said(&why)),
            Error::AlertReceived(alert) => Self::Alert(format!("{alert:?}")),
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => {
                Self::Incompatible(error.to_string())
            }
            error => Self::Failed(error.to_string()),
        }
    }
}

/// What is wrong with a certificate, in words where it is a thing that happens.
fn said(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "not valid yet".into()
        }
        CertificateError::UnknownIssuer => "of an unknown issuer".into(),
        CertificateError::BadSignature => "not signed by whom it names".into(),
        CertificateError::NotValidForName => "for another name".into(),
        CertificateError::NotValidForNameContext { presented, .. } => {
            format!("for another name: {}", presented.join(", "))
        }
        other => other.to_string(),
    }
}
