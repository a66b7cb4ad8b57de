//! Error types, one for each operation.

use std::io;
use std::path::PathBuf;

/// Error of switching probe sites on or off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The operating system refused both methods of changing the program's code.
    #[error(
        "cannot change this process's code, neither by /proc/self/mem nor by mprotect: \
         build with the feature `flags` of handover-probe"
    )]
    Refused(#[source] io::Error),
    /// More sites match than can be on at once. The excess sites stay off: an event has 18 bits for
    /// the site's number.
    #[error(
        "{sites_count} sites match, but at most {} can be on at once: use a narrower pattern",
        crate::SITES_MAX
    )]
    TooManySites {
        /// Number of sites that match.
        sites_count: usize,
    },
}

/// Error of starting a recording of events.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The recording cannot start because another one is running in this process.
    #[error("a recording to {path} is already running: finish it first")]
    AlreadyRunning {
        /// Path of the trace that is being recorded.
        path: PathBuf,
    },
    /// The process is exiting. Its exit handlers, which finish recordings, have started to run.
    #[error("cannot start a recording: the process is exiting")]
    ProcessExiting,
    /// A configured number is outside its range.
    #[error(transparent)]
    OutOfRange(#[from] handover_base::range::OutOfRange),
    /// The trace file could not be created or written.
    #[error("cannot create or write the trace {path}")]
    File {
        /// Path of the trace file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Error of an environment variable whose text is not a valid policy, size or duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={text}: {expected}")]
pub struct VariableError {
    /// Name of the variable.
    pub(crate) variable: &'static str,
    /// Invalid text of the variable.
    pub(crate) text: String,
    /// Description of valid texts.
    pub(crate) expected: &'static str,
}

/// Error of opening a trace. Damage within a trace is not an error: it is counted and skipped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The trace file could not be opened or read.
    #[error("cannot read the trace")]
    Io(#[from] io::Error),
    /// The file does not start with the magic number of a trace.
    #[error("this is not a trace: the file does not begin with a trace header")]
    NotATrace,
    /// The file starts like a trace, but its first page is incomplete or damaged.
    #[error("cannot read the trace: its first page is damaged or incomplete")]
    DamagedHeader,
}

/// Error of switching the probe sites of another process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtherProcessError {
    /// No process has this ID.
    #[error("there is no process {pid}: has it exited?")]
    NoProcess {
        /// ID of the process.
        pid: u32,
    },
    /// The operating system refused access to the process's memory.
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
    /// None of the files that the process maps contains probe sites.
    #[error(
        "process {pid} has no sites: it has no probes, or was built with the feature `flags`, or its file was replaced; \
         functions of C and C++ programs are recorded from their start, by `handover trace record`"
    )]
    NoSites {
        /// ID of the process.
        pid: u32,
    },
    /// The process has probes of `handover_probe.h`, but no library that records them.
    #[error(
        "process {pid} has probes, but nothing that records them is loaded: start it with \
         LD_PRELOAD=DIR/libhandover-trace.so, which `handover trace library DIR` writes, or with \
         `handover trace record`"
    )]
    NoRecorder {
        /// ID of the process.
        pid: u32,
    },
    /// The trace's path cannot be sent to the process. It is relative, is not UTF-8, has more than
    /// one line, or is too long. The whole request has 1,024 bytes.
    #[error("trace path {path}: must be an absolute path, on one line, of at most about 900 bytes")]
    Path {
        /// Path of the trace as passed by the caller.
        path: PathBuf,
    },
    /// The path of the file of rings cannot be sent to the process. It is relative, is not UTF-8,
    /// has more than one line, or is too long. The whole request has 1,024 bytes.
    #[error(
        "rings_path {path}: must be an absolute path, on one line, of at most about 900 bytes \
         together with the path of the trace"
    )]
    RingsPath {
        /// Path of the file of rings as passed by the caller.
        path: PathBuf,
    },
    /// A configured number is outside its range.
    #[error(transparent)]
    OutOfRange(#[from] handover_base::range::OutOfRange),
    /// The process's memory could not be read or written. The process has exited, or has unmapped
    /// the memory.
    #[error("cannot access the memory of process {pid}: has it exited?")]
    Memory {
        /// ID of the process.
        pid: u32,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}
