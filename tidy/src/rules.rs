//! The rules of this workspace, one per file. Each has been seen to fail: `src/tests/planted.rs`
//! plants violations of every rule in a conforming tree and expects exactly that report.

pub mod banned;
pub mod circles;
pub mod crates;
pub mod documents;
pub mod facade;
pub mod limits;
pub mod orderings;
pub mod rooms;
pub mod rungs;
pub mod sizes;
pub mod summaries;
pub mod unsafe_code;
pub mod words;

use crate::{Tree, Violation};

/// A rule of the workspace.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The rule's name, as used in violations.
    pub name: &'static str,
    /// Requirement of the rule, in a sentence.
    pub asks: &'static str,
    /// Finds violations of the rule.
    pub check: fn(&Tree) -> Vec<Violation>,
}

/// Every rule.
pub const RULES: &[Rule] = &[
    Rule {
        name: rungs::NAME,
        asks: "no crate depends upwards, nor sideways; only faces join everything",
        check: rungs::check,
    },
    Rule {
        name: rooms::NAME,
        asks: "every mechanism and service has its suite file, every library its page",
        check: rooms::check,
    },
    Rule {
        name: unsafe_code::NAME,
        asks: "unsafe stands in listed private modules, and cites the fact at each block",
        check: unsafe_code::check,
    },
    Rule {
        name: facade::NAME,
        asks: "a crate with a loom model takes its atomics from handover_base::sync",
        check: facade::check,
    },
    Rule {
        name: sizes::NAME,
        asks: "a file above 1,500 lines has its reason in the list",
        check: sizes::check,
    },
    Rule {
        name: crates::NAME,
        asks: "a crate is named for its folder and inherits from the workspace",
        check: crates::check,
    },
    Rule {
        name: banned::NAME,
        asks: "what has a better replacement here is not used",
        check: banned::check,
    },
    Rule {
        name: orderings::NAME,
        asks: "an atomic ordering names its partner",
        check: orderings::check,
    },
    Rule {
        name: documents::NAME,
        asks: "the documents name what stands, and their links lead somewhere",
        check: documents::check,
    },
    Rule {
        name: limits::NAME,
        asks: "each limit of a service is in docs/SECURITY.md with its default",
        check: limits::check,
    },
    Rule {
        name: summaries::NAME,
        asks: "a summary is a noun phrase or begins with a verb",
        check: summaries::check,
    },
    Rule {
        name: circles::NAME,
        asks: "no more than two files of a crate import one another",
        check: circles::check,
    },
    Rule {
        name: words::NAME,
        asks: "public text has no private paths and no notes to self",
        check: words::check,
    },
];

/// Returns every violation in `tree`, sorted by file and line.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found: Vec<Violation> = RULES.iter().flat_map(|rule| (rule.check)(tree)).collect();
    found.sort();
    found
}
