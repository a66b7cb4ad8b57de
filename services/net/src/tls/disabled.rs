//! Stand-ins for the types in signatures if the feature `tls` is off; they have no values.

use crate::engine::Tls;
use std::marker::PhantomData;

/// Error in the setup of TLS; has no values if the feature `tls` is off.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {}

/// Error in the TLS of a connection; has no values if the feature `tls` is off.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {}

/// TLS configuration of servers; has no values if the feature `tls` is off.
#[derive(Debug, Clone)]
pub enum Server {}

/// TLS configuration of clients; has no values if the feature `tls` is off.
#[derive(Debug, Clone)]
pub enum Client {}

/// TLS configuration of clients with a server's name; has no values here.
#[derive(Debug)]
pub(crate) enum NamedClient {}

impl NamedClient {
    pub(crate) fn new(client: &Client, _name: &str) -> Result<Self, SetupError> {
        match *client {}
    }

    pub(crate) fn begin(&self, _now_ns: u64) -> Result<Tls, SetupError> {
        match *self {}
    }
}

/// Result of a TLS handshake; has no values if the feature `tls` is off.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    never: std::convert::Infallible,
    tls: PhantomData<&'a Tls>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(tls: &'a Tls) -> Self {
        match *tls {}
    }

    /// Returns the negotiated ALPN protocol, if there is one.
    #[must_use]
    pub fn alpn(&self) -> Option<&'a [u8]> {
        match self.never {}
    }

    /// Returns `true` if an earlier session was resumed.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        match self.never {}
    }

    /// Returns the version: `TLS 1.3` or `TLS 1.2`.
    #[must_use]
    pub fn version(&self) -> &'static str {
        match self.never {}
    }

    /// Returns the name of the cipher suite.
    #[must_use]
    pub fn cipher_suite(&self) -> &'static str {
        match self.never {}
    }

    /// Returns the peer's certificate in DER, if it has sent one.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&'a [u8]> {
        match self.never {}
    }
}
