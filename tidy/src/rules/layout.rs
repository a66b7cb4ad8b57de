//! Required files of a crate: every mechanism and service has a file in the suite, and every
//! library has a README that is also its rustdoc.

use crate::{Crate, Tree, Violation, words};

/// Name of the rule.
pub const RULE_NAME: &str = "layout";

/// Finds crates without a README.md, and mechanisms and services without a file in the suite. Also
/// finds libraries whose rustdoc does not include their README.md.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for one in tree.crates() {
        // A subcrate of a mechanism is measured together with its parent.
        let is_measured = ["mechanisms/", "services/"].iter().any(|it| one.folder.starts_with(it));
        if is_measured && one.parent().is_none() {
            found.extend(missing_suite_file(tree, &one));
        }
        found.extend(missing_readme(tree, &one));
    }
    found
}

/// Finds a mechanism or service without benchmarks in the suite.
fn missing_suite_file(tree: &Tree, one: &Crate) -> Option<Violation> {
    let stem = format!("lab/suite/src/{}", one.short_name().replace('-', "_"));
    (!tree.contains_path(&format!("{stem}.rs")) && !tree.contains_path(&stem)).then(|| {
        Violation::new(
            RULE_NAME,
            &one.manifest.path,
            1,
            format!("the crate `{folder}` has no benchmarks in the suite", folder = one.folder),
            format!("add benchmarks of the crate to the suite: create {stem}.rs or {stem}/"),
        )
    })
}

/// Finds a missing README.md, or a README.md that is not in the rustdoc.
fn missing_readme(tree: &Tree, one: &Crate) -> Vec<Violation> {
    let readme = format!("{}/README.md", one.folder);
    let library = format!("{}/src/lib.rs", one.folder);
    let mut found = Vec::new();
    if tree.text(&readme).is_none_or(|text| text.trim().is_empty()) {
        found.push(Violation::new(
            RULE_NAME,
            &one.manifest.path,
            1,
            format!("the crate `{folder}` has no README.md", folder = one.folder),
            format!(
                "write {readme} with the problem, guarantees, non-goals, sources and an example"
            ),
        ));
    }
    if let Some(text) = tree.text(&library) {
        let code = crate::lex(text).code;
        let included = text.lines().zip(code.lines()).any(|(line, code)| {
            words(code, "include_str!").next().is_some()
                && code.trim_start().starts_with("#![doc")
                && line.contains("\"../README.md\"")
        });
        if !included {
            found.push(Violation::new(
                RULE_NAME,
                library,
                1,
                "README.md is not the crate's rustdoc",
                "begin with #![doc = include_str!(\"../README.md\")]",
            ));
        }
    }
    found
}
