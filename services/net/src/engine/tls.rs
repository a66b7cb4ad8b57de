//! TLS of one connection, from bytes to bytes, without a socket or a clock.

use super::outbound::SendQueueOverflow;
use crate::tls::{SetupError, TlsClientConfig, TlsError, TlsServerConfig};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{CommonState, HandshakeKind};
use std::sync::Arc;

/// Events found while decrypting TLS records: end of the handshake, and end of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenedRecords {
    /// `true` if this call of `open_records` completed the handshake.
    pub is_ready: bool,
    /// `true` if the peer has sent `close_notify`: no more data follows.
    pub is_ended: bool,
}

/// TLS state of one connection, as server or client.
///
/// It owns no buffer unless a record is incomplete: records are opened in the thread's read buffer
/// and sealed into the thread's output buffer. What rustls keeps in addition (keys, secrets, the
/// peer's certificate) is some 3 KiB.
pub struct TlsState {
    connection: Connection,
    /// Received bytes of incomplete records.
    buffered: Vec<u8>,
    /// Plaintext that was written before the handshake was done.
    early_plaintext: Vec<u8>,
    /// `true` once the handshake is complete.
    is_ready: bool,
    is_close_notify_sent: bool,
    has_record_per_message: bool,
    handshake_started_at_ns: u64,
}

/// State that rustls keeps for one connection, as server or client.
enum Connection {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// Size of a TLS record's header in bytes: type, version, length.
const RECORD_HEADER_BYTES: usize = 5;
/// Maximum number of bytes that encryption adds to a record.
const SEAL_OVERHEAD_BYTES: usize = 64;
const RECORD_PLAIN_BYTES_MAX: usize = 1 << 14;

impl TlsState {
    /// Creates the TLS state of a server's connection; its handshake starts at `now_ns`.
    ///
    /// # Errors
    /// [`SetupError`] if rustls refuses the configuration.
    pub fn new_server(server: &TlsServerConfig, now_ns: u64) -> Result<Self, SetupError> {
        let connection = UnbufferedServerConnection::new(Arc::clone(&server.config))
            .map_err(SetupError::from_rustls)?;
        Ok(Self::new(Connection::Server(connection), server.record_per_message, now_ns))
    }

