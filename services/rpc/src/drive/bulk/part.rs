//! Parameters of a transfer.

use crate::engine::BulkHandle;
use std::time::Duration;

/// Minimum length of a transfer that is halved, in bytes: asking for help costs as much as copying
/// less.
pub(crate) const HALVED_BYTES_MIN: u64 = 1 << 15;

/// Ranges of a transfer in the two memories, and its time limit.
///
/// ```
/// use handover_rpc::BulkPart;
/// use std::time::Duration;
/// let part = BulkPart::of(4096).at(8192, 0).within(Duration::from_millis(5));
/// assert_eq!((part.theirs, part.ours, part.bytes), (8192, 0, 4096));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BulkPart {
    /// Offset in the peer's memory, in bytes.
    pub theirs: u64,
    /// Offset in this side's memory, in bytes.
    pub ours: u64,
    /// Length, in bytes.
    pub bytes: u64,
    /// Time limit, counted from the start of the transfer; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Handle of this side's memory, if the peer is to copy the second half.
    pub halved: Option<BulkHandle>,
}

impl BulkPart {
    /// Selects the first `bytes` bytes of both memories.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Sets the offsets in the peer's memory and in this side's.
    #[must_use]
    pub fn at(self, theirs: u64, ours: u64) -> Self {
        Self { theirs, ours, ..self }
    }

    /// Lets both sides copy a half each at the same time, if this side has mapped the peer's memory
    /// ([`BulkPath::Mapped`]) and the range is at least 32 KiB long; has no effect otherwise. Meant
    /// for a [`BulkMemory::shared`](crate::BulkMemory::shared) on this side too, which the peer can
    /// map.
    ///
    /// `ours` is the handle of this side's memory, registered with the right that the peer needs
    /// for its half: to write if this side pulls, to read if it pushes. The peer copies while it is
    /// in any of its endpoint's methods, so this is for peers that wait.
    /// After a transfer was cancelled, or its deadline has passed, the peer may go on to use this
    /// side's memory until it has read the cancellation, which it does between pieces of 1 MiB.
    /// Messages are read in order, so the peer no longer touches that memory once it has answered a
    /// later call.
    #[must_use]
    pub fn halved(self, ours: &BulkHandle) -> Self {
        Self { halved: Some(*ours), ..self }
    }

    pub(crate) fn is_halved(&self) -> bool {
        self.halved.is_some() && self.bytes >= HALVED_BYTES_MIN
    }

    /// Sets the time limit.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

/// Way in which a peer's memory is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BulkPath {
    /// Both sides have mapped the memory: the side that transfers copies once.
    Mapped,
    /// The kernel copies between the two processes.
    Process,
    /// Data goes by messages: over a stream, or if the other ways are not possible.
    Messages,
}
