//! Addresses to listen at and to connect to, with their TLS settings.

use crate::tls::{Client, NamedClient, Server, SetupError};
use std::net::SocketAddr;
use std::sync::Arc;

/// Address to listen at, in plain text or by TLS.
///
/// ```
/// # #[cfg(feature = "tls")] {
/// use handover_net::{ListenOptions, tls};
/// let identity = tls::Identity::generate(&["localhost"])?;
/// let server = tls::Server::new(&identity, tls::ServerOptions::default())?;
/// let listen = ListenOptions::at("0.0.0.0:8081".parse().unwrap()).tls(&server);
/// # let _ = listen;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ListenOptions {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Server>,
}

impl ListenOptions {
    /// Listens in plain text; for port 0 the kernel chooses a port.
    #[must_use]
    pub const fn at(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    /// Listens by TLS only.
    #[must_use]
    pub fn tls(self, server: &Server) -> Self {
        Self { tls: Some(server.clone()), ..self }
    }
}

impl From<SocketAddr> for ListenOptions {
    fn from(address: SocketAddr) -> Self {
        Self::at(address)
    }
}

/// Address to connect to, in plain text or by TLS.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    pub(crate) address: SocketAddr,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) tls: Option<Arc<NamedClient>>,
}

impl ConnectOptions {
    /// Connects in plain text.
    #[must_use]
    pub const fn to(address: SocketAddr) -> Self {
        Self { address, source: None, tls: None }
    }

    /// Connects from the local address `source`: one address has some 28,000 ports. For port 0 the
    /// kernel chooses a port.
    #[must_use]
    pub fn from(self, source: SocketAddr) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Connects by TLS. The server's certificate must be valid for `name`, a DNS name or an
    /// address; a DNS name is also sent to the server.
    ///
    /// # Errors
    /// [`SetupError`] if `name` is neither.
    pub fn tls(self, client: &Client, name: &str) -> Result<Self, SetupError> {
        Ok(Self { tls: Some(Arc::new(NamedClient::new(client, name)?)), ..self })
    }
}

impl From<SocketAddr> for ConnectOptions {
    fn from(address: SocketAddr) -> Self {
        Self::to(address)
    }
}
