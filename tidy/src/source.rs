//! A Rust source file in the form that the rules need.

use crate::lexer::lex;

/// Rust source file, split into code and comments.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// Path relative to the workspace root.
    pub path: &'a str,
    /// Text with literals and comments replaced by spaces, at the same length.
    pub code: String,
    /// Text with everything but comments replaced by spaces, at the same length.
    pub comments: String,
    /// `true` for each line of test code.
    are_tests: Vec<bool>,
}

impl<'a> Source<'a> {
    /// Splits `text` into code and comments, and finds the lines of test code.
    pub fn new(path: &'a str, text: &'a str) -> Self {
        let lexed = lex(text);
        let whole = is_test_path(path);
        let mut tests = vec![whole; lexed.code.lines().count()];
        for (first, last) in test_regions(&lexed.code) {
            tests[first - 1..last].fill(true);
        }
        Self { path, code: lexed.code, comments: lexed.comments, are_tests: tests }
    }

    /// Returns the number of the line that contains the byte at `offset`. Lines are counted from 1.
    pub fn line_at(&self, offset: usize) -> usize {
        line_at(&self.code, offset)
    }

    /// Returns `true` if `line` is test code. The file is then below `tests/` or `benches/` or
    /// named `tests.rs`, or the line is in an item under `#[cfg(test)]`.
    pub fn is_test(&self, line: usize) -> bool {
        self.are_tests.get(line - 1).copied().unwrap_or(false)
    }

    /// Returns the number of lines that are not test code.
    pub fn lines_without_tests_count(&self) -> usize {
        self.are_tests.iter().filter(|test| !**test).count()
    }

