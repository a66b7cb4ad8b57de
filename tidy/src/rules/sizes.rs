//! File lengths: above 800 lines a file causes a warning, above 1,500 it must be listed with a
//! reason. Test code and file types other than sources are not counted.

use crate::{Source, Tree, Violation};

/// Name of the rule.
pub const RULE_NAME: &str = "sizes";

/// Number of lines above which a file causes a warning.
pub const LINES_WARNING_MIN: usize = 800;

/// Number of lines above which a file must be listed with a reason.
pub const LINES_MAX: usize = 1_500;

/// Extensions of the files whose lines are counted.
const SOURCES: &[&str] = &["rs", "c", "h", "S", "py", "sh", "js", "css", "html", "md"];

/// Finds files that are too long and not listed, and listed files that are not too long.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found: Vec<Violation> = files_longer_than(LINES_MAX, tree)
        .into_iter()
        .filter(|one| !tree.lists.long.iter().any(|entry| entry.covers_path(&one.path)))
        .collect();
    let long = files_longer_than(LINES_MAX, tree);
    for entry in tree.lists.long {
        if !long.iter().any(|one| entry.covers_path(&one.path)) {
            found.push(tree.unneeded_entry(RULE_NAME, entry.path, "is within the limit"));
        }
    }
    found
}

/// Finds files longer than 800 lines, except those that [`check`] reports.
pub fn size_warnings(tree: &Tree) -> Vec<Violation> {
    let listed = |path: &str| tree.lists.long.iter().any(|entry| entry.covers_path(path));
    let too_long = files_longer_than(LINES_MAX, tree);
    files_longer_than(LINES_WARNING_MIN, tree)
        .into_iter()
        .filter(|one| listed(&one.path) || !too_long.contains(one))
        .collect()
}

fn files_longer_than(lines_max: usize, tree: &Tree) -> Vec<Violation> {
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
                RULE_NAME,
                path,
                lines_max + 1,
                format!("the file has {count} lines, without its tests"),
                "split it into a folder of the same name, or list it with its reason in \
                 LONG of tidy/src/lists.rs",
            ));
        }
    }
    found
}
