//! TLS between messages and socket.

use handover_base::clock;
use handover_net::engine::TlsState;
use handover_net::tls::TlsClientConfig;

/// Text of a TLS error on a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EncryptionError(pub String);

fn encryption_error(why: impl ToString) -> EncryptionError {
    EncryptionError(why.to_string())
}

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
    /// Fails with [`EncryptionError`] if it cannot be created.
    pub fn begin(&self) -> Result<Box<Encryption>, EncryptionError> {
        let begun = TlsState::new_client(&self.client, &self.server_name, clock::now_ns());
        Ok(Box::new(Encryption(begun.map_err(encryption_error)?)))
    }
}

/// TLS state of one client connection.
pub struct Encryption(TlsState);

impl Encryption {
    /// Decrypts received bytes, or continues the handshake with them. Returns `true` once the
    /// handshake is complete. Pass no bytes in the first call, right after connecting. Appends the
    /// decrypted content to `plain`, and bytes to send to `out`.
    ///
    /// # Errors
    /// Fails with [`EncryptionError`]; the connection is closed after the bytes in `out` have been
    /// sent.
    pub fn open(
        &mut self,
        sealed: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool, EncryptionError> {
        self.0.open_records(sealed, plain, out).map_err(encryption_error)?;
        Ok(self.0.is_handshake_complete())
    }

    /// Appends the encrypted form of `plain` to `out`.
    ///
    /// # Errors
    /// Fails with [`EncryptionError`] if encryption fails.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), EncryptionError> {
        self.0.seal_messages(plain, &[], out).map_err(encryption_error)
    }

    /// Appends a TLS close notification to `out`.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        self.0.append_close_notify(out);
    }
}
