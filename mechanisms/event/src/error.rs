//! What can go wrong: one enum per operation that can fail. A refusal returns the goods.

use core::fmt;
use rustix::io::Errno;

/// Why a [`Config`](crate::Config) is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A knob is outside its range.
    #[error("{knob}={value}: must lie in {min}..={max}")]
    OutOfRange {
        /// The field's name.
        knob: &'static str,
        /// What it was set to.
        value: u32,
        /// The least it may be.
        min: u32,
        /// The most it may be.
        max: u32,
    },
    /// A knob of how to spin is outside its range.
    #[error(transparent)]
    Spin(#[from] handover_notify::ConfigError),
    /// A knob of the timers is outside its range.
    #[error(transparent)]
    Timers(#[from] handover_timer::ConfigError),
}

/// Why a machine, or a group of them, could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The memory for the inbox could not be had.
    #[error(transparent)]
    Inbox(#[from] handover_ring::CapacityError),
    /// The kernel gave no descriptor; most often EMFILE: too many open files (`ulimit -n`).
    #[error("{call} failed: {errno}")]
    Refused {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The group holds as many machines as it may.
    #[error("the group holds {machines_max} machines already: raise machines_max")]
    GroupFull {
        /// How many it may hold.
        machines_max: u32,
    },
}

/// Why a message was not taken; it comes back.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError<M> {
    /// There is no room for it (and, where senders wait for room, none has come in time).
    #[error("the machine's queue is full")]
    Full(M),
    /// The machine is gone, or closed. No message will ever be taken again.
    #[error("the machine is closed")]
    Closed(M),
}

impl<M> SendError<M> {
    /// The message.
    #[inline]
    pub fn into_inner(self) -> M {
        match self {
            SendError::Full(message) | SendError::Closed(message) => message,
        }
    }

    /// Whether it is worth trying again.
    #[inline]
    pub fn is_full(&self) -> bool {
        matches!(self, SendError::Full(_))
    }
}

/// Without the message, so that `expect` works with what cannot be shown.
impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Full(_) => "Full(..)",
            SendError::Closed(_) => "Closed(..)",
        })
    }
}

/// As many timers are running as `timers_max` allows; here is the message.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("as many timers are running as timers_max allows")]
pub struct TimersFull<M>(pub M);

impl<M> fmt::Debug for TimersFull<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimersFull(..)")
    }
}

/// Why a descriptor is not watched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The kernel refused: EPERM for what cannot be polled (a regular file), EEXIST for what is
    /// watched already, EMFILE when the machine's own descriptors could not be had.
    #[error("{call} failed: {errno}")]
    Refused {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The watch is over.
    #[error("this watch is over")]
    Over,
}

/// Why a machine stopped running that was not asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The kernel refused what it granted before.
    #[error("{call} failed: {errno}")]
    Refused {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}

/// Why signals cannot be received as events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// The kernel refused: EINVAL for a signal that cannot be blocked or does not exist, EMFILE when
    /// there is no descriptor.
    #[error("{call} failed: {errno}")]
    Refused {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}

/// No thread could be started; here is what should have run on it.
#[derive(thiserror::Error)]
#[error("no thread for the machine: {why}")]
pub struct SpawnError<T> {
    /// What should have run, as it was.
    pub goods: Box<T>,
    /// What the system said: most often EAGAIN, for a limit on threads (`ulimit -u`, a cgroup's
    /// pids.max) or on memory (`ulimit -v`).
    pub why: std::io::Error,
}

impl<T> fmt::Debug for SpawnError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnError").field("why", &self.why).finish_non_exhaustive()
    }
}
