//! The pages of docs/book. The commands of each page are run in order, as a reader would type them,
//! and must succeed and print what the page shows.
//!
//! In a page, a block after a sentence that is a file name in backticks and a colon is the content
//! of that file. A `console` block has commands, which begin with `$ `, and output. A comment
//! before the block lists the parts of its output that do not change, one a line; `…` stands for
//! any text. Commands in `sh` blocks are not run, except those of the pages that a newcomer reads
//! first, with `HANDOVER_LONG=1`.

use crate::common::{Home, skipped, write_script};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Commands in `sh` blocks: they need the network, root, or minutes.
const NOT_RUN: [(&str, &str); 11] = [
    ("install", "git clone ADDRESS handover"),
    ("install", "cd handover"),
    ("install", "cargo run --release"),
    ("install", "cargo install --locked --path faces/cli"),
    ("install", "cd .."),
    ("ladder", "handover"),
    ("doctor", "top -o %CPU"),
    ("doctor", "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"),
    ("doctor", "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo"),
    ("doctor", "echo 0 > /sys/devices/system/cpu/cpufreq/boost"),
    ("doctor", "echo off > /sys/devices/system/cpu/smt/control"),
];

/// Defines a test for each group of pages that are read one after another in one folder, with the
/// programs that they need.
macro_rules! page_tests {
    ($($test:ident: $pages:expr, needs $needs:expr;)*) => {
        const TESTED: &[&[&str]] = &[$(&$pages),*];
        $(
            #[test]
            fn $test() {
                check_pages(&$pages, &$needs, Programs::Tested);
            }
        )*
    };
}

page_tests! {
    commands_of_page_install_work: ["install"], needs [];
    commands_of_page_ladder_work: ["ladder"], needs [];
    commands_of_pages_own_code_and_ci_work: ["own-code", "ci"], needs ["git"];
    commands_of_page_trace_work: ["trace"], needs ["cc"];
    commands_of_page_doctor_work: ["doctor"], needs [];
    commands_of_page_ring_work: ["ring"], needs [];
    commands_of_page_event_work: ["event"], needs [];
    commands_of_page_rpc_work: ["rpc"], needs [];
    commands_of_page_rpc_c_work: ["rpc-c"], needs ["cc", "pkg-config"];
}

/// Programs with which the commands of pages are run.
#[derive(Clone, Copy, PartialEq)]
enum Programs {
    /// The tested `handover`, and the stand-in for cargo. Commands in `sh` blocks are not run.
    Tested,
    /// Programs that the pages themselves build and install from a clone of the repository.
    Installed,
}

/// Part of a page.
#[derive(Debug)]
enum Block {
    File { name: String, text: String },
    Console { stable: Vec<String>, commands: Vec<String>, output: Vec<String> },
    Shell { commands: Vec<String> },
}

impl Block {
    /// Returns the commands of the block that are run with these programs.
    fn commands(&self, programs: Programs) -> &[String] {
        match self {
            Self::Console { commands, .. } => commands,
            Self::Shell { commands } if programs == Programs::Installed => commands,
            Self::File { .. } | Self::Shell { .. } => &[],
        }
    }

    /// Returns the parts of the output that do not change.
    fn stable(&self) -> &[String] {
        if let Self::Console { stable, .. } = self { stable } else { &[] }
    }
}

fn source_folder() -> PathBuf {
    workspace().join("docs/book/src")
}

pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names of all pages, in the order of the summary.
fn pages() -> Vec<String> {
    let summary = read(&source_folder().join("SUMMARY.md"));
    let links = summary.lines().filter_map(|line| line.split_once("](")?.1.strip_suffix(".md)"));
    links.map(String::from).collect()
}

/// Returns the text of a page, with included files or their anchored parts in place of
/// `{{#include …}}`.
fn text_of(page: &str) -> String {
    let mut text = String::new();
    for line in read(&source_folder().join(page).with_extension("md")).lines() {
        let included = line.strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"));
        match included {
            Some(what) => text += &included_text(what),
            None => text.extend([line, "\n"]),
        }
    }
    text
}

fn included_text(what: &str) -> String {
    let (path, anchor) = match what.rsplit_once(':') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (what, None),
    };
    let whole = read(&source_folder().join(path));
    let is_mark = |line: &str, mark: &str| line.split_whitespace().any(|word| word == mark);
    let (mut text, mut is_within, mut was_within) = (String::new(), anchor.is_none(), false);
    for line in whole.lines() {
        if is_mark(line, "ANCHOR:") {
            is_within |= anchor.is_some_and(|name| is_mark(line, name));
        } else if is_mark(line, "ANCHOR_END:") {
            is_within &= !anchor.is_some_and(|name| is_mark(line, name));
        } else if is_within {
            text.extend([line, "\n"]);
            was_within = true;
        }
    }
    assert!(was_within, "nothing is included by {what}");
    text
}

