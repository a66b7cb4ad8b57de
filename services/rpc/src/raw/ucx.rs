//! UCX: a worker, its connections to other workers, and the frames that travel between them as
//! active messages.
//!
//! All methods take the worker exclusively, and the library calls back only within them: so the
//! callbacks, which get the address of [`Shared`], run while no reference to it exists.

pub(crate) mod library;
mod remote;

use crate::config::PEERS_MAX_LIMIT;
use crate::engine::FRAME_HEADER_BYTES;
use core::ffi::{CStr, c_int, c_void};
use core::ptr::{NonNull, null, null_mut};
use handover_base::sync::shared::{AtomicBool, Ordering};
use library::*;
use remote::KeyTable;
pub(crate) use remote::{RemoteOperation, UcxKey};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Identifier of this crate's active messages in UCX.
const MESSAGE_ID: u32 = 0;
/// Number of bits, in a message's first word, for the index of the receiver's connection. The other
/// bits contain the connection's key.
const INDEX_BITS: u32 = 20;
const _: () = assert!(PEERS_MAX_LIMIT <= 1 << INDEX_BITS);
/// Mask of the key in the first word of a message.
const KEY_MASK: u64 = u64::MAX << INDEX_BITS;
// A message of at most 28 bytes is on the first cache line of an element in UCX's shared memory,
// which saved 0.1 us each way: so the length of the body is not sent, of the frame's number only
// the low bits, and the method only if it is not zero. 2026-11.
/// Length of the shortest message, in bytes: key and index, number of the frame, kind, and call.
const MESSAGE_BYTES_MIN: usize = 19;
/// Flag, in the byte of the frame's kind, of a message that contains the method.
const METHOD_FLAG: u8 = 1 << 7;
/// Maximum number of frames that a frame may overtake. It is less than half of the range of the
/// number in a message.
const EARLY_FRAMES_MAX: u16 = 1 << 14;
/// Size, in bytes, of the unread frames, without early ones, above which the worker receives no
/// more.
const ARRIVED_BYTES_MAX: usize = 1 << 24;
/// Size of a connection's frames that have overtaken a missing one, in bytes, above which a further
/// one fails the connection.
const EARLY_BYTES_MAX: usize = 1 << 24;
/// Maximum number of spare buffers.
const SPARE_BUFFERS_MAX: usize = 64;
/// Maximum capacity of a spare buffer, in bytes.
const SPARE_BUFFER_BYTES_MAX: usize = 1 << 16;
/// Maximum time for which a dropped worker waits until peers have received what was sent to them.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which a dropped worker is driven while it waits.
const CLOSE_INTERVAL: Duration = Duration::from_micros(100);
/// Kinds of memory that UCX tries to allocate, in order. It is the default order but for POSIX
/// segments first: a SysV segment is open to the user's group, a POSIX one to the user alone.
const ALLOC_PRIO: &CStr = c"md:posix,md:sysv,huge,thp,md:*,mmap,heap";
/// Number of zero bytes appended to a peer's address or key. The library does not know its length.
const ADDRESS_PADDING_BYTES: usize = 4096;

/// Error of the library: the function that failed, and the text of its status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text}")]
pub(crate) struct UcxError {
    call: &'static str,
    text: String,
}

/// Index of a connection in its worker's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UcxConnection(pub(crate) u32);

/// Way in which the failure of a connection's peer is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerFailure {
    /// The library reports the failure, and uses only transports that can do so.
    Reported,
    /// The caller notices the failure, and the library may use shared memory.
    Noticed,
}

/// Frame that has arrived.
struct ArrivedFrame {
    header: [u8; FRAME_HEADER_BYTES],
    body: Vec<u8>,
}

impl ArrivedFrame {
    /// Returns the size of the frame in bytes.
    fn bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.body.len()
    }
}

/// State of one connection of a worker.
struct ConnectionState {
    /// First word of each message to this connection: its index, and a random key.
    own_word: u64,
    /// First word of each message to the peer.
    peer_word: u64,
    /// The library's endpoint; null before the connection is established, and after it is closed.
    endpoint: *mut c_void,
    /// Way in which a failure of the peer is detected.
    failure: PeerFailure,
    /// Number of frames that were sent.
    sent_count: u32,
    /// Number of frames that have arrived in order.
    received_count: u32,
    /// Frames that have arrived in order and were not taken yet.
    arrived: VecDeque<ArrivedFrame>,
    /// `true` if `arrived` is not empty, or the connection has failed.
    has_news: Arc<AtomicBool>,
    /// Frames that have overtaken others, by number.
    early: HashMap<u32, ArrivedFrame>,
    /// Size of the frames in `early`, in bytes.
    early_bytes: usize,
    /// Number of bytes of messages that the library has not sent completely.
    outstanding_bytes: usize,
    /// Number of messages and memory operations that the library has not completed.
    outstanding_count: usize,
    /// Status with which the connection has failed.
    failed: Option<Status>,
    /// `true` once this end has closed the connection.
    is_closed: bool,
    /// `true` while the library closes the endpoint.
    is_endpoint_closing: bool,
    /// Keys of the peer's memories.
    keys: KeyTable,
}

