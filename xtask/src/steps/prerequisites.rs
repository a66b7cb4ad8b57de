//! Installation of missing prerequisites, where possible, with a message.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::run::Run;
use crate::test::Context;

/// Maximum duration of an installation.
const INSTALL_MAX: Duration = Duration::from_secs(600);

/// Installs a C compiler if there is none; SQLite and the C calls measured by the suite need it.
pub fn compiler(context: &mut Context) {
    if Run::new("cc --version").succeeds() {
        return;
    }
    if let Err(error) = debian(&["gcc", "libc6-dev"]) {
        // Steps that need a compiler fail with an error; the others can still run.
        context.skip("C compiler", format!("{error:#}"));
    }
}

/// Installs clippy if it is missing; without clippy the code is not linted.
pub fn clippy(context: &mut Context) {
    match component(None, &["clippy"], Run::new("cargo clippy --version")) {
        Ok(()) => context.has_clippy = true,
        Err(error) => context.skip("clippy", format!("{error:#}")),
    }
}

/// Installs Debian packages; needs root and apt-get.
pub fn debian(packages: &[&str]) -> Result<()> {
    let names = packages.join(" and ");
    if !Run::new("apt-get --version").succeeds() {
        bail!("{names} not found, and apt-get is not available to install them");
    }
    if !is_root() {
        bail!("{names} not found: apt-get install {}", packages.join(" "));
    }
    println!("installing Debian's {names}");
    let apt =
        |line: &str| Run::new(line).env("DEBIAN_FRONTEND", "noninteractive").timeout(INSTALL_MAX);
    // The installation may succeed with stale package lists.
    let updated = apt("apt-get -q update").run();
    apt("apt-get -q -y --no-install-recommends install").args(packages).run().with_context(|| {
        match updated {
            Ok(()) => format!("{names} cannot be installed"),
            Err(error) => format!("{names} cannot be installed, after {error:#}"),
        }
    })
}

/// Installs components of a Rust toolchain, unless the command `present` succeeds.
pub fn component(toolchain: Option<&str>, names: &[&str], present: Run) -> Result<()> {
    if present.succeeds() {
        return Ok(());
    }
    println!("installing {} with rustup", names.join(" and "));
    let mut run = Run::new("rustup component add");
    if let Some(toolchain) = toolchain {
        run = run.args(["--toolchain", toolchain]);
    }
    run.args(names).timeout(INSTALL_MAX).run()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
