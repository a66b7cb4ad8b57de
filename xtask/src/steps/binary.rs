//! Steps that build and run the binary in the form that users get.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::programs;
use crate::context::TestContext;
use crate::run::CommandLine;
use crate::workspace::Workspace;

/// Builds the release binary, measures the default benchmarks with smoke values, and runs the fault tests.
pub fn test_release_binary(context: &mut TestContext) -> Result<()> {
    build_binary(&context.workspace, "release")?;
    let folder = context.temporary.join("release");
    std::fs::create_dir(&folder)?;
    let binary = context.workspace.binary_path("release");
    run_smoke(&binary, &folder)?;
    // The test program of the tests' build: a release build of it would rebuild everything else.
    let faults = programs::find_test_program(context, "handover", "faults")?;
    context.tests += CommandLine::program(faults.path)
        .env_path("HANDOVER_BINARY", &binary)
        .current_dir(&context.workspace.root)
        .count_tests()?;
    Ok(())
}

/// Builds the binary with fat LTO and measures the default benchmarks with smoke values.
pub fn test_dist_binary(context: &mut TestContext) -> Result<()> {
    build_binary(&context.workspace, "dist")?;
    let folder = context.temporary.join("dist");
    std::fs::create_dir(&folder)?;
    run_smoke(&context.workspace.binary_path("dist"), &folder)
}

/// Measures the default benchmarks with smoke values in the binary built with the tests, unless
/// this was done before. The run's store and report page are in the temporary folder.
pub fn run_ladder(context: &mut TestContext) -> Result<LadderRun> {
    let ladder = LadderRun {
        binary: context.workspace.binary_path("debug"),
        folder: context.temporary.clone(),
    };
    if !context.ladder_ran {
        programs::test_programs(context)?;
        run_smoke(&ladder.binary, &ladder.folder)?;
        context.ladder_ran = true;
    }
    Ok(ladder)
}

/// Builds the `handover` binary in a cargo profile.
pub fn build_binary(workspace: &Workspace, profile: &str) -> Result<()> {
    let line = format!("cargo build -p handover --profile {profile}");
    CommandLine::new(&line).current_dir(&workspace.root).run()
}

fn run_smoke(binary: &Path, folder: &Path) -> Result<()> {
    CommandLine::program(binary)
        .args(["run", "--profile", "smoke", "--db", STORE_FILE_NAME])
        .current_dir(folder)
        .timeout(SMOKE_MAX)
        .count_tests_buffered()?;
    ensure!(folder.join(STORE_FILE_NAME).exists(), "the smoke run wrote no {STORE_FILE_NAME}");
    Ok(())
}

/// Name of the store's file.
const STORE_FILE_NAME: &str = "results.db";

/// Maximum duration of the smoke run.
const SMOKE_MAX: Duration = Duration::from_secs(600);

/// Results of the smoke run of the default benchmarks.
pub struct LadderRun {
    binary: PathBuf,
    /// Folder with the store and the report page that the run wrote.
    pub folder: PathBuf,
}

impl LadderRun {
    /// Returns the path of the report page that the run wrote.
    pub fn report_path(&self) -> PathBuf {
        self.folder.join("report.html")
    }

    /// Returns the ids of all figures of the stored run.
    pub fn figure_ids(&self) -> Result<BTreeSet<String>> {
        let store = self.folder.join(STORE_FILE_NAME);
        let show =
            CommandLine::program(&self.binary).args(["show", "--json", "--db"]).args([store]);
        let document: Document = serde_json::from_str(&show.capture_stdout()?)
            .context("cannot parse the output of `handover show --json`")?;
        Ok(document.records.into_iter().map(|one| one.id).collect())
    }
}

/// JSON form of a run with its records.
#[derive(Deserialize)]
struct Document {
    records: Vec<Record>,
}

/// JSON form of one figure of one contender.
#[derive(Deserialize)]
struct Record {
    id: String,
}
