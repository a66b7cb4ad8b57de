//! File lengths: above 800 lines a file causes a warning, above 1,500 it must be listed with a
//! reason. Test code and file types other than sources are not counted.

use crate::{Source, Tree, Violation};

/// Name of the rule.
pub const RULE_NAME: &str = "sizes";

/// Maximum number of lines of a file that gets no warning.
pub const LINES_WITHOUT_WARNING_MAX: usize = 800;

/// Maximum number of lines of a file that is not in
/// [`ExceptionLists::long_files`](crate::ExceptionLists).
pub const LINES_MAX: usize = 1_500;

/// Extensions of the files whose lines are counted.
const COUNTED_EXTENSIONS: &[&str] = &["rs", "c", "h", "S", "py", "sh", "js", "css", "html", "md"];

/// Finds files longer than [`LINES_MAX`] without an exemption, and exemptions that no file needs.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found: Vec<Violation> = files_longer_than(LINES_MAX, tree)
        .into_iter()
        .filter(|one| !tree.lists.long_files.iter().any(|entry| entry.covers_path(&one.path)))
        .collect();
    let long = files_longer_than(LINES_MAX, tree);
    for entry in tree.lists.long_files {
        if !long.iter().any(|one| entry.covers_path(&one.path)) {
            found.push(tree.unneeded_entry(RULE_NAME, entry.path, "is within the limit"));
        }
    }
    found
}

/// Finds files longer than 800 lines, except files that [`check`] reports.
pub fn size_warnings(tree: &Tree) -> Vec<Violation> {
    let listed = |path: &str| tree.lists.long_files.iter().any(|entry| entry.covers_path(path));
    let too_long = files_longer_than(LINES_MAX, tree);
    files_longer_than(LINES_WITHOUT_WARNING_MAX, tree)
        .into_iter()
        .filter(|one| listed(&one.path) || !too_long.contains(one))
        .collect()
}

/// Finds files with more than `lines_max` lines, not counting tests.
fn files_longer_than(lines_max: usize, tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.files() {
        let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
        if !COUNTED_EXTENSIONS.contains(&extension) || path.contains("/tests/") {
            continue;
        }
        let count = match extension {
            "rs" => Source::new(path, text).lines_without_tests_count(),
            _ => text.lines().count(),
        };
        if count > lines_max {
            found.push(Violation::new(
                RULE_NAME,
                path,
                lines_max + 1,
                format!("the file has {count} lines, without its tests"),
                "split it into a folder of the same name, or list it with its reason in \
                 LONG_FILES of tidy/src/lists.rs",
            ));
        }
    }
    found
}
