//! Steps that build and run the binary as users get it.

use std::collections::BTreeSet;
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

    /// Returns the id of each figure of the run that was stored.
    pub fn ids(&self) -> Result<BTreeSet<String>> {
        let store = self.folder.join(STORE);
        let show = Run::program(&self.binary).args(["show", "--json", "--db"]).args([store]);
        let document: Document = serde_json::from_str(&show.read()?)
            .context("reading what `handover show --json` printed")?;
        Ok(document.records.into_iter().map(|one| one.id).collect())
    }
}

/// A run and its records.
#[derive(Deserialize)]
struct Document {
    records: Vec<Record>,
}

/// One figure of one contender.
#[derive(Deserialize)]
struct Record {
    id: String,
}
