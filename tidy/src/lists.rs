//! What the rules let pass, each with its reason. An entry that is no longer needed is itself a
//! violation, so the lists only hold what is true today.

/// A file, or a folder when it ends in `/`, that a rule lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Relative to the workspace root.
    pub path: &'static str,
    /// Why it may.
    pub reason: &'static str,
}

impl Listed {
    /// Whether this entry speaks of the file at `path`.
    pub fn covers(&self, path: &str) -> bool {
        path == self.path || (self.path.ends_with('/') && path.starts_with(self.path))
    }
}

/// The lists of one house.
#[derive(Clone, Copy, Debug)]
pub struct Lists {
    /// Homes of `unsafe`: `raw.rs` files and `raw/` folders, each private to a crate whose API is
    /// safe; the reason says what cannot be had without.
    pub raw: &'static [Listed],
    /// `unsafe` outside such a home: FFI tests, the C ABI, what a macro expands to.
    pub unsafe_elsewhere: &'static [Listed],
    /// Files above 1,500 lines.
    pub long: &'static [Listed],
    /// Files that must spell the words that public text may not hold.
    pub spelling: &'static [Listed],
}

impl Lists {
    /// Nothing is let pass.
    pub const NONE: Self = Self { raw: &[], unsafe_elsewhere: &[], long: &[], spelling: &[] };
}

/// What is let pass in this house.
pub const HOUSE: Lists =
    Lists { raw: RAW, unsafe_elsewhere: UNSAFE_ELSEWHERE, long: LONG, spelling: SPELLING };

const fn listed(path: &'static str, reason: &'static str) -> Listed {
    Listed { path, reason }
}

#[rustfmt::skip]
const RAW: &[Listed] = &[
    listed("base/src/raw.rs", "the time-stamp counter, and getrusage for one thread"),
    listed("faces/cli/src/raw.rs", "signals at a parent's end, a heap given back, and outputs before main"),
    listed("faces/cli/src/classic/calls/raw.rs", "what a process used, told when it has ended"),
    listed("faces/cli/src/classic/hello/raw.rs", "a setting of the C library's allocator"),
    listed("lab/harness/src/raw.rs", "memory that the parties' processes share, and forking them"),
    listed("lab/suite/src/raw/", "what is measured: instructions, and the C library's own calls"),
    listed("mechanisms/event/src/raw/", "slots that messages share, and signals as descriptors"),
    listed("mechanisms/fiber/src/raw/", "stacks, the switch between them, and what is strung through both"),
    listed("mechanisms/fiber/tests/raw/", "waiting and queueing by hand, in the models"),
    listed("mechanisms/lock/src/raw/", "the guarded cell, and the C library's locks in place"),
    listed("mechanisms/timer/src/raw.rs", "asking for memory ahead of looking at it"),
    listed("services/net/src/raw.rs", "how much of what was sent the peer has taken"),
    listed("mechanisms/event/tests/allocation/raw.rs", "an allocator that counts"),
    listed("mechanisms/timer/tests/allocation/raw.rs", "an allocator that counts"),
    listed("mechanisms/notify/src/raw.rs", "memory that processes share, and the CPU's number"),
    listed("mechanisms/probe/src/raw/", "code that is changed while it runs, and mapped rings"),
    listed("mechanisms/probe/tests/process/raw.rs", "forking, and a limit on files"),
    listed("mechanisms/ring/src/raw/", "slots that one thread fills and another empties"),
    listed("mechanisms/sched/src/raw.rs", "asking for memory ahead of looking at it"),
    listed("mechanisms/sched/src/drive/raw.rs", "asking for cache lines ahead of writing them"),
    listed("mechanisms/sched/tests/allocation/raw.rs", "an allocator that counts"),
    listed("services/rpc/src/raw/", "memory that two processes share"),
    listed("services/rpc/tests/allocation/raw.rs", "an allocator that counts"),
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
    listed("tidy/tests/it/planted.rs", "plants the words to see them found"),
];
