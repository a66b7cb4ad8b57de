//! Inputs and results shared by the steps of `cargo xtask test`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::run::CommandLine;
use crate::workspace::Workspace;

/// Inputs and results shared by the steps of a test run.
#[derive(Clone, Debug)]
pub struct TestContext {
    /// Workspace that is tested.
    pub workspace: Workspace,
    /// `true` if `--long` was given.
    pub long: bool,
    /// Names of the packages to test with `--changed`; `None` for all.
    pub affected: Option<BTreeSet<String>>,
    /// `true` if steps were selected with `--only`.
    pub only: bool,
    /// Names of the crates that differ from `origin/HEAD`.
    pub differing: BTreeSet<String>,
    /// `true` if clippy is installed; the build then also lints.
    pub has_clippy: bool,
    /// Temporary folder of the test run, removed at its end.
    pub temporary: PathBuf,
    /// Test programs; `None` until they are built.
    pub programs: Option<Vec<TestProgram>>,
    /// Number of tests that passed in the current step.
    pub tests: u64,
    /// `true` if the default benchmarks have run, with smoke values; the results are in `temporary`.
    pub ladder_ran: bool,
    /// Lines about skipped checks of the current step.
    pub skipped: Vec<String>,
}

impl TestContext {
    /// Returns a cargo command for the workspace, in the profile of the tests. Clippy's driver compiles the crates that
    /// differ from `origin/HEAD`, so that linting needs no second compilation; `--long` lints all crates. If the variable
    /// `CI` is set, the build has neither line tables nor incremental files: a quarter less time for the workspace's
    /// crates.
    pub fn cargo_command(&self, line: &str) -> CommandLine {
        let mut run = CommandLine::new(line).current_dir(&self.workspace.root);
        if std::env::var_os("CI").is_some() {
            run = run.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
        }
        if !self.has_clippy {
            return run;
        }
        let linted = self.differing.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        run.env_path("RUSTC_WORKSPACE_WRAPPER", &self.workspace.root.join("xtask/lint-or-compile"))
            .env("HANDOVER_LINTED", &linted)
            .env("CLIPPY_ARGS", "-Dwarnings")
    }

    /// Returns `true` if the tests of a package are to be run. With `--changed`, only those of
    /// affected packages are.
    pub fn should_test(&self, package: &str) -> bool {
        self.affected.as_ref().is_none_or(|affected| affected.contains(package))
    }

    /// Prints that `check` is skipped, and why, and adds the line to `skipped`.
    pub fn record_skipped(&mut self, check: &str, why: impl AsRef<str>) {
        let why = why.as_ref().trim().lines().next().unwrap_or_default();
        let line = format!("skipped: {check}: {why}");
        println!("{line}");
        self.skipped.push(line);
    }
}

/// Executable with tests, as built by cargo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestProgram {
    /// Folder of the package, in which cargo would run the program.
    pub folder: PathBuf,
    /// Name of the package.
    pub package: String,
    /// Name of the cargo target: the crate for unit tests, the file below `tests/` for others.
    pub target: String,
    /// Source file of the target.
    pub source: PathBuf,
    /// Path of the executable.
    pub path: PathBuf,
}
