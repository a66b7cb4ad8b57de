//! `unsafe` only in private modules listed in lists.rs, with a safe API, and with a `SAFETY:`
//! comment at each block.

use crate::{Exemption, Source, Tree, Violation, words};

/// Name of the rule.
pub const RULE_NAME: &str = "unsafe";

/// Finds `unsafe` outside the listed files, and `unsafe` without a `SAFETY:` comment. Also finds
/// listed modules that are public or contain no `unsafe`.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut used: Vec<&Exemption> = Vec::new();
    for source in tree.sources() {
        let entry = tree.lists.raw.iter().find(|entry| entry.covers_path(source.path));
        let lines: Vec<(usize, usize)> =
            words(&source.code, "unsafe").map(|offset| (offset, source.line_at(offset))).collect();
        match (entry, lines.first()) {
            (_, None) => {}
            (None, Some(&(_, line))) => found.push(Violation::new(
                RULE_NAME,
                source.path,
                line,
                format!(
                    "`unsafe` is used {count} times outside the listed modules",
                    count = lines.len()
                ),
                "move it to a private raw.rs with a safe API, listed in tidy/src/lists.rs",
            )),
            (Some(entry), _) => {
                used.push(entry);
                found.extend(missing_safety_comments(&source, &lines));
            }
        }
        found.extend(public_raw_modules(&source));
        found.extend(permissive_root(&source));
    }
    for entry in tree.lists.raw.iter().filter(|entry| !used.contains(entry)) {
        found.push(tree.unneeded_entry(RULE_NAME, entry.path, "contains no `unsafe`"));
    }
    for entry in tree.lists.raw.iter().filter(|entry| !is_raw_path(entry.path)) {
        found.push(tree.unneeded_entry(
            RULE_NAME,
            entry.path,
            "is listed as raw, but is neither raw.rs nor raw/",
        ));
    }
    found
}

/// Returns `true` if the path is `raw.rs`, or in a folder `raw/`.
fn is_raw_path(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "raw" | "raw.rs"))
}

/// Finds uses of `unsafe` without a `SAFETY:` comment.
fn missing_safety_comments(source: &Source<'_>, lines: &[(usize, usize)]) -> Vec<Violation> {
    lines
        .iter()
        .filter(|&&(offset, line)| {
            needs_safety_comment(&source.code[offset..]) && !has_safety_comment(source, line)
        })
        .map(|&(_, line)| {
            let instead = "write `// SAFETY:` directly above, with the fact that makes it sound";
            Violation::new(
                RULE_NAME,
                source.path,
                line,
                "`unsafe` without a SAFETY comment",
                instead,
            )
        })
        .collect()
}

/// Returns `true` if the `unsafe` at the start of `code` needs a `SAFETY:` comment. It needs one on
/// a block, an impl, a foreign block or an attribute. These assert a fact, whereas an `unsafe fn`
/// declaration or type requires one of its callers.
fn needs_safety_comment(code: &str) -> bool {
    let rest = code["unsafe".len()..].trim_start();
    match rest.strip_prefix("extern") {
        Some(rest) => rest.trim_start().starts_with('{'),
        None => rest.starts_with(['{', '(']) || words(rest, "impl").next() == Some(0),
    }
}

/// Returns `true` if a `SAFETY:` comment is on `line`, or directly above the statement on `line`.
fn has_safety_comment(source: &Source<'_>, line: usize) -> bool {
    let code: Vec<&str> = source.code.lines().collect();
    let comments: Vec<&str> = source.comments.lines().collect();
    let states = |line: usize| comments[line - 1].contains("SAFETY:");
    let mut at = line;
    while !states(at) {
        at -= 1;
        if at == 0 {
            return false;
        }
        let above = code[at - 1].trim();
        let comment_only = above.is_empty() && !comments[at - 1].trim().is_empty();
        let continues = !above.is_empty() && !above.ends_with([';', '{', '}', ',']);
        if !comment_only && !continues {
            return false;
        }
    }
    true
}

/// Finds modules named `raw` that are public.
fn public_raw_modules(source: &Source<'_>) -> Vec<Violation> {
    words(&source.code, "mod raw")
        .map(|offset| (offset, source.line_at(offset)))
        .filter(|&(offset, _)| {
            let start = source.code[..offset].rfind(['\n', ';', '}', ']']).map_or(0, |at| at + 1);
            words(&source.code[start..offset], "pub").next().is_some()
        })
        .map(|(_, line)| {
            let instead = "write `mod raw;` and a safe API around it";
            Violation::new(RULE_NAME, source.path, line, "a raw module is not private", instead)
        })
        .collect()
}

/// Finds the root file of a crate that does not deny `unsafe`. A root file that does can
/// allow it by an attribute at `mod raw;`.
fn permissive_root(source: &Source<'_>) -> Option<Violation> {
    let root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
    let closed = ["#![deny(unsafe_code)]", "#![forbid(unsafe_code)]"];
    (root && !closed.iter().any(|attribute| source.code.contains(attribute))).then(|| {
        let instead = "write #![deny(unsafe_code)] there, and #[allow(unsafe_code)] at `mod raw;`";
        Violation::new(RULE_NAME, source.path, 1, "the crate's root does not deny unsafe", instead)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_impls_need_a_comment_and_declarations_do_not() {
        for code in ["unsafe {", "unsafe impl Send", "unsafe extern     {", "unsafe(no_mangle)"] {
            assert!(needs_safety_comment(code), "{code}");
        }
        for code in ["unsafe fn f()", "unsafe extern     fn(u32)", "unsafe trait T", "unsafe impls"]
        {
            assert!(!needs_safety_comment(code), "{code}");
        }
    }

    #[track_caller]
    fn assert_comment(text: &str, stated: bool) {
        let source = Source::new("a/src/raw.rs", text);
        let Some(offset) = words(&source.code, "unsafe").next() else {
            panic!("found no `unsafe` in {text}")
        };
        assert_eq!(has_safety_comment(&source, source.line_at(offset)), stated, "{text}");
    }

    #[test]
    fn comment_above_the_statement_or_on_its_line_counts() {
        assert_comment("// SAFETY: x.\nunsafe { a() }", true);
        assert_comment("// SAFETY: x\n// and y.\n#[inline]\nunsafe impl Send for A {}", true);
        assert_comment("// SAFETY: x.\nlet y =\n    unsafe { a() };", true);
        assert_comment("let y = unsafe { a() }; // SAFETY: x.", true);
        assert_comment("let y = f(\n    // SAFETY: x.\n    unsafe { a() },\n);", true);
    }

    #[test]
    fn comment_of_another_statement_does_not_count() {
        assert_comment("unsafe { a() }", false);
        assert_comment("// Sure.\nunsafe { a() }", false);
        assert_comment("// SAFETY: x.\nlet z = 1;\nunsafe { a() }", false);
        assert_comment("// SAFETY: x.\n\nunsafe { a() }", false);
        assert_comment("f(\"// SAFETY: x.\",\n unsafe { a() })", false);
    }
}
