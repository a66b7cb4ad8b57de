//! What every transport does. A fabric that is added implements this, says how two sides greet, and is
//! done.

use super::bulk::BulkMemory;
use super::sm::Sm;
use crate::Gone;
use crate::engine::{FileId, Header};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::{BorrowedFd, OwnedFd};

/// One connection, greeted and agreed upon. Never blocks.
pub(crate) trait Link: Send + fmt::Debug {
    /// Sends a frame, or keeps it until there is room. The caller sees to its length.
    fn send(&mut self, header: Header, body: &[u8]) -> Result<(), Gone>;

    /// The next frame, its body in place of what `body` held. `eager` looks although nothing was told of
    /// anything to see.
    ///
    /// After an error nothing more comes.
    fn receive(&mut self, body: &mut Vec<u8>, eager: bool) -> Result<Option<Header>, Gone>;

    /// Sends what was kept, as far as there is room. True when some of it went.
    fn flush(&mut self) -> Result<bool, Gone>;

    /// How much is kept.
    fn queued_bytes(&self) -> usize;

    /// The descriptor by which the kernel tells of it.
    fn socket(&self) -> BorrowedFd<'_>;

    /// The kernel says that there is something to see, or to send.
    fn told(&mut self);

    /// Looking for frames costs no system call, and the kernel does not tell of them.
    fn in_memory(&self) -> bool;

    /// This side is about to sleep: whoever sends from now on rings. To be followed by a fence, and by one
    /// more look.
    fn declare_sleep(&mut self);

    /// This side is awake.
    fn withdraw(&mut self);

    /// Sleeps until something has come, and reads it in the same system call. False, at once, where that cannot
    /// be.
    fn wait_in_read(&mut self) -> bool {
        false
    }

    /// Has [`wait_in_read`](Self::wait_in_read) return `false` after a while in which nothing has come, for a peer
    /// whose end something else may tell.
    fn bound_wait_in_read(&mut self) {}

    /// Before the connection is given up: what is kept is sent if that needs no waiting.
    fn close(&mut self);

    /// Returns `true` if a frame has begun to come and not ended, or more memory is held for receiving than usual:
    /// then [`sweep`](Self::sweep) is to be called now and then.
    fn wants_sweep(&self) -> bool {
        false
    }

    /// Gives memory back that was not needed lately. Returns in how many sweeps without a pause the same frame was
    /// found begun and not ended.
    fn sweep(&mut self) -> u32 {
        0
    }

    /// Bytes of memory held for receiving, besides what is shared.
    fn receive_buffer_bytes(&self) -> usize {
        0
    }

    // Bulk. What is not overridden is that of a transport that shares no memory.

    /// The peer's process id in this pid namespace. `None` where the peer has none here, or shares no memory.
    fn process(&self) -> Option<i32> {
        None
    }

    /// Passes a file on, ahead of the frames that are sent after it. False where there is no room now.
    fn send_file(&mut self, _file: BorrowedFd<'_>) -> bool {
        false
    }

    /// That file, if it was passed ahead of the frame that tells of it. Files come in the order of their
    /// frames: those ahead of it are not wanted any more.
    fn take_file(&mut self, _file: FileId) -> Option<OwnedFd> {
        None
    }

    /// Sends data from that memory, without a copy of this process's own where the kernel takes it, and
    /// keeps what the kernel does not take. False, and nothing sent, where something is kept already.
    fn send_data(&mut self, header: Header, memory: &BulkMemory, offset: u64)
    -> Result<bool, Gone>;

    /// [`receive`](Self::receive) has returned the header of data, without its body: it goes there, or
    /// nowhere. When all of it is there, `receive` returns that header again, of no bytes.
    fn receive_data(&mut self, _into: Option<(BulkMemory, u64)>) {}

    /// What is being received for that transfer goes nowhere from now on.
    fn drop_data(&mut self, _call: u64) {}

    /// What is still to be sent of that memory is copied: it is not looked at any more.
    fn let_go(&mut self, _memory: &BulkMemory) {}

    /// What says when the peer has ended the connection, kept open for that.
    fn linger(&self) -> Option<OwnedFd> {
        None
    }
}

/// A link of any kind. The one through memory is known by its type: calling it costs as much as what it does.
#[derive(Debug)]
pub(crate) enum AnyLink {
    Sm(Sm),
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
    pub(crate) fn send(&mut self, header: Header, body: &[u8]) -> Result<(), Gone> {
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
    ) -> Result<Option<Header>, Gone> {
        match self {
            AnyLink::Sm(link) => link.receive(body, eager),
            AnyLink::Other(link) => link.receive(body, eager),
        }
    }

    /// Memory that is shared needs none.
    #[inline]
    pub(crate) fn wants_sweep(&self) -> bool {
        match self {
            AnyLink::Sm(_) => false,
            AnyLink::Other(link) => link.wants_sweep(),
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

/// Frames that wait for room, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    bytes: Vec<u8>,
    /// What has gone ends here.
    start: usize,
}

/// More memory than this is given back when the queue is empty.
const KEPT_BYTES: usize = 1 << 16;

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn gone(&mut self, bytes_count: usize) {
        self.start += bytes_count;
        if self.is_empty() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES {
                self.bytes = Vec::new();
            }
        } else if self.start > self.bytes.len() / 2 {
            // Half of it has gone: moving the rest costs no more than that half did.
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}
