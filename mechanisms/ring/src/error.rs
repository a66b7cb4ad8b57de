//! Error types; those of refused calls hold the refused value.

use core::fmt;

/// Error of creating a ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapacityError {
    /// The requested number of slots is zero or above the maximum.
    #[error("slots_count={slots_count}: must lie in 1..={max}")]
    OutOfRange {
        /// Requested number of slots.
        slots_count: u32,
        /// Maximum number of slots: [`SLOTS_COUNT_MAX`](crate::SLOTS_COUNT_MAX).
        max: u32,
    },
    /// Allocating the memory of the slots failed.
    #[error(
        "{slots_count} slots of {slot_bytes} bytes each do not fit into memory: choose fewer slots"
    )]
    OutOfMemory {
        /// Requested number of slots.
        slots_count: u32,
        /// Size of a slot in bytes.
        slot_bytes: usize,
    },
}

/// Error of pushing a value into a ring; contains the value.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PushError<T> {
    /// Every slot holds a value. A push can succeed once the consumer has popped a value.
    #[error("the ring is full: pop values, then push again")]
    Full(T),
    /// The ring was closed, or its consumer was dropped. No later push can succeed.
    #[error("cannot push: the ring was closed, or its consumer was dropped")]
    Closed(T),
}

impl<T> PushError<T> {
    /// Returns the value that was not pushed.
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

/// Omits the value, so that `expect` works for values without `Debug`.
impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PushError::Full(_) => "Full(..)",
            PushError::Closed(_) => "Closed(..)",
        })
    }
}

/// Error of sending a value through a channel that is closed. The ring was closed, or the receiver
/// was dropped. Contains the value.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot send: the channel was closed, or its receiver was dropped")]
pub struct ClosedError<T>(pub T);

/// Omits the value, so that `expect` works for values without `Debug`.
impl<T> fmt::Debug for ClosedError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClosedError(..)")
    }
}

/// Error of a wait for a value: no value arrived before the time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no value arrived in time")]
pub struct TimeoutError;

/// Error of requesting a chunk of a ring. Too few slots or values are available, or the ring is
/// closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// Fewer slots are vacant, or fewer values are ready, than were requested. More can become
    /// available.
    #[error("only {available} slots or values are available: request fewer, or try again later")]
    TooFew {
        /// Number of slots or values that were available.
        available: usize,
    },
    /// The ring was closed: no slot can be written, or no more values can come.
    #[error("the ring was closed: no slot can be written, or no more values can come")]
    Closed,
}

/// Error of sending a request through a mailbox; contains the request.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError<Q> {
    /// The previous request was not answered yet, or its reply was not received.
    #[error("cannot send the request: receive the reply to the previous request first")]
    Busy(Q),
    /// The server end of the mailbox was dropped.
    #[error("cannot send the request: the server of the mailbox was dropped")]
    Closed(Q),
}

impl<Q> SendError<Q> {
    /// Returns the request that was not sent.
    pub fn into_inner(self) -> Q {
        match self {
            SendError::Busy(request) | SendError::Closed(request) => request,
        }
    }
}

/// Omits the request, so that `expect` works for requests without `Debug`.
impl<Q> fmt::Debug for SendError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Busy(_) => "Busy(..)",
            SendError::Closed(_) => "Closed(..)",
        })
    }
}

/// Error of receiving a reply from a mailbox: the server was dropped. Contains the request if
/// the server has not received it.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError<Q> {
    /// The server of the mailbox was dropped before it received the request; contains the request.
    #[error("the server was dropped before it received the request")]
    NotReceived(Q),
    /// The server of the mailbox received the request and was dropped without sending a reply.
    #[error("the server received the request and was dropped before it replied")]
    Abandoned,
}

/// Omits the request, so that `expect` works for requests without `Debug`.
impl<Q> fmt::Debug for ReceiveError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReceiveError::NotReceived(_) => "NotReceived(..)",
            ReceiveError::Abandoned => "Abandoned",
        })
    }
}

/// Error of sending a reply through a mailbox; contains the reply.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError<R> {
    /// The server has received no request since it sent its last reply.
    #[error("there is no request to reply to: receive a request first")]
    NoRequest(R),
    /// The caller that sent the request was dropped, so the reply was not sent.
    #[error("cannot send the reply: the caller of the mailbox was dropped")]
    Closed(R),
}

impl<R> ReplyError<R> {
    /// Returns the reply that was not sent.
    pub fn into_inner(self) -> R {
        match self {
            ReplyError::NoRequest(reply) | ReplyError::Closed(reply) => reply,
        }
    }
}

/// Omits the reply, so that `expect` works for replies without `Debug`.
impl<R> fmt::Debug for ReplyError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReplyError::NoRequest(_) => "NoRequest(..)",
            ReplyError::Closed(_) => "Closed(..)",
        })
    }
}
