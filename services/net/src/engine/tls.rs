//! TLS of one connection, from bytes to bytes, without a socket or a clock.

use super::outbound::Overflow;
use crate::tls::{Client, Server, SetupError, TlsError};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{CommonState, HandshakeKind};
use std::fmt;

/// Result of [`Tls::open`] apart from the plaintext.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// `true` if this call completed the handshake.
    pub ready: bool,
    /// `true` if the peer has sent `close_notify`: no more data follows.
    pub ended: bool,
}

/// TLS of one connection, on the server's or the client's side.
///
/// It owns no buffer unless a record is incomplete: records are opened in the thread's read buffer
/// and sealed into the thread's output buffer. What rustls keeps in addition (keys, secrets, the
/// peer's certificate) is some 3 KiB.
pub struct Tls {
    end: End,
    /// Bytes of records that are incomplete.
    kept: Vec<u8>,
    /// Bytes written before the handshake was done.
    early: Vec<u8>,
    ready: bool,
    parted: bool,
    record_per_message: bool,
    begun_ns: u64,
}

enum End {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// Size of a record's header: type, version, length.
const HEAD_BYTES: usize = 5;
/// Maximum number of bytes that sealing adds to a record.
const SEAL_BYTES: usize = 64;
/// Maximum number of plaintext bytes in one record.
const RECORD_BYTES: usize = 1 << 14;

impl Tls {
    /// Creates the server's side; its handshake begins at `now_ns`.
    ///
    /// # Errors
    /// [`SetupError`] if rustls refuses the configuration.
    pub fn server(server: &Server, now_ns: u64) -> Result<Self, SetupError> {
        let end = UnbufferedServerConnection::new(server.config()).map_err(SetupError::refused)?;
        Ok(Self::new(End::Server(end), server.has_record_per_message(), now_ns))
    }

