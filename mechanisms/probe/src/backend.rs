//! Method by which sites are switched.

use std::fmt;

/// Method by which probe sites are switched on and off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Code is written through `/proc/self/mem`.
    ProcMem,
    /// Code is overwritten in memory that `mprotect` has made writable.
    Mprotect,
    /// A flag of the site is set, and no code is changed. This is the method under Miri, on
    /// processors other than x86-64 and aarch64, and with the feature `flags`.
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
