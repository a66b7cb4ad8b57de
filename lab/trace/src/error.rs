//! What can be wrong with traces.

use handover_probe::ReadError;
use std::io;
use std::path::PathBuf;

/// Traces could not be read, or not together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A file could not be read, or is no trace.
    #[error("{}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: ReadError,
    },
    /// The folder of a trace could not be read, in which its children's would be.
    #[error("{}: cannot look for its children's traces beside it", path.display())]
    Beside {
        /// Which trace.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Two traces have no common time line.
    #[error(
        "{} was recorded by another clock than {}, or before or after a restart of the machine: \
         show them one by one", path.display(), first.display()
    )]
    Incomparable {
        /// Which.
        path: PathBuf,
        /// The first one named.
        first: PathBuf,
    },
}
