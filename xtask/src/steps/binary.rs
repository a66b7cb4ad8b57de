//! Steps that build and run the binary in the form that users get.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::prerequisites::install_debian_packages;
use super::programs;
use crate::context::TestContext;
use crate::dist;
use crate::run::CommandLine;
use crate::workspace::Workspace;

/// Builds the release binary and tests it: default benchmarks with smoke values, and fault tests.
pub fn test_release_binary(context: &mut TestContext) -> Result<()> {
    build_release_binary(&context.workspace)?;
    let folder = context.temporary.join("release");
    std::fs::create_dir(&folder)?;
    let binary = context.workspace.binary_path("release");
    run_smoke(&binary, &folder)?;
    // The test program of the tests' build: a release build of it would rebuild everything else.
    let faults = programs::find_test_program(context, "handover", "faults")?;
    context.passed_count += CommandLine::program(faults.path)
        .env_path("HANDOVER_BINARY", &binary)
        .current_dir(&context.workspace.root)
        .count_tests()?;
    Ok(())
}

/// Builds a release. Checks that the RPM package has the binary, runs a benchmark in the static
/// binary, and installs the Debian package in a new Debian system. Runs the default benchmarks
/// there, with smoke values. If no such system can be made, runs them with the release's binary.
pub fn test_release_packages(context: &mut TestContext) -> Result<()> {
    if !CommandLine::new("rpmbuild --version").succeeds()
        && let Err(error) = install_debian_packages(&["rpm"])
    {
        context.record_skipped("rpmbuild", format!("{error:#}"));
    }
    let (files, skipped) = dist::build_release(&context.workspace, true)?;
    skipped.iter().for_each(|line| context.record_skipped("package", line));
    let folder = context.temporary.join("dist");
    std::fs::create_dir(&folder)?;
    let find = |start: &str, end: &str| {
        files.iter().find(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(start) && name.ends_with(end)
        })
    };
    if let Some(package) = find("handover-", ".rpm") {
        let listed = CommandLine::new("rpm -qpl").args([package]).capture_stdout()?;
        ensure!(
            listed.lines().any(|line| line == "/usr/bin/handover"),
            "the package {} lacks /usr/bin/handover",
            package.display()
        );
    }
    if let Some(archive) = find("handover-", "-linux-static.tar.gz") {
        test_static_binary(archive, &folder)?;
    }
    let package = find("handover_", ".deb").context("no Debian package was built");
    let (package, root) = match package.and_then(|it| Ok((it, make_debian(&folder)?))) {
        Ok(both) => both,
        Err(error) => {
            context.record_skipped("Debian package", format!("{error:#}"));
            return run_smoke(&context.workspace.binary_path("dist"), &folder);
        }
    };
    let bytes = package.metadata()?.len();
    ensure!(
        bytes <= DEB_BYTES_MAX,
        "the package {} has {bytes} bytes, more than {DEB_BYTES_MAX}",
        package.display()
    );
    std::fs::copy(package, root.join("handover.deb"))?;
    CommandLine::program("chroot").args([&root]).args(INSTALL_COMMAND).run()?;
    let smoke = CommandLine::new("unshare --mount sh -c").args([RUN_IN_ROOT_SCRIPT]).args([root]);
    smoke.timeout(SMOKE_MAX).count_tests_buffered().map(drop)
}

/// Unpacks the archive with the static binary below `folder`, and runs one benchmark in it, with
/// smoke values.
fn test_static_binary(archive: &Path, folder: &Path) -> Result<()> {
    let root = folder.join("static");
    std::fs::create_dir(&root)?;
    CommandLine::new("tar --extract --strip-components=1")
        .arg_path("--file", archive)
        .arg_path("--directory", &root)
        .run()?;
    CommandLine::program(root.join("bin/handover"))
        .args(["run", "lock/free", "--profile", "smoke", "--db", STORE_FILE_NAME])
        .current_dir(&root)
        .timeout(SMOKE_MAX)
        .run()
}

/// Maximum size of the Debian package of the binary.
const DEB_BYTES_MAX: u64 = 15_000_000;

/// Command that installs the Debian package, run in the new Debian system.
const INSTALL_COMMAND: [&str; 3] = ["dpkg", "--install", "/handover.deb"];

/// Shell script that runs the default benchmarks in another Debian system. The argument is the root
/// folder of that system. The mounts end with the script.
const RUN_IN_ROOT_SCRIPT: &str = r#"
set -e
for folder in proc sys dev; do mount --rbind "/$folder" "$0/$folder"; done
exec chroot "$0" env -i HOME=/root PATH=/usr/bin:/bin handover run --profile smoke
"#;