/// State that the callbacks of the library access.
struct Shared {
    functions: &'static Functions,
    connections: Vec<Option<ConnectionState>>,
    /// Size of all frames that have arrived in order and were not taken yet, in bytes. Frames that
    /// have overtaken a missing one do not count: while the worker receives nothing, the missing
    /// one does not arrive.
    arrived_bytes: usize,
    spare_buffers: Vec<Vec<u8>>,
    /// Numbers of the completed operations on peers' memory, each with `true` if it has succeeded.
    completed: Vec<(u64, bool)>,
}

/// Argument of the callbacks for a sent message and for a closed endpoint.
struct Job {
    shared: NonNull<Shared>,
    connection: UcxConnection,
    message: Vec<u8>,
}

/// Message that has arrived.
struct Message<'a> {
    /// First word: the key and the index of the receiver's connection.
    word: u64,
    /// Low bits of the number of the frame.
    number: u16,
    header: [u8; FRAME_HEADER_BYTES],
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Appends the fields of a message that precede its body.
    #[inline]
    fn encode_head(into: &mut Vec<u8>, word: u64, number: u32, header: &[u8; FRAME_HEADER_BYTES]) {
        let (kind, method, call) = (header[4], &header[8..16], &header[16..]);
        let has_method = *method != [0; 8];
        into.extend_from_slice(&word.to_le_bytes());
        into.extend_from_slice(&(number as u16).to_le_bytes()); // The low bits.
        into.push(kind | if has_method { METHOD_FLAG } else { 0 });
        into.extend_from_slice(call);
        if has_method {
            into.extend_from_slice(method);
        }
    }

    /// Decodes a message; returns `None` if it is too short or too long.
    #[inline]
    fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (word, rest) = bytes.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (&kind, rest) = rest.split_first()?;
        let (call, rest) = rest.split_first_chunk::<8>()?;
        let none = [0; 8];
        let (method, body) = match kind & METHOD_FLAG {
            0 => (&none, rest),
            _ => rest.split_first_chunk()?,
        };
        let mut header = [0; FRAME_HEADER_BYTES];
        header[..4].copy_from_slice(&u32::try_from(body.len()).ok()?.to_le_bytes());
        header[4] = kind & !METHOD_FLAG;
        header[8..16].copy_from_slice(method);
        header[16..].copy_from_slice(call);
        let (word, number) = (u64::from_le_bytes(*word), u16::from_le_bytes(*number));
        Some(Self { word, number, header, body })
    }
}

impl ConnectionState {
    /// Creates the state of a connection that is not established yet.
    fn new(own_word: u64, has_news: Arc<AtomicBool>) -> Self {
        Self {
            own_word,
            peer_word: 0,
            endpoint: null_mut(),
            failure: PeerFailure::Noticed,
            sent_count: 0,
            received_count: 0,
            arrived: VecDeque::new(),
            has_news,
            early: HashMap::new(),
            early_bytes: 0,
            outstanding_bytes: 0,
            outstanding_count: 0,
            failed: None,
            is_closed: false,
            is_endpoint_closing: false,
            keys: KeyTable::new(),
        }
    }

    /// Adds a frame; `ahead` is the number of frames before it that have not arrived. Returns the
    /// size, in bytes, of the frames that have arrived in order by it.
    fn accept(&mut self, ahead: u16, frame: ArrivedFrame) -> usize {
        if ahead > 0 {
            self.keep_early(self.received_count.wrapping_add(ahead.into()), frame);
            return 0;
        }
        let mut bytes = frame.bytes();
        self.arrived.push_back(frame);
        self.record_news();
        self.received_count = self.received_count.wrapping_add(1);
        while !self.early.is_empty()
            && let Some(next) = self.early.remove(&self.received_count)
        {
            self.early_bytes -= next.bytes();
            bytes += next.bytes();
            self.arrived.push_back(next);
            self.received_count = self.received_count.wrapping_add(1);
        }
        bytes
    }

