//! Completeness of the documents: the two main commands, every crate in the architecture,
//! unreleased changes, numbered decisions, a reason for every library; and links that resolve, in
//! the book to its pages.

use crate::source::line_at;
use crate::{Tree, Violation, words};

/// Name of the rule.
pub const RULE_NAME: &str = "documents";

/// Commands that the root README must show to newcomers.
const COMMANDS: [&str; 2] = ["cargo run --release", "cargo xtask test"];

/// Document that must name every crate.
const CRATE_LIST: &str = "docs/ARCHITECTURE.md";
/// Folder of the decision records.
const DECISIONS: &str = "docs/decisions/";
/// Folder of the book's pages, the only files of the workspace that the built book contains.
const BOOK: &str = "docs/book/src/";

/// Finds documents that lack required content, broken links, and links out of the book.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    found.extend(commands_missing_in_readme(tree));
    found.extend(crates_missing_in_list(tree));
    found.extend(missing_changelog_section(tree));
    found.extend(misnumbered_decisions(tree));
    found.extend(unexplained_libraries(tree));
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        found.extend(broken_links(tree, path, text));
    }
    found
}

/// Finds commands that the root README does not show.
fn commands_missing_in_readme(tree: &Tree) -> Vec<Violation> {
    let text = tree.text("README.md").unwrap_or_default();
    let missing = COMMANDS.into_iter().filter(|command| !text.contains(command));
    missing
        .map(|command| {
            let instead = "add the command: newcomers read this file first, and need it";
            Violation::new(
                RULE_NAME,
                "README.md",
                1,
                format!("the README lacks the command `{command}`"),
                instead,
            )
        })
        .collect()
}

/// Finds crates that [`CRATE_LIST`] does not name.
fn crates_missing_in_list(tree: &Tree) -> Vec<Violation> {
    let text = tree.text(CRATE_LIST).unwrap_or_default();
    let on_map = |what: &str| words(text, what).next().is_some();
    let missing = tree.crates().into_iter().filter(|one| {
        let bare = !one.folder.contains('/');
        !on_map(&one.folder) && (bare || !on_map(&one.name) || one.name == "handover")
    });
    missing
        .map(|one| {
            let what = format!("{CRATE_LIST} lacks the crate `{folder}`", folder = one.folder);
            let instead = format!(
                "describe the crate {folder} ({name}) there",
                folder = one.folder,
                name = one.name
            );
            Violation::new(RULE_NAME, CRATE_LIST, 1, what, instead)
        })
        .collect()
}

/// Finds a changelog without a section for unreleased changes.
fn missing_changelog_section(tree: &Tree) -> Option<Violation> {
    let text = tree.text("CHANGELOG.md").unwrap_or_default();
    let headed = text.lines().any(|line| line.starts_with("## ") && line.contains("Unreleased"));
    (!headed).then(|| {
        let instead = "add `## Unreleased`, with the changes that a user will notice";
        Violation::new(RULE_NAME, "CHANGELOG.md", 1, "no section for unreleased changes", instead)
    })
}

/// Finds decision records whose numbers are not consecutive.
fn misnumbered_decisions(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut expected = 1_u32;
    for (path, _) in tree.files().filter(|(path, _)| path.starts_with(DECISIONS)) {
        let name = &path[DECISIONS.len()..];
        let number = name.get(..4).and_then(|digits| digits.parse::<u32>().ok());
        if number == Some(expected) && name.get(4..5) == Some("-") && name.ends_with(".md") {
            expected += 1;
            continue;
        }
        let instead = format!("name the next decision {DECISIONS}{expected:04}-its-title.md");
        found.push(Violation::new(
            RULE_NAME,
            path,
            1,
            "the number of the decision is not consecutive",
            instead,
        ));
        expected = number.filter(|&number| number >= expected).map_or(expected, |n| n + 1);
    }
    found
}

/// Finds external libraries in the root manifest that no decision record explains.
fn unexplained_libraries(tree: &Tree) -> Vec<Violation> {
    let records: Vec<&str> = tree
        .files()
        .filter(|(path, _)| path.starts_with(DECISIONS))
        .map(|(_, text)| text)
        .collect();
    let root = tree.root_manifest();
    let crates = tree.crates();
    let unexplained = root.members_of("workspace.dependencies").into_iter().filter(|(name, _)| {
        let is_explained = records.iter().any(|text| text.contains(&format!("`{name}`")));
        !is_explained && !crates.iter().any(|one| one.name == *name)
    });
    unexplained
        .map(|(name, line)| {
            let what = format!("no decision in {DECISIONS} explains the library `{name}`");
            let instead = "add a line with its purpose and reason, or remove the library";
            Violation::new(RULE_NAME, &root.path, line, what, instead)
        })
        .collect()
}

