//! Errors of opening traces.

use handover_probe::ReadError;
use std::io;
use std::path::PathBuf;

/// Error of opening traces, or of combining traces whose times cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A file could not be read, or is not a trace.
    #[error("{}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        #[source]
        source: ReadError,
    },
    /// The folder of a trace could not be searched for the traces of child processes.
    #[error("{}: cannot search the folder for the traces of child processes", path.display())]
    Folder {
        /// Path of the trace.
        path: PathBuf,
        /// Cause of the failure.
        #[source]
        source: io::Error,
    },
    /// The times of two traces cannot be compared: they were recorded with different clocks, or in
    /// different boots.
    #[error(
        "{} was recorded with another clock than {}, or in another boot of the machine: \
         show them separately", path.display(), first.display()
    )]
    Incomparable {
        /// Path of the trace that differs from the first.
        path: PathBuf,
        /// Path of the first trace.
        first: PathBuf,
    },
    /// A trace has a name like that of a child process's trace, but is not known to be of the same
    /// recording.
    #[error(
        "{} is of an earlier recording than {}, or of a process with another parent: name both files to read both",
        path.display(), first.display()
    )]
    Unrelated {
        /// Path of the trace that was not read.
        path: PathBuf,
        /// Path of the trace beside which it was found.
        first: PathBuf,
    },
}
