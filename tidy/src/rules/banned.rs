//! Banned constructs; a violation names the replacement.

use crate::{Source, Tree, Violation};

/// Name of the rule.
pub const RULE_NAME: &str = "banned";

/// Construct that code must not use, with the files in which it is banned.
#[derive(Clone, Copy, Debug)]
pub struct BannedConstruct {
    /// Words in the code, or imported path, that are banned.
    pub pattern: &'static str,
    /// Function that returns `true` for the path of a file in which the pattern is banned.
    pub is_banned_in: fn(&str) -> bool,
    /// `true` if test code may use the pattern.
    pub is_allowed_in_tests: bool,
    /// Description of the replacement.
    pub remedy: &'static str,
}

/// Description of the replacement of clock reads in engines.
const NO_CLOCK_REMEDY: &str =
    "pass the time as an argument, now_ns: an engine must not read a clock";

/// All banned constructs.
pub const BANNED_CONSTRUCTS: &[BannedConstruct] = &[
    BannedConstruct {
        pattern: "#[ignore",
        is_banned_in: |_| true,
        is_allowed_in_tests: false,
        remedy: "repair the test, or print `skipped: WHAT: WHY` where it cannot run",
    },
    BannedConstruct {
        pattern: "Instant::now",
        is_banned_in: is_engine,
        is_allowed_in_tests: false,
        remedy: NO_CLOCK_REMEDY,
    },
    BannedConstruct {
        pattern: "SystemTime::now",
        is_banned_in: is_engine,
        is_allowed_in_tests: false,
        remedy: NO_CLOCK_REMEDY,
    },
    BannedConstruct {
        pattern: "thread::sleep",
        is_banned_in: is_engine,
        is_allowed_in_tests: false,
        remedy: "return the deadline to the drive: an engine must neither sleep nor block",
    },
    BannedConstruct {
        pattern: "println!",
        is_banned_in: is_library,
        is_allowed_in_tests: true,
        remedy: "return the text, or write it to a `&mut dyn Write`: only faces print",
    },
    BannedConstruct {
        pattern: "print!",
        is_banned_in: is_library,
        is_allowed_in_tests: true,
        remedy: "return the text, or write it to a `&mut dyn Write`: only faces print",
    },
    BannedConstruct {
        pattern: "process::exit",
        is_banned_in: is_outside_programs,
        is_allowed_in_tests: true,
        remedy: "return an error, or an ExitCode from main: exit codes are decided in the faces",
    },
    BannedConstruct {
        pattern: ".unwrap()",
        is_banned_in: is_source_of_program,
        is_allowed_in_tests: true,
        remedy: "`?` with anyhow's context, so that the message names the operation",
    },
    BannedConstruct {
        pattern: "anyhow",
        is_banned_in: is_outside_programs_and_xtask,
        is_allowed_in_tests: false,
        remedy: "an error enum of the operation, with thiserror",
    },
];

/// Finds uses of banned constructs.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources() {
        for ban in BANNED_CONSTRUCTS.iter().filter(|ban| (ban.is_banned_in)(source.path)) {
            for line in banned_lines(ban, &source) {
                found.push(violation(ban, source.path, line));
            }
        }
    }
    for one in tree.crates() {
        for dependency in &one.dependencies {
            let path = &one.manifest.path;
            let ban = BANNED_CONSTRUCTS.iter().find(|ban| ban.pattern == dependency.package);
            if let Some(ban) = ban.filter(|ban| (ban.is_banned_in)(path)) {
                found.push(violation(ban, path, dependency.line));
            }
        }
    }
    found
}

/// Returns the numbers of the lines on which a source file uses a banned construct.
fn banned_lines(ban: &BannedConstruct, source: &Source<'_>) -> Vec<usize> {
    let mut lines = source.lines_with(ban.pattern);
    lines.retain(|&line| !(ban.is_allowed_in_tests && source.is_test(line)));
    lines
}

/// Creates the violation of using a banned construct at `path:line`.
fn violation(ban: &BannedConstruct, path: &str, line: usize) -> Violation {
    let what = format!("`{pattern}` is banned here", pattern = ban.pattern);
    Violation::new(RULE_NAME, path, line, what, ban.remedy)
}

/// Returns `true` for files of engines, which must not read a clock.
fn is_engine(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "engine.rs" | "engine"))
}

/// Returns `true` for the sources of libraries.
fn is_library(path: &str) -> bool {
    let libraries = ["base/", "mechanisms/", "services/", "lab/"];
    libraries.iter().any(|folder| path.starts_with(folder)) && path.contains("/src/")
}

/// Returns `true` for files below `faces/` and `classic/`.
fn is_in_program(path: &str) -> bool {
    path.starts_with("faces/") || path.starts_with("classic/")
}

/// Returns `true` for files outside `faces/` and `classic/`.
fn is_outside_programs(path: &str) -> bool {
    !is_in_program(path)
}

/// Returns `true` for the sources below `faces/` and `classic/`.
fn is_source_of_program(path: &str) -> bool {
    is_in_program(path) && path.contains("/src/")
}

fn is_outside_programs_and_xtask(path: &str) -> bool {
    !is_in_program(path) && !path.starts_with("xtask/")
}
