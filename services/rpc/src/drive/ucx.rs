//! UCX transport: frames as active messages, and a TCP connection beside them.
//!
//! The TCP connection is that of the handshake. After it, each end sends its [`Opening`]: the
//! address of its UCX worker, and a key that every message to this connection must contain. The
//! connection then stays open. Its end shows the end of the peer; an end that closes in an orderly
//! way first sends the number of its frames, so that the peer waits for those under way.

use super::bulk::{BulkMemory, TransferDirection};
use super::link::{AnyLink, Link, RemoteAccess};
use super::listen::system_call_error;
use super::poll::{EventSource, Poll};
use super::random::random_u128;
use super::socket;
use crate::engine::{FRAME_HEADER_BYTES, FrameHeader};
use crate::raw::{
    MemoryPiece, PeerFailure, Region, RemoteOperation, UcxConnection, UcxKey, UcxWorker,
};
use crate::{Address, CloseReason, EndpointError, FrameError};
use handover_base::sync::shared::{AtomicBool, Ordering};
use handover_lock::{TryLock, TryLockGuard};
use rustix::io::Errno;
use rustix::net::{getpeername, getsockname};
use std::any::Any;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Length, in bytes, of the fields before the address in an [`Opening`]. They are the word of the
/// connection, and the length of the address.
const OPENING_HEAD_BYTES: usize = 12;
/// Maximum length of the address of a peer's worker, in bytes.
const ADDRESS_BYTES_MAX: usize = 1 << 14;
/// Length, in bytes, of the frame count that an end sends before an orderly close.
const FRAMES_COUNT_BYTES: usize = 4;
/// Number of unhandled bytes above which the socket is not read.
const SOCKET_BYTES_MAX: usize = OPENING_HEAD_BYTES + ADDRESS_BYTES_MAX + FRAMES_COUNT_BYTES;
/// Number of bytes under way to a peer above which no bulk data is sent.
const DATA_OUTSTANDING_BYTES_MAX: usize = 1 << 22;
/// Number of consecutive idle polls after which no further frames of an exited peer are expected.
const IDLE_POLLS_MAX: u32 = 64;
/// Maximum number of polls in which the last frames of an exited peer are awaited.
const LAST_POLLS_MAX: u32 = 1 << 14;
/// Number of consecutive `UCS_ERR_BUSY` results of `ucp_worker_arm` after which the thread sleeps
/// nevertheless.
const BUSY_COUNT_MAX: u32 = 64;
/// Time, in ns, by which each further `UCS_ERR_BUSY` lengthens the sleep between polls.
const BUSY_INTERVAL_STEP_NS: u64 = 1_000;
/// Maximum duration of the sleep between polls after `UCS_ERR_BUSY`, in ns.
const BUSY_INTERVAL_NS_MAX: u64 = 10_000_000;

/// UCX worker of an endpoint, which the first `ucx://` address creates.
#[derive(Debug, Default)]
pub(crate) struct UcxDriver {
    worker: Option<SharedWorker>,
    /// `true` if the worker uses only the loopback interface.
    is_loopback: bool,
    /// Number of consecutive `UCS_ERR_BUSY` results of `ucp_worker_arm`.
    busy_count: u32,
    /// `true` if [`take_completed`](Self::take_completed) has operations to return.
    has_completed_operations: bool,
}

impl UcxDriver {
    /// Creates the worker, if there is none, and adds it to the epoll set.
    ///
    /// # Blocking
    /// Blocks for the lookup of the host's name, and some milliseconds for the library.
    pub(crate) fn start(&mut self, address: &Address, poll: &Poll) -> Result<(), EndpointError> {
        let refused = |why: String| EndpointError::Ucx { address: address.clone(), why };
        let is_loopback = is_loopback(address);
        if self.worker.is_some() {
            return match self.is_loopback && !is_loopback {
                true => Err(refused(ONLY_LOOPBACK.into())),
                false => Ok(()),
            };
        }
        let worker = UcxWorker::new(is_loopback).map_err(|error| refused(error.to_string()))?;
        let added = poll.add(worker.event_fd(), EventSource::Ucx);
        added.map_err(system_call_error("epoll_ctl", address))?;
        self.is_loopback = is_loopback;
        self.worker = Some(SharedWorker(Arc::new(TryLock::new(worker))));
        Ok(())
    }

