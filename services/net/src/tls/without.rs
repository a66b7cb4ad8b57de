//! Without the feature `tls`: what signatures name, and nobody can have.

use crate::engine::Tls;
use std::marker::PhantomData;

/// What goes wrong when TLS is set up; without the feature `tls`, nothing does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {}

/// What goes wrong with the TLS of a connection; without the feature `tls`, nothing does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {}

/// The server's end; there is none without the feature `tls`.
#[derive(Debug, Clone)]
pub enum Server {}

/// The client's end; there is none without the feature `tls`.
#[derive(Debug, Clone)]
pub enum Client {}

/// TLS towards a server of some name.
#[derive(Debug)]
pub(crate) enum Towards {}

impl Towards {
    pub(crate) fn new(client: &Client, _name: &str) -> Result<Self, SetupError> {
        match *client {}
    }

    pub(crate) fn begin(&self, _now_ns: u64) -> Result<Tls, SetupError> {
        match *self {}
    }
}

/// What a handshake has come to; there is none without the feature `tls`.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    never: std::convert::Infallible,
    tls: PhantomData<&'a Tls>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(tls: &'a Tls) -> Self {
        match *tls {}
    }

    /// The protocol of ALPN that both sides speak, if one was chosen.
    #[must_use]
    pub fn alpn(&self) -> Option<&'a [u8]> {
        match self.never {}
    }

    /// Whether an earlier session was resumed.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        match self.never {}
    }

    /// The version: `TLS 1.3` or `TLS 1.2`.
    #[must_use]
    pub fn version(&self) -> &'static str {
        match self.never {}
    }

    /// The cipher suite, by its name.
    #[must_use]
    pub fn cipher_suite(&self) -> &'static str {
        match self.never {}
    }

    /// The peer's own certificate, as DER, if it has shown one.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&'a [u8]> {
        match self.never {}
    }
}
