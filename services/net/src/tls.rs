//! TLS for either side: who one is, whom one trusts, and what is offered.
//!
//! ```
//! use handover_net::tls::{Client, ClientOptions, Identity, Roots, Server, ServerOptions, Verify};
//!
//! // Made on the spot; or Identity::from_files, for one that others know.
//! let identity = Identity::made_for(&["localhost", "127.0.0.1"])?;
//! let server = Server::new(&identity, ServerOptions::default())?;
//! let client = Client::new(Verify::Roots(Roots::of(&identity)?), ClientOptions::default())?;
//! # let _ = (server, client);
//! # Ok::<(), handover_net::tls::SetupError>(())
//! ```
//!
//! Versions 1.3 and 1.2, by rustls with the cryptography of aws-lc. A [`Server`] and a [`Client`] are shared
//! by all threads and connections that use them, and with them the sessions that may be resumed.

mod ends;
mod error;
mod identity;
mod session;

pub use ends::{Client, ClientOptions, Clients, Server, ServerOptions, Verify};
pub use error::{SetupError, TlsError};
pub use identity::{Identity, Roots};
pub use session::Session;
