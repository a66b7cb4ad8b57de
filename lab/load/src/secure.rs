//! Interface for encryption between messages and socket, such as TLS.

/// Error of a connection that cannot be secured, as text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Insecure(pub String);

/// Factory of the encryption of connections.
pub trait Secures: Send + Sync {
    /// Creates the encryption of one more connection.
    ///
    /// # Errors
    /// Fails with [`Insecure`] if it cannot be created.
    fn begin(&self) -> Result<Box<dyn Secure>, Insecure>;
}

/// Encryption of one connection, on the client's side.
pub trait Secure: Send {
    /// Processes received bytes; the first call, right after connecting, has none. Appends the
    /// decrypted content to `plain` and the bytes to send in reply to `out`. Returns `true` if
    /// messages may be sent now.
    ///
    /// # Errors
    /// Fails with [`Insecure`]; the connection is closed after the bytes in `out` have been sent.
    fn open(
        &mut self,
        sealed: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Insecure>;

    /// Appends the encrypted form of `plain` to `out`.
    ///
    /// # Errors
    /// Fails with [`Insecure`] if encryption fails.
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Insecure>;

    /// Appends a close notification to `out`.
    fn part(&mut self, out: &mut Vec<u8>);
}