/// Returns the blocks of a page that are files, commands or output.
fn blocks_of(page: &str) -> Vec<Block> {
    let text = text_of(page);
    let mut lines = text.lines();
    let (mut blocks, mut stable, mut file) = (Vec::new(), Vec::new(), None);
    while let Some(line) = lines.next() {
        if line == "<!-- stable" {
            stable = lines.by_ref().take_while(|it| *it != "-->").map(String::from).collect();
        } else if let Some(rest) = line.strip_suffix("`:") {
            let named = rest.rsplit_once('`');
            let named = named.filter(|(before, _)| before.is_empty() || before.ends_with(". "));
            file = named.map(|(_, name)| name.to_owned());
        } else if let Some(language) = line.strip_prefix("```") {
            let content: Vec<String> =
                lines.by_ref().take_while(|it| *it != "```").map(String::from).collect();
            let stable = std::mem::take(&mut stable);
            match (file.take(), language) {
                (Some(name), _) => {
                    blocks.push(Block::File { name, text: content.join("\n") + "\n" })
                }
                (None, "console") => {
                    let (commands, output): (Vec<String>, Vec<String>) =
                        content.into_iter().partition(|line| line.starts_with("$ "));
                    let commands = commands.iter().map(|line| line[2..].to_owned()).collect();
                    blocks.push(Block::Console { stable, commands, output });
                }
                (None, "sh") => blocks.push(Block::Shell { commands: content }),
                (None, _) => assert!(stable.is_empty(), "{page}: no output follows {stable:?}"),
            }
        }
    }
    blocks
}

/// Returns `true` if some line contains the parts of the pattern between `…` in this order,
/// whatever the number of spaces.
fn contains(lines: &str, pattern: &str) -> bool {
    lines.lines().any(|line| {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut rest = line.as_str();
        pattern.split('…').map(str::trim).all(|part| match rest.split_once(part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    })
}

/// Runs the commands of some pages in one shell, and checks their exit status and output.
#[track_caller]
fn check_pages(pages: &[&str], needs: &[&str], programs: Programs) {
    for tool in needs {
        if Command::new(tool).arg("--version").output().is_err() {
            return skipped(&format!("pages {pages:?} of the book"), &format!("no {tool}"));
        }
    }
    let home = Home::new();
    if programs == Programs::Tested {
        symlink(workspace(), home.cwd().join("handover")).expect("a link");
    }
    let results = home.path().join("results");
    fs::create_dir(&results).expect("a folder");
    let result = |page: &str, number: u32, what: &str| {
        results.join(format!("{page}-{number}-{what}")).display().to_string()
    };

    let (mut script, mut number) = (String::new(), 0);
    for &page in pages {
        for block in blocks_of(page) {
            if let Block::File { name, text } = &block {
                number += 1;
                let content = result(page, number, "file");
                fs::write(&content, text).expect("a file");
                script += &format!("mkdir -p \"$(dirname {name})\"\ncp {content} {name}\n");
            }
            for command in block.commands(programs) {
                number += 1;
                let command = command.replace("ADDRESS", &workspace().display().to_string());
                let (out, status) = (result(page, number, "out"), result(page, number, "status"));
                script += &format!("{{ {command}\n}} >{out} 2>&1\necho $? >{status}\n");
            }
        }
    }
    let mut shell = match programs {
        Programs::Tested => {
            let shell = home.shell(&script);
            write_stand_in_for_cargo(&home.path().join("bin/cargo"));
            shell
        }
        Programs::Installed => {
            let path = std::env::var("PATH").unwrap_or_default();
            let mut shell = home.program("sh");
            shell.env("PATH", format!("{}/bin:{path}", home.path().display()));
            shell.env("CARGO_INSTALL_ROOT", home.path()).args(["-c", &script]);
            shell
        }
    };
    for name in ["RUSTUP_HOME", "CARGO_HOME"] {
        shell.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    for name in ["GIT_AUTHOR", "GIT_COMMITTER"] {
        shell
            .env(format!("{name}_NAME"), "Reader")
            .env(format!("{name}_EMAIL"), "reader@localhost");
    }
    match programs {
        Programs::Tested => drop(home.start(shell).finish().calm()),
        // No deadline: this builds all of the workspace twice.
        Programs::Installed => assert!(shell.status().expect("a shell").success()),
    }

    number = 0;
    for &page in pages {
        for block in blocks_of(page) {
            number += u32::from(matches!(block, Block::File { .. }));
            let mut output = String::new();
            for command in block.commands(programs) {
                number += 1;
                let out = read(Path::new(&result(page, number, "out")));
                let status = read(Path::new(&result(page, number, "status")));
                assert_eq!(status, "0\n", "{page}: {command}\n{out}");
                assert!(!out.contains("panicked"), "{page}: {command}\n{out}");
                output += &out;
            }
            for pattern in block.stable() {
                assert!(contains(&output, pattern), "{page}: no {pattern:?} in\n{output}");
            }
        }
    }
}

/// Writes a program that stands in for cargo, which would build every library anew: it compiles a
/// package's program or bench target with the libraries of this test, and installs the C library
/// built with it. Like cargo, it remains the parent of the program that it runs. Everything else is
/// left to cargo.
pub fn write_stand_in_for_cargo(path: &Path) {
    let cargo = Path::new(env!("CARGO"));
    let program = std::env::current_exe().expect("the path of this program");
    let script = format!(
        r#"#!/bin/sh
libraries='{libraries}'
case $1 in
    bench)
        name=handover
        for word do
            test "$before" != --bench || name=$word
            test "$word" != -- || break
            before=$word
        done
        source=benches/$name.rs ;;
    run) source=src/main.rs ;;
    xtask)
        archive=$libraries/../examples/libhandover.a
        test -f "$archive" ||
            '{cargo}' build --offline --package handover-capi --example handover --target-dir "$libraries/../.."
        exec sh faces/capi/install.sh "$archive" "$4" ;;
    *) exec '{cargo}' "$@" ;;
esac
set -e
'{cargo}' metadata --offline --no-deps --format-version 1 >/dev/null
for folder in $(sed -n 's/.* path = "\(.*\)".*/\1/p' Cargo.toml); do
    test -f "$folder/Cargo.toml"
done
mkdir -p target
program=target/$(basename $source .rs)
if ! test $program -nt $source; then
    externs=
    for name in $(sed -n 's/^handover-\([a-z]*\) = .*/handover_\1/p' Cargo.toml); do
        externs="$externs --extern $name=$(ls -t "$libraries/lib$name"-*.rlib | head -n 1)"
    done
    '{rustc}' --edition 2024 -L "dependency=$libraries" $externs -o $program $source
fi
while test $# -gt 0 && test "$1" != --; do shift; done
test $# -eq 0 || shift
$program "$@"
"#,
        libraries = program.parent().expect("a folder").display(),
        cargo = cargo.display(),
        rustc = cargo.with_file_name("rustc").display(),
    );
    write_script(path, script);
}

