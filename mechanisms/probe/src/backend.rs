//! Method by which sites are switched.

use std::fmt;

/// Method of switching probe sites: writing their code by one of two ways, or setting flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Code is written through `/proc/self/mem`.
    ProcMem,
    /// Code is stored, after `mprotect` has made it writable.
    Mprotect,
    /// A flag in memory is written: under Miri, on processors other than x86-64 and aarch64, or with the feature
    /// `flags`.
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
