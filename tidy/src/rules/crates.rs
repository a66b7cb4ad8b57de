//! One version, one edition, one licence, one set of lints and one version of each dependency:
//! every crate inherits them from the workspace. A crate is named after its folder.

use crate::{Crate, Dependency, Manifest, Tree, Violation};

/// Name of the rule.
pub const RULE_NAME: &str = "crates";

/// Package fields that every crate inherits.
const INHERITED_FIELDS: &[&str] = &["version", "edition", "rust-version", "license", "authors"];

/// Finds crates with a wrong name, fields that are not inherited, and wrong workspace members. Also
/// finds unused workspace dependencies.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let root = tree.root_manifest();
    let crates = tree.crates();
    let members: Vec<(&str, usize)> = root.array_values("workspace.members").collect();
    let mut found = Vec::new();
    for one in &crates {
        found.extend(check_crate(one));
        if !members.iter().any(|(member, _)| *member == one.folder) {
            let what = format!(
                "the crate in `{folder}` is not listed in workspace.members",
                folder = one.folder
            );
            let instead = "add it to members in Cargo.toml, or to exclude";
            found.push(Violation::new(RULE_NAME, &one.manifest.path, 1, what, instead));
        }
    }
    for (member, line) in &members {
        if !crates.iter().any(|one| one.folder == *member) {
            let what = format!("the member `{member}` is not the folder of a crate");
            found.push(Violation::new(
                RULE_NAME,
                &root.path,
                *line,
                what,
                "remove it from members",
            ));
        }
    }
    found.extend(unused_dependencies(&root, &crates));
    found
}

/// Finds workspace dependencies that no crate uses.
fn unused_dependencies(root: &Manifest, crates: &[Crate]) -> Vec<Violation> {
    let taken = |package: &str| {
        crates.iter().any(|one| one.dependencies.iter().any(|taken| taken.package == package))
    };
    let mut found: Vec<Violation> = Vec::new();
    for (name, line) in root.members_of("workspace.dependencies") {
        let own = crates.iter().any(|one| one.name == name);
        if !own && !taken(name) {
            let what = format!("no crate uses the workspace dependency `{name}`");
            found.push(Violation::new(RULE_NAME, &root.path, line, what, "remove the dependency"));
        }
    }
    found
}

/// Finds a wrong name of a crate, and fields, lints and dependencies that it does not inherit.
fn check_crate(one: &Crate) -> Vec<Violation> {
    let manifest = &one.manifest;
    let at = |line, what: String, instead: String| {
        Violation::new(RULE_NAME, &manifest.path, line, what, instead)
    };
    if let Some((line, error)) = &manifest.error {
        return vec![at(*line, format!("invalid manifest: {error}"), "correct the TOML".into())];
    }
    let mut found = Vec::new();
    let name = match one.folder.as_str() {
        "faces/cli" => "handover".to_owned(),
        _ => format!("handover-{}", one.short_name()),
    };
    if one.name != name {
        let line = manifest.get("package.name").map_or(1, |(_, line)| line);
        found.push(at(
            line,
            format!("the crate's name `{actual}` does not match its folder", actual = one.name),
            format!("write name = \"{name}\""),
        ));
    }
    for key in INHERITED_FIELDS {
        if manifest.get(&format!("package.{key}.workspace")).is_none_or(|(text, _)| text != "true")
        {
            let line = manifest.get(&format!("package.{key}")).map_or(1, |(_, line)| line);
            found.push(at(
                line,
                format!("the package field `{key}` is not inherited"),
                format!("write {key}.workspace = true"),
            ));
        }
    }
    if manifest.get("lints.workspace").is_none_or(|(text, _)| text != "true") {
        found.push(at(
            1,
            "the lints are not inherited".into(),
            "write [lints] workspace = true".into(),
        ));
    }
    // The tests of a package may depend on it with other features: by path alone, so that it can be
    // packaged.
    let is_not_inherited = |it: &&Dependency| !it.is_inherited && it.package != one.name;
    for dependency in one.dependencies.iter().filter(is_not_inherited) {
        let package = &dependency.package;
        found.push(at(
            dependency.line,
            format!("the version or source of `{package}` is not inherited"),
            format!("write {package}.workspace = true, and the version in the root manifest"),
        ));
    }
    found
}
