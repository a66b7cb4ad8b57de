//! Tells the binary which commit it was built from.

use std::process::Command;

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
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
    println!("cargo:rerun-if-changed=build.rs");
}
