//! Installation of missing prerequisites, where possible, with a message.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::context::TestContext;
use crate::run::CommandLine;

/// Maximum duration of a command of apt-get or rustup.
const INSTALL_MAX: Duration = Duration::from_secs(600);

/// Maximum duration of a `cargo install`.
const TOOL_INSTALL_MAX: Duration = Duration::from_secs(900);

/// Installs a C compiler if there is none. SQLite and the C calls measured by the suite need it.
pub fn install_compiler(context: &mut TestContext) {
    if CommandLine::new("cc --version").succeeds() {
        return;
    }
    if let Err(error) = install_debian_packages(&["gcc", "libc6-dev"]) {
        // Steps that need a compiler fail with an error; the others can still run.
        context.record_skipped("C compiler", format!("{error:#}"));
    }
}

/// Installs clippy if it is missing. Without clippy, the code is not linted.
pub fn install_clippy(context: &mut TestContext) {
    match install_components(None, &["clippy"], CommandLine::new("cargo clippy --version")) {
        Ok(()) => context.has_clippy = true,
        Err(error) => context.record_skipped("clippy", format!("{error:#}")),
    }
}

/// Tools of the tests of handover-capi (`has` in `faces/capi/tests/examples.rs`), each with the
/// checks that pass without running if it is missing.
const C_LIBRARY_TOOLS: [(&str, &str); 8] = [
    ("gcc", "C examples with GCC, with sanitizers, and under Valgrind"),
    ("g++", "C++ example with GCC"),
    ("clang", "C examples with Clang"),
    ("clang++", "C++ example with Clang"),
    ("valgrind", "C examples under Valgrind"),
    ("cmake", "CMake configuration of the C library"),
    ("pkg-config", "pkg-config file of the C library"),
    ("nm", "symbols of the C library"),
];

/// Records the checks of handover-capi that its tests skip, as a tool is missing. Installs nothing:
/// Clang is large.
pub fn record_missing_c_tools(context: &mut TestContext) {
    for (tool, checks) in C_LIBRARY_TOOLS {
        if !CommandLine::program(tool).args(["--version"]).succeeds() {
            context.record_skipped(checks, format!("{tool} is not installed"));
        }
    }
}

/// Installs Debian packages; needs root and apt-get.
pub fn install_debian_packages(packages: &[&str]) -> Result<()> {
    let names = packages.join(" and ");
    if !CommandLine::new("apt-get --version").succeeds() {
        bail!("{names} not found, and there is no apt-get to install them");
    }
    if !is_root() {
        bail!(
            "{names} not found; install with `apt-get install {packages}`",
            packages = packages.join(" ")
        );
    }
    println!("installing Debian's {names}");
    let apt = |line: &str| {
        CommandLine::new(line).env("DEBIAN_FRONTEND", "noninteractive").timeout(INSTALL_MAX)
    };
    // The installation may succeed with stale package lists.
    let updated = apt("apt-get -q update").run();
    apt("apt-get -q -y --no-install-recommends install").args(packages).run().with_context(|| {
        match updated {
            Ok(()) => format!("{names} cannot be installed"),
            Err(error) => format!(
                "{names} cannot be installed, and the package lists could not be updated: {error:#}"
            ),
        }
    })
}

/// Installs components of the nightly toolchain, unless the command `check` succeeds. Returns an
/// error without nightly.
pub fn install_nightly_components(names: &[&str], check: CommandLine) -> Result<()> {
    let nightly = CommandLine::new("cargo +nightly --version").succeeds();
    ensure!(nightly, "no nightly toolchain; install it: rustup toolchain install nightly");
    install_components(Some("nightly"), names, check)
}

/// Installs components of a Rust toolchain, unless the command `check` succeeds.
pub fn install_components(
    toolchain: Option<&str>,
    names: &[&str],
    check: CommandLine,
) -> Result<()> {
    if check.succeeds() {
        return Ok(());
    }
    println!("installing {} with rustup", names.join(" and "));
    let mut run = CommandLine::new("rustup component add");
    if let Some(toolchain) = toolchain {
        run = run.args(["--toolchain", toolchain]);
    }
    run.args(names).timeout(INSTALL_MAX).run()
}

/// Returns `true` if the standard library of the stable toolchain for a target is installed.
fn has_target(target: &str) -> bool {
    let libraries = CommandLine::new("rustc --print target-libdir --target").args([target]);
    libraries.capture_stdout().is_ok_and(|folder| Path::new(folder.trim()).exists())
}

/// Installs the standard library of the stable toolchain for another target, if it is missing.
pub fn install_target(target: &str) -> Result<()> {
    if has_target(target) {
        return Ok(());
    }
    println!("installing {target} with rustup");
    CommandLine::new("rustup target add").args([target]).timeout(INSTALL_MAX).run()
}

/// Program that is on the PATH, or can be built by `cargo install`.
pub struct InstalledTool {
    /// Name of the program.
    pub name: &'static str,
    /// Command that installs the program.
    pub install_command: &'static str,
}

impl InstalledTool {
    /// Returns the path of the program. If it is missing, installs it with `--long` or if `--only`
    /// selects the step; otherwise records a skipped check and returns `None`, as the installation
    /// takes longer than most checks.
    pub fn find_or_install(&self, context: &mut TestContext) -> Option<PathBuf> {
        let may_install = context.is_long || context.has_selected_steps;
        let found = self.find(context).or_else(|error| match may_install {
            true => self.install(context),
            false => {
                bail!(
                    "{error:#}; install it with `{command}`, or give --long or --only",
                    command = self.install_command
                )
            }
        });
        found.map_err(|error| context.record_skipped(self.name, format!("{error:#}"))).ok()
    }

    /// Returns the program's name if it is on the PATH, otherwise its path in the target folder.
    fn find(&self, context: &TestContext) -> Result<PathBuf> {
        let installed = context.workspace.target.join("tools/bin").join(self.name);
        [PathBuf::from(self.name), installed]
            .into_iter()
            .find(|program| CommandLine::program(program).args(["--version"]).succeeds())
            .with_context(|| format!("{program} is not installed", program = self.name))
    }

    /// Installs the program into the target folder, without changing the contributor's own tools.
    fn install(&self, context: &TestContext) -> Result<PathBuf> {
        let folder = context.workspace.target.join("tools");
        println!("installing {} into {} (some minutes)", self.name, folder.display());
        CommandLine::new(self.install_command)
            .arg_path("--root", &folder)
            .env_remove("CARGO_TARGET_DIR")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .timeout(TOOL_INSTALL_MAX)
            .run()?;
        self.find(context)
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