    /// Keeps a frame that has overtaken others, unless one with the same number is there. Fails the
    /// connection if there are too many bytes.
    #[cold]
    fn keep_early(&mut self, number: u32, frame: ArrivedFrame) {
        if self.early_bytes > EARLY_BYTES_MAX {
            self.failed.get_or_insert(ERR_EXCEEDS_LIMIT);
            self.record_news();
        } else if let Entry::Vacant(vacant) = self.early.entry(number) {
            self.early_bytes += frame.bytes();
            vacant.insert(frame);
        }
    }

    /// Records that there is a frame to take, or that the connection has failed.
    fn record_news(&self) {
        // Relaxed: the thread that reads it is the one that drives the worker.
        self.has_news.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn get(&self, id: UcxConnection) -> Option<&ConnectionState> {
        self.connections.get(id.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: UcxConnection) -> Option<&mut ConnectionState> {
        self.connections.get_mut(id.0 as usize)?.as_mut()
    }

    /// Keeps a buffer for a later message, unless it is too large or there are enough.
    fn keep_buffer(&mut self, mut buffer: Vec<u8>) {
        if self.spare_buffers.len() < SPARE_BUFFERS_MAX
            && buffer.capacity() <= SPARE_BUFFER_BYTES_MAX
        {
            buffer.clear();
            self.spare_buffers.push(buffer);
        }
    }

    /// Adds a received message to the frames of its connection. Messages without a connection's key
    /// are dropped.
    fn accept(&mut self, message: &[u8]) {
        let Some(Message { word, number, header, body }) = Message::decode(message) else { return };
        let index = (word & !KEY_MASK) as usize; // At most INDEX_BITS bits.
        let known = self.connections.get_mut(index).and_then(Option::as_mut);
        let Some(connection) = known.filter(|it| it.own_word == word && !it.is_closed) else {
            return;
        };
        // The cast keeps the bits that a message contains.
        let ahead = number.wrapping_sub(connection.received_count as u16);
        if ahead >= EARLY_FRAMES_MAX {
            return;
        }
        let mut copy = self.spare_buffers.pop().unwrap_or_default();
        copy.extend_from_slice(body);
        self.arrived_bytes += connection.accept(ahead, ArrivedFrame { header, body: copy });
    }

    /// Records that a message or memory operation is complete, or has failed.
    fn finish_message(&mut self, id: UcxConnection, bytes: usize, status: Status) {
        let Some(connection) = self.get_mut(id) else { return };
        connection.outstanding_bytes -= bytes;
        connection.outstanding_count -= 1;
        if status < OK && connection.failed.is_none() {
            connection.failed = Some(status);
            connection.record_news();
        }
        self.free_if_closed(id);
    }

    /// Records that the endpoint of a connection is closed.
    fn finish_close(&mut self, id: UcxConnection) {
        if let Some(closed) = self.get_mut(id) {
            (closed.endpoint, closed.is_endpoint_closing) = (null_mut(), false);
        }
        self.free_if_closed(id);
    }

    /// Frees the entry of a closed connection once the library has completed all its operations.
    fn free_if_closed(&mut self, id: UcxConnection) {
        let is_over = |it: &ConnectionState| {
            it.is_closed && it.endpoint.is_null() && it.outstanding_count == 0
        };
        if self.get(id).is_some_and(is_over)
            && let Some(closed) = self.connections[id.0 as usize].take()
        {
            closed.keys.destroy_all(self.functions);
        }
    }
}

/// Receives an active message.
///
/// # Safety
/// The library calls this with the argument that [`UcxWorker::new`] has registered, and with
/// `length` bytes of data.
unsafe extern "C" fn on_message(
    argument: *mut c_void,
    _header: *const c_void,
    _header_length: usize,
    data: *mut c_void,
    length: usize,
    parameters: *const MessageParameters,
) -> Status {
    // SAFETY: the library passes valid parameters.
    let attributes = unsafe { (*parameters).recv_attr };
    if attributes & AM_RECV_ATTR_FLAG_RNDV != 0 || length < MESSAGE_BYTES_MIN {
        return OK; // Not of this crate, which sends every message with its data.
    }
    // SAFETY: the library passes `length` bytes, more than 0, that are valid during this call.
    let message = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) };
    // SAFETY: the address of the worker's `Shared`, which is freed after the worker; no reference
    // to it exists while the library runs.
    unsafe { &mut *argument.cast::<Shared>() }.accept(message);
    OK
}

/// Records that the peer of an endpoint has failed.
///
/// # Safety
/// The library calls this with the argument of the endpoint, which is that of [`on_message`].
unsafe extern "C" fn on_failure(argument: *mut c_void, endpoint: *mut c_void, status: Status) {
    // SAFETY: as in on_message().
    let shared = unsafe { &mut *argument.cast::<Shared>() };
    let mut connections = shared.connections.iter_mut().flatten();
    if let Some(connection) = connections.find(|it| it.endpoint == endpoint) {
        connection.failed = Some(status);
        connection.record_news();
    }
}

