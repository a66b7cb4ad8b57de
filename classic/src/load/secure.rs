//! Interface for encryption between messages and socket, such as TLS.

/// Error of a connection that cannot be secured, as text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EncryptionError(pub String);

/// Factory of the encryption of connections.
pub trait EncryptionFactory: Send + Sync {
    /// Creates the encryption of one more connection.
    ///
    /// # Errors
    /// Fails with [`EncryptionError`] if it cannot be created.
    fn begin(&self) -> Result<Box<dyn Encryption>, EncryptionError>;
}

/// Encryption of one connection, on the client's side.
pub trait Encryption: Send {
    /// Processes received bytes; the first call, right after connecting, has none. Appends the
    /// decrypted content to `plain` and the bytes to send in reply to `out`. Returns `true` if
    /// messages may be sent now.
    ///
    /// # Errors
    /// Fails with [`EncryptionError`]; the connection is closed after the bytes in `out` have been sent.
    fn open(
        &mut self,
        sealed: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool, EncryptionError>;

    /// Appends the encrypted form of `plain` to `out`.
    ///
    /// # Errors
    /// Fails with [`EncryptionError`] if encryption fails.
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), EncryptionError>;

    /// Appends a close notification to `out`.
    fn part(&mut self, out: &mut Vec<u8>);
}
