//! `cargo xtask dist`: writes the files that a packager ships with the binary, from the binary's
//! own definitions.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};

use crate::run::Run;
use crate::steps::binary::build;
use crate::workspace::Workspace;

/// Options of `dist`.
#[derive(clap::Args, Debug)]
pub struct DistOptions {
    /// Also build the smallest and fastest binary, with fat LTO (minutes)
    #[arg(long)]
    binary: bool,
}

/// Files below dist/, each with the hidden command that prints it.
const FILES: &[(&str, &[&str])] = &[
    ("completions/handover.bash", &["completions", "bash"]),
    ("completions/_handover", &["completions", "zsh"]),
    ("completions/handover.fish", &["completions", "fish"]),
    ("man/handover.1", &["man"]),
];

/// Writes dist/.
pub fn dist(options: &DistOptions) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let folder = workspace.root.join("dist");
    let profile = if options.binary { "dist" } else { "release" };
    build(&workspace, profile)?;
    let binary = workspace.binary(profile);
    write(&binary, &folder)?;
    if options.binary {
        let copy = folder.join("handover");
        fs::copy(&binary, &copy).with_context(|| format!("copy to {}", copy.display()))?;
        println!("{}", copy.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn write(binary: &Path, folder: &Path) -> Result<()> {
    for (name, command) in FILES {
        let text = Run::program(binary).args(*command).read()?;
        ensure!(!text.is_empty(), "`handover {}` printed nothing", command.join(" "));
        let file = folder.join(name);
        let parent = file.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_the_output_of_its_command() -> Result<()> {
        let folder = tempfile::tempdir()?;
        write(Path::new("/bin/echo"), folder.path())?;
        let text = fs::read_to_string(folder.path().join("completions/_handover"))?;
        assert_eq!(text, "completions zsh\n");
        assert!(folder.path().join("man/handover.1").exists());
        Ok(())
    }

    #[test]
    fn command_without_output_is_an_error() -> Result<()> {
        let folder = tempfile::tempdir()?;
        assert!(write(Path::new("/bin/true"), folder.path()).is_err());
        Ok(())
    }
}
