//! The rules of this workspace, one per file. Each is tested to fail: `src/tests/planted.rs` plants
//! violations of every rule in a conforming tree and expects exactly that report.

pub mod banned;
pub mod circles;
pub mod columns;
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
    /// Name of the rule, as in violations.
    pub name: &'static str,
    /// Sentence that states the rule.
    pub requirement: &'static str,
    /// Function that finds violations of the rule.
    pub check: fn(&Tree) -> Vec<Violation>,
}

/// Defines [`RULES`] from each rule's module and requirement.
macro_rules! rules {
    ($($module:ident: $requirement:literal;)*) => {
        /// All rules of the workspace.
        pub const RULES: &[Rule] = &[$(Rule {
            name: $module::RULE_NAME,
            requirement: $requirement,
            check: $module::check,
        },)*];
    };
}

rules! {
    rungs: "a crate depends only on crates of lower layers; only faces may use every crate";
    layout: "every mechanism and service has a suite file, every library a README as its rustdoc";
    unsafe_code: "unsafe code is in listed private modules, with a SAFETY comment at each block";
    facade: "a crate with a loom model uses the atomics of handover_base::sync";
    sizes: "a file above 1,500 lines is listed with a reason";
    crates: "a crate is named after its folder and inherits its fields from the workspace";
    banned: "no banned construct is used";
    orderings: "a comment at each atomic ordering names its partner";
    documents: "documents list all crates, decisions and libraries, and their links resolve, in the book to its pages";
    limits: "docs/SECURITY.md lists each limit of a service with its default";
    summaries: "a summary is a noun phrase or begins with a verb";
    circles: "no more than two files of a crate import one another";
    columns: "a comment wraps at 100 columns";
    words: "public text has no paths of one machine and no notes of its authors";
}

/// Returns every violation in `tree`, sorted by file and line.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found: Vec<Violation> = RULES.iter().flat_map(|rule| (rule.check)(tree)).collect();
    found.sort();
    found
}
