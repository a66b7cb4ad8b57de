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
    #[error(
        "{slots_count} slots of {slot_bytes} bytes each do not fit into memory: choose fewer slots"
    )]
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
    #[error("the reply to the previous request has not been received")]
    Busy(Q),
    /// The server was dropped.
    #[error("the server was dropped")]
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
pub enum ReceiveError<Q> {
    /// The server was dropped before it received the request, which is returned.
    #[error("the server was dropped before it received the request")]
    NotReceived(Q),
    /// The server received the request and was dropped without a reply.
    #[error("the server was dropped without a reply")]
    Abandoned,
}

/// Shows no request, so that `expect` works for requests without `Debug`.
impl<Q> fmt::Debug for ReceiveError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReceiveError::NotReceived(_) => "NotReceived(..)",
            ReceiveError::Abandoned => "Abandoned",
        })
    }
}

/// Error of sending a reply, with the reply.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError<R> {
    /// There is no received request without a reply.
    #[error("no request was received since the last reply")]
    NoRequest(R),
    /// The caller was dropped.
    #[error("the caller was dropped")]
    Closed(R),
}

impl<R> ReplyError<R> {
    /// Returns the refused reply.
    pub fn into_inner(self) -> R {
        match self {
            ReplyError::NoRequest(reply) | ReplyError::Closed(reply) => reply,
        }
    }
}

/// Shows no reply, so that `expect` works for replies without `Debug`.
impl<R> fmt::Debug for ReplyError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReplyError::NoRequest(_) => "NoRequest(..)",
            ReplyError::Closed(_) => "Closed(..)",
        })
    }
}
