//! Errors: one enum per operation that can fail. A refused send returns its message.

use core::fmt;
use std::io;

/// Error of validating a [`Config`](crate::Config) or [`ThreadConfig`](crate::ThreadConfig).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A field of the configuration, or of its `spin` configuration, is outside its range.
    #[error(transparent)]
    OutOfRange(#[from] handover_base::range::OutOfRange),
    /// The configured maximum of timers, `timers_max`, is outside its range.
    #[error(transparent)]
    Timers(#[from] handover_timer::ConfigError),
}

/// Error of creating a machine or a group, or of adding a machine to a group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Memory could not be allocated for the machine's inbox, or for the group's queue of ready
    /// machines.
    #[error(transparent)]
    Inbox(#[from] handover_ring::CapacityError),
    /// A system call to open a descriptor failed. Most often with EMFILE: too many open files
    /// (`ulimit -n`).
    #[error("cannot create the machine or group: {call} failed: {error}")]
    SystemCall {
        /// Name of the system call.
        call: &'static str,
        /// Error of the system call.
        error: io::Error,
    },
    /// The group already has its maximum number of machines; machines that were removed count too.
    #[error(
        "cannot add a machine: {machines_max} were added, counting removed ones; raise machines_max"
    )]
    GroupFull {
        /// Value of `machines_max`, the maximum number of machines of the group.
        machines_max: u32,
    },
}

/// Error of sending a message; contains the message.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError<M> {
    /// The machine's queue is full. Under [`WhenFull::Block`](crate::WhenFull), it remained full
    /// until the timeout.
    #[error("cannot send: the machine's queue is full")]
    Full(M),
    /// The machine is closed or dropped, and will never accept a message again.
    #[error("cannot send: the machine is closed")]
    Closed(M),
}

impl<M> SendError<M> {
    /// Returns the message that was not sent.
    #[inline]
    pub fn into_inner(self) -> M {
        match self {
            SendError::Full(message) | SendError::Closed(message) => message,
        }
    }

    /// Returns `true` if the machine's queue was full, so that a later attempt may succeed.
    #[inline]
    pub fn is_full(&self) -> bool {
        matches!(self, SendError::Full(_))
    }
}

/// Omits the message, so that `expect` works for messages without `Debug`.
impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Full(_) => "Full(..)",
            SendError::Closed(_) => "Closed(..)",
        })
    }
}

/// Error of waiting for a reply that will not come. Its [`Reply`](crate::Reply) was dropped, or it
/// was received already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no reply will come: the request was dropped without one, or it was received already")]
pub struct NoReplyError;

/// Error of sending a reply.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError<R> {
    /// The requester does not wait any more; contains the reply.
    #[error("cannot send the reply: the requester does not wait any more")]
    Closed(R),
    /// The inbox of the requesting machine is full or closed. The reply was converted into a
    /// message, and was dropped.
    #[error("cannot send the reply: the requesting machine's inbox is full or closed")]
    Refused,
}

/// Omits the reply, so that `expect` works for replies without `Debug`.
impl<R> fmt::Debug for ReplyError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReplyError::Closed(_) => "Closed(..)",
            ReplyError::Refused => "Refused",
        })
    }
}

/// Error of starting a timer when `timers_max` timers are running; contains the message.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot start a timer: timers_max timers are running; raise timers_max, or cancel a timer")]
pub struct TimersFull<M>(pub M);

impl<M> fmt::Debug for TimersFull<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimersFull(..)")
    }
}

/// Error of watching a descriptor, or of changing a watch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// A system call failed. EPERM means that the descriptor cannot be polled (a regular file),
    /// EEXIST that it is watched already, EMFILE that the process has too many open files.
    #[error("cannot watch the descriptor: {call} failed: {error}")]
    SystemCall {
        /// Name of the system call.
        call: &'static str,
        /// Error of the system call.
        error: io::Error,
    },
    /// The watch to be changed has already been stopped.
    #[error("cannot change the watch: it was stopped; watch the descriptor again")]
    Stopped,
}

/// Error that ends the run of a machine or group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The system call that waits for events failed.
    #[error("cannot run the machine or group: {call} failed: {error}")]
    SystemCall {
        /// Name of the system call.
        call: &'static str,
        /// Error of the system call.
        error: io::Error,
    },
}

/// Error of blocking signals and receiving them through a descriptor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// A system call failed. EINVAL means that a number is no signal, EMFILE that the process has
    /// too many open files.
    #[error("cannot receive signals: {call} failed: {error}")]
    SystemCall {
        /// Name of the system call.
        call: &'static str,
        /// Error of the system call.
        error: io::Error,
    },
}

/// Error of starting a thread; contains the machine or group that should have run on it.
#[derive(thiserror::Error)]
#[error(
    "cannot start a thread for the machine: {error}; see `ulimit -u` and the cgroup's pids.max"
)]
pub struct SpawnError<M> {
    /// Machine or group that should have run, unchanged.
    pub machine: Box<M>,
    /// Error of starting the thread. Most often EAGAIN, for a limit on threads (`ulimit -u`, a
    /// cgroup's pids.max) or on memory (`ulimit -v`).
    pub error: io::Error,
}

handover_base::debug_struct!(SpawnError<T> as it { error: it.error });
