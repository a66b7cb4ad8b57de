//! Interface of transports. A new transport implements this trait and its part of the handshake.

use super::bulk::{BulkMemory, TransferDirection};
use super::sm::SharedMemoryLink;
use crate::CloseReason;
use crate::engine::{FileId, FrameHeader};
use crate::raw::{MemoryPiece, Region};
use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Connection of any transport, after its handshake. Never blocks, except in
/// [`wait_in_read`](Self::wait_in_read).
pub(crate) trait Link: Send + fmt::Debug {
    /// Sends a frame, or queues it until there is space. The caller has checked its length.
    fn send(&mut self, header: FrameHeader, body: &[u8]) -> Result<(), CloseReason>;

    /// Queues a frame for the next [`flush`](Self::flush), or sends it if that costs no system
    /// call.
    fn queue(&mut self, header: FrameHeader, body: &[u8]) -> Result<(), CloseReason> {
        self.send(header, body)
    }

    /// Receives the next frame; returns its header, or `None` if there is none. Replaces the
    /// contents of `body` by its body. With `eager`, reads even without a notification.
    ///
    /// After an error, no more frames come.
    fn receive(
        &mut self,
        body: &mut Vec<u8>,
        eager: bool,
    ) -> Result<Option<FrameHeader>, CloseReason>;

    /// Sends queued frames while there is space; returns `true` if any bytes were sent.
    fn flush(&mut self) -> Result<bool, CloseReason>;

    /// Returns the number of bytes that are queued for sending to the peer.
    fn queued_bytes(&self) -> usize;

    /// Returns `true` if frames can be sent. Over UCX, the ends must first exchange addresses.
    fn is_open(&self) -> bool {
        true
    }

    /// Returns `true` if sending has failed because the peer closed the connection.
    /// [`receive`](Self::receive) returns what the peer had sent before, and then the error; until
    /// then `queued_bytes` is not zero.
    fn has_hung_up(&self) -> bool {
        false
    }

    /// Returns the descriptor for the epoll set.
    fn socket(&self) -> BorrowedFd<'_>;

    /// Handles a notification that the socket is readable or writable. With `reads_until_empty`, a
    /// short read does not show that the socket is empty: the end of the stream or data after a
    /// mark may follow, of which epoll does not notify again.
    fn on_ready(&mut self, reads_until_empty: bool);

    /// Returns `true` if messages go through shared memory. Files can then be passed to the peer,
    /// and the end of the socket's stream ends the connection.
    fn is_in_shared_memory(&self) -> bool;

    /// Returns `true` if frames are polled for without system calls. Epoll does not report them.
    /// Bulk data is then received together with its header.
    fn is_polled(&self) -> bool {
        self.is_in_shared_memory()
    }

    /// Sleeps until data arrives, and reads it in the same system call. Returns `false` if nothing
    /// was read: at once where this is not possible, or at the limit that
    /// [`limit_wait_in_read`](Self::limit_wait_in_read) sets.
    fn wait_in_read(&mut self) -> bool {
        false
    }

    /// Sets a time limit for [`wait_in_read`](Self::wait_in_read). It is for a peer whose exit
    /// another descriptor may report.
    fn limit_wait_in_read(&mut self) {}

    /// Sends queued frames, as far as there is space, before the connection is closed.
    fn close(&mut self);

    /// Returns `true` if [`sweep`](Self::sweep) must be called periodically. A frame has then
    /// arrived in part, or the receive buffer is larger than usual.
    fn needs_sweep(&self) -> bool {
        false
    }

    /// Frees unused memory; returns the number of sweeps that have found the same frame incomplete.
    /// Only consecutive sweeps count.
    fn sweep(&mut self) -> u32 {
        0
    }

    /// Returns the size of the receive buffer, in bytes; 0 if frames are polled for.
    fn receive_buffer_bytes(&self) -> usize {
        0
    }

    // Bulk transfers. The default methods are those of a transport without shared memory.

    /// Returns the peer's process id in this pid namespace. Returns `None` if the peer is not
    /// visible here, or shares no memory.
    fn process_id(&self) -> Option<i32> {
        None
    }

    /// Passes a file to the peer, ahead of later frames. Returns `false` if there is no space now.
    fn send_file(&mut self, _file: BorrowedFd<'_>) -> bool {
        false
    }

    /// Removes and returns the received file with this id. Returns `None` if it did not arrive
    /// before the frame that refers to it. Files arrive in the order of their frames, so earlier
    /// files are dropped.
    fn take_file(&mut self, _file: FileId) -> Option<OwnedFd> {
        None
    }

    /// Sends bulk data from `memory` after the queued frames. Returns `false`, and sends nothing,
    /// if there is no space now. A few bytes are copied and queued; of more bytes, a reference to
    /// the memory is held until the kernel has accepted all of them.
    fn send_data(
        &mut self,
        header: FrameHeader,
        memory: &BulkMemory,
        offset: u64,
    ) -> Result<bool, CloseReason>;