    /// Creates the client's side, for the server with this name or address.
    ///
    /// # Errors
    /// [`SetupError`] if `name` is neither, or rustls refuses the configuration.
    pub fn client(client: &Client, name: &str, now_ns: u64) -> Result<Self, SetupError> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_no_name| SetupError::Name(name.to_owned()))?;
        Self::towards(client, name, now_ns)
    }

    pub(crate) fn towards(
        client: &Client,
        name: ServerName<'static>,
        now_ns: u64,
    ) -> Result<Self, SetupError> {
        let end =
            UnbufferedClientConnection::new(client.config(), name).map_err(SetupError::refused)?;
        Ok(Self::new(End::Client(end), client.has_record_per_message(), now_ns))
    }

    fn new(end: End, record_per_message: bool, begun_ns: u64) -> Self {
        let (kept, early) = (Vec::new(), Vec::new());
        Self { end, kept, early, ready: false, parted: false, record_per_message, begun_ns }
    }

    /// Returns `true` once the handshake is done.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Returns the time at which the handshake began; `None` once it is done.
    #[must_use]
    pub fn handshake_begun_ns(&self) -> Option<u64> {
        (!self.ready).then_some(self.begun_ns)
    }

    /// Sets the beginning of the handshake to `now_ns`.
    pub(crate) fn begin_at(&mut self, now_ns: u64) {
        self.begun_ns = now_ns;
    }

    /// Returns `true` if each message is sealed as a record of its own.
    #[must_use]
    pub fn has_record_per_message(&self) -> bool {
        self.record_per_message
    }

    /// Returns the memory of its own buffers in bytes; 0 while nothing is pending.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.kept.capacity() + self.early.capacity()
    }

    /// Returns the number of bytes that wait for the end of the handshake.
    #[must_use]
    pub fn early_bytes(&self) -> usize {
        self.early.len()
    }

    /// Opens received records, in place; `sealed` may hold parts of records or many of them, and is
    /// empty in a client's first call. Plaintext is appended to `plain`; handshake messages, and
    /// the bytes that waited for the end of the handshake, are appended to `out`.
    ///
    /// # Errors
    /// [`TlsError`]; `out` then holds the alert for the peer. The connection has to be closed.
    pub fn open(
        &mut self,
        sealed: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Opened, TlsError> {
        let mut opened = Opened::default();
        let mut rest = sealed;
        while !self.kept.is_empty() && !rest.is_empty() {
            let wanted = self.wanted_bytes().clamp(1, rest.len());
            let (now, later) = rest.split_at_mut(wanted);
            self.kept.extend_from_slice(now);
            rest = later;
            let mut kept = std::mem::take(&mut self.kept);
            let used = self.take(&mut kept, plain, out, &mut opened)?;
            if used < kept.len() {
                kept.drain(..used);
                self.kept = kept;
            }
        }
        if self.kept.is_empty() {
            let used = self.take(rest, plain, out, &mut opened)?;
            self.kept.extend_from_slice(&rest[used..]);
        }
        if !self.ready && !self.common().is_handshaking() {
            self.ready = true;
            opened.ready = true;
            let early = std::mem::take(&mut self.early);
            self.seal(&early, &[], out)?;
        }
        Ok(opened)
    }

    /// Seals plaintext and appends the records to `out`: as few as possible or, if each message is
    /// a record of its own, one up to each position in `ends`. Before the end of the handshake the
    /// plaintext is kept.
    ///
    /// # Errors
    /// [`TlsError`] if too much has been sealed with these keys.
    pub fn seal(
        &mut self,
        plain: &[u8],
        ends: &[usize],
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        if !self.ready {
            self.early.extend_from_slice(plain);
            return Ok(());
        }
        if plain.is_empty() {
            return Ok(());
        }
        let cuts = if self.record_per_message { ends } else { &[] };
        self.with_traffic(out, |traffic, out| {
            let mut from = 0;
            for &end in cuts.iter().chain([&plain.len()]) {
                if end > from {
                    encrypt(traffic, &plain[from..end], out)?;
                    from = end;
                }
            }
            Ok(())
        })
    }

    /// Checks whether `bytes` written outside of a turn can be kept until the end of the handshake:
    /// refused if more than `bytes_max` would be.
    pub(crate) fn may_keep(&self, bytes: usize, bytes_max: usize) -> Result<(), Overflow> {
        let queued_bytes = self.early.len() + bytes;
        match self.ready || queued_bytes <= bytes_max {
            true => Ok(()),
            false => Err(Overflow { queued_bytes, queued_bytes_max: bytes_max }),
        }
    }

    /// Appends `close_notify` to `out`, once; does nothing before the end of the handshake.
    pub fn part(&mut self, out: &mut Vec<u8>) {
        if !self.ready || self.parted {
            return;
        }
        self.parted = true;
        // If nothing can be sealed any more, the peer only sees the end of the stream.
        let _ = self.with_traffic(out, |traffic, out| {
            let mut written = [0; 2 * SEAL_BYTES];
            if let Ok(count) = traffic.queue_close_notify(&mut written) {
                out.extend_from_slice(&written[..count]);
            }
            Ok(())
        });
    }

    /// Returns `true` if an earlier session was resumed; `None` until the handshake has settled
    /// that.
    #[must_use]
    pub fn is_resumed(&self) -> Option<bool> {
        self.common().handshake_kind().map(|kind| kind == HandshakeKind::Resumed)
    }

    /// Returns the error for a stream that has ended without `close_notify`.
    pub(crate) fn unfinished(&self) -> TlsError {
        TlsError::Unfinished
    }

    /// Returns the state that rustls keeps for both sides alike.
    pub(crate) fn common(&self) -> &CommonState {
        match &self.end {
            End::Server(end) => end,
            End::Client(end) => end,
        }
    }

    /// Returns the number of bytes that the first kept record lacks; `usize::MAX` if the record is
    /// complete and kept as part of a longer handshake message, whose length is not known.
    fn wanted_bytes(&self) -> usize {
        let Some(&[_, _, _, high, low]) = self.kept.first_chunk::<HEAD_BYTES>() else {
            return HEAD_BYTES - self.kept.len();
        };
        let whole = HEAD_BYTES + usize::from(u16::from_be_bytes([high, low]));
        match whole.checked_sub(self.kept.len()) {
            None | Some(0) => usize::MAX,
            Some(lacking) => lacking,
        }
    }

    /// Returns `true` while an incomplete record is kept.
    pub(crate) fn is_within_record(&self) -> bool {
        // A complete record that is kept belongs to a handshake message of which more is to come.
        !self.kept.is_empty()
    }

    fn take(
        &mut self,
        records: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
        opened: &mut Opened,
    ) -> Result<usize, TlsError> {
        match &mut self.end {
            End::Server(end) => take(end, records, plain, out, opened),
            End::Client(end) => take(end, records, plain, out, opened),
        }
    }

    fn with_traffic(
        &mut self,
        out: &mut Vec<u8>,
        f: impl FnOnce(&mut dyn Sealing, &mut Vec<u8>) -> Result<(), TlsError>,
    ) -> Result<(), TlsError> {
        match &mut self.end {
            End::Server(end) => with_traffic(end, &mut self.kept, out, f),
            End::Client(end) => with_traffic(end, &mut self.kept, out, f),
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("ready", &self.ready).finish_non_exhaustive()
    }
}

/// Operations that both sides share.
trait Side {
    type Data;

    fn step<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn has_more_to_send(&self) -> bool;
}

impl Side for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn step<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(records)
    }

    fn has_more_to_send(&self) -> bool {
        self.wants_write()
    }
}

