//! What can go wrong while measuring: always said, never a hang.

use std::time::Duration;

/// Why a benchmark yielded no figure.
#[derive(Debug, thiserror::Error)]
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
    /// The workload was asked for what it cannot do.
    #[error("{0}")]
    Unsupported(String),
    /// SIGINT, or whoever else asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Fault {
    /// A fault in the workload's own words.
    pub fn new(why: impl Into<String>) -> Fault {
        Fault::Workload(why.into())
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        Fault::Workload(error.to_string())
    }
}

impl From<rustix::io::Errno> for Fault {
    fn from(errno: rustix::io::Errno) -> Fault {
        Fault::from(std::io::Error::from(errno))
    }
}
