//! Words and paths that public text must not contain: paths of a single machine, and notes such as
//! TODO.

use crate::{Tree, Violation, words};

/// Name of the rule.
pub const RULE_NAME: &str = "words";

/// Prefixes of paths that exist on a single machine only.
const PRIVATE_PATHS: &[&str] = &["/root/", "/Users/", "/srv/", "/scratch/"];

/// Markers of unfinished work.
const MARKERS: &[&str] = &["TODO", "FIXME", "XXX"];

/// Finds paths of a single machine and markers of unfinished work.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut used = Vec::new();
    for (path, text) in tree.files() {
        let violations = violations_in(path, text);
        match tree.lists.banned_words.iter().find(|entry| entry.covers_path(path)) {
            Some(entry) if !violations.is_empty() => used.push(entry),
            Some(_) => {}
            None => found.extend(violations),
        }
    }
    for entry in tree.lists.banned_words.iter().filter(|entry| !used.contains(entry)) {
        found.push(tree.unneeded_entry(RULE_NAME, entry.path, "contains none of the words"));
    }
    found
}

/// Finds the violations in one file.
fn violations_in(path: &str, text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for private in PRIVATE_PATHS.iter().filter(|private| is_absolute(line, private)) {
            let what = format!("the path `{private}` exists on a single machine only");
            let instead = "use a path relative to the workspace root, or one given by the user";
            found.push(Violation::new(RULE_NAME, path, number, what, instead));
        }
        for note in MARKERS.iter().filter(|note| words(line, note).next().is_some()) {
            let what = format!("the text contains `{note}`, a marker of unfinished work");
            let instead = "finish the work, or file an issue";
            found.push(Violation::new(RULE_NAME, path, number, what, instead));
        }
    }
    found
}

/// Returns `true` if the path prefix `private` starts a path in `line`. In the middle of a longer
/// path, it does not count.
fn is_absolute(line: &str, private: &str) -> bool {
    line.match_indices(private).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !"_-.~$})*>/".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_and_absolute_paths_are_found() {
        for text in
            ["mktemp x.XXXXXX", "target/root/a", "https://a.b/srv/", "$HOME/root/x", "TODOS"]
        {
            assert_eq!(violations_in("a.md", text), [], "{text}");
        }
        for text in ["see /root/house", "(/srv/a)", "`/root/`", "// TODO: x", "FIXME", "XXX!"] {
            assert_eq!(violations_in("a.md", text).len(), 1, "{text}");
        }
    }
}
