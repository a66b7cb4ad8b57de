//! What every transport does. A fabric that is added implements this, says how two sides greet, and is
//! done.

use crate::Gone;
use crate::engine::Header;
use std::fmt;

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

    /// The kernel says that there is something to see, or to send.
    fn told(&mut self);

    /// Looking for frames costs no system call, and the kernel does not tell of them.
    fn in_memory(&self) -> bool;

    /// This side is about to sleep: whoever sends from now on rings. To be followed by a fence, and by one
    /// more look.
    fn declare_sleep(&mut self);

    /// This side is awake.
    fn withdraw(&mut self);

    /// Before the connection is given up: what is kept is sent if that needs no waiting.
    fn close(&mut self);
}

/// Frames that wait for room, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    bytes: Vec<u8>,
    /// What has gone ends here.
    start: usize,
}

/// More memory than this is given back when the queue is empty.
const KEPT_BYTES: usize = 1 << 20;

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
