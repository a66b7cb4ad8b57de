//! Runs every rule on this workspace.

use std::path::Path;

use crate::rules::{self, RULES};
use crate::{Tree, Violation};

fn house() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    Tree::read(&root).expect("the workspace is readable")
}

#[test]
fn the_house_keeps_its_rules() {
    let tree = house();
    for warning in rules::sizes::warnings(&tree) {
        println!("warning: {warning}");
    }
    let found: Vec<String> = rules::check(&tree).iter().map(Violation::to_string).collect();
    let (count, found) = (found.len(), found.join("\n"));
    assert!(count == 0, "{count} violations of the house rules:\n{found}");
}

#[test]
fn the_house_is_read_whole() {
    let tree = house();
    for path in ["Cargo.toml", "tidy/src/rules.rs", "tidy/src/tests/house.rs", "base/src/lib.rs"] {
        assert!(tree.has(path), "{path} is not in the tree");
    }
    let members = tree.root().array("workspace.members").count();
    assert_eq!(tree.crates().len(), members);
    assert!(tree.files().all(|(path, _)| !path.starts_with("target/")));
}

#[test]
fn the_page_lists_every_rule() {
    let tree = house();
    let page = tree.text("tidy/README.md").expect("tidy has a page");
    for rule in RULES {
        let row = format!("| `{}` | {} |", rule.name, rule.asks);
        assert!(page.contains(&row), "tidy/README.md lacks the row:\n{row}");
    }
}