/// Finds links in a Markdown file to files that do not exist, and in a page of the book to files
/// that the book lacks.
fn broken_links(tree: &Tree, path: &str, text: &str) -> Vec<Violation> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let is_page = path != "README.md" && tree.contains_path(&join(folder, "Cargo.toml"));
    let mut found = Vec::new();
    for (offset, target) in link_targets(text) {
        let file = target.split(['#', '?']).next().unwrap_or_default();
        let elsewhere = file.is_empty() || file.contains("://") || file.starts_with("mailto:");
        // A link such as `[wait](crate::Notify::wait)` in a crate's README is checked by rustdoc.
        let is_item = is_page && (file.contains("::") || !file.contains(['/', '.']));
        if elsewhere || is_item {
            continue;
        }
        let file = join(folder, file);
        let (what, instead) = if !tree.contains_path(&file) {
            ("does not exist", "link to an existing file")
        } else if path.starts_with(BOOK) && !file.starts_with(BOOK) {
            ("is not in the built book", "name the path as text, or link to a page of the book")
        } else {
            continue;
        };
        let what = format!("the link target `{target}` {what}");
        found.push(Violation::new(RULE_NAME, path, line_at(text, offset), what, instead));
    }
    found
}

/// Resolves the path `relative` in `folder`, without `.` components.
fn join(folder: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_none_or(|last| *last == "..") => parts.push(".."),
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the link targets in a Markdown text, with their offsets. Links are `[a](target)` and
/// `[a]: target`.
fn link_targets(text: &str) -> Vec<(usize, String)> {
    let prose = without_code(text);
    let mut found = Vec::new();
    for (at, _) in prose.match_indices("](") {
        let from = at + "](".len();
        if let Some(length) = prose[from..].find([')', '\n']) {
            found.push((at, prose[from..from + length].to_owned()));
        }
    }
    let mut at = 0;
    for line in prose.split_inclusive('\n') {
        if let Some((_, target)) = line.split_once("]: ").filter(|_| line.starts_with('[')) {
            found.push((at, target.to_owned()));
        }
        at += line.len();
    }
    // Text after the first whitespace is a link title.
    found.retain_mut(|(_, target)| {
        let bare = target.split_whitespace().next().unwrap_or_default();
        *target = bare.trim_start_matches('<').trim_end_matches('>').to_owned();
        !target.is_empty()
    });
    found
}

/// Replaces code blocks and code spans in a Markdown text by spaces. The length stays the same.
fn without_code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut fenced = false;
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        let mut span = false;
        for c in line.chars() {
            span ^= c == '`';
            if c == '\n' || !(fenced || fence || span || c == '`') {
                out.push(c);
            } else {
                out.extend(std::iter::repeat_n(' ', c.len_utf8()));
            }
        }
        fenced ^= fence;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn links_are_found_outside_code_only() {
        let text = "[a](b.md) `[c](d.md)` ![e](<f.svg> \"t\")\n```\n[g](h.md)\n```\n[i]: j.md\n";
        let found: Vec<String> = link_targets(text).into_iter().map(|(_, target)| target).collect();
        assert_eq!(found, ["b.md", "f.svg", "j.md"]);
    }

    #[test]
    fn paths_are_joined_without_dots() {
        assert_eq!(join("docs/decisions", "../ARCHITECTURE.md"), "docs/ARCHITECTURE.md");
        assert_eq!(join("", "./docs/"), "docs");
        assert_eq!(join("docs", "../../x"), "../x");
    }

    proptest! {
        #[test]
        fn link_search_handles_any_text(text in any::<String>(), pieces in
            proptest::collection::vec(proptest::sample::select(vec![
                "[", "](", ")", "]: ", "`", "```", "\n", "é", "<", ">", "a.md", " ", "#",
            ]), 0..30)
        ) {
            prop_assert_eq!(without_code(&text).len(), text.len());
            for text in [text, pieces.concat()] {
                for (offset, _) in link_targets(&text) {
                    prop_assert!(offset < text.len());
                }
            }
        }
    }
}