/// Clone, build, measure, install, measure code of one's own and compare it, with nothing but the
/// commands of the book. Takes a quarter of an hour, so that it is run with `HANDOVER_LONG` only.
#[test]
fn newcomer_needs_only_the_commands_of_the_book() {
    if std::env::var_os("HANDOVER_LONG").is_some() {
        check_pages(&["install", "ladder", "own-code", "ci"], &["git"], Programs::Installed);
    }
}

#[test]
fn every_page_with_commands_is_tested() {
    let tested: BTreeSet<String> = TESTED.concat().into_iter().map(String::from).collect();
    let has_commands =
        |page: &String| blocks_of(page).iter().any(|block| matches!(block, Block::Console { .. }));
    assert_eq!(tested, pages().into_iter().filter(has_commands).collect());
}

#[test]
fn commands_that_are_not_run_are_listed() {
    let mut found = Vec::new();
    for page in pages() {
        for block in blocks_of(&page) {
            if let Block::Shell { commands } = block {
                found.extend(commands.into_iter().map(|command| (page.clone(), command)));
            }
        }
    }
    let listed = NOT_RUN.map(|(page, command)| (page.to_owned(), command.to_owned()));
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(listed));
}

#[test]
fn shown_output_contains_its_stable_parts() {
    for page in pages() {
        for block in blocks_of(&page) {
            let Block::Console { stable, commands, output } = block else { continue };
            let shown = output.join("\n");
            assert!(
                output.is_empty() || !stable.is_empty(),
                "{page}: list what is stable in the output of {commands:?}"
            );
            for pattern in stable.iter().filter(|_| !output.is_empty()) {
                assert!(contains(&shown, pattern), "{page}: {pattern:?} is not in\n{shown}");
            }
        }
    }
}

#[test]
fn patterns_match_in_order_within_a_line() {
    let text = "run 12-3,  smoke,\nlock/free   handover  5 ns";
    assert!(contains(text, "run …, smoke,") && contains(text, "lock/free handover … ns"));
    assert!(!contains(text, "smoke, … lock/free") && !contains(text, "handover … lock/free"));
}
