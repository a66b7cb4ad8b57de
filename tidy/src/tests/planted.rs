//! Planted violations: each test plants one violation in a conforming tree in memory and expects
//! exactly that report, so that every rule is tested to fail.

use crate::rules::banned::BANNED_CONSTRUCTS;
use crate::rules::{self, RULES};
use crate::{Exemption, Tree};

/// Workspace of six crates without violations.
const CONFORMING: &[(&str, &str)] = &[
    (
        "Cargo.toml",
        "[workspace]\nmembers = [\n    \"base\",\n    \"mechanisms/lock\",\n    \"mechanisms/notify\",\n    \
         \"lab/record\",\n    \"lab/suite\",\n    \"faces/cli\",\n]\nexclude = [\"fuzz\"]\n\n\
         [workspace.dependencies]\nhandover-base = { path = \"base\" }\ntoml = \"1\"\n",
    ),
    (
        "README.md",
        "`cargo run --release` and `cargo xtask test`. [Map](docs/ARCHITECTURE.md#map)\n",
    ),
    ("CHANGELOG.md", "# Changes\n\n## Unreleased\n"),
    (
        "docs/ARCHITECTURE.md",
        "base, mechanisms/lock, mechanisms/notify, lab/record, lab/suite, faces/cli\n",
    ),
    ("docs/decisions/0001-record-decisions.md", "# 1. Record decisions\n"),
    ("docs/decisions/0002-libraries.md", "# 2. Libraries\n\n`toml` reads manifests.\n"),
    ("base/Cargo.toml", manifest!("handover-base", "toml.workspace = true\n")),
    ("base/README.md", "# handover-base\n"),
    ("base/src/lib.rs", LIBRARY),
    ("mechanisms/lock/Cargo.toml", manifest!("handover-lock", "handover-base.workspace = true\n")),
    (
        "mechanisms/lock/README.md",
        "# handover-lock\n\nA [lock](crate::Lock). [Map](../../README.md)\n",
    ),
    ("mechanisms/lock/src/lib.rs", LIBRARY),
    (
        "mechanisms/lock/src/engine.rs",
        "use handover_base::sync::atomic::Ordering::{Acquire, Release};\n\nfn f() {\n    \
         // Release: publishes the value to the Acquire in g().\n    x.store(1, Release);\n}\n",
    ),
    ("mechanisms/lock/src/raw.rs", "//! Cell.\n\n// SAFETY: the lock is held.\nunsafe { f() }\n"),
    ("mechanisms/lock/tests/model.rs", "use std::sync::atomic::AtomicU32;\n"),
    (
        "mechanisms/notify/Cargo.toml",
        manifest!("handover-notify", "handover-base.workspace = true\n"),
    ),
    ("mechanisms/notify/README.md", "# handover-notify\n"),
    ("mechanisms/notify/src/lib.rs", LIBRARY),
    ("lab/record/Cargo.toml", manifest!("handover-record", "")),
    ("lab/record/README.md", "# handover-record\n"),
    ("lab/record/src/lib.rs", LIBRARY),
    ("lab/suite/Cargo.toml", manifest!("handover-suite", "handover-lock.workspace = true\n")),
    ("lab/suite/README.md", "# handover-suite\n"),
    ("lab/suite/src/lib.rs", LIBRARY),
    ("lab/suite/src/lock.rs", "// What a lock costs.\n"),
    ("lab/suite/src/notify/mod.rs", "// What a notification costs.\n"),
    ("faces/cli/Cargo.toml", manifest!("handover", "anyhow.workspace = true\n")),
    ("faces/cli/README.md", "# handover\n"),
    (
        "faces/cli/src/main.rs",
        "#![deny(unsafe_code)]\n\nfn main() {\n    println!(\"todo!()\");\n    // unsafe, dbg!(), x.unwrap()\n}\n\n\
         #[cfg(test)]\nmod tests {\n    fn f() {\n        g().unwrap();\n    }\n}\n",
    ),
];

const LIBRARY: &str =
    "#![doc = include_str!(\"../README.md\")]\n#![deny(unsafe_code)]\n\nmod raw;\n";