    /// Returns the numbers of the lines whose code contains `pattern` as whole words.
    /// Imports by a `use` with any nesting of braces count: `process::exit` is found in
    /// `use std::{process::{exit}}`.
    pub fn lines_with(&self, pattern: &str) -> Vec<usize> {
        let mut lines: Vec<usize> =
            words(&self.code, pattern).map(|offset| self.line_at(offset)).collect();
        for (path, line) in self.imports() {
            if words(&path, pattern).next().is_some() {
                lines.push(line);
            }
        }
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// Returns the full path of each import, with the line of its last component.
    pub fn imports(&self) -> Vec<(String, usize)> {
        let mut imports = Vec::new();
        for (start, end) in self.use_ranges() {
            let tree = &self.code[start..end];
            expand_use_tree(tree, "", &mut |path, offset| {
                imports.push((path, self.line_at(start + offset)));
            });
        }
        imports
    }

    /// Returns `true` if byte `offset` is in a `use` statement.
    pub fn is_in_use_statement(&self, offset: usize) -> bool {
        self.use_ranges().iter().any(|&(start, end)| (start..end).contains(&offset))
    }

    /// Returns the byte ranges of all `use` statements, without keyword and semicolon.
    pub fn use_ranges(&self) -> Vec<(usize, usize)> {
        words(&self.code, "use ")
            .filter_map(|offset| {
                let start = offset + "use ".len();
                self.code[start..].find(';').map(|length| (start, start + length))
            })
            .collect()
    }
}

/// Returns the offsets at which `pattern` occurs in `text` as whole words.
pub fn words<'t>(text: &'t str, pattern: &'t str) -> impl Iterator<Item = usize> + 't {
    text.match_indices(pattern).map(|(at, _)| at).filter(move |&at| {
        let opens = pattern.starts_with(is_word_char) && text[..at].ends_with(is_word_char);
        let closes =
            pattern.ends_with(is_word_char) && text[at + pattern.len()..].starts_with(is_word_char);
        !opens && !closes
    })
}

/// Returns `true` for a character that can be part of an identifier.
fn is_word_char(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns the number of the line in `text` that contains the byte at `offset`.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Returns `true` if all code in the file is test code.
fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

/// Calls `leaf` with each full path in a use tree, and the offset of its last component.
fn expand_use_tree(tree: &str, prefix: &str, leaf: &mut dyn FnMut(String, usize)) {
    let mut depth = 0_usize;
    let mut start = 0;
    let ends = tree.char_indices().chain([(tree.len(), ',')]).filter(|&(at, c)| {
        depth = match c {
            '{' => depth + 1,
            '}' => depth.saturating_sub(1),
            _ => depth,
        };
        c == ',' && (depth == 0 || at == tree.len())
    });
    for end in ends.map(|(at, _)| at).collect::<Vec<_>>() {
        let branch = &tree[start..end];
        if let Some(open) = branch.find('{') {
            let stem = format!("{prefix}{}", without_alias(&branch[..open]));
            let close = branch.rfind('}').filter(|&close| close > open).unwrap_or(branch.len());
            let inner = start + open + 1;
            expand_use_tree(&tree[inner..start + close], &stem, &mut |path, at| {
                leaf(path, inner + at)
            });
        } else if !branch.trim().is_empty() {
            let blanks = branch.len() - branch.trim_start().len();
            leaf(format!("{prefix}{}", without_alias(branch)), start + blanks);
        }
        start = end + 1;
    }
}

/// Returns a path in a `use` without its alias and without whitespace.
fn without_alias(path: &str) -> String {
    let path = path.split(" as ").next().unwrap_or_default();
    path.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Returns the first and the last line of each item that is compiled only for tests.
fn test_regions(code: &str) -> Vec<(usize, usize)> {
    let mut regions = Vec::new();
    for (at, opener) in code.match_indices("#[cfg(").chain(code.match_indices("#![cfg(")) {
        let bracket = at + opener.len() - "[cfg(".len();
        let Some(end) = closing_bracket(code, bracket) else { continue };
        let condition = &code[bracket..end];
        let requirement =
            words(condition, "test").next().is_some() && !condition.contains("not(test");
        if !requirement {
            continue;
        }
        let last = if opener.starts_with("#!") { code.len() } else { item_end(code, end) };
        regions.push((line_at(code, at), line_at(code, last).min(code.lines().count())));
    }
    regions
}

/// Returns the offset of the closing brace or the semicolon of the item after `from`.
fn item_end(code: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(c) = code[at..].chars().next() {
        match c {
            ';' => return at,
            '{' => return closing_bracket(code, at).unwrap_or(code.len()),
            '(' | '[' => at = closing_bracket(code, at).unwrap_or(code.len() - 1) + 1,
            _ => at += c.len_utf8(),
        }
    }
    code.len()
}

/// Returns the offset of the bracket that closes the bracket at `open`; `None` if it is missing.
fn closing_bracket(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in code[open..].char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(open + at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_whole_words_match() {
        let text = "unsafe unsafe_code my_unsafe (unsafe)";
        assert_eq!(words(text, "unsafe").collect::<Vec<_>>(), [0, 29 + 1]);
        assert_eq!(words("eprintln!() println!()", "println!").collect::<Vec<_>>(), [12]);
    }

    #[test]
    fn imports_are_expanded_with_their_lines() {
        let text = "use std::{sync::{Arc,\n  atomic::{AtomicU32, Ordering as O}},\n  process};\n";
        let source = Source::new("a.rs", text);
        let expected = [
            ("std::sync::Arc", 1),
            ("std::sync::atomic::AtomicU32", 2),
            ("std::sync::atomic::Ordering", 2),
            ("std::process", 3),
        ];
        assert_eq!(source.imports(), expected.map(|(path, line)| (path.to_owned(), line)));
    }

    #[test]
    fn pattern_is_found_in_paths_and_imports() {
        let source = Source::new("a.rs", "use std::process::{exit};\n\nstd::process::exit(1);\n");
        assert_eq!(source.lines_with("process::exit"), [1, 3]);
    }

    #[test]
    fn test_code_is_recognised() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n\
                    #[cfg(not(test))]\nfn d() {}\n#[cfg(all(test, unix))]\nuse x;\nfn e() {}\n";
        let source = Source::new("src/a.rs", text);
        let tests: Vec<usize> = (1..=11).filter(|&line| source.is_test(line)).collect();
        assert_eq!(tests, [2, 3, 4, 5, 9, 10]);
        assert_eq!(source.lines_without_tests_count(), 5);
        assert!(Source::new("lab/store/tests/a.rs", "fn a() {}").is_test(1));
    }

    proptest! {
        #[test]
        fn parser_handles_any_text(pieces in proptest::collection::vec(
            proptest::sample::select(vec![
                "use ", "{", "}", "(", ")", "[", "]", ",", ";", "::", "a", "é", "\n", " as ",
                "#[cfg(", "#![cfg(", "test", "mod ", "\"", "//",
            ]), 0..40)
        ) {
            let text = pieces.concat();
            let source = Source::new("src/a.rs", &text);
            for (_, line) in source.imports() {
                prop_assert!(line <= text.lines().count().max(1));
            }
            prop_assert!(source.lines_without_tests_count() <= text.lines().count());
        }
    }
}