    /// Sends and receives without waiting; returns `true` if there was any work.
    #[inline]
    pub(crate) fn progress(&mut self) -> bool {
        let Some(worker) = &self.worker else { return false };
        let mut worker = worker.lock();
        let did = worker.progress();
        self.has_completed_operations = worker.has_completed_operations();
        if did {
            self.busy_count = 0;
        }
        did
    }

    /// Returns `true` if [`take_completed`](Self::take_completed) has operations to return.
    #[inline]
    pub(crate) fn has_completed_operations(&self) -> bool {
        self.has_completed_operations
    }

    /// Returns the numbers of the completed operations, each with `true` if it has succeeded.
    pub(crate) fn take_completed(&mut self) -> Vec<(u64, bool)> {
        self.has_completed_operations = false;
        self.worker.as_ref().map_or_else(Vec::new, |it| it.lock().take_completed())
    }

    /// Prepares for sleeping; returns the maximum duration of the sleep in ns, or `None` for no
    /// limit.
    pub(crate) fn arm(&mut self) -> Option<u64> {
        let worker = self.worker.as_ref()?;
        if worker.lock().arm() {
            return None;
        }
        self.busy_count = self.busy_count.saturating_add(1);
        match self.busy_count {
            ..BUSY_COUNT_MAX => Some(0),
            // A message to a peer that has exited can keep the library busy for ever.
            count => Some((u64::from(count) * BUSY_INTERVAL_STEP_NS).min(BUSY_INTERVAL_NS_MAX)),
        }
    }

    /// Allocates zeroed memory that UCX can map at peers. Returns `None` if there is no worker, or
    /// the library refuses.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<Region> {
        self.worker.as_ref()?.lock().allocate(bytes).ok()
    }

    /// Returns the link of a connection whose handshake is complete.
    pub(crate) fn open_link(
        &self,
        socket: OwnedFd,
        body_bytes_max: u32,
    ) -> Result<AnyLink, CloseReason> {
        let worker = self.worker.clone().ok_or(FrameError::OtherTransport)?;
        Ok(AnyLink::Other(Box::new(UcxLink::new(worker, socket, body_bytes_max)?)))
    }
}

/// Reason why an address is refused if UCX uses only the loopback interface.
const ONLY_LOOPBACK: &str = "the first ucx:// address of this endpoint was on the loopback interface, to which UCX is \
                             therefore limited: use the other address first, or a further endpoint";

/// Returns `true` if the host of an address is on the loopback interface only.
fn is_loopback(address: &Address) -> bool {
    let host_port = address.without_scheme();
    if host_port.is_empty() {
        return true; // Listens at 127.0.0.1.
    }
    host_port.to_socket_addrs().is_ok_and(|mut hosts| hosts.all(|it| it.ip().is_loopback()))
}

/// Worker that the driver and the links of one endpoint share. The endpoint belongs to one thread
/// at a time, so the lock is always free.
#[derive(Debug, Clone)]
struct SharedWorker(Arc<TryLock<UcxWorker>>);

impl SharedWorker {
    #[inline]
    fn lock(&self) -> TryLockGuard<'_, UcxWorker> {
        self.0.lock()
    }
}

/// First message of each end on the TCP connection after the handshake.
struct Opening<'a> {
    /// Word that every UCX message to the sender of this opening must contain. It consists of an
    /// index and a random key.
    word: u64,
    /// Address of the sender's worker.
    address: &'a [u8],
}

impl<'a> Opening<'a> {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(OPENING_HEAD_BYTES + self.address.len());
        bytes.extend_from_slice(&self.word.to_le_bytes());
        // The address of a worker has some hundred bytes.
        bytes.extend_from_slice(&(self.address.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.address);
        bytes
    }

