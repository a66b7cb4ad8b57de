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
    pub is_long: bool,
    /// Packages to test with `--changed`; `None` without it, for all.
    pub selection: Option<Selection>,
    /// `true` if steps were selected with `--only`.
    pub has_selected_steps: bool,
    /// Names of the crates that differ from `origin/HEAD`.
    pub differing_crates: BTreeSet<String>,
    /// `true` if clippy is installed, so that the build also lints.
    pub has_clippy: bool,
    /// Temporary folder of the test run, removed at its end.
    pub temporary: PathBuf,
    /// Test programs; `None` until they are built.
    pub programs: Option<Vec<TestProgram>>,
    /// Number of tests that passed in the current step.
    pub passed_count: u64,
    /// `true` if the default benchmarks have run with smoke values. The results are in `temporary`.
    pub has_run_ladder: bool,
    /// Lines about checks that the current step has skipped.
    pub skipped: Vec<String>,
}

impl TestContext {
    /// Returns the cargo command `line`, to be run in the workspace. It also lints with clippy if
    /// that is installed. Clippy's driver compiles the crates that differ from `origin/HEAD`, so
    /// that linting needs no second compilation; `--long` lints all crates. If the variable `CI` is
    /// set, the build has neither line tables nor incremental files: a quarter less time for the
    /// workspace's crates.
    pub fn cargo_command(&self, line: &str) -> CommandLine {
        let mut run = CommandLine::new(line).current_dir(&self.workspace.root);
        if std::env::var_os("CI").is_some() {
            run = run.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
        }
        if !self.has_clippy {
            return run;
        }
        let linted = self.differing_crates.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        run.env_path("RUSTC_WORKSPACE_WRAPPER", &self.workspace.root.join("xtask/lint-or-compile"))
            .env("HANDOVER_LINTED", &linted)
            .env("CLIPPY_ARGS", "-Dwarnings")
    }

    /// Returns `true` if the tests of a package should be run. With `--changed`, this is the case
    /// only for affected packages.
    pub fn should_test(&self, package: &str) -> bool {
        self.selection.as_ref().is_none_or(|it| it.affected.contains(package))
    }

    /// Returns `true` if the documentation's examples and the loom models of a package should be
    /// run. With `--changed`, this is the case only for changed packages.
    pub fn should_test_thoroughly(&self, package: &str) -> bool {
        self.selection.as_ref().is_none_or(|it| it.changed.contains(package))
    }

    /// Prints that `check` is skipped and the reason, and adds this line to `skipped`.
    pub fn record_skipped(&mut self, check: &str, why: impl AsRef<str>) {
        let why = why.as_ref().trim().lines().next().unwrap_or_default();
        let line = format!("skipped: {check}: {why}");
        println!("{line}");
        self.skipped.push(line);
    }
}

/// Names of the packages to test with `--changed`.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Packages of which a file was written since their tests passed.
    pub changed: BTreeSet<String>,
    /// Packages whose tests are run: the changed ones, and those that directly depend on these.
    pub affected: BTreeSet<String>,
}

/// Executable with tests, as built by cargo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestProgram {
    /// Folder of the package. The program runs in it, as under cargo.
    pub folder: PathBuf,
    /// Name of the package.
    pub package: String,
    /// Name of the cargo target: the name of the crate, or of a file below `tests/`.
    pub target: String,
    /// Source file of the target.
    pub source: PathBuf,
    /// Path of the executable.
    pub path: PathBuf,
}
