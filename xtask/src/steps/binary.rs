//! The binary as users get it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::run::Run;
use crate::test::Context;
use crate::workspace::Workspace;

/// Runs the ladder and the faults of the binary that the tests have built.
pub fn tested(context: &mut Context) -> Result<()> {
    let ladder = ladder(context)?;
    faults(context, &ladder.binary)
}

/// Builds the release binary, runs its ladder with smoke values, and its faults.
pub fn release(context: &mut Context) -> Result<()> {
    build(&context.workspace, "release")?;
    let folder = context.temporary.path().join("release");
    std::fs::create_dir(&folder)?;
    let binary = context.workspace.binary("release");
    smoke(&binary, &folder)?;
    faults(context, &binary)
}

/// Runs the test program of faults on a binary: the program of the tests serves for each profile, as to
/// build it in release would build everything else once more.
fn faults(context: &mut Context, binary: &Path) -> Result<()> {
    let faults = test_program(&context.workspace, "handover", "faults")?;
    context.tests += Run::program(faults)
        .set("HANDOVER_BINARY", &binary.display().to_string())
        .within(&context.workspace.root)
        .count()?;
    Ok(())
}

/// The program of one test of one crate, built as `cargo test --workspace` builds it.
fn test_program(workspace: &Workspace, package: &str, test: &str) -> Result<PathBuf> {
    let line = format!("cargo test --workspace --test {test} --no-run --message-format json");
    let messages = Run::new(&line).within(&workspace.root).read()?;
    executable(&messages, package, test).with_context(|| format!("{package} has no test {test}"))
}

/// What cargo tells about a build, a line each; most lines are about something else.
#[derive(Deserialize)]
struct Built {
    package_id: String,
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

fn executable(messages: &str, package: &str, test: &str) -> Option<PathBuf> {
    let built = messages.lines().filter_map(|line| serde_json::from_str::<Built>(line).ok());
    // path+file:///folder#package@version, where the folder is not called as the package is.
    let mut ours = built
        .filter(|one| one.target.name == test && one.package_id.contains(&format!("#{package}@")));
    ours.find_map(|one| one.executable)
}

/// The binary with fat LTO measures too.
pub fn dist(context: &mut Context) -> Result<()> {
    build(&context.workspace, "dist")?;
    let folder = context.temporary.path().join("dist");
    std::fs::create_dir(&folder)?;
    smoke(&context.workspace.binary("dist"), &folder)
}

/// Runs the ladder with smoke values in the binary that the tests have built, unless that was done
/// before; it leaves its store and its report in the temporary folder.
pub fn ladder(context: &mut Context) -> Result<Ladder> {
    let ladder = Ladder {
        binary: context.workspace.binary("debug"),
        folder: context.temporary.path().to_owned(),
    };
    if !context.ladder_ran {
        // As the tests build it: `-p handover` would choose other features of the dependencies.
        Run::new("cargo test --workspace --no-run").within(&context.workspace.root).pass()?;
        smoke(&ladder.binary, &ladder.folder)?;
        context.ladder_ran = true;
    }
    Ok(ladder)
}

/// Builds the binary.
pub fn build(workspace: &Workspace, profile: &str) -> Result<()> {
    let line = format!("cargo build -p handover --profile {profile}");
    Run::new(&line).within(&workspace.root).pass()
}

fn smoke(binary: &Path, folder: &Path) -> Result<()> {
    Run::program(binary)
        .args(["run", "--profile", "smoke", "--db", STORE])
        .within(folder)
        .pass()?;
    ensure!(folder.join(STORE).exists(), "the ladder left no {STORE}");
    Ok(())
}

const STORE: &str = "results.db";

/// What the ladder left behind.
pub struct Ladder {
    binary: PathBuf,
    /// Where it ran.
    pub folder: PathBuf,
}

impl Ladder {
    /// The page that it wrote.
    pub fn report(&self) -> PathBuf {
        self.folder.join("report.html")
    }

    /// What it stored.
    pub fn document(&self) -> Result<Document> {
        show(&self.binary, &self.folder.join(STORE))
    }
}

/// The last run in a store, as `handover show --json` prints it to the world.
pub fn show(binary: &Path, store: &Path) -> Result<Document> {
    let text = Run::program(binary).args(["show", "--json", "--db"]).args([store]).read()?;
    serde_json::from_str(&text).context("reading what `handover show --json` printed")
}

/// A run and its records.
#[derive(Clone, Debug, Deserialize)]
pub struct Document {
    /// The records, in the order in which they were measured.
    pub records: Vec<Record>,
}

/// One figure of one contender.
#[derive(Clone, Debug, Deserialize)]
pub struct Record {
    /// The figure's id.
    pub id: String,
    /// Who was measured.
    pub contender: String,
    /// The figure.
    pub summary: Summary,
    /// Its ratio to the floor.
    pub floor: Option<Ratio>,
    /// Who took part.
    pub parties: Parties,
    /// What makes it doubtful.
    pub warnings: Vec<Warning>,
}

/// The figure and its quantiles.
#[derive(Clone, Debug, Deserialize)]
pub struct Summary {
    /// The figure.
    pub median: f64,
}

/// A ratio to another figure.
#[derive(Clone, Debug, Deserialize)]
pub struct Ratio {
    /// This by the other.
    pub ratio: f64,
}

/// Who took part.
#[derive(Clone, Debug, Deserialize)]
pub struct Parties {
    /// The CPU of each.
    pub cpus: Vec<u32>,
}

/// A doubt.
#[derive(Clone, Debug, Deserialize)]
pub struct Warning {
    /// Its kind.
    pub code: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_s_program_is_found_among_what_cargo_tells() {
        let messages = r#"
{"reason":"compiler-artifact","package_id":"path+file:///h/lab/store#handover-store@0.1.0","target":{"name":"faults"},"executable":"/t/faults-1"}
{"reason":"compiler-artifact","package_id":"path+file:///h/faces/cli#handover@0.1.0","target":{"name":"handover"},"executable":null}
{"reason":"compiler-artifact","package_id":"path+file:///h/faces/cli#handover@0.1.0","target":{"name":"faults"},"executable":"/t/faults-2"}
{"reason":"build-finished","success":true}
"#;
        let found = |package| executable(messages, package, "faults");
        assert_eq!(found("handover"), Some(PathBuf::from("/t/faults-2")));
        assert_eq!(found("handover-store"), Some(PathBuf::from("/t/faults-1")));
        assert_eq!(found("store"), None);
    }
}
