//! TLS setup of the connections.

use handover_base::clock;
use handover_net::engine::TlsState;
use handover_net::tls::{SetupError, TlsClientConfig};

/// TLS setup of a client: its trusted certificates, and the name of the server.
pub struct ClientTls {
    client: TlsClientConfig,
    /// Name of the server, as in its certificate.
    server_name: String,
}

impl ClientTls {
    /// Creates the TLS setup for connections to the server called `server_name`.
    #[must_use]
    pub fn new(client: TlsClientConfig, server_name: String) -> Self {
        Self { client, server_name }
    }

    /// Creates the TLS state of a new connection.
    ///
    /// # Errors
    /// Fails with [`SetupError`] if it cannot be created.
    pub fn begin(&self) -> Result<Box<TlsState>, SetupError> {
        TlsState::new_client(&self.client, &self.server_name, clock::now_ns()).map(Box::new)
    }
}
