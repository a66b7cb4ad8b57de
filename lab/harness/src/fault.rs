//! Error type of measurement; a fault ends in an error, never in a hang.

use rustix::io::Errno;
use std::time::Duration;

/// Error of a benchmark that yielded no figure.
#[derive(Debug, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Fault {
    /// The workload could not be set up, or found its own result wrong.
    #[error("{0}")]
    Workload(String),
    /// A participant panicked.
    #[error("participant {role} panicked: {message}")]
    Panicked {
        /// The participant's role.
        role: String,
        /// The panic message.
        message: String,
    },
    /// A participant did not finish: it waits for an event that never comes.
    #[error("participant {role} did not finish within {after:?}; it was given up")]
    Stuck {
        /// The participant's role.
        role: String,
        /// Time after which it was given up.
        after: Duration,
    },
    /// A participant's process ended before its work was done.
    #[error("participant {role} died: {status}")]
    Died {
        /// The participant's role.
        role: String,
        /// The exit status.
        status: String,
    },
    /// A thread or process could not be started.
    #[error("participant {role} could not be started: {why}")]
    Start {
        /// The participant's role.
        role: String,
        /// The system's error, with a hint.
        why: String,
    },
    /// The process of a pass could not be started, or ended too early.
    #[error("pass {pass} was lost with its process: {why}")]
    Pass {
        /// The pass's number, from 1.
        pass: u32,
        /// The reason.
        why: String,
    },
    /// A round of a contender failed.
    #[error("{contender}: {fault}")]
    Contender {
        /// Name of the contender, or id of the floor.
        contender: String,
        /// Reason.
        fault: Box<Fault>,
    },
    /// The workload was asked for what it cannot do.
    #[error("{0}")]
    Unsupported(String),
    /// The run was asked to stop, for example by SIGINT.
    #[error("interrupted")]
    Interrupted,
}

impl Fault {
    pub(crate) fn is_interrupted(&self) -> bool {
        matches!(self, Fault::Interrupted)
    }

    /// The fault with the name of the contender whose round it ended; an interruption is nobody's.
    pub(crate) fn of_contender(self, name: &str) -> Fault {
        if self.is_interrupted() {
            return self;
        }
        Fault::Contender { contender: name.to_string(), fault: Box::new(self) }
    }

    /// A fault in the workload's own words.
    pub fn new(why: impl Into<String>) -> Fault {
        Fault::Workload(why.into())
    }

    /// Creates a fault from an error that a workload met.
    pub fn of(error: impl std::fmt::Display) -> Fault {
        Fault::Workload(error.to_string())
    }

    /// Creates a fault for a thread or process that could not be started, naming the limits that
    /// may be the reason.
    pub(crate) fn not_started(role: &str, refused: &std::io::Error) -> Fault {
        let hint = match Errno::from_io_error(refused) {
            Some(Errno::AGAIN) => {
                "; allow more threads (ulimit -u, or pids.max of the cgroup) or memory (ulimit -v)"
            }
            Some(Errno::MFILE) => "; allow more descriptors (ulimit -n)",
            _ => "",
        };
        Fault::Start { role: role.to_string(), why: format!("{refused}{hint}") }
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
