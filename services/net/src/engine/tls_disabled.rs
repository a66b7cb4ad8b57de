//! Stand-in for `tls.rs` if the feature `tls` is off: no connection has TLS.

use super::outbound::SendQueueOverflow;
use crate::tls::{SetupError, TlsError, TlsServerConfig};

/// Result of [`TlsState::open_records`] besides the plaintext: the end of the handshake or of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenedRecords {
    /// `true` if the call completed the handshake.
    pub is_ready: bool,
    /// `true` if the peer has sent `close_notify`: no more data follows.
    pub is_ended: bool,
}

/// TLS state of one connection; without the feature `tls` the type has no values.
#[derive(Debug)]
pub enum TlsState {}

impl TlsState {
    pub(crate) fn new_server(server: &TlsServerConfig, _now_ns: u64) -> Result<Self, SetupError> {
        match *server {}
    }

    pub(crate) fn handshake_started_ns(&self) -> Option<u64> {
        match *self {}
    }

    pub(crate) fn restart_handshake_timeout(&mut self, _now_ns: u64) {
        match *self {}
    }

    pub(crate) fn is_within_record(&self) -> bool {
        match *self {}
    }

    pub(crate) fn has_record_per_message(&self) -> bool {
        match *self {}
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match *self {}
    }

    pub(crate) fn early_plaintext_bytes(&self) -> usize {
        match *self {}
    }

    /// Decrypts records if the feature `tls` is on; cannot be called otherwise.
    ///
    /// # Errors
    /// None.
    pub fn open_records(
        &mut self,
        _sealed: &mut [u8],
        _plain: &mut Vec<u8>,
        _out: &mut Vec<u8>,
    ) -> Result<OpenedRecords, TlsError> {
        match *self {}
    }

    /// Encrypts plaintext if the feature `tls` is on; cannot be called otherwise.
    ///
    /// # Errors
    /// None.
    pub fn seal_messages(
        &mut self,
        _plain: &[u8],
        _ends: &[usize],
        _out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        match *self {}
    }

    pub(crate) fn check_early_limit(
        &self,
        _bytes: usize,
        _bytes_max: usize,
    ) -> Result<(), SendQueueOverflow> {
        match *self {}
    }

    pub(crate) fn append_close_notify(&mut self, _out: &mut Vec<u8>) {
        match *self {}
    }

    pub(crate) fn is_resumed(&self) -> Option<bool> {
        match *self {}
    }

    pub(crate) fn truncation_error(&self) -> TlsError {
        match *self {}
    }
}
