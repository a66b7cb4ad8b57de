//! Build script: passes the commit, the compiler and the build profile to the binary.

use std::process::Command;

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Returns the compiler's version line.
fn compiler() -> Option<String> {
    let output = Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

fn main() {
    let mut commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_default();
    if !commit.is_empty()
        && git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|it| !it.is_empty())
    {
        commit.push_str("+dirty");
    }
    println!("cargo:rustc-env=HANDOVER_COMMIT={commit}");
    for word in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", word]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rustc-env=HANDOVER_COMPILER={}", compiler().unwrap_or_default());
    let of_cargo = |name: &str| std::env::var(name).unwrap_or_default();
    let profile = ["PROFILE", "OPT_LEVEL", "TARGET"].map(of_cargo);
    println!(
        "cargo:rustc-env=HANDOVER_BUILD_PROFILE={}, opt-level {}, {}",
        profile[0], profile[1], profile[2]
    );
    let mut features: Vec<String> = std::env::vars()
        .filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_lowercase()))
        .map(|name| name.replace('_', "-"))
        .collect();
    features.sort();
    println!("cargo:rustc-env=HANDOVER_FEATURES={}", features.join(" "));
    println!("cargo:rerun-if-changed=build.rs");
}
