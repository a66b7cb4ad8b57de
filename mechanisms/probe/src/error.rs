//! What can go wrong, by operation.

use std::io;
use std::path::PathBuf;

/// Sites could not be switched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The program may change its code neither through `/proc/self/mem` nor by `mprotect`.
    #[error(
        "this process may not change its own code, neither by /proc/self/mem nor by mprotect: \
         build with the feature `flags` of handover-probe"
    )]
    Refused(#[source] io::Error),
    /// More sites than events have numbers for; those beyond stay off.
    #[error("{sites_count} sites match, but one program can record {} at most", crate::SITES_MAX)]
    TooMany {
        /// How many there are.
        sites_count: usize,
    },
}

/// Recording could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another recording runs in this process.
    #[error("a recording to {path} runs already: finish it first")]
    Running {
        /// Where it is recorded to.
        path: PathBuf,
    },
    /// The process ends: its exit handlers run, which finish recordings.
    #[error("the process is ending: nothing more is recorded")]
    Ending,
    /// A number is out of its bounds.
    #[error("{name} = {value}: must lie in {min}..={max}")]
    OutOfRange {
        /// Which.
        name: &'static str,
        /// What was given.
        value: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A file could not be made.
    #[error("cannot write {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A text names no policy or size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={text}: {wanted}")]
pub struct VariableError {
    pub(crate) variable: &'static str,
    pub(crate) text: String,
    pub(crate) wanted: &'static str,
}

/// A trace could not be read at all. Damage within one is no error: it is counted and passed over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be opened or read.
    #[error("cannot read the trace")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("this is no trace: it does not begin like one")]
    Foreign,
    /// It begins like a trace, but its first page is cut off or damaged.
    #[error("the trace's first page is damaged: nothing behind it can be understood")]
    Header,
}

/// Another process's sites could not be switched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutsideError {
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// Its memory may not be written.
    #[error(
        "process {pid} may not be traced: it is another user's, or the kernel lets only its parent \
         (kernel.yama.ptrace_scope)"
    )]
    Forbidden {
        /// Its number.
        pid: u32,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// None of the files that it runs has a section of sites.
    #[error(
        "process {pid} has no sites: no probes, or probes built as flags, or a file that was replaced; \
         functions of C and C++ programs are recorded from their start, by `handover trace record`"
    )]
    NoSites {
        /// Its number.
        pid: u32,
    },
    /// It has sites of `handover_probe.h`, and nothing that would record at them.
    #[error(
        "process {pid} has probes, and nothing that records at them: start it with \
         LD_PRELOAD=DIR/libhandover-trace.so, which `handover trace library DIR` writes out, or by \
         `handover trace record`"
    )]
    NoRecorder {
        /// Its number.
        pid: u32,
    },
    /// The recording's file must be named in full, in less than 900 bytes and on one line.
    #[error("{path}: another process asks for an absolute path, short and on one line")]
    Path {
        /// As it was given.
        path: PathBuf,
    },
    /// It ended meanwhile, or its memory is not what it was.
    #[error("the memory of process {pid} cannot be read or written any more")]
    Memory {
        /// Its number.
        pid: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
}
