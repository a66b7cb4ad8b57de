//! Error type of the crate.

use handover_harness::Fault;
use handover_probe::{StartError, SwitchError};
use std::io;
use std::path::{Path, PathBuf};

/// Error of measuring the stages of a hand-off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnatomyError {
    /// The benchmark failed to run.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A recording could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The probe sites could not be enabled or disabled.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// A trace could not be read.
    #[error("{}", path.display())]
    Read {
        /// Path of the trace.
        path: PathBuf,
        /// Cause of the failure.
        source: handover_probe::ReadError,
    },
    /// A file or a folder could not be created, written or removed.
    #[error("cannot create, write or remove {path}: {error}", path = path.display())]
    File {
        /// Path of the file or folder.
        path: PathBuf,
        /// Cause of the failure.
        error: io::Error,
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
        /// Id of the benchmark.
        spec: &'static str,
        /// Number of complete hand-offs.
        handoffs_count: u64,
        /// Number of hand-offs whose events were contradictory.
        mismatched: u64,
    },
    /// The benchmark measured no figure.
    #[error("{spec}: the benchmark measured no figure to compare the stages with")]
    NoFigure {
        /// Id of the benchmark.
        spec: &'static str,
    },
}

impl AnatomyError {
    /// Returns a function that converts an I/O error of the file or folder `path`.
    pub(crate) fn from_io_error_at(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| AnatomyError::File { path: path.to_owned(), error }
    }
}
