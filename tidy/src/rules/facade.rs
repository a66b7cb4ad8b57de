//! Atomics of crates with a loom model must come from the sync facade: loom does not explore the
//! interleavings of other atomics.

use crate::{Tree, Violation};

/// Name of the rule.
pub const RULE_NAME: &str = "facade";

/// Finds atomics of `std` and `core` in the sources of crates that have a loom model. `base` is
/// exempt, as it contains the facade.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for one in tree.crates() {
        let modelled = ["tests/model.rs", "tests/model"]
            .iter()
            .any(|model| tree.contains_path(&format!("{}/{model}", one.folder)));
        if !modelled || one.folder == "base" {
            continue;
        }
        let sources = format!("{}/src/", one.folder);
        for source in tree.sources().filter(|source| source.path.starts_with(&sources)) {
            let mut lines = source.lines_with("std::sync::atomic");
            lines.extend(source.lines_with("core::sync::atomic"));
            lines.sort_unstable();
            for line in lines.into_iter().filter(|&line| !source.is_test(line)) {
                found.push(Violation::new(
                    RULE_NAME,
                    source.path,
                    line,
                    "loom does not model this atomic",
                    "use handover_base::sync::atomic; for words shared with the kernel, other \
                     processes or code, handover_base::sync::shared",
                ));
            }
        }
    }
    found
}
