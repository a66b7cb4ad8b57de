//! Test programs of the workspace: built once, then run several at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::context::{Selection, TestContext, TestProgram};
use crate::run::CommandLine;
use crate::workspace::{Crate, Workspace};

/// Command that builds every test and example. Builds of one package (`-p handover`) would select
/// other features of the dependencies and rebuild them.
const BUILD_COMMAND: &str = "cargo test --workspace --no-run";

/// Features that are off by default and have tests of their own, as `PACKAGE/FEATURE`.
const TESTED_FEATURES: [&str; 5] = [
    "handover-event/async",
    "handover-fiber/async",
    "handover-lock/lock_api",
    "handover-notify/async",
    "handover-ring/async",
];

/// Package whose tests leave out checks for which a tool is missing.
const C_LIBRARY_PACKAGE: &str = "handover-capi";

/// Returns the option that enables [`TESTED_FEATURES`] of `crates`.
pub fn feature_args<'a>(crates: impl IntoIterator<Item = &'a Crate>) -> Option<String> {
    let names: BTreeSet<&str> = crates.into_iter().map(|one| &*one.name).collect();
    let is_selected =
        |one: &&str| one.split_once('/').is_some_and(|(name, _)| names.contains(name));
    let selected: Vec<&str> = TESTED_FEATURES.into_iter().filter(is_selected).collect();
    (!selected.is_empty()).then(|| format!("--features={}", selected.join(",")))
}

/// Maximum duration of a test program. A program that takes longer is killed.
const PROGRAM_TIME_MAX: Duration = Duration::from_secs(600);
/// Maximum duration of a test program with `--long`.
const LONG_PROGRAM_TIME_MAX: Duration = Duration::from_secs(7200);

/// Number of test programs that run in parallel. Most of them wait for timeouts, child processes
/// and ends of rounds.
const PROGRAMS_AT_ONCE: usize = 2;

/// Command prefix that sets the lowest priority, for compilers that run beside test programs. Two
/// threads that spin for each other waste their time slices while a compiler delays one of them.
pub const LOW_PRIORITY_PREFIX: &str = "nice -n 19";

/// Number of times that a test with `--long` switches probes while threads execute them.
const PROBE_FLIPS: &str = "1000000";

/// Message `compiler-artifact` of cargo's JSON output.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    package_id: String,
    target: ArtifactTarget,
    profile: Profile,
    executable: Option<PathBuf>,
}

/// Target that cargo has built.
#[derive(Deserialize)]
struct ArtifactTarget {
    name: String,
    src_path: PathBuf,
}

/// Profile in which cargo has built a target.
#[derive(Deserialize)]
struct Profile {
    /// `true` if the target has been built as a test program.
    test: bool,
}

/// Builds every test and example, and stores the list of test programs.
pub fn build_tests(context: &mut TestContext) -> Result<()> {
    let messages = context
        .cargo_command(BUILD_COMMAND)
        .args(feature_args(&context.workspace.crates))
        .args(["--message-format", "json-render-diagnostics"])
        .run_and_capture()?;
    let programs = parse_programs(&messages);
    ensure!(!programs.is_empty(), "`{BUILD_COMMAND}` built no test program");
    context.programs = Some(programs);
    Ok(())
}

/// Returns the test programs, and builds them first if necessary.
pub fn test_programs(context: &mut TestContext) -> Result<&[TestProgram]> {
    if context.programs.is_none() {
        build_tests(context)?;
    }
    Ok(context.programs.as_deref().unwrap_or_default())
}

/// Returns the test program of a package's target; builds the tests first if necessary.
pub fn find_test_program(
    context: &mut TestContext,
    package: &str,
    target: &str,
) -> Result<TestProgram> {
    let is_it = |one: &&TestProgram| one.package == package && one.target == target;
    let found = test_programs(context)?.iter().find(is_it).cloned();
    found.with_context(|| format!("{package} has no test target {target}"))
}

/// Returns the test programs in cargo's JSON output.
fn parse_programs(messages: &str) -> Vec<TestProgram> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let programs = artifacts.filter(|one| one.profile.test).filter_map(|one| {
        let folder = one.manifest_path.parent()?.to_owned();
        // path+file:///folder#package@version, or path+file:///package#version.
        let id = one.package_id.rsplit('/').next()?;
        let package =
            id.rsplit('#').next()?.split_once('@').map_or(id.split('#').next()?, |it| it.0);
        Some(TestProgram {
            package: package.to_owned(),
            target: one.target.name,
            source: one
                .target
                .src_path
                .strip_prefix(&folder)
                .map_or_else(|_| one.target.src_path.clone(), Path::to_owned),
            folder,
            path: one.executable?,
        })
    });
    programs.collect()
}

