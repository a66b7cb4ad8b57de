//! Parameters of a bulk transfer.

use crate::engine::BulkHandle;
use std::time::Duration;

/// Minimum length, in bytes, of a transfer of which each peer copies one half. For a shorter one,
/// the request to the peer would cost as much as it saves.
pub(crate) const HALVED_TRANSFER_BYTES_MIN: u64 = 1 << 15;

/// Parameters of a bulk transfer: its range in each of the two memories, and its time limit.
///
/// ```
/// use handover_rpc::BulkPart;
/// use std::time::Duration;
/// let part = BulkPart::new(4096).offsets(8192, 0).timeout(Duration::from_millis(5));
/// assert_eq!((part.theirs, part.ours, part.bytes), (8192, 0, 4096));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BulkPart {
    /// Offset of the range in the peer's memory, in bytes.
    pub theirs: u64,
    /// Offset of the range in the local memory, in bytes.
    pub ours: u64,
    /// Length of the range, in bytes.
    pub bytes: u64,
    /// Time limit, counted from the start of the transfer; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Handle of the local memory, if the peer shall copy the second half of the range. Otherwise
    /// `None`.
    pub halved: Option<BulkHandle>,
}

impl BulkPart {
    /// Creates parameters for the first `bytes` bytes of both memories, without a time limit.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Sets the offsets in the peer's memory and in the local memory.
    #[must_use]
    pub fn offsets(self, theirs: u64, ours: u64) -> Self {
        Self { theirs, ours, ..self }
    }

    /// Lets each of the two peers copy one half of the range, where this is possible. It has no
    /// effect unless this endpoint accesses the peer's memory directly ([`BulkPath::Mapped`] or
    /// [`BulkPath::Process`]) and the range is at least 32 KiB long. The local memory may be of any
    /// kind. If the peer may not access it, as under an asymmetric ptrace policy, the peer's half
    /// goes in messages, which copy it twice: the transfer then gains nothing from the halves.
    ///
    /// `ours` is the handle of the local memory, registered with the right that the peer needs for
    /// its half: to write for a pull, to read for a push. The peer copies while it is in any of its
    /// endpoint's methods, so this is for peers that wait. After a transfer has failed, was
    /// cancelled, or has passed its deadline, the peer may go on to use the local memory until it
    /// has read the cancellation, which it does between pieces of 1 MiB. Messages are read in
    /// order, so the peer no longer accesses that memory once it has answered a later call.
    #[must_use]
    pub fn halved(self, ours: &BulkHandle) -> Self {
        Self { halved: Some(*ours), ..self }
    }

    pub(crate) fn is_halved(&self) -> bool {
        self.halved.is_some() && self.bytes >= HALVED_TRANSFER_BYTES_MIN
    }

    /// Sets the time limit of the transfer. A transfer that exceeds it is cancelled, as by
    /// [`Bulk::cancel_transfer`](crate::Bulk::cancel_transfer): over UCX, the local memory may be
    /// accessed afterwards.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

/// Way in which transfers access a peer's memory: directly, by the kernel, by the transport, or in
/// messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BulkPath {
    /// Both processes have mapped the memory. The process that started the transfer copies the data
    /// once.
    Mapped,
    /// The kernel copies the data between the memories of the two processes.
    Process,
    /// The transport reads and writes the peer's memory (UCX).
    Remote,
    /// The data is sent in messages. This is the only way over a stream, or if the kernel allows
    /// neither mapping nor copying.
    Messages,
}
