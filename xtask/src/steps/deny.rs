//! Check of the dependencies' licences, bans and sources by cargo-deny, with the lists in deny.toml.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::context::TestContext;
use crate::run::CommandLine;

/// Command that installs cargo-deny without the default features, which only fetch advisories.
const INSTALL: &str = "cargo install --locked --debug --no-default-features cargo-deny@0.20.2";

/// Checks the dependencies against the lists in deny.toml.
pub fn check_dependencies(context: &mut TestContext) -> Result<()> {
    let program = match find_cargo_deny(context) {
        Ok(program) => program,
        // Installing takes longer than any other check of a change.
        Err(error) if !context.long => {
            let how = INSTALL.trim_start_matches("cargo ");
            context.record_skipped(
                "cargo-deny",
                format!("{error:#}: cargo {how}, or --long, which installs it"),
            );
            return Ok(());
        }
        Err(_) => match install(context) {
            Ok(program) => program,
            Err(error) => {
                context.record_skipped("cargo-deny", format!("{error:#}"));
                return Ok(());
            }
        },
    };
    CommandLine::program(program)
        .args(["--all-features", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"])
        .current_dir(&context.workspace.root)
        .run()
}

fn installed_path(context: &TestContext) -> PathBuf {
    context.workspace.target.join("tools")
}

fn find_cargo_deny(context: &TestContext) -> Result<PathBuf> {
    let places = [PathBuf::from("cargo-deny"), installed_path(context).join("bin/cargo-deny")];
    places
        .into_iter()
        .find(|program| CommandLine::program(program).args(["--version"]).succeeds())
        .context("cargo-deny is not installed")
}

/// Installs cargo-deny into the target folder; the contributor's own tools are not changed.
fn install(context: &TestContext) -> Result<PathBuf> {
    println!("installing cargo-deny into {} (a minute or two)", installed_path(context).display());
    CommandLine::new(INSTALL)
        .arg_path("--root", &installed_path(context))
        .env_remove("CARGO_TARGET_DIR")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .timeout(Duration::from_secs(900))
        .run()?;
    find_cargo_deny(context)
}
