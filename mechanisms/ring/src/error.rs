//! What refuses, and what comes back with the refusal.

use core::fmt;

/// Why a ring could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapacityError {
    /// No ring has so many slots.
    #[error("slots_count={slots_count}: must lie in 1..={max}")]
    OutOfRange {
        /// What was asked for.
        slots_count: u32,
        /// The most there may be: [`SLOTS_COUNT_MAX`](crate::SLOTS_COUNT_MAX).
        max: u32,
    },
    /// The memory for the slots could not be had.
    #[error("{slots_count} slots of {slot_bytes} bytes each do not fit into memory: ask for fewer")]
    OutOfMemory {
        /// What was asked for.
        slots_count: u32,
        /// The size of what is pushed.
        slot_bytes: usize,
    },
}

/// Why a push was refused; the value comes back with it.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PushError<T> {
    /// Every slot is taken. Once the consumer has popped, a push can succeed.
    #[error("the ring is full")]
    Full(T),
    /// Somebody closed the ring, or its consumer is gone. No push will ever succeed again.
    #[error("the ring is closed")]
    Closed(T),
}

impl<T> PushError<T> {
    /// The value that was refused.
    #[inline]
    pub fn into_inner(self) -> T {
        match self {
            PushError::Full(value) | PushError::Closed(value) => value,
        }
    }

    /// Whether it is worth trying again.
    #[inline]
    pub fn is_full(&self) -> bool {
        matches!(self, PushError::Full(_))
    }
}

/// Without the value, so that `expect` works with what cannot be shown.
impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PushError::Full(_) => "Full(..)",
            PushError::Closed(_) => "Closed(..)",
        })
    }
}

/// Why a request was not sent; it comes back.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError<Q> {
    /// The last request has not been answered yet, or its answer not been received.
    #[error("a request is under way")]
    Busy(Q),
    /// The server is gone.
    #[error("the server is gone")]
    Closed(Q),
}

impl<Q> SendError<Q> {
    /// The request that was refused.
    pub fn into_inner(self) -> Q {
        match self {
            SendError::Busy(request) | SendError::Closed(request) => request,
        }
    }
}

/// Without the request, so that `expect` works with what cannot be shown.
impl<Q> fmt::Debug for SendError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Busy(_) => "Busy(..)",
            SendError::Closed(_) => "Closed(..)",
        })
    }
}

/// Why a request that was sent will not be answered.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered<Q> {
    /// The server went before it read the request, which comes back.
    #[error("the server is gone and has not read the request")]
    Unread(Q),
    /// The server read the request and went without an answer.
    #[error("the server is gone and has not answered")]
    Abandoned,
}

/// Without the request, so that `expect` works with what cannot be shown.
impl<Q> fmt::Debug for Unanswered<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unanswered::Unread(_) => "Unread(..)",
            Unanswered::Abandoned => "Abandoned",
        })
    }
}

/// Why a reply was not sent; it comes back.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError<R> {
    /// There is no request that has been received and not been answered.
    #[error("there is no request to reply to")]
    NothingAsked(R),
    /// The caller is gone.
    #[error("the caller is gone")]
    Closed(R),
}

impl<R> ReplyError<R> {
    /// The reply that was refused.
    pub fn into_inner(self) -> R {
        match self {
            ReplyError::NothingAsked(reply) | ReplyError::Closed(reply) => reply,
        }
    }
}

/// Without the reply, so that `expect` works with what cannot be shown.
impl<R> fmt::Debug for ReplyError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReplyError::NothingAsked(_) => "NothingAsked(..)",
            ReplyError::Closed(_) => "Closed(..)",
        })
    }
}
