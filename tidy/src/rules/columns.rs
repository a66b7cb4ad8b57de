//! Width of comments: 100 columns, like that of code, which rustfmt checks.

use crate::{Source, Tree, Violation};

/// Name of the rule.
pub const RULE_NAME: &str = "columns";

/// Maximum number of columns of a line with a comment, as in `rustfmt.toml`.
const COLUMNS_MAX: usize = 100;

/// Finds comments that could be wrapped at [`COLUMNS_MAX`] and are not.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".rs")) {
        let source = Source::new(path, text);
        let mut is_example = false;
        for ((line, comment), number) in text.lines().zip(source.comments.lines()).zip(1..) {
            let comment = comment.trim_start();
            let words = comment.trim_start_matches(['/', '!']).trim();
            if words.starts_with("```") {
                is_example = !is_example;
            } else if !comment.starts_with("//") {
                is_example = false;
            } else if !is_example && line.chars().count() > COLUMNS_MAX && can_wrap(words) {
                let what = format!("the comment is wider than {COLUMNS_MAX} columns");
                let instead = "wrap it, or write it on lines of its own";
                found.push(Violation::new(RULE_NAME, path, number, what, instead));
            }
        }
    }
    found
}

/// Returns `true` if `words` can continue on another line. Tables, drawings and the targets of
/// links cannot.
fn can_wrap(words: &str) -> bool {
    let is_table_or_drawing = words.starts_with('|') || words.contains(['│', '─']);
    let is_target_of_link = words.starts_with('[') && words.contains("]: ");
    words.contains(' ') && !is_table_or_drawing && !is_target_of_link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_running_text_wraps() {
        for text in ["a longer text", "- an item", "see [the map](docs/ARCHITECTURE.md)"] {
            assert!(can_wrap(text), "{text}");
        }
        for text in ["https://example.com/a", "| a | b |", "a ──▶ b", "[map]: docs/MAP.md"] {
            assert!(!can_wrap(text), "{text}");
        }
    }
}
