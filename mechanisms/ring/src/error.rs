//! Error types; those of refused calls hold the refused value.

use core::fmt;

/// Error of making a ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapacityError {
    /// The number of slots is out of range.
    #[error("slots_count={slots_count}: must lie in 1..={max}")]
    OutOfRange {
        /// Requested number of slots.
        slots_count: u32,
        /// Maximum: [`SLOTS_COUNT_MAX`](crate::SLOTS_COUNT_MAX).
        max: u32,
    },
    /// There is no memory for the slots.
    #[error("{slots_count} slots of {slot_bytes} bytes each do not fit into memory: ask for fewer")]
    OutOfMemory {
        /// Requested number of slots.
        slots_count: u32,
        /// Size of a value.
        slot_bytes: usize,
    },
}

/// Error of a push, with the refused value.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PushError<T> {
    /// Every slot is taken. Once the consumer has popped, a push can succeed.
    #[error("the ring is full")]
    Full(T),
    /// The ring was closed, or its consumer dropped. No push will ever succeed again.
    #[error("the ring is closed")]
    Closed(T),
}

impl<T> PushError<T> {
    /// Returns the refused value.
    #[inline]
    pub fn into_inner(self) -> T {
        match self {
            PushError::Full(value) | PushError::Closed(value) => value,
        }
    }

    /// Returns `true` if the ring was full, so that a later push may succeed.
    #[inline]
    pub fn is_full(&self) -> bool {
        matches!(self, PushError::Full(_))
    }
}

/// Shows no value, so that `expect` works for values without `Debug`.
impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PushError::Full(_) => "Full(..)",
            PushError::Closed(_) => "Closed(..)",
        })
    }
}

/// Error of sending a request, with the request.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError<Q> {
    /// The last request has not been answered yet, or its reply not been received.
    #[error("a request is under way")]
    Busy(Q),
    /// The server was dropped.
    #[error("the server is gone")]
    Closed(Q),
}

impl<Q> SendError<Q> {
    /// Returns the refused request.
    pub fn into_inner(self) -> Q {
        match self {
            SendError::Busy(request) | SendError::Closed(request) => request,
        }
    }
}

/// Shows no request, so that `expect` works for requests without `Debug`.
impl<Q> fmt::Debug for SendError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Busy(_) => "Busy(..)",
            SendError::Closed(_) => "Closed(..)",
        })
    }
}

/// Error of receiving a reply: the sent request will not be answered.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered<Q> {
    /// The server was dropped before it received the request, which is returned.
    #[error("the server is gone and has not read the request")]
    Unread(Q),
    /// The server received the request and was dropped without a reply.
    #[error("the server is gone and has not answered")]
    Abandoned,
}

/// Shows no request, so that `expect` works for requests without `Debug`.
impl<Q> fmt::Debug for Unanswered<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unanswered::Unread(_) => "Unread(..)",
            Unanswered::Abandoned => "Abandoned",
        })
    }
}

/// Error of sending a reply, with the reply.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError<R> {
    /// There is no received request without a reply.
    #[error("there is no request to reply to")]
    NothingAsked(R),
    /// The caller was dropped.
    #[error("the caller is gone")]
    Closed(R),
}

impl<R> ReplyError<R> {
    /// Returns the refused reply.
    pub fn into_inner(self) -> R {
        match self {
            ReplyError::NothingAsked(reply) | ReplyError::Closed(reply) => reply,
        }
    }
}

/// Shows no reply, so that `expect` works for replies without `Debug`.
impl<R> fmt::Debug for ReplyError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReplyError::NothingAsked(_) => "NothingAsked(..)",
            ReplyError::Closed(_) => "Closed(..)",
        })
    }
}