/// Frees a message that was sent or has failed.
///
/// # Safety
/// The library calls this once, with a request of [`UcxWorker::send`] and its job.
unsafe extern "C" fn on_sent(request: *mut c_void, status: Status, job: *mut c_void) {
    // SAFETY: send() has made the box, and has left it to this callback.
    let job = unsafe { Box::from_raw(job.cast::<Job>()) };
    let Job { mut shared, connection, message } = *job;
    // SAFETY: as in on_message().
    let shared = unsafe { shared.as_mut() };
    shared.finish_message(connection, message.len(), status);
    shared.keep_buffer(message);
    // SAFETY: the request of a callback is complete, and is freed here alone.
    unsafe { (shared.functions.request_free)(request) };
}

/// Records that an endpoint is closed.
///
/// # Safety
/// The library calls this once, with a request of [`UcxWorker::close`] and its job.
unsafe extern "C" fn on_closed(request: *mut c_void, _status: Status, job: *mut c_void) {
    // SAFETY: close() has made the box, and has left it to this callback.
    let job = unsafe { Box::from_raw(job.cast::<Job>()) };
    let Job { mut shared, connection, .. } = *job;
    // SAFETY: as in on_message().
    let shared = unsafe { shared.as_mut() };
    shared.finish_close(connection);
    // SAFETY: the request of a callback is complete, and is freed here alone.
    unsafe { (shared.functions.request_free)(request) };
}

/// Context of the library: its transports and devices.
struct UcxContext {
    functions: &'static Functions,
    context: *mut c_void,
}

// SAFETY: the context was made for several threads (mt_workers_shared), and only one of them drops
// it.
unsafe impl Send for UcxContext {}
// SAFETY: as above; the library locks what these threads share.
unsafe impl Sync for UcxContext {}

impl UcxContext {
    /// Initialises the library. Its environment variables apply. If `is_loopback`, and no variable
    /// names the devices, only the loopback interface is used.
    fn new(functions: &'static Functions, is_loopback: bool) -> Result<Self, UcxError> {
        let mut config = null_mut();
        // SAFETY: null is allowed for the prefix and the file; `config` is writable.
        let status = unsafe { (functions.config_read)(null(), null(), &raw mut config) };
        check(functions, "ucp_config_read", status)?;
        if is_loopback && std::env::var_os("UCX_NET_DEVICES").is_none() {
            let (name, value): (&CStr, &CStr) = (c"NET_DEVICES", c"lo");
            // SAFETY: the configuration just read, and two texts that end with zeros. An error is
            // ignored: the devices then are the default ones.
            unsafe { (functions.config_modify)(config, name.as_ptr(), value.as_ptr()) };
        }
        if std::env::var_os("UCX_ALLOC_PRIO").is_none() {
            // SAFETY: as above. An error is ignored: then the kinds of memory have the default
            // order.
            unsafe {
                (functions.config_modify)(config, c"ALLOC_PRIO".as_ptr(), ALLOC_PRIO.as_ptr())
            };
        }
        let parameters = ContextParameters {
            field_mask: ContextParameters::FEATURES | ContextParameters::MT_WORKERS_SHARED,
            features: FEATURE_AM | FEATURE_RMA | FEATURE_WAKEUP,
            unused: [0; 4],
            mt_workers_shared: 1,
            unused_too: [0; 3],
        };
        let (mut context, (major, minor)) = (null_mut(), API_VERSION);
        // SAFETY: the parameters have the layout of the header, and `context` is writable.
        let status = unsafe {
            (functions.init_version)(major, minor, &raw const parameters, config, &raw mut context)
        };
        // SAFETY: the configuration that was read above, for the last time.
        unsafe { (functions.config_release)(config) };
        check(functions, "ucp_init", status)?;
        Ok(Self { functions, context })
    }
}

impl Drop for UcxContext {
    fn drop(&mut self) {
        // SAFETY: new() has made the context, and its worker was destroyed before.
        unsafe { (self.functions.cleanup)(self.context) };
    }
}

/// Returns an error, with the text of the status, if the function `call` has failed.
fn check(functions: &Functions, call: &'static str, status: Status) -> Result<(), UcxError> {
    match status {
        OK => Ok(()),
        status => Err(UcxError { call, text: functions.status_text(status) }),
    }
}

/// Returns the parameters of an operation with a callback.
fn request_parameters(
    flags: u32,
    callback: CompletionCallback,
    job: *mut Job,
) -> RequestParameters {
    RequestParameters {
        op_attr_mask: OP_ATTR_FIELD_CALLBACK | OP_ATTR_FIELD_USER_DATA | OP_ATTR_FIELD_FLAGS,
        flags,
        request: null_mut(),
        callback: Some(callback),
        datatype: 0,
        user_data: job.cast(),
        unused: [0; 4],
    }
}