/// Expands to a crate's manifest whose first dependency is on line 13.
macro_rules! manifest {
    ($name:literal, $dependencies:literal) => {
        concat!(
            "[package]\nname = \"",
            $name,
            "\"\nversion.workspace = true\nedition.workspace = true\nrust-version.workspace = true\n\
             license.workspace = true\nauthors.workspace = true\n\n[lints]\nworkspace = true\n\n\
             [dependencies]\n",
            $dependencies
        )
    };
}
use manifest;

const RAW: &[Exemption] = &[Exemption { path: "mechanisms/lock/src/raw.rs", reason: "the cell" }];
const RAW_AND_FUTEX: &[Exemption] =
    &[RAW[0], Exemption { path: "base/src/futex.rs", reason: "a word" }];

fn conforming() -> Tree {
    let mut tree = Tree::new(CONFORMING.iter().copied());
    tree.lists.raw = RAW;
    tree
}

/// Appends `text` to the file at `path`, which is created if it does not exist.
fn append(tree: &mut Tree, path: &str, text: &str) {
    let whole = tree.remove(path).unwrap_or_default() + text;
    tree.insert(path, whole);
}

/// Returns the line on which the next text appended to the file starts.
fn next_line(tree: &Tree, path: &str) -> usize {
    tree.text(path).unwrap_or_default().lines().count() + 1
}

#[track_caller]
fn replace(tree: &mut Tree, path: &str, from: &str, to: &str) {
    let text = tree.remove(path).expect("a file of the conforming workspace");
    assert!(text.contains(from), "{path} does not contain {from:?}");
    tree.insert(path, text.replacen(from, to, 1));
}

/// Defines one test for each planted violation, and the list of the rules concerned.
macro_rules! planted {
    ($($name:ident: $rule:literal at $at:expr, $plant:expr;)*) => {
        const PLANTED: &[&str] = &[$($rule),*];
        $(
            #[test]
            fn $name() {
                let mut tree = conforming();
                let plant: fn(&mut Tree) = $plant;
                plant(&mut tree);
                assert_found(&tree, $rule, $at);
            }
        )*
    };
}

#[track_caller]
fn assert_found(tree: &Tree, rule: &str, at: &str) {
    let found = rules::check(tree);
    let shown: Vec<String> = found.iter().map(|one| format!("\n{one}")).collect();
    let places: Vec<String> =
        found.iter().map(|one| format!("{} at {}:{}", one.rule, one.path, one.line)).collect();
    assert_eq!(places, [format!("{rule} at {at}")], "reported:{}", shown.concat());
    assert!(!found[0].remedy.is_empty(), "the report names no remedy: {}", found[0]);
}

