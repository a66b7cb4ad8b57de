//! Exceptions to the rules, each with its reason. An entry that is no longer needed is itself a
//! violation, so the lists stay current.

/// A file, or a folder if `path` ends in `/`, that is exempt from a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Path relative to the workspace root.
    pub path: &'static str,
    /// Reason for the exemption.
    pub reason: &'static str,
}

impl Listed {
    /// Returns `true` if this entry covers the file at `path`.
    pub fn covers(&self, path: &str) -> bool {
        path == self.path || (self.path.ends_with('/') && path.starts_with(self.path))
    }
}

/// Exception lists of one workspace.
#[derive(Clone, Copy, Debug)]
pub struct Lists {
    /// Files and folders that may contain `unsafe`: `raw.rs` files and `raw/` folders, each private
    /// to a crate with a safe API. The reason says what needs `unsafe`.
    pub raw: &'static [Listed],
    /// Other files with `unsafe`: FFI tests, the C ABI, macro expansions.
    pub unsafe_elsewhere: &'static [Listed],
    /// Files longer than 1,500 lines.
    pub long: &'static [Listed],
    /// Files that have to contain words and paths that public text must not contain.
    pub spelling: &'static [Listed],
}

impl Lists {
    /// Empty lists: no exceptions.
    pub const NONE: Self = Self { raw: &[], unsafe_elsewhere: &[], long: &[], spelling: &[] };
}

/// Exception lists of this workspace.
pub const HOUSE: Lists =
    Lists { raw: RAW, unsafe_elsewhere: UNSAFE_ELSEWHERE, long: LONG, spelling: SPELLING };

const fn listed(path: &'static str, reason: &'static str) -> Listed {
    Listed { path, reason }
}

#[rustfmt::skip]
const RAW: &[Listed] = &[
    listed("base/src/raw/", "the processor's instructions, prctl and getrusage"),
    listed("base/tests/raw/", "an allocator that counts, for several crates"),
    listed("faces/program/src/raw.rs", "signals at a parent's end, a heap given back, and outputs before main"),
    listed("classic/src/calls/raw.rs", "what a process used, told when it has ended"),
    listed("classic/src/hello/raw.rs", "a setting of the C library's allocator"),
    listed("lab/harness/src/raw.rs", "memory that the parties' processes share, and forking them"),
    listed("lab/suite/src/raw/", "what is measured: instructions, and the C library's own calls"),
    listed("mechanisms/event/src/raw/", "slots that messages share, and signals as descriptors"),
    listed("mechanisms/fiber/src/raw/", "stacks, the switch between them, and what is strung through both"),
    listed("mechanisms/fiber/tests/raw/", "waiting and queueing by hand, in the models"),
    listed("mechanisms/lock/src/raw/", "the guarded cell"),
    listed("mechanisms/timer/src/raw.rs", "asking for memory ahead of looking at it"),
    listed("services/net/src/raw.rs", "how much of what was sent the peer has taken"),
    listed("mechanisms/notify/src/raw/", "memory that processes share, and the CPU's number"),
    listed("mechanisms/probe/src/raw/", "code that is changed while it runs, and mapped rings"),
    listed("mechanisms/probe/tests/process/raw.rs", "forking, and a limit on files"),
    listed("mechanisms/ring/src/raw/", "slots that one thread fills and another empties"),
    listed("services/rpc/src/raw/", "memory that two processes share"),
];

#[rustfmt::skip]
const UNSAFE_ELSEWHERE: &[Listed] = &[
];

#[rustfmt::skip]
const LONG: &[Listed] = &[
];

#[rustfmt::skip]
const SPELLING: &[Listed] = &[
    listed("tidy/src/rules/words.rs", "names the words it looks for"),
    listed("tidy/src/tests/planted.rs", "plants the words to see them found"),
];