impl Side for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn step<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(records)
    }

    fn has_more_to_send(&self) -> bool {
        self.wants_write()
    }
}

/// Encryption, independent of the side.
trait Sealing {
    fn encrypt(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, EncryptError>;

    fn queue_close_notify(&mut self, out: &mut [u8]) -> Result<usize, EncryptError>;
}

impl<D> Sealing for WriteTraffic<'_, D> {
    fn encrypt(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, EncryptError> {
        WriteTraffic::encrypt(self, plain, out)
    }

    fn queue_close_notify(&mut self, out: &mut [u8]) -> Result<usize, EncryptError> {
        WriteTraffic::queue_close_notify(self, out)
    }
}

/// Opens the complete records in `records` and answers the handshake. Returns the number of bytes
/// used.
fn take<S: Side>(
    side: &mut S,
    records: &mut [u8],
    plain: &mut Vec<u8>,
    out: &mut Vec<u8>,
    opened: &mut Opened,
) -> Result<usize, TlsError> {
    let mut used = 0;
    loop {
        let UnbufferedStatus { mut discard, state } = side.step(&mut records[used..]);
        let mut is_done = false;
        match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(TlsError::of)?;
                    plain.extend_from_slice(record.payload);
                    discard += record.discard;
                }
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => encode(|into| data.encode(into), out)?,
            // The data is already in `out`, which the caller sends.
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => opened.ended = true,
            // All complete records are opened.
            Ok(_) => is_done = true,
            Err(error) => {
                while side.has_more_to_send() {
                    match side.step(&mut []).state {
                        Ok(ConnectionState::EncodeTlsData(mut data)) => {
                            encode(|into| data.encode(into), out)?;
                        }
                        _ => break,
                    }
                }
                return Err(TlsError::of(error));
            }
        }
        used += discard;
        if is_done {
            return Ok(used);
        }
    }
}

/// Calls `f` with the means to seal, after appending pending handshake messages and key updates.
fn with_traffic<S: Side>(
    side: &mut S,
    kept: &mut [u8],
    out: &mut Vec<u8>,
    f: impl FnOnce(&mut dyn Sealing, &mut Vec<u8>) -> Result<(), TlsError>,
) -> Result<(), TlsError> {
    loop {
        // Kept bytes are passed again, as rustls may have begun to process them; they hold no
        // complete record.
        match side.step(kept).state.map_err(TlsError::of)? {
            ConnectionState::WriteTraffic(mut traffic) => return f(&mut traffic, out),
            ConnectionState::EncodeTlsData(mut data) => encode(|into| data.encode(into), out)?,
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => {}
            _ => return Err(TlsError::Unfinished),
        }
    }
}

/// Appends a handshake message to `out`.
fn encode(
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

fn encrypt(traffic: &mut dyn Sealing, plain: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
    let start = out.len();
    let records_count = plain.len().div_ceil(RECORD_BYTES);
    out.resize(start + plain.len() + records_count * SEAL_BYTES, 0);
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