planted! {
    mechanism_that_depends_on_the_lab_is_found:
        "rungs" at "mechanisms/lock/Cargo.toml:14",
        |tree| append(tree, "mechanisms/lock/Cargo.toml", "handover-record.workspace = true\n");
    mechanism_with_a_dev_dependency_on_the_lab_is_found:
        "rungs" at "mechanisms/lock/Cargo.toml:15",
        |tree| append(tree, "mechanisms/lock/Cargo.toml",
            "[dev-dependencies]\nhandover-record.workspace = true\n");
    base_that_depends_on_a_mechanism_is_found:
        "rungs" at "base/Cargo.toml:15",
        |tree| append(tree, "base/Cargo.toml",
            "[target.'cfg(unix)'.build-dependencies]\nhandover-lock.workspace = true\n");
    dependency_within_a_rung_is_found:
        "rungs" at "mechanisms/lock/Cargo.toml:14",
        |tree| append(tree, "mechanisms/lock/Cargo.toml", "handover-notify.workspace = true\n");
    a_renamed_dependency_is_seen_through:
        "rungs" at "lab/record/Cargo.toml:13",
        |tree| append(tree, "lab/record/Cargo.toml",
            "workloads = { package = \"handover-suite\", workspace = true }\n");
    crate_without_a_rung_is_found:
        "rungs" at "lab/shed/Cargo.toml:1",
        |tree| {
            tree.insert("lab/shed/Cargo.toml", manifest!("handover-shed", ""));
            tree.insert("lab/shed/README.md", "# handover-shed\n");
            append(tree, "docs/ARCHITECTURE.md", "lab/shed\n");
            replace(tree, "Cargo.toml", "\"faces/cli\"", "\"faces/cli\",\n    \"lab/shed\"");
        };

    mechanism_without_a_suite_file_is_found:
        "layout" at "mechanisms/lock/Cargo.toml:1",
        |tree| drop(tree.remove("lab/suite/src/lock.rs"));
    library_without_a_readme_is_found:
        "layout" at "base/Cargo.toml:1",
        |tree| drop(tree.remove("base/README.md"));
    readme_that_is_not_the_rustdoc_is_found:
        "layout" at "base/src/lib.rs:1",
        |tree| replace(tree, "base/src/lib.rs", "#![doc = include_str!(\"../README.md\")]",
            "// #![doc = include_str!(\"../README.md\")]");

    three_files_that_import_one_another_are_found:
        "circles" at "mechanisms/lock/src/a.rs:2", plant_circle;
    circle_through_a_reexport_is_found:
        "circles" at "mechanisms/lock/src/a.rs:2",
        |tree| {
            plant_circle(tree);
            append(tree, "mechanisms/lock/src/lib.rs", "pub use b::B;\n");
            replace(tree, "mechanisms/lock/src/a.rs", "crate::b::B", "crate::B");
        };

    unsafe_outside_raw_modules_is_found:
        "unsafe" at "faces/cli/src/main.rs:4",
        |tree| replace(tree, "faces/cli/src/main.rs", "println!(\"todo!()\")", "unsafe { f() }");
    unsafe_in_a_build_script_is_found:
        "unsafe" at "base/build.rs:1",
        |tree| tree.insert("base/build.rs", "unsafe fn f() {}\n");
    unsafe_without_a_safety_comment_is_found:
        "unsafe" at "mechanisms/lock/src/raw.rs:5",
        |tree| append(tree, "mechanisms/lock/src/raw.rs", "unsafe impl Send for Cell {}\n");
    a_fact_that_is_only_a_string_does_not_count:
        "unsafe" at "mechanisms/lock/src/raw.rs:4",
        |tree| replace(tree, "mechanisms/lock/src/raw.rs", "// SAFETY: the lock is held.",
            "f(\"// SAFETY: the lock is held.\");");
    public_raw_module_is_found:
        "unsafe" at "mechanisms/lock/src/lib.rs:4",
        |tree| replace(tree, "mechanisms/lock/src/lib.rs", "mod raw;", "pub(crate) mod raw;");
    root_that_does_not_deny_unsafe_is_found:
        "unsafe" at "lab/record/src/lib.rs:1",
        |tree| replace(tree, "lab/record/src/lib.rs", "#![deny(unsafe_code)]\n", "");
    listed_module_without_unsafe_is_found:
        "unsafe" at "tidy/src/lists.rs:2",
        |tree| {
            tree.insert("mechanisms/lock/src/raw.rs", "//! Cell.\n");
            tree.insert("tidy/src/lists.rs", "// Lists.\nlisted(\"mechanisms/lock/src/raw.rs\")\n");
        };
    listed_module_that_does_not_exist_is_found:
        "unsafe" at "tidy/src/lists.rs:1",
        |tree| drop(tree.remove("mechanisms/lock/src/raw.rs"));
    listed_module_with_another_name_is_found:
        "unsafe" at "tidy/src/lists.rs:1",
        |tree| {
            tree.insert("base/src/futex.rs", "// SAFETY: a word.\nunsafe { f() }\n");
            tree.lists.raw = RAW_AND_FUTEX;
        };

    atomic_outside_the_facade_is_found:
        "facade" at "mechanisms/lock/src/engine.rs:7",
        |tree| append(tree, "mechanisms/lock/src/engine.rs",
            "static A: core::sync::atomic::AtomicU32 = f();\n");
    atomic_imported_in_braces_is_found:
        "facade" at "mechanisms/lock/src/lib.rs:5",
        |tree| append(tree, "mechanisms/lock/src/lib.rs",
            "use std::{fmt, sync::{Arc, atomic::AtomicU32}};\n");

    too_long_file_is_found:
        "sizes" at "lab/suite/src/lock.rs:1501",
        |tree| tree.insert("lab/suite/src/lock.rs", "f();\n".repeat(1501));
    listed_file_within_the_limit_is_found:
        "sizes" at "tidy/src/lists.rs:1",
        |tree| tree.lists.long_files = &[Exemption { path: "lab/suite/src/lock.rs", reason: "a table" }];

    crate_not_named_after_its_folder_is_found:
        "crates" at "lab/record/Cargo.toml:2",
        |tree| replace(tree, "lab/record/Cargo.toml", "handover-record", "handover-records");
    version_that_is_not_inherited_is_found:
        "crates" at "base/Cargo.toml:3",
        |tree| replace(tree, "base/Cargo.toml", "version.workspace = true", "version = \"0.2.0\"");
    edition_that_is_not_inherited_is_found:
        "crates" at "base/Cargo.toml:1",
        |tree| replace(tree, "base/Cargo.toml", "edition.workspace = true\n", "");
    lints_that_are_not_inherited_are_found:
        "crates" at "base/Cargo.toml:1",
        |tree| replace(tree, "base/Cargo.toml", "[lints]\nworkspace = true", "[lints.rust]");
    dependency_that_is_not_inherited_is_found:
        "crates" at "base/Cargo.toml:14",
        |tree| append(tree, "base/Cargo.toml", "rustix = { version = \"1\" }\n");
    crate_outside_the_workspace_is_found:
        "crates" at "faces/capi/Cargo.toml:1",
        |tree| {
            tree.insert("faces/capi/Cargo.toml", manifest!("handover-capi", ""));
            tree.insert("faces/capi/README.md", "# handover-capi\n");
            append(tree, "docs/ARCHITECTURE.md", "faces/capi\n");
        };
    member_that_does_not_exist_is_found:
        "crates" at "Cargo.toml:8",
        |tree| replace(tree, "Cargo.toml", "\"faces/cli\",", "\"services/net\",\n    \"faces/cli\",");
    unused_library_is_found:
        "crates" at "Cargo.toml:14",
        |tree| replace(tree, "base/Cargo.toml", "toml.workspace = true\n", "");
    manifest_that_is_not_toml_is_found:
        "crates" at "lab/record/Cargo.toml:3",
        |tree| replace(tree, "lab/record/Cargo.toml", "version.workspace = true",
            "version.workspace = ");

    ordering_without_a_partner_is_found:
        "orderings" at "mechanisms/lock/src/engine.rs:10",
        |tree| append(tree, "mechanisms/lock/src/engine.rs",
            "\nfn g() {\n    // Unlocks.\n    x.load(Ordering::Acquire);\n}\n");
    ordering_with_a_bare_name_is_found:
        "orderings" at "mechanisms/notify/src/lib.rs:6",
        |tree| append(tree, "mechanisms/notify/src/lib.rs",
            "use handover_base::sync::atomic::Ordering::*;\nfn f() { x.swap(1, AcqRel) }\n");

    readme_without_the_commands_is_found:
        "documents" at "README.md:1",
        |tree| replace(tree, "README.md", "cargo run --release", "cargo run");
    broken_link_is_found:
        "documents" at "mechanisms/lock/README.md:5",
        |tree| append(tree, "mechanisms/lock/README.md", "\nSee [it](../locks/README.md#a).\n");
    link_out_of_the_book_is_found:
        "documents" at "docs/book/src/ring.md:3",
        |tree| {
            tree.insert("docs/book/src/index.md", "[Ring](ring.md)\n");
            tree.insert(
                "docs/book/src/ring.md",
                "[Start](index.md#a)\n\n[Lock](../../../mechanisms/lock)\n",
            );
        };
    crate_missing_from_the_map_is_found:
        "documents" at "docs/ARCHITECTURE.md:1",
        |tree| replace(tree, "docs/ARCHITECTURE.md", "mechanisms/lock,", "mechanisms/locks,");
    changelog_without_an_unreleased_section_is_found:
        "documents" at "CHANGELOG.md:1",
        |tree| replace(tree, "CHANGELOG.md", "## Unreleased", "## 0.1.0");
    gap_between_decisions_is_found:
        "documents" at "docs/decisions/0004-a-store.md:1",
        |tree| tree.insert("docs/decisions/0004-a-store.md", "# 4. A store\n");
    decisions_with_the_same_number_are_found:
        "documents" at "docs/decisions/0002-no-libraries.md:1",
        |tree| tree.insert("docs/decisions/0002-no-libraries.md", "# 2. No libraries\n");

    library_without_a_reason_is_found:
        "documents" at "Cargo.toml:14",
        |tree| replace(tree, "docs/decisions/0002-libraries.md", "`toml`", "It");

    a_limit_without_a_row_is_found:
        "limits" at "docs/SECURITY.md:3",
        |tree| add_limits(tree, "| `read_bytes` | 65,536 bytes | - |\n");
    a_limit_with_another_default_is_found:
        "limits" at "docs/SECURITY.md:6",
        |tree| add_limits(tree, "| `read_bytes` | 65,536 bytes | - |\n| `linger` | 20,000 ms | - |\n");

    summary_that_begins_with_a_question_word_is_found:
        "summaries" at "lab/suite/src/lock.rs:2",
        |tree| append(tree, "lab/suite/src/lock.rs", "/// Whose turn it is.\n/// Which is so.\nstruct Turn;\n");
    comment_that_is_too_wide_is_found:
        "columns" at "lab/suite/src/lock.rs:5",
        |tree| append(
            tree,
            "lab/suite/src/lock.rs",
            &format!("/// ```\n/// {0}\n/// ```\n// {0}\n", "word ".repeat(20)),
        );
    note_is_found:
        "words" at "lab/suite/src/lock.rs:2",
        |tree| append(tree, "lab/suite/src/lock.rs", "// TODO: measure it.\n");
    path_of_one_machine_is_found:
        "words" at "lab/record/README.md:2",
        |tree| append(tree, "lab/record/README.md", "See /root/house.\n");
    listed_file_without_the_words_is_found:
        "words" at "tidy/src/lists.rs:1",
        |tree| tree.lists.banned_words = &[Exemption { path: "README.md", reason: "" }];
}

