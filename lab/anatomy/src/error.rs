//! Why a benchmark could not be taken apart.

use handover_harness::Fault;
use handover_probe::{StartError, SwitchError};
use std::io;
use std::path::{Path, PathBuf};

/// Why a benchmark could not be taken apart.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnatomyError {
    /// The benchmark could not be run.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A recording could not begin.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The sites could not be switched.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// A trace could not be read.
    #[error("{path}: {source}", path = path.display())]
    Read {
        /// The trace.
        path: PathBuf,
        /// Why.
        source: handover_probe::ReadError,
    },
    /// A file or a folder could not be made, written or removed.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The traces of the parties' processes are of different clocks.
    #[error(
        "the parties' processes do not tell the time by one clock, so that nothing can be said of what lies between them"
    )]
    NoTimeLine,
    /// Hardly anything was seen.
    #[error(
        "{spec}: only {handoffs_count} hand-offs were seen whole ({mismatched} did not fit together); try for longer (--seconds), with the parties on CPUs of their own"
    )]
    TooFew {
        /// The benchmark.
        spec: &'static str,
        /// Hand-offs.
        handoffs_count: u64,
        /// What did not fit.
        mismatched: u64,
    },
    /// The benchmark yielded no figure to stand beside.
    #[error("{spec}: it yielded no figure")]
    NoFigure {
        /// The benchmark.
        spec: &'static str,
    },
}

impl AnatomyError {
    pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| AnatomyError::File { path: path.to_owned(), source }
    }
}
