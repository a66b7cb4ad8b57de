//! TLS for servers and clients: identities, trusted roots and options.
//!
//! ```
//! # #[cfg(feature = "tls")] {
//! use handover_net::tls::{Client, ClientOptions, Identity, Roots, Server, ServerOptions, ServerVerification};
//!
//! // A new identity; Identity::from_files loads an existing one.
//! let identity = Identity::generate(&["localhost", "127.0.0.1"])?;
//! let server = Server::new(&identity, ServerOptions::default())?;
//! let client = Client::new(ServerVerification::Roots(Roots::of(&identity)?), ClientOptions::default())?;
//! # let _ = (server, client);
//! # }
//! # Ok::<(), handover_net::tls::SetupError>(())
//! ```
//!
//! Versions 1.3 and 1.2, by rustls with the cryptography of aws-lc. All threads and connections
//! share a [`Server`] or [`Client`], and with it the sessions that can be resumed.
//!
//! All of this is behind the feature `tls`, which is on by default. Without it [`Server`], [`Client`] and the types
//! made from them have no values: signatures stay the same, and no code is generated.

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
pub(crate) use disabled::NamedClient;
#[cfg(not(feature = "tls"))]
pub use disabled::{Client, Server, Session, SetupError, TlsError};
#[cfg(feature = "tls")]
pub(crate) use endpoints::NamedClient;
#[cfg(feature = "tls")]
pub use endpoints::{Client, ClientAuth, ClientOptions, Server, ServerOptions, ServerVerification};
#[cfg(feature = "tls")]
pub use error::{SetupError, TlsError};
#[cfg(feature = "tls")]
pub use identity::{Identity, Roots};
#[cfg(feature = "tls")]
pub use session::Session;
