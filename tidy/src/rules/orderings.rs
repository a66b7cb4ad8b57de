//! Comments on atomic orderings: each must name the ordering with which it pairs.

use crate::{Source, Tree, Violation, words};

/// Name of the rule.
pub const RULE_NAME: &str = "orderings";

/// Memory orderings that need an explanation. `Relaxed` pairs with no other ordering, and needs
/// none.
const ORDERINGS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];

/// Words by which a comment counts as the explanation of an ordering. One of them suffices.
const EXPLANATION_WORDS: &[&str] = &[
    "acquire",
    "acquires",
    "release",
    "releases",
    "acqrel",
    "seqcst",
    "relaxed",
    "ordering",
    "pairs",
    "paired",
    "partner",
    "publishes",
    "synchronises",
    "fence",
];

/// Maximum number of code lines between a comment and the ordering that it explains.
const LINES_BETWEEN_MAX: usize = 3;

/// Finds memory orderings outside tests without an explanatory comment.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources().filter(|source| source.path.contains("/src/")) {
        let mut lines: Vec<usize> = ordering_uses(&source)
            .into_iter()
            .map(|offset| source.line_at(offset))
            .filter(|&line| !source.is_test(line))
            .collect();
        lines.sort_unstable();
        lines.dedup();
        for line in lines.into_iter().filter(|&line| !is_explained(&source, line)) {
            found.push(Violation::new(
                RULE_NAME,
                source.path,
                line,
                "no comment names the partner of this ordering",
                "write above it what it publishes and to which load, or with what it pairs: \
                 `// Release: publishes slot i to the Acquire in pop().`",
            ));
        }
    }
    found
}

/// Returns the offsets of the memory orderings in the code. They are written as
/// `Ordering::Release`, or as `Release` if imported.
fn ordering_uses(source: &Source<'_>) -> Vec<usize> {
    let imports = source.imports();
    let mut found = Vec::new();
    for ordering in ORDERINGS {
        let imported = imports.iter().any(|(path, _)| {
            path.rsplit_once("Ordering::").is_some_and(|(_, last)| last == *ordering || last == "*")
        });
        found.extend(words(&source.code, ordering).filter(|&offset| {
            let before = &source.code[..offset];
            let named = before.ends_with("Ordering::");
            (named || imported && !before.ends_with("::")) && !source.is_in_use_statement(offset)
        }));
    }
    found
}

/// Returns `true` if a comment about orderings is on `line` or above it. At most
/// [`LINES_BETWEEN_MAX`] lines of code may be in between. All lines of a comment count as one; doc
/// comments do not count, as they address callers.
fn is_explained(source: &Source<'_>, line: usize) -> bool {
    let code: Vec<&str> = source.code.lines().collect();
    let comments: Vec<&str> = source.comments.lines().collect();
    let mut between = 0;
    for at in (0..line).rev() {
        if is_about_orderings(comments[at]) {
            return true;
        }
        let comment_only = code[at].trim().is_empty() && !comments[at].trim().is_empty();
        if at + 1 < line && !comment_only {
            between += 1;
        }
        if between > LINES_BETWEEN_MAX {
            return false;
        }
    }
    false
}

/// Returns `true` for a comment with one of [`EXPLANATION_WORDS`]. Doc comments do not count.
fn is_about_orderings(comment: &str) -> bool {
    let comment = comment.trim_start();
    if ["///", "//!", "/**", "/*!"].iter().any(|doc| comment.starts_with(doc)) {
        return false;
    }
    let lower = comment.to_lowercase();
    EXPLANATION_WORDS.iter().any(|word| words(&lower, word).next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_explained(text: &str, expected: bool) {
        let source = Source::new("mechanisms/lock/src/lib.rs", text);
        let last = text.lines().count();
        assert_eq!(is_explained(&source, last), expected, "{text}");
    }

    #[test]
    fn comment_within_four_lines_counts() {
        assert_explained("x.store(1, Release); // Pairs with load() in pop.", true);
        assert_explained("// Release: publishes it.\nx.store(1, Release);", true);
        assert_explained("// Acquire: see push.\na(\nb,\nc,\nAcquire)", true);
        assert_explained(
            "// Release: a long\n// story\n// told\n// on\n// and\n// on.\nRelease",
            true,
        );
    }

    #[test]
    fn bare_name_is_an_ordering_only_if_imported() {
        let count = |text: &str| ordering_uses(&Source::new("base/src/lib.rs", text)).len();
        assert_eq!(count("use a::Ordering::{self, Release};\nx.store(1, Release);\n"), 1);
        assert_eq!(count("use a::Ordering::*;\nx.load(Acquire); y(Step::Acquire);\n"), 1);
        assert_eq!(count("x.load(core::sync::atomic::Ordering::SeqCst);\n"), 1);
        assert_eq!(count("enum Step { Release }\nfn f() { g(Step::Release); }\n"), 0);
    }

    #[test]
    fn other_distant_or_doc_comments_do_not_count() {
        assert_explained("x.store(1, Release);", false);
        assert_explained("// Unlocks.\nx.store(1, Release);", false);
        assert_explained("/// Release the lock.\nx.store(1, Release);", false);
        assert_explained("// Release: far.\na();\nb();\nc();\nd();\nx.store(1, Release);", false);
    }
}