/// Runs every test program except those of `tidy`, which have a separate step.
pub fn run_all_tests(context: &mut TestContext) -> Result<()> {
    let is_long = context.is_long;
    let mut queue: VecDeque<TestProgram> = test_programs(context)?.to_vec().into();
    queue.retain(|program| program.package != super::sources::TIDY_PACKAGE);
    // The longest programs start first, so that none of them runs alone at the end.
    let takes_long =
        ["handover", "handover-harness", "handover-rpc", "handover-net", "handover-suite"];
    queue.make_contiguous().sort_by_key(|program| !takes_long.contains(&program.package.as_str()));
    queue.retain(|program| context.should_test(&program.package));
    if queue.iter().any(|program| program.package == C_LIBRARY_PACKAGE) {
        super::prerequisites::record_missing_c_tools(context);
    }
    let libraries = CommandLine::new("rustc --print target-libdir").capture_stdout()?;
    let queue = Mutex::new(queue);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || {
        let mut work = WorkerResults::default();
        while let Some(program) = next() {
            let start = SystemTime::now();
            match program.run(is_long, libraries.trim()) {
                Ok(count) => {
                    work.passed_count += count;
                    work.passed_packages.push((program.package, start));
                }
                Err(error) => {
                    work.failures.push(format!("{error:#}"));
                    work.failed_packages.push(program.package);
                }
            }
        }
        work
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..PROGRAMS_AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_default()).collect()
    });
    let mut history = PassHistory::read(&context.workspace.target);
    let (mut failures, mut failed) = (Vec::new(), Vec::new());
    for work in outcomes {
        context.passed_count += work.passed_count;
        work.passed_packages.into_iter().for_each(|(package, start)| history.add(package, start));
        failures.extend(work.failures);
        failed.extend(work.failed_packages);
    }
    history.passed.retain(|package, _| !failed.contains(package));
    history.write()?;
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Results of one thread that runs test programs.
#[derive(Default)]
struct WorkerResults {
    /// Number of tests that passed.
    passed_count: u64,
    /// Packages of the programs that passed, each with the start time of the program.
    passed_packages: Vec<(String, SystemTime)>,
    /// Packages of the programs that failed.
    failed_packages: Vec<String>,
    /// Errors of the programs that failed.
    failures: Vec<String>,
}

/// Time of the last run in which all tests of a package passed, by package. It is stored in the
/// target folder.
struct PassHistory {
    /// File of the history.
    file: PathBuf,
    /// Start time of the last run in which all tests passed, by package.
    passed: BTreeMap<String, SystemTime>,
    /// Packages that [`add`](Self::add) has recorded since the file was read.
    added: BTreeSet<String>,
}

impl PassHistory {
    /// Reads the history. An unreadable history counts as empty, so that everything runs.
    fn read(target: &Path) -> Self {
        let file = target.join("handover-tests-passed.json");
        let text = fs::read(&file).unwrap_or_default();
        let passed = serde_json::from_slice(&text).unwrap_or_default();
        Self { file, passed, added: BTreeSet::new() }
    }

    /// Records that a test program of a package passed. Keeps the earliest start time of the
    /// package's programs.
    fn add(&mut self, package: String, start: SystemTime) {
        let is_first = self.added.insert(package.clone());
        let time = self.passed.entry(package).or_insert(start);
        *time = if is_first { start } else { start.min(*time) };
    }

    /// Writes the history to its file.
    fn write(&self) -> Result<()> {
        let text = serde_json::to_vec(&self.passed)?;
        fs::write(&self.file, text)
            .with_context(|| format!("cannot write {path}", path = self.file.display()))
    }

    /// Returns `true` if the tests of the package have passed since its files were last changed.
    fn is_current(&self, package: &str, folder: &Path) -> bool {
        let passed = self.passed.get(package);
        passed.is_some_and(|passed| newest_modification(folder).is_some_and(|time| time < *passed))
    }
}

/// Returns the packages to test with `--changed`. Packages that depend indirectly on a changed one
/// are left to a complete run, and so are the faces, whose tests take longest: the ladder runs in
/// any case.
pub fn select_changed(workspace: &Workspace) -> Selection {
    let history = PassHistory::read(&workspace.target);
    let is_changed = |one: &&Crate| {
        // The tidy rules have a separate step, which always runs.
        one.name != super::sources::TIDY_PACKAGE
            && !history.is_current(&one.name, &workspace.root.join(&one.folder))
    };
    let names = |is_it: &dyn Fn(&&Crate) -> bool| -> BTreeSet<String> {
        workspace.crates.iter().filter(is_it).map(|one| one.name.clone()).collect()
    };
    let changed = names(&is_changed);
    let affected = names(&|one| {
        let mut needed = one.dependencies.iter().filter(|_| !one.folder.starts_with("faces"));
        changed.contains(&one.name) || needed.any(|name| changed.contains(name))
    });
    Selection { changed, affected }
}

