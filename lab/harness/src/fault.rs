//! Error type of measurement; a failure is reported as an error, never as a hang.

use rustix::io::Errno;
use std::time::Duration;

/// Error of a benchmark that yielded no figure.
#[derive(Debug, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Fault {
    /// The workload could not be set up, or detected a wrong result.
    #[error("{0}")]
    Workload(String),
    /// A participant panicked.
    #[error("participant {role} panicked: {message}")]
    Panicked {
        /// Role of the participant.
        role: String,
        /// The panic message.
        message: String,
    },
    /// A participant did not finish in time. It may wait for an event that never occurs.
    #[error("participant {role} did not finish within {after:?}; the round was abandoned")]
    Stuck {
        /// Role of the participant.
        role: String,
        /// Time limit that passed.
        after: Duration,
    },
    /// A participant's process exited before its work was done.
    #[error("participant {role} died: {status}")]
    Died {
        /// Role of the participant.
        role: String,
        /// Exit status of the process.
        status: String,
    },
    /// A thread or process could not be started.
    #[error("participant {role} could not be started: {why}")]
    Start {
        /// Role of the participant.
        role: String,
        /// Error message of the system, with a hint.
        why: String,
    },
    /// The process of a pass could not be started, or exited too early.
    #[error("the process of pass {pass} failed: {why}")]
    Pass {
        /// Number of the pass, from 1.
        pass: u32,
        /// Cause of the failure.
        why: String,
    },
    /// A round of a contender failed, because of the contained fault.
    #[error("{contender}: {fault}")]
    Contender {
        /// Name of the contender, or id of the floor.
        contender: String,
        /// Cause of the failure.
        fault: Box<Fault>,
    },
    /// The workload does not support a requested option.
    #[error("{0}")]
    Unsupported(String),
    /// The run was stopped on request, for example by SIGINT.
    #[error("interrupted")]
    Interrupted,
}

impl Fault {
    /// Returns `true` for [`Fault::Interrupted`].
    pub(crate) fn is_interrupted(&self) -> bool {
        matches!(self, Fault::Interrupted)
    }

    /// Adds the contender's name to a fault of its round. [`Fault::Interrupted`] is returned
    /// unchanged.
    pub(crate) fn with_contender_name(self, name: &str) -> Fault {
        if self.is_interrupted() {
            return self;
        }
        Fault::Contender { contender: name.to_string(), fault: Box::new(self) }
    }

    /// Creates a [`Fault::Workload`] with the message `why`.
    pub fn new(why: impl Into<String>) -> Fault {
        Fault::Workload(why.into())
    }

    /// Creates a [`Fault::Workload`] whose message is that of `error`.
    pub fn from_error(error: impl std::fmt::Display) -> Fault {
        Fault::Workload(error.to_string())
    }

    /// Creates a fault for a thread or process that could not be started. It names the limits that
    /// may be the reason.
    pub(crate) fn participant_not_started(role: &str, error: &std::io::Error) -> Fault {
        let hint = match Errno::from_io_error(error) {
            Some(Errno::AGAIN) => {
                "; allow more threads (ulimit -u, or pids.max of the cgroup) or memory (ulimit -v)"
            }
            Some(Errno::MFILE) => "; allow more descriptors (ulimit -n)",
            _ => "",
        };
        Fault::Start { role: role.to_string(), why: format!("{error}{hint}") }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        Fault::Workload(error.to_string())
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault::from(std::io::Error::from(errno))
    }
}