/// Adds a service with two limits, and the page with these rows about them.
fn add_limits(tree: &mut Tree, rows: &str) {
    let code = "impl Default for Config {\n    read_bytes: 1 << 16,\n    linger: Duration::from_millis(2_000),\n}\n";
    tree.insert("services/net/src/config.rs", code);
    let page = format!("# Security\n\n| limit of net | default | - |\n|---|---|---|\n{rows}");
    tree.insert("docs/SECURITY.md", &page);
}

/// Every ban, with a file and code that violate it.
const BROKEN: &[(&str, &str, &str)] = &[
    ("#[ignore", "mechanisms/lock/tests/api.rs", "#[ignore = \"slow\"]\n"),
    ("Instant::now", "mechanisms/lock/src/engine.rs", "let t = std::time::Instant::now();\n"),
    ("SystemTime::now", "mechanisms/notify/src/engine/state.rs", "SystemTime::now()\n"),
    ("thread::sleep", "mechanisms/lock/src/engine.rs", "use std::{thread::{self, sleep}};\n"),
    ("println!", "base/src/lib.rs", "println!(\"{x}\");\n"),
    ("print!", "lab/record/src/lib.rs", "print!(\"{x}\");\n"),
    ("process::exit", "lab/suite/src/lock.rs", "use std::process::exit;\n"),
    (".unwrap()", "faces/cli/src/main.rs", "fn f() { g().unwrap(); }\n"),
    ("anyhow", "lab/record/src/lib.rs", "use anyhow::Result;\n"),
];