/// Installs a minimal Debian system below `folder`, of this machine's release. Returns its root
/// folder.
fn make_debian(folder: &Path) -> Result<PathBuf> {
    if !CommandLine::new("debootstrap --version").succeeds() {
        install_debian_packages(&["debootstrap"])?;
    }
    let sources = CommandLine::new("apt-get indextargets --format")
        .args(["$(CODENAME) $(SITE)", "Created-By: Packages"])
        .capture_stdout()?;
    let source = sources.lines().next().and_then(|line| line.split_once(' '));
    let (release, mirror) = source.context(
        "apt has no package repository configured, whose release and mirror debootstrap needs",
    )?;
    let root = folder.join("debian");
    CommandLine::new("debootstrap --variant=minbase")
        .args([Path::new(release), &root, Path::new(mirror)])
        .timeout(SMOKE_MAX)
        .run()?;
    Ok(root)
}

/// Runs the default benchmarks of the debug binary with smoke values, unless this was done before.
/// The run's store and report page are in the temporary folder.
pub fn run_ladder(context: &mut TestContext) -> Result<LadderRun> {
    let ladder = LadderRun {
        binary: context.workspace.binary_path("debug"),
        folder: context.temporary.clone(),
    };
    if !context.has_run_ladder {
        programs::test_programs(context)?;
        run_smoke(&ladder.binary, &ladder.folder)?;
        context.has_run_ladder = true;
    }
    Ok(ladder)
}

/// Builds the `handover` binary in cargo's profile `release`.
pub fn build_release_binary(workspace: &Workspace) -> Result<()> {
    CommandLine::new("cargo build -p handover --release").current_dir(&workspace.root).run()
}

/// Runs the binary's default benchmarks with smoke values. The store and the report page are
/// written to `folder`.
fn run_smoke(binary: &Path, folder: &Path) -> Result<()> {
    CommandLine::program(binary)
        .args(["run", "--profile", "smoke", "--db", STORE_FILE_NAME])
        .current_dir(folder)
        .timeout(SMOKE_MAX)
        .count_tests_buffered()?;
    ensure!(folder.join(STORE_FILE_NAME).exists(), "the smoke run wrote no {STORE_FILE_NAME}");
    Ok(())
}

/// Name of the store that a run with smoke values writes.
const STORE_FILE_NAME: &str = "results.db";

/// Maximum duration of a run with smoke values, and of the installation of a Debian system.
const SMOKE_MAX: Duration = Duration::from_secs(600);

/// Results of a run of the default benchmarks with smoke values.
pub struct LadderRun {
    binary: PathBuf,
    /// Folder with the store and the report page that the run wrote.
    pub folder: PathBuf,
}

impl LadderRun {
    /// Returns the path of the report page that the run wrote.
    pub fn report_path(&self) -> PathBuf {
        self.folder.join("report.html")
    }

    /// Returns the path of the store that the run wrote.
    fn store_path(&self) -> PathBuf {
        self.folder.join(STORE_FILE_NAME)
    }

    /// Starts `handover serve` for the store; its standard output is piped.
    pub fn start_server(&self) -> Result<Child> {
        let mut command = Command::new(&self.binary);
        command.args(["serve", "--db"]).arg(self.store_path()).stdout(Stdio::piped());
        command.spawn().context("cannot start `handover serve`")
    }

    /// Starts a run of some seconds that adds to the store.
    pub fn start_run(&self) -> Result<Child> {
        let mut command = Command::new(&self.binary);
        command.args(["run", "event/", "lock/", "notify/", "ring/", "--no-peers", "--time=2s"]);
        command.args(["--no-report", "--db"]);
        command.arg(self.store_path()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().context("cannot start `handover run`")
    }

    /// Returns the ids of all figures of the stored run.
    pub fn figure_ids(&self) -> Result<BTreeSet<String>> {
        let show = CommandLine::program(&self.binary)
            .args(["show", "--json", "--db"])
            .args([self.store_path()]);
        let document: Value = serde_json::from_str(&show.capture_stdout()?)
            .context("cannot parse the output of `handover show --json`")?;
        let records = document["records"].as_array().context("the run has no records")?;
        Ok(records.iter().filter_map(|one| Some(one["id"].as_str()?.to_owned())).collect())
    }
}
