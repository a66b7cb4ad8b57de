//! What can go wrong while measuring: always said, never a hang.

use rustix::io::Errno;
use std::time::Duration;

/// Why a benchmark yielded no figure.
#[derive(Debug, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Fault {
    /// The workload could not be set up, or found its own result wrong.
    #[error("{0}")]
    Workload(String),
    /// A party panicked.
    #[error("party {role} panicked: {message}")]
    Panicked {
        /// Which party.
        role: String,
        /// What it said.
        message: String,
    },
    /// A party did not come to its end: it waits for something that never comes.
    #[error("party {role} did not finish within {after:?}; it was given up")]
    Stuck {
        /// Which party.
        role: String,
        /// After how long.
        after: Duration,
    },
    /// A party's process ended before its work was done.
    #[error("party {role} died: {status}")]
    Died {
        /// Which party.
        role: String,
        /// Its exit status.
        status: String,
    },
    /// A thread or process could not be started.
    #[error("party {role} could not be started: {why}")]
    Start {
        /// Which party.
        role: String,
        /// What the system said.
        why: String,
    },
    /// The process of a pass could not be started, or ended too early.
    #[error("pass {pass} was lost with its process: {why}")]
    Pass {
        /// Which pass, from 1.
        pass: u32,
        /// What became of it.
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
    /// SIGINT, or whoever else asked to stop.
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

    /// A thread or process that the system does not give, with the limits that may be the reason.
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