    /// Creates the TLS state of a client's connection to the server `name`. The name is a DNS name
    /// or an address.
    ///
    /// # Errors
    /// [`SetupError`] if `name` is neither, or rustls refuses the configuration.
    pub fn new_client(
        client: &TlsClientConfig,
        name: &str,
        now_ns: u64,
    ) -> Result<Self, SetupError> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_no_name| SetupError::Name(name.to_owned()))?;
        Self::new_client_for(client, name, now_ns)
    }

    pub(crate) fn new_client_for(
        client: &TlsClientConfig,
        name: ServerName<'static>,
        now_ns: u64,
    ) -> Result<Self, SetupError> {
        let connection = UnbufferedClientConnection::new(Arc::clone(&client.config), name)
            .map_err(SetupError::from_rustls)?;
        Ok(Self::new(Connection::Client(connection), client.record_per_message, now_ns))
    }

    fn new(
        connection: Connection,
        has_record_per_message: bool,
        handshake_started_at_ns: u64,
    ) -> Self {
        let (buffered, early_plaintext) = (Vec::new(), Vec::new());
        Self {
            connection,
            buffered,
            early_plaintext,
            is_ready: false,
            is_close_notify_sent: false,
            has_record_per_message,
            handshake_started_at_ns,
        }
    }

    /// Returns `true` once the TLS handshake is done.
    #[must_use]
    pub fn is_handshake_complete(&self) -> bool {
        self.is_ready
    }

    /// Returns the time in ns at which the TLS handshake started; `None` once it is done.
    #[must_use]
    pub fn handshake_started_ns(&self) -> Option<u64> {
        (!self.is_ready).then_some(self.handshake_started_at_ns)
    }

    pub(crate) fn restart_handshake_timeout(&mut self, now_ns: u64) {
        self.handshake_started_at_ns = now_ns;
    }

    /// Returns `true` if each message is a TLS record of its own.
    #[must_use]
    pub fn has_record_per_message(&self) -> bool {
        self.has_record_per_message
    }

    /// Returns the size of the buffers in bytes; 0 while nothing is pending.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.buffered.capacity() + self.early_plaintext.capacity()
    }

    /// Returns the number of plaintext bytes that wait until the handshake is done.
    #[must_use]
    pub fn early_plaintext_bytes(&self) -> usize {
        self.early_plaintext.len()
    }

    /// Decrypts received records in place, and performs the handshake. Incomplete records are kept
    /// for the next call. In a client's first call `sealed` is empty. Plaintext is appended to
    /// `plain`; handshake messages, and the bytes that waited until the handshake was done, are
    /// appended to `out`.
    ///
    /// # Errors
    /// [`TlsError`]; `out` then holds the alert for the peer. The connection has to be closed.
    pub fn open_records(
        &mut self,
        sealed: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<OpenedRecords, TlsError> {
        let mut opened = OpenedRecords::default();
        let mut rest = sealed;
        while !self.buffered.is_empty() && !rest.is_empty() {
            let wanted = self.missing_bytes().clamp(1, rest.len());
            let (now, later) = rest.split_at_mut(wanted);
            self.buffered.extend_from_slice(now);
            rest = later;
            let mut buffered = std::mem::take(&mut self.buffered);
            let used = self.process_records(&mut buffered, plain, out, &mut opened)?;
            if used < buffered.len() {
                buffered.drain(..used);
                self.buffered = buffered;
            }
        }
        if self.buffered.is_empty() {
            let used = self.process_records(rest, plain, out, &mut opened)?;
            self.buffered.extend_from_slice(&rest[used..]);
        }
        if !self.is_ready && !self.rustls_state().is_handshaking() {
            self.is_ready = true;
            opened.is_ready = true;
            let early = std::mem::take(&mut self.early_plaintext);
            self.seal_messages(&early, &[], out)?;
        }
        Ok(opened)
    }

    /// Encrypts plaintext and appends the records to `out`. These are as few as possible or, if so
    /// configured, one for each message. The messages end at `ends`. Until the handshake is done
    /// the plaintext is buffered.
    ///
    /// # Errors
    /// [`TlsError`] if too much has been sealed with these keys.
    pub fn seal_messages(
        &mut self,
        plain: &[u8],
        ends: &[usize],
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        if !self.is_ready {
            self.early_plaintext.extend_from_slice(plain);
            return Ok(());
        }
        if plain.is_empty() {
            return Ok(());
        }
        let record_ends = if self.has_record_per_message { ends } else { &[] };
        self.with_traffic_keys(out, |traffic, out| {
            let mut from = 0;
            for &end in record_ends.iter().chain([&plain.len()]) {
                if end > from {
                    encrypt(traffic, &plain[from..end], out)?;
                    from = end;
                }
            }
            Ok(())
        })
    }

    /// Checks that `bytes` more bytes can be buffered until the handshake is done. Fails if the
    /// buffer would exceed `bytes_max`.
    pub(crate) fn check_early_limit(
        &self,
        bytes: usize,
        bytes_max: usize,
    ) -> Result<(), SendQueueOverflow> {
        let queued_bytes = self.early_plaintext.len() + bytes;
        match self.is_ready || queued_bytes <= bytes_max {
            true => Ok(()),
            false => Err(SendQueueOverflow { queued_bytes, queued_bytes_max: bytes_max }),
        }
    }

    /// Appends TLS's `close_notify` to `out`, once; does nothing until the handshake is done.
    pub fn append_close_notify(&mut self, out: &mut Vec<u8>) {
        if !self.is_ready || self.is_close_notify_sent {
            return;
        }
        self.is_close_notify_sent = true;
        // If nothing can be sealed any more, the peer only sees the end of the stream.
        let _ = self.with_traffic_keys(out, |traffic, out| {
            let mut written = [0; 2 * SEAL_OVERHEAD_BYTES];
            if let Ok(count) = traffic.queue_close_notify(&mut written) {
                out.extend_from_slice(&written[..count]);
            }
            Ok(())
        });
    }

    /// Returns `true` if an earlier session was resumed, `false` if not. Returns `None` until the
    /// handshake has determined this.
    #[must_use]
    pub fn is_resumed(&self) -> Option<bool> {
        self.rustls_state().handshake_kind().map(|kind| kind == HandshakeKind::Resumed)
    }

    /// Returns the error for a stream that was closed without `close_notify`.
    pub(crate) fn truncation_error(&self) -> TlsError {
        TlsError::NoCloseNotify
    }

    pub(crate) fn rustls_state(&self) -> &CommonState {
        match &self.connection {
            Connection::Server(connection) => connection,
            Connection::Client(connection) => connection,
        }
    }

    /// Returns the number of bytes missing from the first buffered record. Returns `usize::MAX` if
    /// the record is complete, but its handshake message is not.
    fn missing_bytes(&self) -> usize {
        let Some(&[_, _, _, high, low]) = self.buffered.first_chunk::<RECORD_HEADER_BYTES>() else {
            return RECORD_HEADER_BYTES - self.buffered.len();
        };
        let record_bytes = RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
        match record_bytes.checked_sub(self.buffered.len()) {
            None | Some(0) => usize::MAX,
            Some(lacking) => lacking,
        }
    }

    /// Returns `true` if bytes of an incomplete record or handshake message are buffered.
    pub(crate) fn is_within_record(&self) -> bool {
        // A complete record that is kept belongs to a handshake message that is incomplete.
        !self.buffered.is_empty()
    }

    fn process_records(
        &mut self,
        records: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
        opened: &mut OpenedRecords,
    ) -> Result<usize, TlsError> {
        match &mut self.connection {
            Connection::Server(connection) => {
                process_records(connection, records, plain, out, opened)
            }
            Connection::Client(connection) => {
                process_records(connection, records, plain, out, opened)
            }
        }
    }

    fn with_traffic_keys(
        &mut self,
        out: &mut Vec<u8>,
        f: impl FnOnce(&mut dyn Encrypt, &mut Vec<u8>) -> Result<(), TlsError>,
    ) -> Result<(), TlsError> {
        match &mut self.connection {
            Connection::Server(connection) => {
                with_traffic_keys(connection, &mut self.buffered, out, f)
            }
            Connection::Client(connection) => {
                with_traffic_keys(connection, &mut self.buffered, out, f)
            }
        }
    }
}

