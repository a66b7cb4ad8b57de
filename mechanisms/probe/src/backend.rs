//! Method by which sites are switched.

use std::fmt;

/// Method of switching probe sites: writing their code by one of two ways, or setting flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// One byte of code is written through `/proc/self/mem`.
    ProcMem,
    /// One byte of code is written, after `mprotect` has made it writable.
    Mprotect,
    /// The program writes a flag in memory. This is so under Miri, on processors other than x86-64,
    /// or with the feature `flags`.
    Flag,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Backend::ProcMem => "code, by /proc/self/mem",
            Backend::Mprotect => "code, by mprotect",
            Backend::Flag => "flags",
        })
    }
}
