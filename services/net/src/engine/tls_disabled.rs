//! Stand-in for `tls.rs` if the feature `tls` is off: no connection has TLS.

use super::outbound::SendQueueOverflow;
use crate::tls::{SetupError, TlsClientConfig, TlsError, TlsServerConfig};

/// Events found while decrypting TLS records: end of the handshake, and end of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenedRecords {
    /// `true` if this call of `open_records` completed the handshake.
    pub is_ready: bool,
    /// `true` if the peer has sent `close_notify`: no more data follows.
    pub is_ended: bool,
}

/// TLS state of one connection; without the feature `tls` the type has no values.
#[derive(Debug)]
pub enum TlsState {}

/// Defines functions that cannot be called, as their `self` has no values.
macro_rules! uncallable {
    ($($(#[$doc:meta])* $visible:vis fn $name:ident(
        self: $this:ty $(, $argument:ident: $type:ty)*
    ) $(-> $result:ty)?;)*) => {$(
        $(#[$doc])*
        $visible fn $name(self: $this $(, $argument: $type)*) $(-> $result)? {
            match *self {}
        }
    )*};
}

impl TlsState {
    pub(crate) fn new_server(server: &TlsServerConfig, _now_ns: u64) -> Result<Self, SetupError> {
        match *server {}
    }

    /// Creates a client's state if the feature `tls` is on; cannot be called otherwise.
    ///
    /// # Errors
    /// None.
    pub fn new_client(
        client: &TlsClientConfig,
        _server_name: &str,
        _now_ns: u64,
    ) -> Result<Self, SetupError> {
        match *client {}
    }

    uncallable! {
        /// Returns `true` after the handshake if the feature `tls` is on; cannot be called
        /// otherwise.
        #[must_use]
        pub fn is_handshake_complete(self: &Self) -> bool;
        pub(crate) fn handshake_started_ns(self: &Self) -> Option<u64>;
        pub(crate) fn restart_handshake_timeout(self: &mut Self, _now_ns: u64);
        pub(crate) fn is_within_record(self: &Self) -> bool;
        pub(crate) fn has_record_per_message(self: &Self) -> bool;
        pub(crate) fn heap_bytes(self: &Self) -> usize;
        pub(crate) fn early_plaintext_bytes(self: &Self) -> usize;
        pub(crate) fn check_early_limit(
            self: &Self, _bytes: usize, _bytes_max: usize
        ) -> Result<(), SendQueueOverflow>;
        pub(crate) fn is_resumed(self: &Self) -> Option<bool>;
        pub(crate) fn truncation_error(self: &Self) -> TlsError;

        /// Appends the record that ends a connection if the feature `tls` is on; cannot be called
        /// otherwise.
        pub fn append_close_notify(self: &mut Self, _out: &mut Vec<u8>);

        /// Decrypts records if the feature `tls` is on; cannot be called otherwise.
        ///
        /// # Errors
        /// None.
        pub fn open_records(
            self: &mut Self, _sealed: &mut [u8], _plain: &mut Vec<u8>, _out: &mut Vec<u8>
        ) -> Result<OpenedRecords, TlsError>;

        /// Encrypts plaintext if the feature `tls` is on; cannot be called otherwise.
        ///
        /// # Errors
        /// None.
        pub fn seal_messages(
            self: &mut Self, _plain: &[u8], _ends: &[usize], _out: &mut Vec<u8>
        ) -> Result<(), TlsError>;
    }
}
