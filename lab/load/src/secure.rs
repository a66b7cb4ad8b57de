//! What may stand between messages and the socket: TLS, by whoever has it.

/// Why a connection is not secure, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Insecure(pub String);

/// Makes what secures each connection.
pub trait Secures: Send + Sync {
    /// For one more connection.
    ///
    /// # Errors
    /// [`Insecure`] when it cannot be.
    fn begin(&self) -> Result<Box<dyn Secure>, Insecure>;
}

/// What secures one connection, on the client's side.
pub trait Secure: Send {
    /// Bytes have come; the first call, when the connection has been made, has none. What they hold is
    /// appended to `plain`, what is to be sent in answer to `out`. Whether messages may be sent now.
    ///
    /// # Errors
    /// [`Insecure`]: the connection is given up, after what is in `out` has been sent.
    fn open(
        &mut self,
        sealed: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Insecure>;

    /// Appends the sealed form of `plain` to `out`.
    ///
    /// # Errors
    /// [`Insecure`].
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Insecure>;

    /// Appends a good-bye to `out`.
    fn part(&mut self, out: &mut Vec<u8>);
}