#[test]
fn every_ban_is_found_and_names_its_replacement() {
    for ban in BANNED_CONSTRUCTS {
        let broken = BROKEN.iter().find(|(pattern, ..)| *pattern == ban.pattern);
        let (_, path, code) = broken.unwrap_or_else(|| panic!("{} is not planted", ban.pattern));
        let mut tree = conforming();
        let line = next_line(&tree, path);
        append(&mut tree, path, code);
        assert_found(&tree, "banned", &format!("{path}:{line}"));
        assert_eq!(rules::check(&tree)[0].remedy, ban.remedy);
    }
}

#[test]
fn anyhow_in_the_manifest_of_a_library_is_found() {
    let mut tree = conforming();
    let line = next_line(&tree, "base/Cargo.toml");
    append(&mut tree, "base/Cargo.toml", "anyhow.workspace = true\n");
    assert_found(&tree, "banned", &format!("base/Cargo.toml:{line}"));
}

#[test]
fn conforming_workspace_has_no_violations() {
    let found: Vec<String> = rules::check(&conforming()).iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_rule_has_a_planted_violation() {
    for rule in RULES.iter().filter(|rule| rule.name != "banned") {
        assert!(PLANTED.contains(&rule.name), "no test plants a violation of {}", rule.name);
    }
}

#[test]
fn long_file_causes_a_warning_before_a_violation() {
    let mut tree = conforming();
    tree.insert("lab/suite/src/lock.rs", "f();\n".repeat(801));
    let warned = rules::sizes::size_warnings(&tree);
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert_eq!((warned[0].path.as_str(), warned[0].line), ("lab/suite/src/lock.rs", 801));
    assert!(rules::check(&tree).is_empty());
}

#[test]
fn tests_and_tables_may_be_long() {
    let mut tree = conforming();
    tree.insert("mechanisms/lock/tests/contract.rs", "f();\n".repeat(2000));
    tree.insert("base/data/units.tsv", "1\t2\n".repeat(2000));
    let tests = format!("mod a;\n#[cfg(test)]\nmod tests {{\n{}}}\n", "f();\n".repeat(2000));
    tree.insert("lab/suite/src/lock.rs", tests);
    assert!(rules::check(&tree).is_empty());
    assert!(rules::sizes::size_warnings(&tree).is_empty());
}

#[test]
fn listed_long_file_causes_only_a_warning() {
    let mut tree = conforming();
    tree.insert("lab/suite/src/lock.rs", "f();\n".repeat(1600));
    tree.lists.long_files = &[Exemption { path: "lab/suite/src/lock.rs", reason: "one table" }];
    assert!(rules::check(&tree).is_empty());
    assert_eq!(rules::sizes::size_warnings(&tree).len(), 1);
}

/// Plants three files that import one another by each kind of path.
fn plant_circle(tree: &mut Tree) {
    let files = [
        ("a", "//! A.\nuse crate::b::B;\n"),
        ("b/mod", "use super::{c::{C}};\n"),
        ("c", "fn f(_: crate::a::A) {}\n"),
    ];
    for (name, text) in files {
        tree.insert(format!("mechanisms/lock/src/{name}.rs"), text);
    }
}

#[test]
fn imports_of_tests_and_reexports_form_no_circle() {
    let mut tree = conforming();
    plant_circle(&mut tree);
    tree.insert("mechanisms/lock/src/c.rs", "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n");
    assert!(rules::check(&tree).is_empty());
    // Siblings that reach each other through their parent do not import the parent.
    append(&mut tree, "mechanisms/lock/src/lib.rs", "pub use a::A;\npub use c::C;\n");
    tree.insert("mechanisms/lock/src/a.rs", "use crate::C;\n");
    assert!(rules::check(&tree).is_empty());
}

#[test]
fn strings_and_comments_cause_no_violations() {
    let mut tree = conforming();
    let text = "// todo!() dbg!(x) unsafe { }\nconst A: &str = r#\"process::exit(1); anyhow\"#;\n\
                /* #[ignore] println!() */\n";
    append(&mut tree, "lab/suite/src/lock.rs", text);
    assert!(rules::check(&tree).is_empty());
}
