//! Check of the dependencies' licences, bans and sources by cargo-deny, with the lists in
//! deny.toml.

use anyhow::Result;

use super::prerequisites::InstalledTool;
use crate::context::TestContext;
use crate::run::CommandLine;

/// Tool cargo-deny, without default features. These only fetch advisories.
const CARGO_DENY: InstalledTool = InstalledTool {
    name: "cargo-deny",
    install_command: "cargo install --locked --debug --no-default-features cargo-deny@0.20.2",
};

/// Checks the dependencies against the lists in deny.toml.
pub fn check_dependencies(context: &mut TestContext) -> Result<()> {
    let Some(program) = CARGO_DENY.find_or_install(context) else { return Ok(()) };
    CommandLine::program(program)
        .args(["--all-features", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"])
        .current_dir(&context.workspace.root)
        .run()
}
