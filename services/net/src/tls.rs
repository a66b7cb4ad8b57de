//! TLS for servers and clients: identities, trusted roots and options.
//!
//! ```
//! # #[cfg(feature = "tls")] {
//! use handover_net::tls::{
//!     ClientOptions, Identity, RootCertificates, ServerOptions, ServerVerification, TlsClientConfig, TlsServerConfig,
//! };
//!
//! // A new identity; Identity::from_files loads an existing one.
//! let identity = Identity::generate(&["localhost", "127.0.0.1"])?;
//! let server = TlsServerConfig::new(&identity, ServerOptions::default())?;
//! let verification = ServerVerification::Roots(RootCertificates::from_identity(&identity)?);
//! let client = TlsClientConfig::new(verification, ClientOptions::default())?;
//! # let _ = (server, client);
//! # }
//! # Ok::<(), handover_net::tls::SetupError>(())
//! ```
//!
//! Versions 1.3 and 1.2, by rustls with the cryptography of aws-lc. All threads and connections
//! share a [`TlsServerConfig`] or [`TlsClientConfig`], and with it the sessions that can be
//! resumed.
//!
//! All of this is behind the feature `tls`, which is on by default. Without it [`TlsServerConfig`],
//! [`TlsClientConfig`] and the types made from them have no values: signatures stay the same, and
//! no code is generated.

#[cfg(not(feature = "tls"))]
mod disabled;
#[cfg(feature = "tls")]
mod endpoints;
#[cfg(feature = "tls")]
mod error;
#[cfg(feature = "tls")]
mod identity;
#[cfg(feature = "tls")]
mod session;

#[cfg(not(feature = "tls"))]
pub(crate) use disabled::NamedTlsClient;
#[cfg(not(feature = "tls"))]
pub use disabled::{Session, SetupError, TlsClientConfig, TlsError, TlsServerConfig};
#[cfg(feature = "tls")]
pub(crate) use endpoints::NamedTlsClient;
#[cfg(feature = "tls")]
pub use endpoints::{
    ClientAuth, ClientOptions, ServerOptions, ServerVerification, TlsClientConfig, TlsServerConfig,
};
#[cfg(feature = "tls")]
pub use error::{SetupError, TlsError};
#[cfg(feature = "tls")]
pub use identity::{Identity, RootCertificates};
#[cfg(feature = "tls")]
pub use session::Session;
