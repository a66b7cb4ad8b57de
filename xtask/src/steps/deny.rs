//! Check of the dependencies' licences, bans and sources by cargo-deny, with the lists in deny.toml.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::run::Run;
use crate::test::Context;

/// Command that installs cargo-deny; without default features it only cannot fetch advisories.
const INSTALL: &str = "cargo install --locked --debug --no-default-features cargo-deny@0.20.2";

/// Checks the dependencies against the lists in deny.toml.
pub fn deny(context: &mut Context) -> Result<()> {
    let program = match find(context) {
        Ok(program) => program,
        // Installing takes longer than any other check of a change.
        Err(error) if !context.long => {
            let how = INSTALL.trim_start_matches("cargo ");
            context.skip(
                "cargo-deny",
                format!("{error:#}: cargo {how}, or --long, which installs it"),
            );
            return Ok(());
        }
        Err(_) => match install(context) {
            Ok(program) => program,
            Err(error) => {
                context.skip("cargo-deny", format!("{error:#}"));
                return Ok(());
            }
        },
    };
    Run::program(program)
        .args(["--all-features", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"])
        .within(&context.workspace.root)
        .run()
}

fn own(context: &Context) -> PathBuf {
    context.workspace.target.join("tools")
}

fn find(context: &Context) -> Result<PathBuf> {
    let places = [PathBuf::from("cargo-deny"), own(context).join("bin/cargo-deny")];
    places
        .into_iter()
        .find(|program| Run::program(program).args(["--version"]).succeeds())
        .context("cargo-deny is not installed")
}

/// Installs cargo-deny into the target folder; the contributor's own tools are not changed.
fn install(context: &Context) -> Result<PathBuf> {
    println!("installing cargo-deny into {} (a minute or two)", own(context).display());
    Run::new(INSTALL)
        .arg_path("--root", &own(context))
        .unset("CARGO_TARGET_DIR")
        .set("CARGO_PROFILE_DEV_DEBUG", "0")
        .at_most(Duration::from_secs(900))
        .run()?;
    find(context)
}
