//! Exceptions to the rules, each with its reason. An unneeded entry is itself a violation, so the
//! lists stay current.

/// File or folder that is exempt from a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemption {
    /// Path relative to the workspace root. The path of a folder ends in `/`.
    pub path: &'static str,
    /// Reason for the exemption.
    pub reason: &'static str,
}

impl Exemption {
    /// Returns `true` if the file at `path` is exempt.
    pub fn covers_path(&self, path: &str) -> bool {
        path == self.path || (self.path.ends_with('/') && path.starts_with(self.path))
    }
}

/// Lists of the files that are exempt from rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExceptionLists {
    /// Private modules that may contain `unsafe`. They are `raw.rs` files and `raw/` folders,
    /// each private to a crate with a safe API. The reason names the code that needs `unsafe`.
    pub raw: &'static [Exemption],
    /// Files that may be longer than 1,500 lines.
    pub long_files: &'static [Exemption],
    /// Files that may contain words and paths banned from public text.
    pub banned_words: &'static [Exemption],
}

/// Exception lists of this workspace.
pub const WORKSPACE_EXCEPTIONS: ExceptionLists =
    ExceptionLists { raw: RAW, long_files: LONG_FILES, banned_words: BANNED_WORDS };

const fn exemption(path: &'static str, reason: &'static str) -> Exemption {
    Exemption { path, reason }
}

/// Entries of [`ExceptionLists::raw`].
#[rustfmt::skip]
const RAW: &[Exemption] = &[
    exemption("base/src/raw/", "processor instructions, prctl and getrusage"),
    exemption("base/tests/raw/", "a counting allocator, for several crates"),
    exemption("faces/capi/src/raw/", "the exported functions, with pointers and callbacks of C"),
    exemption("faces/capi/tests/raw.rs", "calls of the exported functions"),
    exemption("faces/program/src/raw.rs", "a parent-death signal, malloc_trim, and code that runs before main"),
    exemption("classic/src/calls/raw.rs", "resource usage of an ended process (wait4)"),
    exemption("classic/src/hello/raw.rs", "a setting of the C library's allocator"),
    exemption("lab/harness/src/raw.rs", "memory shared by the participants' processes, and fork"),
    exemption("lab/harness/src/raw/", "an allocator that counts allocations"),
    exemption("lab/suite/src/raw/", "measured operations: instructions, and calls of the C library"),
    exemption("mechanisms/event/src/raw/", "message slots shared by threads, and signalfd"),
    exemption("mechanisms/fiber/src/raw/", "stacks, the context switch, and intrusive lists"),
    exemption("mechanisms/fiber/tests/raw/", "hand-written waiting and queueing, in the loom models"),
    exemption("mechanisms/lock/src/raw/", "the guarded cell"),
    exemption("mechanisms/timer/src/raw.rs", "prefetches"),
    exemption("mechanisms/timer/src/raw/", "records whose stamp says whether they hold a payload"),
    exemption("services/net/src/raw.rs", "the number of sent bytes that the peer has acknowledged (ioctl)"),
    exemption("mechanisms/notify/src/raw/", "memory shared by processes, and the number of the current CPU"),
    exemption("mechanisms/probe/src/raw/", "code that is patched while it runs, and mapped rings"),
    exemption("mechanisms/probe/tests/process/raw.rs", "fork, and a file size limit"),
    exemption("mechanisms/ring/src/raw/", "slots that one thread writes and another reads"),
    exemption("services/rpc/src/raw/", "memory shared by two processes"),
    exemption("services/rpc/tests/raw/", "a filter of system calls"),
];

/// Entries of [`ExceptionLists::long_files`].
#[rustfmt::skip]
const LONG_FILES: &[Exemption] = &[
    exemption("faces/capi/include/handover.h", "generated: the one header of the C interface"),
];

/// Entries of [`ExceptionLists::banned_words`].
#[rustfmt::skip]
const BANNED_WORDS: &[Exemption] = &[
    exemption("tidy/src/rules/words.rs", "contains the words that the rule finds"),
    exemption("tidy/src/tests/planted.rs", "plants the words for the test of the rule"),
];