handover_base::debug_struct!(TlsState as it { ready: it.is_ready });

/// Operations of rustls that client and server connections have in common.
trait UnbufferedConnection {
    type Data;

    /// Processes received records; returns the next action that rustls requests.
    fn step<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn has_more_to_send(&self) -> bool;
}

impl UnbufferedConnection for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn step<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(records)
    }

    fn has_more_to_send(&self) -> bool {
        self.wants_write()
    }
}

impl UnbufferedConnection for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn step<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(records)
    }

    fn has_more_to_send(&self) -> bool {
        self.wants_write()
    }
}

/// Encryption of plaintext by rustls, for client and server connections.
trait Encrypt {
    fn encrypt(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, EncryptError>;

    fn queue_close_notify(&mut self, out: &mut [u8]) -> Result<usize, EncryptError>;
}

impl<D> Encrypt for WriteTraffic<'_, D> {
    fn encrypt(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, EncryptError> {
        WriteTraffic::encrypt(self, plain, out)
    }

    fn queue_close_notify(&mut self, out: &mut [u8]) -> Result<usize, EncryptError> {
        WriteTraffic::queue_close_notify(self, out)
    }
}

/// Decrypts the complete records in `records` and performs the handshake; returns the number of
/// bytes consumed.
fn process_records<S: UnbufferedConnection>(
    connection: &mut S,
    records: &mut [u8],
    plain: &mut Vec<u8>,
    out: &mut Vec<u8>,
    opened: &mut OpenedRecords,
) -> Result<usize, TlsError> {
    let mut used = 0;
    loop {
        let UnbufferedStatus { mut discard, state } = connection.step(&mut records[used..]);
        let mut is_done = false;
        match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(TlsError::from_rustls)?;
                    plain.extend_from_slice(record.payload);
                    discard += record.discard;
                }
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                append_handshake_message(|into| data.encode(into), out)?
            }
            // The data is already in `out`, which the caller sends.
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => opened.is_ended = true,
            // All complete records are opened.
            Ok(_) => is_done = true,
            Err(error) => {
                while connection.has_more_to_send() {
                    match connection.step(&mut []).state {
                        Ok(ConnectionState::EncodeTlsData(mut data)) => {
                            append_handshake_message(|into| data.encode(into), out)?;
                        }
                        _ => break,
                    }
                }
                return Err(TlsError::from_rustls(error));
            }
        }
        used += discard;
        if is_done {
            return Ok(used);
        }
    }
}

/// Calls `f` with rustls's encryption. Appends pending handshake messages and key updates to `out`
/// first.
fn with_traffic_keys<S: UnbufferedConnection>(
    connection: &mut S,
    buffered: &mut [u8],
    out: &mut Vec<u8>,
    f: impl FnOnce(&mut dyn Encrypt, &mut Vec<u8>) -> Result<(), TlsError>,
) -> Result<(), TlsError> {
    loop {
        // Kept bytes are passed again, as rustls may have begun to process them; they hold no
        // complete record.
        match connection.step(buffered).state.map_err(TlsError::from_rustls)? {
            ConnectionState::WriteTraffic(mut traffic) => return f(&mut traffic, out),
            ConnectionState::EncodeTlsData(mut data) => {
                append_handshake_message(|into| data.encode(into), out)?
            }
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => {}
            _ => return Err(TlsError::NoCloseNotify),
        }
    }
}

/// Appends to `out` the bytes that `into` writes. Enlarges `out` until they fit.
fn append_handshake_message(
    mut into: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
    out: &mut Vec<u8>,
) -> Result<(), TlsError> {
    let start = out.len();
    loop {
        match into(&mut out[start..]) {
            Ok(count) => {
                out.truncate(start + count);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(lacking)) => {
                out.resize(start + lacking.required_size, 0);
            }
            Err(error) => return Err(TlsError::Failed(error.to_string())),
        }
    }
}

fn encrypt(traffic: &mut dyn Encrypt, plain: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
    let start = out.len();
    let records_count = plain.len().div_ceil(RECORD_PLAIN_BYTES_MAX);
    out.resize(start + plain.len() + records_count * SEAL_OVERHEAD_BYTES, 0);
    loop {
        match traffic.encrypt(plain, &mut out[start..]) {
            Ok(count) => {
                out.truncate(start + count);
                return Ok(());
            }
            Err(EncryptError::InsufficientSize(lacking)) => {
                out.resize(start + lacking.required_size, 0);
            }
            Err(error) => {
                out.truncate(start);
                return Err(TlsError::Failed(error.to_string()));
            }
        }
    }
}
