//! Build script: passes the commit, the compiler, the build profile and the peers' versions to the
//! binary.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a program with these arguments; returns its output, or `None` if it fails.
fn run(program: impl AsRef<OsStr>, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Returns the source folders of the crates in the binary. The list is empty outside the workspace.
fn source_folders() -> Vec<PathBuf> {
    let root = Path::new("../..");
    let folders = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let crates = ["mechanisms", "services", "lab", "faces"]
        .into_iter()
        .flat_map(|rung| folders(root.join(rung)))
        .map(|entry| entry.path().join("src"));
    crates
        .chain([root.join("base/src"), root.join("classic/src")])
        .filter(|path| path.is_dir())
        .collect()
}

/// Returns the optional libraries of the suite that the enabled features add, as `NAME VERSION`.
///
/// Reads the manifest and the lock file as text: a parser would be six crates more to compile.
fn peer_versions() -> Vec<String> {
    let read = |path: &str| {
        println!("cargo:rerun-if-changed={path}");
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let (manifest, lock) = (read("../../lab/suite/Cargo.toml"), read("../../Cargo.lock"));
    let is_on = |feature: &str| {
        // Default feature of the suite.
        let name = feature.to_uppercase().replace('-', "_");
        feature == "peers" || std::env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
    };
    let section = manifest.split("\n[").find_map(|it| it.strip_prefix("features]\n"));
    let lists = section.unwrap_or_default().split(']').filter_map(|it| it.split_once(" = ["));
    let names: BTreeSet<&str> = lists
        .filter(|(before, _)| before.lines().next_back().is_some_and(is_on))
        .flat_map(|(_, list)| quoted(list))
        .filter_map(|it| it.strip_prefix("dep:"))
        .collect();
    // Name and version are the first two quoted texts of a package; a version is the only text in
    // the list of dependencies with a space.
    let packages: Vec<&str> = lock.split("[[package]]\n").skip(1).collect();
    let package = |name: &str| packages.iter().find(|it| quoted(it).next() == Some(name));
    let suite = package("handover-suite").copied().unwrap_or_default();
    let with_version = |name: &str| {
        // A library present in several versions is listed with the version.
        let mut listed = quoted(suite).filter_map(|it| it.strip_prefix(name)?.strip_prefix(' '));
        let version = listed.next().or_else(|| quoted(package(name)?).nth(1))?;
        Some(format!("{name} {version}"))
    };
    names.into_iter().filter_map(with_version).collect()
}

/// Returns the texts between quotation marks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

fn main() {
    let mut commit = run("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_default();
    if !commit.is_empty()
        && run("git", &["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"])
            .is_some_and(|changes| !changes.is_empty())
    {
        commit.push_str("+dirty");
    }
    println!("cargo:rustc-env=HANDOVER_COMMIT={commit}");
    // The log of HEAD grows with each commit and checkout. A path that does not exist would make
    // cargo run this script, and compile this package, each time.
    let log = run("git", &["rev-parse", "--git-path", "logs/HEAD"]).map(PathBuf::from);
    for path in source_folders().into_iter().chain(log.filter(|log| log.is_file())) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let compiler = std::env::var_os("RUSTC").and_then(|it| run(it, &["--version"]));
    println!("cargo:rustc-env=HANDOVER_COMPILER={}", compiler.unwrap_or_default());
    let of_cargo = |name: &str| std::env::var(name).unwrap_or_default();
    println!("cargo:rustc-env=HANDOVER_PROFILE={}", of_cargo("PROFILE"));
    println!("cargo:rustc-env=HANDOVER_TARGET={}", of_cargo("TARGET"));
    let mut features: Vec<String> = std::env::vars()
        .filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_lowercase()))
        .map(|name| name.replace('_', "-"))
        .collect();
    features.sort();
    println!("cargo:rustc-env=HANDOVER_FEATURES={}", features.join(" "));
    println!("cargo:rustc-env=HANDOVER_PEERS={}", peer_versions().join(", "));
    println!("cargo:rerun-if-changed=build.rs");
}
