//! Workspace, crates and target folder, as reported by cargo.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::run::CommandLine;

/// Cargo workspace with its crates.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Root folder.
    pub root: PathBuf,
    /// Folder of cargo's build output.
    pub target: PathBuf,
    /// Crates, sorted by folder.
    pub crates: Vec<Crate>,
}

/// Crate of the workspace.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Package name.
    pub name: String,
    /// Folder, relative to the root.
    pub folder: PathBuf,
    /// Names of the examples that are programs, not libraries.
    pub examples: Vec<String>,
    /// Names of the packages that the crate, its tests or its build script need.
    pub dependencies: Vec<String>,
}

/// Used fields of the output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    workspace_root: PathBuf,
    target_directory: PathBuf,
    packages: Vec<Package>,
}

/// Package in the output of `cargo metadata`.
#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    dependencies: Vec<Dependency>,
}

/// Dependency of a package in the output of `cargo metadata`.
#[derive(Deserialize)]
struct Dependency {
    name: String,
}

/// Target of a package in the output of `cargo metadata`.
#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    crate_types: Vec<String>,
}

impl Workspace {
    /// Reads the workspace from `cargo metadata`.
    pub fn find() -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = CommandLine::new("cargo metadata --no-deps --format-version 1")
            .current_dir(here)
            .capture_stdout()?;
        Self::parse(&text).context("cannot parse the output of `cargo metadata`")
    }

    /// Parses the output of `cargo metadata`.
    fn parse(metadata: &str) -> Result<Self> {
        let metadata: Metadata = serde_json::from_str(metadata)?;
        let mut crates = Vec::new();
        for package in metadata.packages {
            let folder = package.manifest_path.parent().unwrap_or(Path::new(""));
            let is_program = |one: &&Target| one.kind == ["example"] && one.crate_types == ["bin"];
            let examples = package.targets.iter().filter(is_program).map(|one| one.name.clone());
            crates.push(Crate {
                name: package.name,
                folder: folder.strip_prefix(&metadata.workspace_root)?.to_owned(),
                examples: examples.collect(),
                dependencies: package.dependencies.into_iter().map(|one| one.name).collect(),
            });
        }
        crates.sort_by(|one, other| one.folder.cmp(&other.folder));
        Ok(Self { root: metadata.workspace_root, target: metadata.target_directory, crates })
    }

    /// Returns the crates whose folder contains the file `path`.
    pub fn crates_with_file(&self, path: &str) -> Vec<&Crate> {
        let has = |one: &&Crate| self.root.join(&one.folder).join(path).exists();
        self.crates.iter().filter(has).collect()
    }

    /// Returns the crates in folders below `folder`.
    pub fn crates_below(&self, folder: &str) -> Vec<&Crate> {
        self.crates.iter().filter(|one| one.folder.starts_with(folder)).collect()
    }

    /// Returns the names of the crates that differ from `origin/HEAD`, committed or not.
    pub fn changed_crates(&self) -> BTreeSet<String> {
        let paths = [
            "git ls-files --others --exclude-standard",
            "git diff --name-only HEAD",
            "git diff --name-only origin/HEAD...HEAD",
        ]
        // Nothing differs without a repository, or without an origin.
        .map(|line| {
            CommandLine::new(line).current_dir(&self.root).capture_stdout().unwrap_or_default()
        })
        .concat();
        let differs =
            |one: &&Crate| paths.lines().any(|path| Path::new(path).starts_with(&one.folder));
        self.crates.iter().filter(differs).map(|one| one.name.clone()).collect()
    }

    /// Returns the path of the `handover` binary of a cargo profile. The file exists after it is
    /// built.
    pub fn binary_path(&self, profile: &str) -> PathBuf {
        self.target.join(profile).join("handover")
    }
}

/// Returns the cargo arguments `-p NAME` for each crate.
pub fn package_args(crates: &[&Crate]) -> Vec<String> {
    crates.iter().flat_map(|one| ["-p".to_owned(), one.name.clone()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_found_with_their_folders_and_examples() -> Result<()> {
        let metadata = r#"{"workspace_root": "/h", "target_directory": "/t", "packages": [
            {"name": "handover-lock", "manifest_path": "/h/mechanisms/lock/Cargo.toml", "targets": [
                {"name": "handover_lock", "kind": ["lib"], "crate_types": ["lib"]},
                {"name": "tour", "kind": ["example"], "crate_types": ["bin"]},
                {"name": "archive", "kind": ["example"], "crate_types": ["staticlib"]}],
                "dependencies": [{"name": "handover-base"}]},
            {"name": "handover-base", "manifest_path": "/h/base/Cargo.toml", "targets": [],
                "dependencies": []}]}"#;
        let workspace = Workspace::parse(metadata)?;
        let folders: Vec<_> = workspace.crates.iter().map(|one| one.folder.as_path()).collect();
        assert_eq!(folders, [Path::new("base"), Path::new("mechanisms/lock")]);
        let mechanisms = workspace.crates_below("mechanisms");
        assert_eq!(mechanisms.len(), 1);
        assert_eq!(mechanisms[0].examples, ["tour"]);
        assert_eq!(mechanisms[0].dependencies, ["handover-base"]);
        assert_eq!(package_args(&mechanisms), ["-p", "handover-lock"]);
        assert_eq!(workspace.binary_path("release"), Path::new("/t/release/handover"));
        Ok(())
    }

    #[test]
    fn this_workspace_is_found() -> Result<()> {
        let workspace = Workspace::find()?;
        assert!(workspace.crates.iter().any(|one| one.name == "handover-xtask"));
        assert_eq!(workspace.crates_with_file("src/workspace.rs").len(), 1);
        Ok(())
    }
}