    /// Decodes an opening, and returns it with the bytes behind it. Returns `None` if it has not
    /// arrived completely.
    fn decode(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, FrameError> {
        let Some((word, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let Some((length, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let (word, length) = (u64::from_le_bytes(*word), u32::from_le_bytes(*length) as usize);
        if length == 0 || length > ADDRESS_BYTES_MAX {
            return Err(FrameError::InvalidValue);
        }
        Ok(rest.split_at_checked(length).map(|(address, rest)| (Self { word, address }, rest)))
    }
}

/// One end of a connection over UCX.
#[derive(Debug)]
struct UcxLink {
    worker: SharedWorker,
    id: UcxConnection,
    /// `true` if the worker has frames for this connection, or the connection has failed.
    has_news: Arc<AtomicBool>,
    /// Socket of the TCP connection over which the handshake was made.
    socket: OwnedFd,
    body_bytes_max: u32,
    /// Way in which a failure of the peer is detected.
    failure: PeerFailure,
    /// `true` if the worker is connected to the peer's worker.
    is_connected: bool,
    /// Frames that wait until the peer's opening has arrived.
    waiting: Vec<(FrameHeader, Vec<u8>)>,
    /// Total length of the waiting frames, in bytes.
    waiting_bytes: usize,
    /// `true` if the socket may have bytes to read, or may be at its end.
    is_readable: bool,
    /// Bytes from the socket that were not handled yet.
    received: Vec<u8>,
    /// `true` if the peer has closed the socket.
    has_ended: bool,
    /// Total number of the peer's frames, if the peer has closed the connection in an orderly way.
    final_count: Option<u32>,
    /// `true` if sending has failed. Frames are then discarded.
    has_hung_up: bool,
    /// `true` if this end has sent its frame count, before it closes.
    is_closed: bool,
    /// Number of bytes that UCX had not sent completely when last checked.
    outstanding_bytes: usize,
    /// Number of consecutive sweeps that found the peer's opening or its last frames missing.
    sweeps_count: u32,
}

impl UcxLink {
    /// Creates a link that is not connected yet, and sends this end's opening.
    fn new(
        worker: SharedWorker,
        socket: OwnedFd,
        body_bytes_max: u32,
    ) -> Result<Self, CloseReason> {
        let random = random_u128().map_err(CloseReason::from_system_call("getrandom"))? as u64;
        let (id, has_news, opening) = {
            let mut worker = worker.lock();
            let opened = worker.open(random);
            let (id, word, has_news) =
                opened.map_err(|error| CloseReason::Ucx(error.to_string().into()))?;
            let opening = Opening { word, address: worker.address() };
            (id, has_news, opening.encode())
        };
        let failure = match is_same_host(&socket) {
            true => PeerFailure::Noticed,
            false => PeerFailure::Reported,
        };
        let new = Self {
            worker,
            id,
            has_news,
            socket,
            body_bytes_max,
            failure,
            is_connected: false,
            waiting: Vec::new(),
            waiting_bytes: 0,
            is_readable: true,
            received: Vec::new(),
            has_ended: false,
            final_count: None,
            has_hung_up: false,
            is_closed: false,
            outstanding_bytes: 0,
            sweeps_count: 0,
        };
        match socket::send(new.socket.as_fd(), &opening) {
            Ok(sent) if sent == opening.len() => Ok(new),
            // The send buffer of a new connection has space for it.
            Ok(_) => Err(CloseReason::from_system_call("send")(Errno::NOBUFS)),
            Err(errno) => Err(CloseReason::from_system_call("send")(errno)),
        }
    }

    /// Reads the peer's opening and its frame count from the socket.
    #[cold]
    fn read_socket(&mut self) -> Result<(), CloseReason> {
        self.fill_received()?;
        if !self.is_connected {
            self.connect()?;
        }
        if self.is_connected {
            // Behind the opening, there is only the number of frames.
            if self.received.len() > FRAMES_COUNT_BYTES {
                return Err(FrameError::InvalidValue.into());
            }
            self.final_count = self.received[..].try_into().ok().map(u32::from_le_bytes);
        }
        Ok(())
    }

    /// Appends the available bytes of the socket to `received`.
    fn fill_received(&mut self) -> Result<(), CloseReason> {
        let mut bytes = [0; 1024];
        self.is_readable = false;
        while !self.has_ended && self.received.len() <= SOCKET_BYTES_MAX {
            match socket::receive(self.socket.as_fd(), &mut bytes) {
                // The peer may have closed the socket before it has read everything.
                Ok(0) | Err(Errno::CONNRESET) => self.has_ended = true,
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(CloseReason::from_system_call("recv")(errno)),
            }
        }
        Ok(())
    }

    /// Connects to the peer's worker if the peer's opening has arrived. Then sends the waiting
    /// frames.
    fn connect(&mut self) -> Result<(), CloseReason> {
        let Some((opening, rest)) = Opening::decode(&self.received)? else { return Ok(()) };
        let Opening { word, address } = opening;
        let connected = self.worker.lock().connect(self.id, address, word, self.failure);
        self.received = rest.to_vec();
        if let Err(error) = connected {
            // A peer that has already closed the connection cannot be connected to, but may have
            // sent frames.
            self.fill_received()?;
            if !self.has_ended {
                return Err(CloseReason::Ucx(error.to_string().into()));
            }
        }
        self.is_connected = true;
        self.waiting_bytes = 0;
        for (header, body) in std::mem::take(&mut self.waiting) {
            self.send(header, &body)?;
        }
        Ok(())
    }

    /// Sends a frame, or starts to send it; `fill` appends its body.
    #[inline]
    fn send_frame(&mut self, header: FrameHeader, fill: impl FnOnce(&mut Vec<u8>)) {
        match self.worker.lock().send(self.id, &header.encode(), fill) {
            Ok(outstanding_bytes) => self.outstanding_bytes = outstanding_bytes,
            // Not returned: receive() first returns what the peer has sent before.
            Err(_) => self.has_hung_up = true,
        }
    }

    /// Returns the next frame that has arrived. If there is none, records a failure of the
    /// connection in `has_hung_up`.
    #[inline]
    fn take_frame(&mut self, body: &mut Vec<u8>) -> Result<Option<FrameHeader>, CloseReason> {
        let mut worker = self.worker.lock();
        let Some(header) = worker.receive(self.id, body) else {
            self.has_hung_up |= worker.has_failed(self.id);
            return Ok(None);
        };
        let header = FrameHeader::decode(&header, self.body_bytes_max)?;
        match header.body_bytes as usize == body.len() {
            true => Ok(Some(header)),
            false => Err(FrameError::InvalidValue.into()),
        }
    }

    /// Returns the next remaining frame of an exited peer; after the last one, an error. Returns
    /// `None` while frames of an orderly end are missing.
    #[cold]
    fn take_last_frame(&mut self, body: &mut Vec<u8>) -> Result<Option<FrameHeader>, CloseReason> {
        let (has_failed, received_count) = {
            let worker = self.worker.lock();
            (worker.has_failed(self.id), worker.frame_counts(self.id).1)
        };
        if !has_failed && self.final_count.is_some_and(|count| count != received_count) {
            return Ok(None);
        }
        let (mut polls, mut idle_polls) = (0, 0);
        while polls < LAST_POLLS_MAX && idle_polls < IDLE_POLLS_MAX {
            idle_polls = if self.worker.lock().progress() { 0 } else { idle_polls + 1 };
            polls += 1;
        }
        self.take_frame(body)?.map_or(Err(CloseReason::ClosedByPeer), |header| Ok(Some(header)))
    }
}

impl Link for UcxLink {
    fn send(&mut self, header: FrameHeader, body: &[u8]) -> Result<(), CloseReason> {
        if self.has_hung_up {
            return Ok(());
        }
        if !self.is_connected {
            self.waiting_bytes += FRAME_HEADER_BYTES + body.len();
            self.waiting.push((header, body.to_vec()));
            return Ok(());
        }
        self.send_frame(header, |message| message.extend_from_slice(body));
        Ok(())
    }

    fn receive(
        &mut self,
        body: &mut Vec<u8>,
        _eager: bool,
    ) -> Result<Option<FrameHeader>, CloseReason> {
        if self.is_readable {
            self.read_socket()?;
        }
        // Relaxed: written by the worker, which this thread drives.
        if !self.has_news.load(Ordering::Relaxed) && !self.has_ended && !self.has_hung_up {
            return Ok(None);
        }
        match self.take_frame(body)? {
            None if self.has_ended || self.has_hung_up => self.take_last_frame(body),
            taken => Ok(taken),
        }
    }

    fn flush(&mut self) -> Result<bool, CloseReason> {
        let before = self.outstanding_bytes;
        self.outstanding_bytes = self.worker.lock().outstanding_bytes(self.id);
        Ok(self.outstanding_bytes < before)
    }

    fn queued_bytes(&self) -> usize {
        self.outstanding_bytes + self.waiting_bytes + usize::from(self.has_hung_up)
    }

    fn is_open(&self) -> bool {
        self.is_connected
    }

    fn has_hung_up(&self) -> bool {
        self.has_hung_up
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn on_ready(&mut self, _reads_until_empty: bool) {
        self.is_readable = true;
    }

    fn is_in_shared_memory(&self) -> bool {
        false
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn needs_sweep(&self) -> bool {
        !self.is_connected || self.final_count.is_some()
    }

    fn sweep(&mut self) -> u32 {
        self.sweeps_count = if self.needs_sweep() { self.sweeps_count + 1 } else { 0 };
        self.sweeps_count
    }

    fn close(&mut self) {
        if self.is_connected && !self.has_hung_up && !std::mem::replace(&mut self.is_closed, true) {
            let frames_count = self.worker.lock().frame_counts(self.id).0;
            // An error means that the peer has already closed the connection.
            let _ = socket::send(self.socket.as_fd(), &frames_count.to_le_bytes());
        }
    }

    fn remote_access(&mut self) -> Option<&mut dyn RemoteAccess> {
        if self.is_connected { Some(self) } else { None }
    }

    fn duplicate_socket(&self) -> Option<OwnedFd> {
        self.socket.try_clone().ok()
    }

    fn send_data(
        &mut self,
        header: FrameHeader,
        memory: &BulkMemory,
        offset: u64,
    ) -> Result<bool, CloseReason> {
        if self.has_hung_up {
            return Ok(true);
        }
        if !self.is_connected || self.outstanding_bytes > DATA_OUTSTANDING_BYTES_MAX {
            return Ok(false);
        }
        self.send_frame(header, |message| {
            let start = message.len();
            message.resize(start + header.body_bytes as usize, 0);
            memory.read(offset, &mut message[start..]);
        });
        Ok(true)
    }
}

impl RemoteAccess for UcxLink {
    fn register(&mut self, region: &Arc<Region>) -> Option<(Box<dyn Any + Send + Sync>, Vec<u8>)> {
        let (registration, key) = self.worker.lock().register(region).ok()?;
        Some((Box::new(registration), key))
    }

    fn unpack_key(&mut self, packed: &[u8]) -> Option<usize> {
        self.worker.lock().unpack_key(self.id, packed).ok().map(|key| key.0)
    }

    fn destroy_keys(&mut self, keys: &[usize]) {
        self.worker.lock().destroy_keys(self.id, keys);
    }

    fn start_copy(
        &mut self,
        direction: TransferDirection,
        (key, address): (usize, u64),
        ours: MemoryPiece<'_>,
        number: u64,
        owner: Box<dyn Any + Send>,
    ) -> Result<bool, CloseReason> {
        let operation = match direction {
            TransferDirection::Pull => RemoteOperation::Get,
            TransferDirection::Push => RemoteOperation::Put,
        };
        let theirs = (self.id, UcxKey(key), address);
        let started = self.worker.lock().start_remote(operation, theirs, ours, number, owner);
        started.map_err(|error| CloseReason::Ucx(error.to_string().into()))
    }

    fn start_flush(&mut self, number: u64) -> Result<bool, CloseReason> {
        let started = self.worker.lock().start_flush(self.id, number);
        started.map_err(|error| CloseReason::Ucx(error.to_string().into()))
    }
}

impl Drop for UcxLink {
    fn drop(&mut self) {
        self.close();
        let is_peer_gone = self.has_hung_up || self.has_ended && self.final_count.is_none();
        self.worker.lock().close(self.id, is_peer_gone);
    }
}

/// Returns `true` if both ends of a TCP connection have the same IP address.
fn is_same_host(socket: &OwnedFd) -> bool {
    let ip = |it: rustix::net::SocketAddrAny| SocketAddr::try_from(it).ok().map(|it| it.ip());
    let own = getsockname(socket).ok().and_then(ip);
    own.is_some() && own == getpeername(socket).ok().flatten().and_then(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_is_decoded_once_it_is_complete_and_refused_if_it_is_too_long() {
        let bytes = Opening { word: u64::MAX - 1, address: &[1, 2, 3] }.encode();
        for length in 0..bytes.len() {
            assert!(Opening::decode(&bytes[..length]).expect("it is allowed").is_none());
        }
        let more = [&bytes[..], &[9]].concat();
        let (opening, rest) =
            Opening::decode(&more).expect("it is allowed").expect("it is complete");
        assert_eq!((opening.word, opening.address), (u64::MAX - 1, &[1, 2, 3][..]));
        assert_eq!(rest, [9]);
        let long = vec![0; ADDRESS_BYTES_MAX + 1];
        for address in [&[][..], &long] {
            let refused = Opening::decode(&Opening { word: 0, address }.encode()).map(drop);
            assert_eq!(refused, Err(FrameError::InvalidValue));
        }
    }
}
