//! Stand-ins for the types in signatures if the feature `tls` is off; they have no values.

use crate::engine::TlsState;
use std::marker::PhantomData;

/// Error of creating a TLS configuration; without the feature `tls` the type has no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {}

/// Error of the TLS protocol on a connection; without the feature `tls` the type has no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {}

/// TLS configuration of servers; without the feature `tls` the type has no values.
#[derive(Debug, Clone)]
pub enum TlsServerConfig {}

/// TLS configuration of clients; without the feature `tls` the type has no values.
#[derive(Debug, Clone)]
pub enum TlsClientConfig {}

/// TLS configuration of a client with the server's name. Without the feature `tls` the type has no
/// values.
#[derive(Debug)]
pub(crate) enum NamedTlsClient {}

impl NamedTlsClient {
    pub(crate) fn new(client: &TlsClientConfig, _name: &str) -> Result<Self, SetupError> {
        match *client {}
    }

    pub(crate) fn start_handshake(&self, _now_ns: u64) -> Result<TlsState, SetupError> {
        match *self {}
    }
}

/// Properties negotiated in a TLS handshake; without the feature `tls` the type has no values.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    never: std::convert::Infallible,
    tls: PhantomData<&'a TlsState>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(tls: &'a TlsState) -> Self {
        match *tls {}
    }

    /// Returns the negotiated ALPN protocol; `None` if none was negotiated.
    #[must_use]
    pub fn alpn(&self) -> Option<&'a [u8]> {
        match self.never {}
    }

    /// Returns `true` if an earlier session was resumed.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        match self.never {}
    }

    /// Returns the TLS version: `TLS 1.3` or `TLS 1.2`.
    #[must_use]
    pub fn version(&self) -> &'static str {
        match self.never {}
    }

    /// Returns the name of the negotiated cipher suite.
    #[must_use]
    pub fn cipher_suite(&self) -> &'static str {
        match self.never {}
    }

    /// Returns the peer's certificate in DER; `None` if the peer has sent none.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&'a [u8]> {
        match self.never {}
    }
}
