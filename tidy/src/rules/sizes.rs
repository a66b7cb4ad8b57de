//! A file that outgrows itself becomes a folder. Above 800 lines a file is warned about, above
//! 1,500 it needs its reason in tidy's list; tables of data and tests are not counted.

use crate::{Source, Tree, Violation};

/// The rule's name.
pub const NAME: &str = "sizes";

/// Above this a file is warned about.
pub const LINES_WARNED: usize = 800;

/// Above this a file needs a reason.
pub const LINES_MAX: usize = 1_500;

/// What counts as a source.
const SOURCES: &[&str] = &["rs", "c", "h", "S", "py", "sh", "js", "css", "html", "md"];

/// Finds files that are too long and not listed, and listed ones that are not too long.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found: Vec<Violation> = longer_than(LINES_MAX, tree)
        .into_iter()
        .filter(|one| !tree.lists.long.iter().any(|entry| entry.covers(&one.path)))
        .collect();
    let long = longer_than(LINES_MAX, tree);
    for entry in tree.lists.long {
        if !long.iter().any(|one| entry.covers(&one.path)) {
            found.push(tree.stale(NAME, entry.path, "is not too long"));
        }
    }
    found
}

/// Files that are worth a look: above 800 lines, but not too long or with their reason listed.
pub fn warnings(tree: &Tree) -> Vec<Violation> {
    let listed = |path: &str| tree.lists.long.iter().any(|entry| entry.covers(path));
    let too_long = longer_than(LINES_MAX, tree);
    longer_than(LINES_WARNED, tree)
        .into_iter()
        .filter(|one| listed(&one.path) || !too_long.contains(one))
        .collect()
}

fn longer_than(lines_max: usize, tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.files() {
        let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
        if !SOURCES.contains(&extension) || path.contains("/tests/") {
            continue;
        }
        let count = match extension {
            "rs" => Source::new(path, text).lines_count(),
            _ => text.lines().count(),
        };
        if count > lines_max {
            found.push(Violation::new(
                NAME,
                path,
                lines_max + 1,
                format!("{count} lines without its tests"),
                "make it a folder of the same name, a file for each idea; or give its reason in \
                 LONG of tidy/src/lists.rs",
            ));
        }
    }
    found
}
