//! One connection's TLS: records in, records out, and nothing of a socket or a clock.

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

/// What [`Tls::open`] found out, beside what it opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// The handshake has come to its end with this.
    pub ready: bool,
    /// The peer has said good-bye: nothing of it follows.
    pub ended: bool,
}

/// The TLS of one connection, on either side.
///
/// It owns no buffer while no record is in pieces: records are opened where the thread has read them, and
/// sealed into the thread's own buffer. What rustls keeps beside (keys, secrets, the peer's certificate) is
/// some 3 KiB.
pub struct Tls {
    end: End,
    /// Records that have not come whole.
    kept: Vec<u8>,
    /// What was written before the handshake was done.
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

/// A record's head: its type, its version, its length.
const HEAD_BYTES: usize = 5;
/// What sealing adds to a record, at the most.
const SEAL_BYTES: usize = 64;
/// The most that one record holds.
const RECORD_BYTES: usize = 1 << 14;

impl Tls {
    /// The server's side, from now on.
    ///
    /// # Errors
    /// [`SetupError`] when rustls does not take its configuration.
    pub fn server(server: &Server, now_ns: u64) -> Result<Self, SetupError> {
        let end = UnbufferedServerConnection::new(server.config()).map_err(SetupError::refused)?;
        Ok(Self::new(End::Server(end), server.has_record_per_message(), now_ns))
    }

    /// The client's side, for the server of that name or address.
    ///
    /// # Errors
    /// [`SetupError`]: that is no name, or rustls does not take its configuration.
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

    /// Whether the handshake is done.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// When the handshake began, while it lasts.
    #[must_use]
    pub fn handshake_begun_ns(&self) -> Option<u64> {
        (!self.ready).then_some(self.begun_ns)
    }

    /// The handshake begins only now.
    pub(crate) fn begin_at(&mut self, now_ns: u64) {
        self.begun_ns = now_ns;
    }

    /// Whether each message is sealed as a record of its own.
    #[must_use]
    pub fn has_record_per_message(&self) -> bool {
        self.record_per_message
    }

    /// How much memory its own buffers hold; none while nothing is pending.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.kept.capacity() + self.early.capacity()
    }

    /// How many bytes wait for the handshake to be done.
    #[must_use]
    pub fn early_bytes(&self) -> usize {
        self.early.len()
    }

    /// Records have come, in pieces or many at once; a client's first call has none. They are opened in
    /// place. What they hold for the program is appended to `plain`, what is to be sent to `out`, and so
    /// is what waited for the handshake to be done.
    ///
    /// # Errors
    /// [`TlsError`]; what is in `out` then tells the peer. The connection is to be closed.
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

    /// Seals bytes of the program behind what is in `out`, as few records as hold them; or, if there is to
    /// be a record for each message, cut where `ends` say that one ends. Before the handshake is done they
    /// are kept.
    ///
    /// # Errors
    /// [`TlsError`] when too much has been sealed with these keys.
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

    /// As [`seal`](Self::seal), for what comes outside of a turn: refused when more would wait for the
    /// handshake than `bytes_max`.
    pub(crate) fn may_keep(&self, bytes: usize, bytes_max: usize) -> Result<(), Overflow> {
        let queued_bytes = self.early.len() + bytes;
        match self.ready || queued_bytes <= bytes_max {
            true => Ok(()),
            false => Err(Overflow { queued_bytes, queued_bytes_max: bytes_max }),
        }
    }

    /// Says good-bye, once; before the handshake is done there is nothing to say.
    pub fn part(&mut self, out: &mut Vec<u8>) {
        if !self.ready || self.parted {
            return;
        }
        self.parted = true;
        // Where nothing can be sealed any more the peer will see the end of the stream.
        let _ = self.with_traffic(out, |traffic, out| {
            let mut written = [0; 2 * SEAL_BYTES];
            if let Ok(count) = traffic.queue_close_notify(&mut written) {
                out.extend_from_slice(&written[..count]);
            }
            Ok(())
        });
    }

    /// Whether an earlier session was resumed; None before the handshake is done.
    #[must_use]
    pub fn is_resumed(&self) -> Option<bool> {
        self.common().handshake_kind().map(|kind| kind == HandshakeKind::Resumed)
    }

    /// The stream has ended before the peer has said good-bye.
    pub(crate) fn unfinished(&self) -> TlsError {
        TlsError::Unfinished
    }

    /// What rustls tells of both sides.
    pub(crate) fn common(&self) -> &CommonState {
        match &self.end {
            End::Server(end) => end,
            End::Client(end) => end,
        }
    }

    /// How many bytes the first record that is kept lacks; where it is kept although it is whole, as it is
    /// a part of a longer message, there is no telling.
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

    /// Whether a record has begun that has not come whole.
    pub(crate) fn is_within_record(&self) -> bool {
        // Where it is whole and kept all the same, more of its message is to come.
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

/// Either side, as far as they are the same.
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

/// What seals, whichever side it is of.
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

/// Opens what is whole of `records`, and answers what the handshake asks for. How many bytes are done with.
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
            // It stands in `out`, and goes with that.
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => opened.ended = true,
            // All that is whole is opened.
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

/// Has `f` seal, behind what the handshake, or new keys, have to say before.
fn with_traffic<S: Side>(
    side: &mut S,
    kept: &mut [u8],
    out: &mut Vec<u8>,
    f: impl FnOnce(&mut dyn Sealing, &mut Vec<u8>) -> Result<(), TlsError>,
) -> Result<(), TlsError> {
    loop {
        // What is kept is shown again, as rustls may have begun with it; there is no whole record in it.
        match side.step(kept).state.map_err(TlsError::of)? {
            ConnectionState::WriteTraffic(mut traffic) => return f(&mut traffic, out),
            ConnectionState::EncodeTlsData(mut data) => encode(|into| data.encode(into), out)?,
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => {}
            _ => return Err(TlsError::Unfinished),
        }
    }
}

/// A message of the handshake, behind what is in `out`.
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
