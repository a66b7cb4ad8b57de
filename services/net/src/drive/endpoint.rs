//! Where to listen, and whom to connect to.

use crate::tls::{Client, Server, SetupError, Towards};
use std::net::SocketAddr;
use std::sync::Arc;

/// Where to listen, and how to talk there.
///
/// ```
/// # #[cfg(feature = "tls")] {
/// use handover_net::{Listen, tls};
/// let identity = tls::Identity::made_for(&["localhost"])?;
/// let server = tls::Server::new(&identity, tls::ServerOptions::default())?;
/// let everywhere = Listen::at("0.0.0.0:8081".parse().unwrap()).tls(&server);
/// # let _ = everywhere;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Listen {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Server>,
}

impl Listen {
    /// In the clear; port 0 has the kernel choose.
    #[must_use]
    pub const fn at(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    /// By TLS, and by nothing else.
    #[must_use]
    pub fn tls(self, server: &Server) -> Self {
        Self { tls: Some(server.clone()), ..self }
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self::at(address)
    }
}

/// Whom to connect to, and how.
#[derive(Debug, Clone)]
pub struct Dial {
    pub(crate) address: SocketAddr,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) tls: Option<Arc<Towards>>,
}

impl Dial {
    /// In the clear.
    #[must_use]
    pub const fn to(address: SocketAddr) -> Self {
        Self { address, source: None, tls: None }
    }

    /// From that address of ours: one of them has some 28,000 ports. Port 0 has the kernel choose.
    #[must_use]
    pub fn from(self, source: SocketAddr) -> Self {
        Self { source: Some(source), ..self }
    }

    /// By TLS. The name, or address, is what the server's certificate must be for; it is told to the
    /// server where it is a name.
    ///
    /// # Errors
    /// [`SetupError`] where it is neither.
    pub fn tls(self, client: &Client, name: &str) -> Result<Self, SetupError> {
        Ok(Self { tls: Some(Arc::new(Towards::new(client, name)?)), ..self })
    }
}

impl From<SocketAddr> for Dial {
    fn from(address: SocketAddr) -> Self {
        Self::to(address)
    }
}