    /// Sets the target of the bulk data whose header was just received; `None` discards the data.
    /// When all of it has arrived, `receive` returns the header again, with no bytes.
    fn set_data_target(&mut self, _into: Option<(BulkMemory, u64)>) {}

    /// Discards the rest of the data that is being received for transfer `call`.
    fn drop_data(&mut self, _call: u64) {}

    /// Copies the unsent bulk data of `memory`, so that the memory is no longer accessed.
    fn release_memory(&mut self, _memory: &BulkMemory) {}

    /// Returns the transport's remote memory access; `None` if it has none.
    fn remote_access(&mut self) -> Option<&mut dyn RemoteAccess> {
        None
    }

    /// Returns a duplicate of the socket, which shows when the peer has closed the connection.
    fn duplicate_socket(&self) -> Option<OwnedFd> {
        None
    }
}

/// Remote memory access of a transport, which involves no code of the peer.
pub(crate) trait RemoteAccess {
    /// Registers local memory for access by peers. Returns the registration, which ends when it is
    /// dropped, and the key for peers.
    fn register(&mut self, region: &Arc<Region>) -> Option<(Box<dyn Any + Send + Sync>, Vec<u8>)>;

    /// Unpacks a key that the peer has sent; returns its number for
    /// [`start_copy`](Self::start_copy). Returns `None` if the transport rejects the key.
    fn unpack_key(&mut self, packed: &[u8]) -> Option<usize>;

    /// Destroys unpacked keys, by number. No operation under way uses them.
    fn destroy_keys(&mut self, keys: &[usize]);

    /// Starts a copy between local memory and the peer's memory. `theirs` is the key and the
    /// address of the peer's memory. Returns `true` if the copy is already complete. Otherwise the
    /// transport reports `number` later, and holds `owner`, to whom the local memory belongs, until
    /// then.
    fn start_copy(
        &mut self,
        direction: TransferDirection,
        theirs: (usize, u64),
        ours: MemoryPiece<'_>,
        number: u64,
        owner: Box<dyn Any + Send>,
    ) -> Result<bool, CloseReason>;

    /// Starts to wait until all written data has arrived at the peer; see
    /// [`start_copy`](Self::start_copy).
    fn start_flush(&mut self, number: u64) -> Result<bool, CloseReason>;
}

/// Link of any transport. Shared memory is a separate variant because a virtual call would cost as
/// much as the operation.
#[derive(Debug)]
pub(crate) enum AnyLink {
    Sm(SharedMemoryLink),
    Other(Box<dyn Link>),
}

impl Deref for AnyLink {
    type Target = dyn Link;

    fn deref(&self) -> &(dyn Link + 'static) {
        match self {
            AnyLink::Sm(link) => link,
            AnyLink::Other(link) => &**link,
        }
    }
}

impl DerefMut for AnyLink {
    fn deref_mut(&mut self) -> &mut (dyn Link + 'static) {
        match self {
            AnyLink::Sm(link) => link,
            AnyLink::Other(link) => &mut **link,
        }
    }
}

impl AnyLink {
    #[inline]
    pub(crate) fn send(&mut self, header: FrameHeader, body: &[u8]) -> Result<(), CloseReason> {
        match self {
            AnyLink::Sm(link) => link.send(header, body),
            AnyLink::Other(link) => link.send(header, body),
        }
    }

    #[inline]
    pub(crate) fn receive(
        &mut self,
        body: &mut Vec<u8>,
        eager: bool,
    ) -> Result<Option<FrameHeader>, CloseReason> {
        match self {
            AnyLink::Sm(link) => link.receive(body, eager),
            AnyLink::Other(link) => link.receive(body, eager),
        }
    }

    /// Returns `true` if the link needs sweeps; shared memory does not.
    #[inline]
    pub(crate) fn needs_sweep(&self) -> bool {
        match self {
            AnyLink::Sm(_) => false,
            AnyLink::Other(link) => link.needs_sweep(),
        }
    }

    #[inline]
    pub(crate) fn queued_bytes(&self) -> usize {
        match self {
            AnyLink::Sm(link) => link.queued_bytes(),
            AnyLink::Other(link) => link.queued_bytes(),
        }
    }
}

/// Queue of frames that wait for space to be sent.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    bytes: Vec<u8>,
    /// Index of the first byte that was not sent.
    start: usize,
}

/// Maximum capacity that a queue retains when it is empty, in bytes.
const KEPT_BYTES_MAX: usize = 1 << 16;

impl SendQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends `bytes_count` zeros, and returns them for the caller to overwrite.
    pub(crate) fn push_zeros(&mut self, bytes_count: usize) -> &mut [u8] {
        let end = self.bytes.len();
        self.bytes.resize(end + bytes_count, 0);
        &mut self.bytes[end..]
    }

    pub(crate) fn unsent_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn remove_sent(&mut self, bytes_count: usize) {
        self.start += bytes_count;
        if self.is_empty() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        } else if self.start > self.bytes.len() / 2 {
            // More than half of the bytes were sent, so moving the rest costs no more than sending
            // them did.
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}