/// Worker of the library, with its connections.
pub(crate) struct UcxWorker {
    functions: &'static Functions,
    worker: *mut c_void,
    /// Context of the worker. It is dropped after the worker was destroyed.
    context: Arc<UcxContext>,
    event_fd: c_int,
    address: Box<[u8]>,
    /// State for the callbacks, in a box that drop() frees.
    shared: NonNull<Shared>,
    /// Job of an earlier message, to be reused for the next.
    spare_job: Option<Box<Job>>,
}

// SAFETY: the worker's thread mode allows any thread, one at a time, and all methods that call the
// library take `&mut self`. The other pointers are to memory that only this value and the callbacks
// access.
unsafe impl Send for UcxWorker {}

handover_base::debug_struct!(UcxWorker as it { event_fd: it.event_fd });

impl UcxWorker {
    /// Creates a worker. If `is_loopback`, and no variable names the devices, it uses only the
    /// loopback interface.
    pub(crate) fn new(is_loopback: bool) -> Result<Self, UcxError> {
        let functions = functions().map_err(|why| UcxError { call: "dlopen", text: why.into() })?;
        let context = UcxContext::new(functions, is_loopback)?;
        let parameters = WorkerParameters {
            field_mask: WorkerParameters::THREAD_MODE | WorkerParameters::FLAGS,
            thread_mode: THREAD_MODE_SERIALIZED,
            cpu_mask: [0; 16],
            events: 0,
            user_data: null_mut(),
            event_fd: 0,
            flags: WORKER_FLAG_IGNORE_REQUEST_LEAK,
            unused: [0; 3],
        };
        let mut worker = null_mut();
        // SAFETY: the context was just made, the parameters have the layout of the header, and
        // `worker` is writable.
        let status = unsafe {
            (functions.worker_create)(context.context, &raw const parameters, &raw mut worker)
        };
        check(functions, "ucp_worker_create", status)?;
        let shared = Box::new(Shared {
            functions,
            connections: Vec::new(),
            arrived_bytes: 0,
            spare_buffers: Vec::new(),
            completed: Vec::new(),
        });
        let mut new = Self {
            functions,
            worker,
            context: Arc::new(context),
            event_fd: -1,
            address: Box::default(),
            shared: NonNull::from(Box::leak(shared)),
            spare_job: None,
        };
        // From here on, an error drops `new` and with it the worker.
        // SAFETY: the worker was just made, and `event_fd` is writable.
        let status = unsafe { (functions.worker_get_efd)(worker, &raw mut new.event_fd) };
        check(functions, "ucp_worker_get_efd", status)?;
        let handler = HandlerParameters {
            field_mask: HandlerParameters::ALL_FIELDS,
            id: MESSAGE_ID,
            flags: AM_FLAG_WHOLE_MSG,
            callback: Some(on_message),
            argument: new.shared.as_ptr().cast(),
        };
        // SAFETY: the handler has the type that the library calls, and its argument is freed after
        // the worker.
        let status = unsafe { (functions.worker_set_am_recv_handler)(worker, &raw const handler) };
        check(functions, "ucp_worker_set_am_recv_handler", status)?;
        let (mut address, mut bytes) = (null_mut(), 0);
        // SAFETY: both variables are writable.
        let status =
            unsafe { (functions.worker_get_address)(worker, &raw mut address, &raw mut bytes) };
        check(functions, "ucp_worker_get_address", status)?;
        // SAFETY: the library has allocated `bytes` bytes there, and frees them below.
        new.address = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), bytes) }.into();
        // SAFETY: the address of this worker, for the last time.
        unsafe { (functions.worker_release_address)(worker, address) };
        Ok(new)
    }

    /// Returns the descriptor that reports work for [`progress`](Self::progress). It becomes
    /// readable if [`arm`](Self::arm) has returned `true` before.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the library keeps the descriptor open until the worker is destroyed, and `self`
        // is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.event_fd) }
    }

    /// Returns the address at which other workers reach this one.
    pub(crate) fn address(&self) -> &[u8] {
        &self.address
    }

    fn shared(&self) -> &Shared {
        // SAFETY: new() has made it from a box. Only this value and the callbacks access it, and no
        // callback runs, as no method that calls the library holds this reference meanwhile.
        unsafe { self.shared.as_ref() }
    }

    fn shared_mut(&mut self) -> &mut Shared {
        // SAFETY: as in shared().
        unsafe { self.shared.as_mut() }
    }

    /// Sends and receives without waiting; returns `true` if there was any work.
    #[inline]
    pub(crate) fn progress(&mut self) -> bool {
        if self.shared().arrived_bytes > ARRIVED_BYTES_MAX {
            return false;
        }
        // SAFETY: the worker exists, and this call has it exclusively.
        unsafe { (self.functions.worker_progress)(self.worker) > 0 }
    }

    /// Prepares the event descriptor for sleeping; returns `false` if there is work to do first.
    pub(crate) fn arm(&mut self) -> bool {
        // SAFETY: as in progress().
        let status = unsafe { (self.functions.worker_arm)(self.worker) };
        status != ERR_BUSY
    }

    /// Adds a connection to which frames can arrive. Returns the connection, the word that these
    /// frames must contain (made of `random`), and a flag that is `true` if
    /// [`receive`](Self::receive) has something to return. Fails if there are 2^20 connections; a
    /// closed one counts until its last operations are complete.
    pub(crate) fn open(
        &mut self,
        random: u64,
    ) -> Result<(UcxConnection, u64, Arc<AtomicBool>), UcxError> {
        let has_news = Arc::new(AtomicBool::new(false));
        let connections = &mut self.shared_mut().connections;
        let index = connections.iter().position(Option::is_none).unwrap_or(connections.len());
        if index >> INDEX_BITS != 0 {
            return Err(UcxError { call: "connect", text: "too many connections".into() });
        }
        let own_word = (random & KEY_MASK) | index as u64;
        let new = ConnectionState::new(own_word, Arc::clone(&has_news));
        match connections.get_mut(index) {
            Some(slot) => *slot = Some(new),
            None => connections.push(Some(new)),
        }
        // At most INDEX_BITS bits, as checked above.
        Ok((UcxConnection(index as u32), own_word, has_news))
    }

    /// Connects to the peer's worker. `peer_word` identifies the connection there.
    pub(crate) fn connect(
        &mut self,
        id: UcxConnection,
        address: &[u8],
        peer_word: u64,
        failure: PeerFailure,
    ) -> Result<(), UcxError> {
        let mut padded = Vec::with_capacity(address.len() + ADDRESS_PADDING_BYTES);
        padded.extend_from_slice(address);
        padded.resize(address.len() + ADDRESS_PADDING_BYTES, 0);
        let parameters = EndpointParameters {
            field_mask: EndpointParameters::REMOTE_ADDRESS
                | EndpointParameters::ERR_HANDLING_MODE
                | EndpointParameters::ERR_HANDLER,
            address: padded.as_ptr().cast(),
            err_mode: match failure {
                PeerFailure::Reported => ERR_HANDLING_MODE_PEER,
                PeerFailure::Noticed => ERR_HANDLING_MODE_NONE,
            },
            error_callback: Some(on_failure),
            error_argument: self.shared.as_ptr().cast(),
            unused: [0; 8],
        };
        let mut endpoint = null_mut();
        // SAFETY: the worker exists; the parameters have the layout of the header; the address is
        // followed by zeros, so that reading a malformed one stays within the vector for as far as
        // its fields are long; the argument of the callback is freed after the worker.
        let status = unsafe {
            (self.functions.ep_create)(self.worker, &raw const parameters, &raw mut endpoint)
        };
        check(self.functions, "ucp_ep_create", status)?;
        if let Some(connection) = self.shared_mut().get_mut(id) {
            connection.endpoint = endpoint;
            connection.peer_word = peer_word;
            connection.failure = failure;
        }
        Ok(())
    }

    /// Sends a frame, or starts to send it; `fill` appends its body. Returns the number of bytes
    /// that are being sent; fails if the connection has failed.
    #[inline]
    pub(crate) fn send(
        &mut self,
        id: UcxConnection,
        header: &[u8; FRAME_HEADER_BYTES],
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<usize, UcxError> {
        let (shared_ptr, spare) = (self.shared, self.spare_job.take());
        let shared = self.shared_mut();
        let mut job = spare.unwrap_or_else(|| {
            let message = shared.spare_buffers.pop().unwrap_or_default();
            Box::new(Job { shared: shared_ptr, connection: id, message })
        });
        let functions = shared.functions;
        let error =
            |status| UcxError { call: "ucp_am_send_nbx", text: functions.status_text(status) };
        let Some(connection) = shared.get_mut(id).filter(|it| !it.endpoint.is_null()) else {
            return Err(UcxError { call: "ucp_am_send_nbx", text: "not connected".into() });
        };
        if let Some(status) = connection.failed {
            return Err(error(status));
        }
        let (word, number) = (connection.peer_word, connection.sent_count);
        job.connection = id;
        job.message.clear();
        Message::encode_head(&mut job.message, word, number, header);
        fill(&mut job.message);
        let (bytes, start) = (job.message.len(), job.message.as_ptr());
        connection.sent_count = number.wrapping_add(1);
        connection.outstanding_bytes += bytes;
        connection.outstanding_count += 1;
        let endpoint = connection.endpoint;
        let job = Box::into_raw(job);
        let parameters = request_parameters(AM_SEND_FLAG_EAGER, on_sent, job);
        // SAFETY: the endpoint exists, as on_closed() clears the pointer; the message stays where
        // it is until on_sent() or the code below frees the job; the parameters have the layout of
        // the header.
        let pointer = unsafe {
            let (id, data) = (MESSAGE_ID, start.cast());
            (functions.am_send_nbx)(endpoint, id, null(), 0, data, bytes, &raw const parameters)
        };
        let status = match Started::from_pointer(pointer) {
            Started::Pending => return Ok(self.outstanding_bytes(id)),
            Started::Completed => OK,
            Started::Failed(status) => status,
        };
        // SAFETY: the box was made above, and the callback is not called for an operation without a
        // request.
        let mut job = unsafe { Box::from_raw(job) };
        self.shared_mut().finish_message(id, bytes, status);
        if job.message.capacity() > SPARE_BUFFER_BYTES_MAX {
            job.message = Vec::new();
        }
        self.spare_job = Some(job);
        if status < OK { Err(error(status)) } else { Ok(self.outstanding_bytes(id)) }
    }

    /// Removes and returns the header of the next frame that has arrived. Replaces the contents of
    /// `body` by the frame's body.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        id: UcxConnection,
        body: &mut Vec<u8>,
    ) -> Option<[u8; FRAME_HEADER_BYTES]> {
        let shared = self.shared_mut();
        let connection = shared.get_mut(id)?;
        let mut frame = connection.arrived.pop_front()?;
        if connection.arrived.is_empty() && connection.failed.is_none() {
            // Relaxed: as in record_news().
            connection.has_news.store(false, Ordering::Relaxed);
        }
        shared.arrived_bytes -= frame.bytes();
        std::mem::swap(body, &mut frame.body);
        shared.keep_buffer(frame.body);
        Some(frame.header)
    }

    /// Returns the number of bytes of messages that were not sent completely.
    #[inline]
    pub(crate) fn outstanding_bytes(&self, id: UcxConnection) -> usize {
        self.shared().get(id).map_or(0, |it| it.outstanding_bytes)
    }

    /// Returns `true` if the connection has failed.
    pub(crate) fn has_failed(&self, id: UcxConnection) -> bool {
        self.shared().get(id).is_none_or(|it| it.failed.is_some())
    }

    /// Returns the numbers of frames sent and received so far, modulo 2^32.
    pub(crate) fn frame_counts(&self, id: UcxConnection) -> (u32, u32) {
        self.shared().get(id).map_or((0, 0), |it| (it.sent_count, it.received_count))
    }

    /// Closes a connection, and drops the frames that have arrived. Messages that are being sent
    /// are still sent, unless the peer has failed or `is_peer_gone`.
    pub(crate) fn close(&mut self, id: UcxConnection, is_peer_gone: bool) {
        let (functions, shared_ptr) = (self.functions, self.shared);
        let shared = self.shared_mut();
        let Some(connection) = shared.get_mut(id).filter(|it| !it.is_closed) else { return };
        connection.is_closed = true;
        connection.early = HashMap::new();
        let dropped_bytes: usize = connection.arrived.drain(..).map(|it| it.bytes()).sum();
        let (endpoint, failed) = (connection.endpoint, connection.failed.is_some());
        // Keys that operations use are destroyed after these.
        let has_operations = connection.outstanding_count > 0;
        let keys = match has_operations {
            true => KeyTable::new(),
            false => std::mem::replace(&mut connection.keys, KeyTable::new()),
        };
        let is_reported = connection.failure == PeerFailure::Reported;
        let forces = (failed || is_peer_gone) && is_reported;
        // The library cannot force the end of a connection whose failures it does not report. What
        // is being sent there through shared memory is never taken, so the endpoint stays until the
        // worker is destroyed.
        let stays = is_peer_gone && !failed && !is_reported && connection.outstanding_count > 0;
        connection.is_endpoint_closing = !stays && !endpoint.is_null();
        shared.arrived_bytes -= dropped_bytes;
        keys.destroy_all(functions);
        let shared = self.shared_mut();
        if endpoint.is_null() || stays {
            return shared.free_if_closed(id);
        }
        let job = Box::new(Job { shared: shared_ptr, connection: id, message: Vec::new() });
        let job = Box::into_raw(job);
        let flags = if forces { EP_CLOSE_FLAG_FORCE } else { 0 };
        let parameters = request_parameters(flags, on_closed, job);
        // SAFETY: the endpoint exists and is closed once, as `is_closed` was not set before.
        let pointer = unsafe { (functions.ep_close_nbx)(endpoint, &raw const parameters) };
        if let Started::Pending = Started::from_pointer(pointer) {
            return;
        }
        // SAFETY: the box was made above, and the callback is not called for an operation without a
        // request.
        drop(unsafe { Box::from_raw(job) });
        let shared = self.shared_mut();
        shared.finish_close(id);
    }
}

