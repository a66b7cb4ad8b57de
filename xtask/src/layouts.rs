//! `cargo xtask layouts`: links one commit several times, each time with the functions in a new
//! random order.
//!
//! A function's place in memory alone moves a short figure by some percent (Mytkowicz and others,
//! *Producing Wrong Data Without Doing Anything Obviously Wrong!*, ASPLOS 2009). A comparison with
//! several links a side counts this effect as noise.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::run::Run;
use crate::workspace::Workspace;

/// Options of `layouts`: number of links, and the output folder.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Folder for the binaries, named handover-1 and on
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Number of binaries
    #[arg(long, value_name = "COUNT", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=50))]
    count: u32,
    /// Seed of the first one's order; the others count on
    #[arg(long, value_name = "SEED", default_value = "1")]
    seed: u32,
}

/// Links the release binary `count` times.
pub fn layouts(options: &Options) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    fs::create_dir_all(&options.folder)
        .with_context(|| format!("making {}", options.folder.display()))?;
    for number in 0..options.count {
        // The option belongs to lld, the default linker of this compiler.
        let order = format!("link-arg=-Wl,--shuffle-sections=.text*={}", options.seed + number);
        Run::new("cargo rustc --release --package handover --bin handover --")
            .args(["-C", &order])
            .within(&workspace.root)
            .pass()?;
        let copy = options.folder.join(format!("handover-{}", number + 1));
        fs::copy(workspace.binary("release"), &copy)
            .with_context(|| format!("copying to {}", copy.display()))?;
        println!("{}", copy.display());
    }
    Ok(ExitCode::SUCCESS)
}
