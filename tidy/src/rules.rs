//! The rules of this workspace, one per file. Each is tested to fail: `src/tests/planted.rs` plants
//! violations of every rule in a conforming tree and expects exactly that report.

pub mod banned;
pub mod circles;
pub mod crates;
pub mod documents;
pub mod facade;
pub mod layout;
pub mod limits;
pub mod orderings;
pub mod rungs;
pub mod sizes;
pub mod summaries;
pub mod unsafe_code;
pub mod words;

use crate::{Tree, Violation};

/// A rule that the workspace must conform to.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Name of the rule, as used in violations.
    pub name: &'static str,
    /// Requirement of the rule, as a sentence.
    pub requirement: &'static str,
    /// Function that finds violations of the rule.
    pub check: fn(&Tree) -> Vec<Violation>,
}

/// All rules of the workspace.
pub const RULES: &[Rule] = &[
    Rule {
        name: rungs::RULE_NAME,
        requirement: "a crate depends only on crates of lower rungs; only faces may use every crate",
        check: rungs::check,
    },
    Rule {
        name: layout::RULE_NAME,
        requirement: "every mechanism and service has a suite file, every library a README as its rustdoc",
        check: layout::check,
    },
    Rule {
        name: unsafe_code::RULE_NAME,
        requirement: "unsafe code is in listed private modules, with a SAFETY comment at each block",
        check: unsafe_code::check,
    },
    Rule {
        name: facade::RULE_NAME,
        requirement: "a crate with a loom model uses the atomics of handover_base::sync",
        check: facade::check,
    },
    Rule {
        name: sizes::RULE_NAME,
        requirement: "a file above 1,500 lines is listed with a reason",
        check: sizes::check,
    },
    Rule {
        name: crates::RULE_NAME,
        requirement: "a crate is named after its folder and inherits its fields from the workspace",
        check: crates::check,
    },
    Rule {
        name: banned::RULE_NAME,
        requirement: "no banned construct is used",
        check: banned::check,
    },
    Rule {
        name: orderings::RULE_NAME,
        requirement: "a comment at each atomic ordering names its partner",
        check: orderings::check,
    },
    Rule {
        name: documents::RULE_NAME,
        requirement: "documents list all crates, decisions and libraries, and their links resolve",
        check: documents::check,
    },
    Rule {
        name: limits::RULE_NAME,
        requirement: "docs/SECURITY.md lists each limit of a service with its default",
        check: limits::check,
    },
    Rule {
        name: summaries::RULE_NAME,
        requirement: "a summary is a noun phrase or begins with a verb",
        check: summaries::check,
    },
    Rule {
        name: circles::RULE_NAME,
        requirement: "no more than two files of a crate import one another",
        check: circles::check,
    },
    Rule {
        name: words::RULE_NAME,
        requirement: "public text has no paths of one machine and no notes of its authors",
        check: words::check,
    },
];

/// Returns every violation in `tree`, sorted by file and line.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found: Vec<Violation> = RULES.iter().flat_map(|rule| (rule.check)(tree)).collect();
    found.sort();
    found
}