impl Drop for UcxWorker {
    fn drop(&mut self) {
        for index in 0..self.shared().connections.len() {
            self.close(UcxConnection(index as u32), false); // A table of fewer than 2^32 entries.
        }
        let began = Instant::now();
        while self.shared().connections.iter().flatten().any(|it| it.is_endpoint_closing) {
            if began.elapsed() >= CLOSE_TIMEOUT {
                // The library refuses to destroy a worker whose endpoints are being closed, so this
                // one leaks.
                std::mem::forget(Arc::clone(&self.context));
                return;
            }
            if !self.progress() {
                std::thread::sleep(CLOSE_INTERVAL);
            }
        }
        // SAFETY: new() has made the worker, and nothing uses it any more. Callbacks that run
        // meanwhile find `Shared`.
        unsafe { (self.functions.worker_destroy)(self.worker) };
        // SAFETY: new() has leaked this box, and without the worker no callback has the pointer.
        // Messages that were never sent leak.
        drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: usize) -> ArrivedFrame {
        ArrivedFrame { header: [0; FRAME_HEADER_BYTES], body: vec![0; bytes - FRAME_HEADER_BYTES] }
    }

    #[test]
    fn early_frames_count_once_and_arrive_in_order_after_the_missing_one() {
        let mut connection = ConnectionState::new(0, Arc::default());
        for _ in 0..3 {
            assert_eq!(connection.accept(1, frame(100)), 0, "counts as arrived in order");
        }
        assert_eq!(connection.accept(2, frame(200)), 0);
        assert_eq!(connection.early_bytes, 300, "counts a frame that was sent again");
        assert!(connection.arrived.is_empty() && !connection.has_news.load(Ordering::Relaxed));
        assert_eq!(connection.accept(0, frame(50)), 350);
        let bytes: Vec<usize> = connection.arrived.iter().map(ArrivedFrame::bytes).collect();
        assert_eq!((bytes, connection.early_bytes), (vec![50, 100, 200], 0));
        assert_eq!((connection.received_count, connection.failed), (3, None));
    }

