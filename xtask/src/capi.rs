//! `cargo xtask capi`: installs the C library.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use crate::run::CommandLine;
use crate::workspace::Workspace;

/// Options of `capi`.
#[derive(clap::Args, Debug)]
pub struct CapiOptions {
    /// Folder for include/ and lib/
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,
}

/// Builds the C library in release mode, and installs it as the options say.
pub fn capi(options: &CapiOptions) -> Result<ExitCode> {
    install(&Workspace::find()?, &options.prefix)?;
    println!("{}", options.prefix.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the C library in release mode and installs it below `prefix`.
pub fn install(workspace: &Workspace, prefix: &Path) -> Result<()> {
    CommandLine::new("cargo build -p handover-capi --example handover --release")
        .current_dir(&workspace.root)
        .run()?;
    let archive = workspace.target.join("release/examples/libhandover.a");
    CommandLine::program(workspace.root.join("faces/capi/install.sh"))
        .args([archive.as_path(), prefix])
        .run()
}
