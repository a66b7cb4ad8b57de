//! Arguments of handlers and results of runs.

/// Kinds of readiness that a descriptor is watched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interest {
    /// `true` to wait until there is data to read, or the end of the stream.
    pub read: bool,
    /// `true` to wait until there is space to write.
    pub write: bool,
    /// `true` for edge-triggered: one message for each change of readiness. Data that the handler
    /// leaves unread cause no further message. `false` for level-triggered: a message in each round
    /// in which the descriptor is ready.
    pub edge: bool,
}

impl Interest {
    /// Interest in data to read, level-triggered.
    pub const READ: Self = Self { read: true, write: false, edge: false };
    /// Interest in space to write, level-triggered.
    pub const WRITE: Self = Self { read: false, write: true, edge: false };
    /// Interest in data to read and in space to write, level-triggered.
    pub const BOTH: Self = Self { read: true, write: true, edge: false };

    /// Returns this interest with edge-triggered events.
    #[must_use]
    pub const fn edge_triggered(self) -> Self {
        Self { edge: true, ..self }
    }
}

/// Readiness of a descriptor, as reported by epoll; in the default, all fields are `false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Ready {
    /// `true` if a read will not block. The read may return the end of the stream or an error.
    pub readable: bool,
    /// `true` if a write will not block; it may return an error.
    pub writable: bool,
    /// `true` if the peer has closed the connection, or its sending direction.
    pub hung_up: bool,
    /// `true` if the descriptor has a pending error.
    pub failed: bool,
}

/// Identifier of a watched descriptor. It is not reused before its slot has been used 2^32 times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchId(pub(crate) handover_base::slab::Key);

impl WatchId {
    /// Returns the identifier as a number, for an interface to C.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.0.generation) << 32 | u64::from(self.0.index)
    }

    /// Converts a number from [`to_bits`](Self::to_bits) back to the identifier. Any other number
    /// is an identifier too, of a watch that may have ended.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(handover_base::slab::Key { index: bits as u32, generation: (bits >> 32) as u32 })
    }
}

/// Reason why the run of a machine or group has stopped. It is a request, a signal or a panic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// The run was stopped by a [`Stopper`](crate::Stopper) or by a handler.
    Stopped,
    /// The run was stopped by a signal passed to `stop_on`; contains the signal's number.
    Signal(i32),
    /// The run was stopped because a handler panicked under [`OnPanic::Stop`](crate::OnPanic);
    /// contains the panic message.
    Panicked(String),
}

/// Result of one round of a machine or group. It has the work done, and the reason to end, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoundResult {
    /// Number of messages, expired timers and readiness events passed to handlers.
    pub handled: u32,
    /// Reason why the run is to end; `None` if the run is to continue.
    pub end_reason: Option<EndReason>,
}
