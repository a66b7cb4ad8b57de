//! Arguments of handlers and results of runs.

/// Kinds of readiness that a descriptor is watched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interest {
    /// `true` to wait for data to read, or for the end of the stream.
    pub read: bool,
    /// `true` to wait for space to write.
    pub write: bool,
    /// `true` for edge-triggered: one message for each change, none for data that the handler leaves
    /// unread. `false` for level-triggered: a message in each round while the descriptor is ready.
    pub edge: bool,
}

impl Interest {
    /// Data to read, level-triggered.
    pub const READ: Self = Self { read: true, write: false, edge: false };
    /// Space to write, level-triggered.
    pub const WRITE: Self = Self { read: false, write: true, edge: false };
    /// Data to read and space to write, level-triggered.
    pub const BOTH: Self = Self { read: true, write: true, edge: false };

    /// Returns the same kinds of readiness, edge-triggered.
    #[must_use]
    pub const fn edge_triggered(self) -> Self {
        Self { edge: true, ..self }
    }
}

/// Readiness of a descriptor; by default, not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Ready {
    /// `true` if a read will not block; it may return the end of the stream or an error.
    pub readable: bool,
    /// `true` if a write will not block; it may return an error.
    pub writable: bool,
    /// `true` if the peer has closed the connection, or its sending direction.
    pub hung_up: bool,
    /// `true` if the descriptor has a pending error.
    pub failed: bool,
}

/// Identifier of a watched descriptor. An identifier is not reused before its slot has been used 2^32 times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchId(pub(crate) handover_base::slab::Key);

impl WatchId {
    /// Returns the identifier as a number, for a foreign interface.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.0.generation) << 32 | u64::from(self.0.index)
    }

    /// Returns the identifier of a number from [`to_bits`](Self::to_bits). Any other number is an identifier too, of a
    /// watch that may have ended.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(handover_base::slab::Key { index: bits as u32, generation: (bits >> 32) as u32 })
    }
}

/// Reason why the run of a machine or group has stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// A [`Stopper`](crate::Stopper) or a handler stopped the run.
    Stopped,
    /// A signal passed to `stop_on` was received; contains its number.
    Signal(i32),
    /// A handler panicked under [`OnPanic::Stop`](crate::OnPanic); contains the panic message.
    Panicked(String),
}

/// Result of one round of a machine or group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Round {
    /// Number of messages, timers and descriptors passed to handlers.
    pub handled: u32,
    /// Reason why the run is to end; `None` if it is to continue.
    pub ended: Option<Ended>,
}
