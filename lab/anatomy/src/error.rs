//! The crate's error type.

use handover_harness::Fault;
use handover_probe::{StartError, SwitchError};
use std::io;
use std::path::{Path, PathBuf};

/// Error of measuring an anatomy.
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
        /// The cause.
        source: handover_probe::ReadError,
    },
    /// A file or a folder could not be made, written or removed.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The participants' processes use different clocks, so their traces have no common time line.
    #[error(
        "the participants' processes use different clocks: their events cannot be ordered on one time line"
    )]
    NoTimeLine,
    /// Too few complete hand-offs were recorded.
    #[error(
        "{spec}: only {handoffs_count} complete hand-offs were recorded ({mismatched} had contradictory events); measure longer (--seconds), with each participant on its own CPU"
    )]
    TooFew {
        /// The benchmark.
        spec: &'static str,
        /// Number of complete hand-offs.
        handoffs_count: u64,
        /// Number of hand-offs whose events contradicted each other.
        mismatched: u64,
    },
    /// The benchmark yielded no figure to print beside the stages.
    #[error("{spec}: the benchmark yielded no figure")]
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
