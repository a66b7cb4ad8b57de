//! Without the feature `tls`: no connection has any.

use super::outbound::Overflow;
use crate::tls::{Server, SetupError, TlsError};

/// What [`Tls::open`] found out, beside what it opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// The handshake has come to its end with this.
    pub ready: bool,
    /// The peer has said good-bye: nothing of it follows.
    pub ended: bool,
}

/// The TLS of one connection; there is none without the feature `tls`.
#[derive(Debug)]
pub enum Tls {}

impl Tls {
    pub(crate) fn server(server: &Server, _now_ns: u64) -> Result<Self, SetupError> {
        match *server {}
    }

    pub(crate) fn handshake_begun_ns(&self) -> Option<u64> {
        match *self {}
    }

    pub(crate) fn begin_at(&mut self, _now_ns: u64) {
        match *self {}
    }

    pub(crate) fn is_within_record(&self) -> bool {
        match *self {}
    }

    pub(crate) fn has_record_per_message(&self) -> bool {
        match *self {}
    }

    pub(crate) fn held_bytes(&self) -> usize {
        match *self {}
    }

    pub(crate) fn early_bytes(&self) -> usize {
        match *self {}
    }

    /// As with the feature, where there are records.
    ///
    /// # Errors
    /// None.
    pub fn open(
        &mut self,
        _sealed: &mut [u8],
        _plain: &mut Vec<u8>,
        _out: &mut Vec<u8>,
    ) -> Result<Opened, TlsError> {
        match *self {}
    }

    /// As with the feature, where there are keys.
    ///
    /// # Errors
    /// None.
    pub fn seal(
        &mut self,
        _plain: &[u8],
        _ends: &[usize],
        _out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        match *self {}
    }

    pub(crate) fn may_keep(&self, _bytes: usize, _bytes_max: usize) -> Result<(), Overflow> {
        match *self {}
    }

    pub(crate) fn part(&mut self, _out: &mut Vec<u8>) {
        match *self {}
    }

    pub(crate) fn is_resumed(&self) -> Option<bool> {
        match *self {}
    }

    pub(crate) fn unfinished(&self) -> TlsError {
        match *self {}
    }
}
