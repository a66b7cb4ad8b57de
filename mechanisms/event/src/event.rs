//! What a handler and a run are told.

/// What to watch a descriptor for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interest {
    /// There is something to read, or the end.
    pub read: bool,
    /// There is room to write.
    pub write: bool,
    /// Tell once for each change (what the handler leaves unread is not told again), instead of as
    /// long as it is ready.
    pub edge: bool,
}

impl Interest {
    /// Something to read, told as long as there is.
    pub const READ: Self = Self { read: true, write: false, edge: false };
    /// Room to write, told as long as there is.
    pub const WRITE: Self = Self { read: false, write: true, edge: false };
    /// Both.
    pub const BOTH: Self = Self { read: true, write: true, edge: false };

    /// The same, told once for each change.
    #[must_use]
    pub const fn by_edge(self) -> Self {
        Self { edge: true, ..self }
    }
}

/// What a descriptor is ready for; by default, nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Ready {
    /// A read will not block; it may tell the end, or an error.
    pub readable: bool,
    /// A write will not block; it may tell an error.
    pub writable: bool,
    /// The other side is gone, or will not send any more.
    pub hung_up: bool,
    /// There is an error to be fetched.
    pub failed: bool,
}

/// One descriptor that a machine watches. When the watch is over, no other ever has the same, within
/// 65,536 uses of its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchId {
    pub(crate) slot: u32,
    pub(crate) generation: u16,
}

/// Why a run returned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Somebody stopped it: a [`Stopper`](crate::Stopper) or a handler.
    Stopped,
    /// A signal that it was told to stop on, by its number.
    Signal(i32),
    /// A handler panicked, under [`OnPanic::Stop`](crate::OnPanic). What the panic said.
    Panicked(String),
}

/// What one round did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Round {
    /// How many messages, timers and descriptors were given to handlers.
    pub handled: u32,
    /// Set when it should not go on.
    pub ended: Option<Ended>,
}
