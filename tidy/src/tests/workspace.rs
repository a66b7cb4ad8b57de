//! Runs every rule on this workspace.

use std::path::Path;

use crate::rules::{self, RULES};
use crate::{Tree, Violation};

fn workspace() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    Tree::read(&root).expect("the workspace is readable")
}

#[test]
fn workspace_has_no_violations() {
    let tree = workspace();
    for warning in rules::sizes::size_warnings(&tree) {
        println!("warning: {warning}");
    }
    let found: Vec<String> = rules::check(&tree).iter().map(Violation::to_string).collect();
    let (count, found) = (found.len(), found.join("\n"));
    assert!(count == 0, "{count} violations of the rules:\n{found}");
}

#[test]
fn whole_workspace_is_read() {
    let tree = workspace();
    for path in
        ["Cargo.toml", "tidy/src/rules.rs", "tidy/src/tests/workspace.rs", "base/src/lib.rs"]
    {
        assert!(tree.contains_path(path), "{path} is not in the tree");
    }
    let members = tree.root_manifest().array_values("workspace.members").count();
    assert_eq!(tree.crates().len(), members);
    assert!(tree.files().all(|(path, _)| !path.starts_with("target/")));
}

#[test]
fn readme_lists_every_rule() {
    let tree = workspace();
    let page = tree.text("tidy/README.md").expect("tidy has a page");
    for rule in RULES {
        let row = format!("| `{}` | {} |", rule.name, rule.requirement);
        assert!(page.contains(&row), "tidy/README.md lacks the row:\n{row}");
    }
}
