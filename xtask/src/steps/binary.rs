//! Steps that build and run the binary as users get it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::programs;
use crate::run::Run;
use crate::test::Context;
use crate::workspace::Workspace;

/// Builds the release binary, runs its ladder with smoke values, and runs the fault tests on it.
pub fn release(context: &mut Context) -> Result<()> {
    build(&context.workspace, "release")?;
    let folder = context.temporary.join("release");
    std::fs::create_dir(&folder)?;
    let binary = context.workspace.binary("release");
    smoke(&binary, &folder)?;
    // The test program of the tests' build: a release build of it would rebuild everything else.
    let faults = programs::program(context, "handover", "faults")?;
    context.tests += Run::program(faults.path)
        .variable("HANDOVER_BINARY", &binary)
        .within(&context.workspace.root)
        .count()?;
    Ok(())
}

/// Builds the binary with fat LTO and runs its ladder with smoke values.
pub fn dist(context: &mut Context) -> Result<()> {
    build(&context.workspace, "dist")?;
    let folder = context.temporary.join("dist");
    std::fs::create_dir(&folder)?;
    smoke(&context.workspace.binary("dist"), &folder)
}

/// Runs the ladder with smoke values in the binary that the tests' build made, unless it has run
/// before. It leaves its store and its report in the temporary folder.
pub fn ladder(context: &mut Context) -> Result<Ladder> {
    let ladder =
        Ladder { binary: context.workspace.binary("debug"), folder: context.temporary.clone() };
    if !context.ladder_ran {
        programs::built(context)?;
        smoke(&ladder.binary, &ladder.folder)?;
        context.ladder_ran = true;
    }
    Ok(ladder)
}

/// Builds the binary.
pub fn build(workspace: &Workspace, profile: &str) -> Result<()> {
    let line = format!("cargo build -p handover --profile {profile}");
    Run::new(&line).within(&workspace.root).run()
}

fn smoke(binary: &Path, folder: &Path) -> Result<()> {
    Run::program(binary)
        .args(["run", "--profile", "smoke", "--db", STORE])
        .within(folder)
        .at_most(SMOKE_MAX)
        .count_with_buffered_output()?;
    ensure!(folder.join(STORE).exists(), "the ladder wrote no {STORE}");
    Ok(())
}

const STORE: &str = "results.db";

/// Maximum duration of the ladder with smoke values.
const SMOKE_MAX: Duration = Duration::from_secs(600);

/// Results of a ladder run.
pub struct Ladder {
    binary: PathBuf,
    /// Folder in which the ladder ran.
    pub folder: PathBuf,
}

impl Ladder {
    /// Returns the path of the report page that the run wrote.
    pub fn report(&self) -> PathBuf {
        self.folder.join("report.html")
    }

    /// Reads the run that was stored.
    pub fn document(&self) -> Result<StoredRun> {
        show(&self.binary, &self.folder.join(STORE))
    }
}

/// Returns the last run in a store, as printed by `handover show --json`.
pub fn show(binary: &Path, store: &Path) -> Result<StoredRun> {
    let text = Run::program(binary).args(["show", "--json", "--db"]).args([store]).read()?;
    serde_json::from_str(&text).context("read the output of `handover show --json`")
}

/// Run with its records.
#[derive(Clone, Debug, Deserialize)]
pub struct StoredRun {
    /// The records, in the order in which they were measured.
    pub records: Vec<Record>,
}

/// Figure of one contender.
#[derive(Clone, Debug, Deserialize)]
pub struct Record {
    /// Id of the figure.
    pub id: String,
    /// Name of the contender that was measured.
    pub contender: String,
    /// The figure.
    pub summary: Summary,
    /// Ratio to the floor.
    pub floor: Option<Ratio>,
    /// Participants of the measurement.
    pub parties: Participants,
    /// Warnings about the figure.
    pub warnings: Vec<Warning>,
}

/// The figure and its quantiles.
#[derive(Clone, Debug, Deserialize)]
pub struct Summary {
    /// The figure.
    pub median: f64,
}

/// Ratio to another figure.
#[derive(Clone, Debug, Deserialize)]
pub struct Ratio {
    /// This figure divided by the other.
    pub ratio: f64,
}

/// Participants of a measurement.
#[derive(Clone, Debug, Deserialize)]
pub struct Participants {
    /// CPU of each participant.
    pub cpus: Vec<u32>,
}

/// Warning about a figure.
#[derive(Clone, Debug, Deserialize)]
pub struct Warning {
    /// Kind of the warning.
    pub code: String,
}
