//! Error types, one for each operation.

use std::io;
use std::path::PathBuf;

/// Error of switching sites.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The program may change its code neither through `/proc/self/mem` nor after `mprotect`.
    #[error(
        "this process may not change its own code, neither by /proc/self/mem nor by mprotect: \
         build with the feature `flags` of handover-probe"
    )]
    Refused(#[source] io::Error),
    /// More sites match than an event's number can hold; those beyond stay off.
    #[error("{sites_count} sites match, but one program can record {} at most", crate::SITES_MAX)]
    TooMany {
        /// Number of sites that match.
        sites_count: usize,
    },
}

/// Error of starting a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another recording runs in this process.
    #[error("a recording to {path} is already running: finish it first")]
    Running {
        /// Path of the running recording.
        path: PathBuf,
    },
    /// The process is ending: its exit handlers, which finish recordings, have begun to run.
    #[error("cannot start a recording: the process is exiting")]
    Ending,
    /// A configured number is outside its range.
    #[error(transparent)]
    OutOfRange(#[from] handover_base::range::OutOfRange),
    /// A file could not be created.
    #[error("cannot write {path}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Text that is no valid policy, size or duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={text}: {expected}")]
pub struct VariableError {
    pub(crate) variable: &'static str,
    pub(crate) text: String,
    pub(crate) expected: &'static str,
}

/// Error of opening a trace. Damage within a trace is not an error: it is counted and skipped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be opened or read.
    #[error("cannot read the trace")]
    Io(#[from] io::Error),
    /// The file is not a trace.
    #[error("this is no trace: the file does not begin with a trace header")]
    Foreign,
    /// The file begins like a trace, but its first page is cut off or damaged.
    #[error("the trace's first page is damaged or cut off: the trace cannot be read")]
    Header,
}

/// Error of switching another process's sites.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtherProcessError {
    /// The process does not exist.
    #[error("there is no process {pid}")]
    NoProcess {
        /// ID of the process.
        pid: u32,
    },
    /// The process's memory may not be written.
    #[error(
        "process {pid} may not be traced: it belongs to another user, or only its parent may trace it \
         (kernel.yama.ptrace_scope)"
    )]
    Forbidden {
        /// ID of the process.
        pid: u32,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// None of the files that the process maps has a section of sites.
    #[error(
        "process {pid} has no sites: it has no probes, or was built with the feature `flags`, or its file was replaced; \
         functions of C and C++ programs are recorded from their start, by `handover trace record`"
    )]
    NoSites {
        /// ID of the process.
        pid: u32,
    },
    /// The process has sites of `handover_probe.h`, but not the library that records them.
    #[error(
        "process {pid} has probes, but nothing that records them is loaded: start it with \
         LD_PRELOAD=DIR/libhandover-trace.so, which `handover trace library DIR` writes, or with \
         `handover trace record`"
    )]
    NoRecorder {
        /// ID of the process.
        pid: u32,
    },
    /// The recording's path is not absolute, too long for the 1,024 bytes of the whole request, or
    /// has more than one line.
    #[error("{path}: the path must be absolute, on one line and at most about 900 bytes long")]
    Path {
        /// Path that was given.
        path: PathBuf,
    },
    /// The process has ended, or its memory is no longer mapped as it was.
    #[error("cannot access the memory of process {pid}: has it ended?")]
    Memory {
        /// ID of the process.
        pid: u32,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}
