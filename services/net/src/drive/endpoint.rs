//! Addresses to listen at and to connect to, with their TLS settings.

use crate::tls::{NamedTlsClient, SetupError, TlsClientConfig, TlsServerConfig};
use std::net::SocketAddr;
use std::sync::Arc;

/// Address to listen at, with its TLS configuration if it uses TLS.
///
/// ```
/// # #[cfg(feature = "tls")] {
/// use handover_net::{ListenOptions, tls};
/// let identity = tls::Identity::generate(&["localhost"])?;
/// let server = tls::TlsServerConfig::new(&identity, tls::ServerOptions::default())?;
/// let listen = ListenOptions::new("0.0.0.0:8081".parse().unwrap()).with_tls(&server);
/// # let _ = listen;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ListenOptions {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<TlsServerConfig>,
}

impl ListenOptions {
    /// Creates options to listen at `address` in plain text; for port 0 the kernel chooses a port.
    #[must_use]
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    /// Makes the listener accept only TLS, with the configuration `server`.
    #[must_use]
    pub fn with_tls(self, server: &TlsServerConfig) -> Self {
        Self { tls: Some(server.clone()), ..self }
    }
}

impl From<SocketAddr> for ListenOptions {
    fn from(address: SocketAddr) -> Self {
        Self::new(address)
    }
}

/// Address to connect to, with the source address and the TLS configuration, if any.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    pub(crate) address: SocketAddr,
    /// Local address to connect from; `None` lets the kernel choose one.
    pub(crate) source: Option<SocketAddr>,
    pub(crate) tls: Option<Arc<NamedTlsClient>>,
}

impl ConnectOptions {
    /// Creates options to connect to `address` in plain text.
    #[must_use]
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, source: None, tls: None }
    }

    /// Sets the local address to connect from. For port 0 the kernel chooses among some 28,000
    /// ports of this address.
    #[must_use]
    pub fn with_source(self, source: SocketAddr) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Makes the connection use TLS. The server's certificate must be valid for `name`, a DNS name
    /// or an address; a DNS name is also sent to the server.
    ///
    /// # Errors
    /// [`SetupError`] if `name` is neither.
    pub fn with_tls(self, client: &TlsClientConfig, name: &str) -> Result<Self, SetupError> {
        Ok(Self { tls: Some(Arc::new(NamedTlsClient::new(client, name)?)), ..self })
    }
}

impl From<SocketAddr> for ConnectOptions {
    fn from(address: SocketAddr) -> Self {
        Self::new(address)
    }
}