/// Returns the latest modification time of a file, or of the files below a folder. Returns `None`
/// if none can be read.
fn newest_modification(path: &Path) -> Option<SystemTime> {
    let data = fs::symlink_metadata(path).ok()?;
    if !data.is_dir() {
        return data.modified().ok();
    }
    let entries = fs::read_dir(path).ok()?;
    let is_source = |path: &PathBuf| !path.ends_with("target");
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_source);
    paths.filter_map(|path| newest_modification(&path)).max()
}

impl TestProgram {
    /// Runs the test program, and returns the number of passed tests.
    fn run(&self, is_long: bool, libraries: &str) -> Result<u64> {
        let mut run = CommandLine::program(&self.path)
            .with_display_name(&format!("{} {}", self.package, self.source.display()))
            .current_dir(&self.folder)
            .env_path("CARGO_MANIFEST_DIR", &self.folder)
            // Needed by tests of procedural macros, which use the compiler's own libraries.
            .env_path("LD_LIBRARY_PATH", Path::new(libraries))
            // Symbolising an expected panic's frames takes a second of CPU time; a failed test says
            // its line.
            .env_remove("RUST_BACKTRACE")
            .timeout(if is_long { LONG_PROGRAM_TIME_MAX } else { PROGRAM_TIME_MAX });
        if is_long {
            run = run
                .env("HANDOVER_LONG", "1")
                .env("PROPTEST_CASES", "4096")
                .env("HANDOVER_PROBE_FLIPS", PROBE_FLIPS);
        }
        run.count_tests_buffered()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_is_affected_until_it_and_its_dependencies_have_passed() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let one = |name: &str, dependencies: &[&str]| -> Result<Crate> {
            fs::create_dir_all(folder.path().join(name).join("tests"))?;
            fs::write(folder.path().join(name).join("tests/data"), "")?;
            let dependencies = dependencies.iter().map(ToString::to_string).collect();
            Ok(Crate { name: name.into(), folder: name.into(), examples: Vec::new(), dependencies })
        };
        let crates = vec![
            one("ring", &[])?,
            one("event", &["ring"])?,
            one("suite", &["event"])?,
            one("faces/cli", &["ring"])?,
        ];
        let (root, target) = (folder.path().to_owned(), folder.path().to_owned());
        let workspace = Workspace { root, target, crates };
        let names = || select_changed(&workspace).affected.into_iter().collect::<Vec<_>>();
        assert_eq!(names(), ["event", "faces/cli", "ring", "suite"], "no package has passed yet");
        let later = SystemTime::now() + Duration::from_secs(10);
        let mut history = PassHistory::read(folder.path());
        for name in ["ring", "event", "suite", "faces/cli"] {
            history.add(name.into(), later);
            history.add(name.into(), later + Duration::from_secs(5));
        }
        history.write()?;
        assert_eq!(names(), [""; 0]);
        let data = fs::File::options().write(true).open(folder.path().join("ring/tests/data"))?;
        data.set_modified(later + Duration::from_secs(1))?;
        assert_eq!(names(), ["event", "ring"], "the suite does not depend on ring directly");
        assert_eq!(Vec::from_iter(select_changed(&workspace).changed), ["ring"]);
        history.passed.clear();
        history.write()?;
        assert_eq!(names().len(), 4);
        Ok(())
    }

    #[test]
    fn test_programs_are_parsed_from_cargo_messages() {
        let messages = r#"
{"reason":"compiler-artifact","package_id":"path+file:///h/lab/store#handover-store@0.1.0","manifest_path":"/h/lab/store/Cargo.toml","target":{"name":"it","src_path":"/h/lab/store/tests/it/main.rs"},"profile":{"test":true},"executable":"/t/it-1"}
{"reason":"compiler-artifact","package_id":"path+file:///h/faces/cli#handover@0.1.0","manifest_path":"/h/faces/cli/Cargo.toml","target":{"name":"handover","src_path":"/h/faces/cli/src/main.rs"},"profile":{"test":false},"executable":"/t/handover"}
{"reason":"compiler-artifact","package_id":"path+file:///h/tidy#0.1.0","manifest_path":"/h/tidy/Cargo.toml","target":{"name":"tidy","src_path":"/h/tidy/src/lib.rs"},"profile":{"test":true},"executable":"/t/tidy-2"}
{"reason":"build-finished","success":true}
"#;
        let found = parse_programs(messages);
        let names: Vec<_> = found.iter().map(|one| (&*one.package, &*one.target)).collect();
        assert_eq!(names, [("handover-store", "it"), ("tidy", "tidy")]);
        assert_eq!(found[0].folder, Path::new("/h/lab/store"));
        assert_eq!(found[0].source, Path::new("tests/it/main.rs"));
        assert_eq!(found[1].path, Path::new("/t/tidy-2"));
    }
}
