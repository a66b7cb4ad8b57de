//! Method by which sites are switched.

use std::fmt;

/// Method by which probe sites are switched on and off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Writing one byte of code through `/proc/self/mem`.
    ProcMem,
    /// Writing one byte of code after `mprotect`.
    Mprotect,
    /// Writing a flag in memory: under Miri, on other processors, or with the feature `flags`.
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
