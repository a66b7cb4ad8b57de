//! Summaries of doc comments: a noun phrase or a third-person verb, never a question.

use crate::{Tree, Violation};

/// Name of the rule.
pub const RULE_NAME: &str = "summaries";

/// Words with which the summary of a doc comment must not start.
const BANNED_OPENERS: &[&str] = &[
    "What", "Whose", "Who", "Whoever", "Whom", "Whether", "How", "That", "So", "Until", "Where",
    "Nothing", "When", "Why", "Which",
];

/// Finds summaries of doc comments that start with one of [`BANNED_OPENERS`].
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources() {
        let mut marker_before = "";
        for (line, number) in source.comments.lines().zip(1..) {
            let (marker, text) = doc_marker_and_text(line);
            if !marker.is_empty()
                && marker != marker_before
                && let Some(opener) = banned_opener(text)
            {
                let what = format!("the summary starts with `{opener}`");
                let instead = "start with a noun phrase (\"Maximum number of queued packets.\") or a verb \
                               (\"Wakes the receiver if it is parked.\")";
                found.push(Violation::new(RULE_NAME, source.path, number, what, instead));
            }
            marker_before = marker;
        }
    }
    found
}

/// Splits a doc comment line into `///` or `//!` and its text. Both are empty for other lines.
fn doc_marker_and_text(line: &str) -> (&'static str, &str) {
    let line = line.trim_start();
    for marker in ["///", "//!"] {
        if let Some(text) = line.strip_prefix(marker) {
            return (marker, text.trim_start());
        }
    }
    ("", "")
}

/// Returns the first word of `text` if it is one of [`BANNED_OPENERS`].
fn banned_opener(text: &str) -> Option<&'static str> {
    let word = text.split(|c: char| !c.is_alphanumeric()).next()?;
    BANNED_OPENERS.iter().copied().find(|opener| *opener == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_word_counts() {
        assert_eq!(banned_opener("What a party needs."), Some("What"));
        assert_eq!(banned_opener("Whether it is on"), Some("Whether"));
        assert_eq!(banned_opener("Whatever"), None);
        assert_eq!(banned_opener("Returns what is left."), None);
        assert_eq!(banned_opener(""), None);
    }
}