    #[test]
    fn early_frames_above_the_limit_fail_their_connection() {
        let mut connection = ConnectionState::new(0, Arc::default());
        let count = (EARLY_BYTES_MAX >> 20) as u16;
        for ahead in 1..=count {
            assert_eq!(connection.accept(ahead, frame(1 << 20)), 0);
        }
        assert_eq!((connection.early_bytes, connection.failed), (EARLY_BYTES_MAX, None));
        // One more is kept, whatever its size: a frame may be longer than the limit.
        connection.accept(count + 1, frame(1 << 20));
        assert_eq!(connection.failed, None);
        connection.accept(count + 2, frame(1 << 20));
        assert_eq!(connection.failed, Some(ERR_EXCEEDS_LIMIT));
        assert!(connection.has_news.load(Ordering::Relaxed), "the link does not learn of it");
        assert_eq!(connection.early_bytes, EARLY_BYTES_MAX + (1 << 20), "keeps further frames");
    }

    #[test]
    fn message_decodes_to_the_frame_that_it_was_made_of() {
        for method in [0, 1, u64::MAX] {
            for body in [&[][..], &[1, 2, 3]] {
                let mut header = [0; FRAME_HEADER_BYTES];
                header[0] = body.len() as u8;
                header[4] = 5;
                header[8..16].copy_from_slice(&u64::to_le_bytes(method));
                header[16..].copy_from_slice(&7u64.to_le_bytes());
                let mut bytes = Vec::new();
                Message::encode_head(&mut bytes, 1 << 40, 0x12345, &header);
                let head_bytes = bytes.len();
                bytes.extend_from_slice(body);
                let message = Message::decode(&bytes).expect("it is complete");
                assert_eq!((message.word, message.number), (1 << 40, 0x2345));
                assert_eq!((message.header, message.body), (header, body));
                for length in 0..head_bytes {
                    assert!(Message::decode(&bytes[..length]).is_none(), "{length} bytes");
                }
            }
        }
    }
}
