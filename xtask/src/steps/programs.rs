//! The test programs of the workspace: built once, and run several at a time.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::run::Run;
use crate::test::Context;

/// The build of every test and example. Others that build the same (`-p handover`, say) choose other features of
/// the dependencies, and would build those once more.
const BUILD: &str = "cargo test --workspace --no-run";

/// Longest time of one program: a program that takes longer hangs, and is killed.
const PROGRAM_MAX: Duration = Duration::from_secs(600);
/// The same with `--long`.
const PROGRAM_MAX_LONG: Duration = Duration::from_secs(7200);

/// Programs that run at the same time. Most of them wait: for time-outs, child processes and ends of rounds.
const PROGRAMS_AT_ONCE: usize = 2;

/// How often probes are switched, with `--long`, while threads run through them.
const PROBE_FLIPS: &str = "1000000";

/// An executable with tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The package's folder, in which cargo would run it.
    pub folder: PathBuf,
    /// The package's name.
    pub package: String,
    /// The target's name: the crate's for unit tests, else the test's.
    pub target: String,
    /// The target's source file.
    source: PathBuf,
    /// The executable.
    pub path: PathBuf,
}

/// What cargo tells about a build, a line each; most lines are about something else.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    package_id: String,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds every test and example, and lists the test programs.
pub fn build(context: &mut Context) -> Result<()> {
    let messages = Run::new(BUILD)
        .args(["--message-format", "json-render-diagnostics"])
        .within(&context.workspace.root)
        .pass_and_read()?;
    let programs = programs(&messages);
    ensure!(!programs.is_empty(), "`{BUILD}` built no test");
    context.programs = Some(programs);
    Ok(())
}

/// The test programs, built unless they are.
pub fn built(context: &mut Context) -> Result<&[Program]> {
    if context.programs.is_none() {
        build(context)?;
    }
    Ok(context.programs.as_deref().unwrap_or_default())
}

/// The program of one test.
pub fn program(context: &mut Context, package: &str, target: &str) -> Result<Program> {
    let is_it = |one: &&Program| one.package == package && one.target == target;
    let found = built(context)?.iter().find(is_it).cloned();
    found.with_context(|| format!("{package} has no test {target}"))
}

fn programs(messages: &str) -> Vec<Program> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let programs = artifacts.filter(|one| one.profile.test).filter_map(|one| {
        let folder = one.manifest_path.parent()?.to_owned();
        // path+file:///folder#package@version, or path+file:///package#version.
        let id = one.package_id.rsplit('/').next()?;
        let package =
            id.rsplit('#').next()?.split_once('@').map_or(id.split('#').next()?, |it| it.0);
        Some(Program {
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

/// Runs every test program but those of `tidy`, which is a step of its own.
pub fn run_all(context: &mut Context) -> Result<()> {
    let long = context.long;
    let mut queue: VecDeque<Program> = built(context)?.to_vec().into();
    queue.retain(|program| program.package != super::sources::TIDY);
    // Those that take longest begin first, so that none of them is waited for alone at the end.
    let takes_long =
        ["handover", "handover-harness", "handover-rpc", "handover-net", "handover-suite"];
    queue.make_contiguous().sort_by_key(|program| !takes_long.contains(&program.package.as_str()));
    let libraries = Run::new("rustc --print target-libdir").read()?;
    let queue = Mutex::new(queue);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || {
        let (mut passed, mut failures) = (0, Vec::new());
        while let Some(program) = next() {
            match program.run(long, libraries.trim()) {
                Ok(count) => passed += count,
                Err(error) => failures.push(format!("{error:#}")),
            }
        }
        (passed, failures)
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..PROGRAMS_AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_default()).collect()
    });
    context.tests += outcomes.iter().map(|(passed, _)| passed).sum::<u64>();
    let failures: Vec<String> = outcomes.into_iter().flat_map(|(_, failures)| failures).collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

impl Program {
    /// Runs its tests, and counts them.
    fn run(&self, long: bool, libraries: &str) -> Result<u64> {
        let mut run = Run::program(&self.path)
            .named(&format!("{} {}", self.package, self.source.display()))
            .within(&self.folder)
            .variable("CARGO_MANIFEST_DIR", &self.folder)
            // Of tests of procedural macros, which use the compiler's own libraries.
            .variable("LD_LIBRARY_PATH", Path::new(libraries))
            .at_most(if long { PROGRAM_MAX_LONG } else { PROGRAM_MAX });
        if long {
            run = run
                .set("HANDOVER_LONG", "1")
                .set("PROPTEST_CASES", "4096")
                .set("HANDOVER_PROBE_FLIPS", PROBE_FLIPS);
        }
        run.count_whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_among_what_cargo_tells() {
        let messages = r#"
{"reason":"compiler-artifact","package_id":"path+file:///h/lab/store#handover-store@0.1.0","manifest_path":"/h/lab/store/Cargo.toml","target":{"name":"it","src_path":"/h/lab/store/tests/it/main.rs"},"profile":{"test":true},"executable":"/t/it-1"}
{"reason":"compiler-artifact","package_id":"path+file:///h/faces/cli#handover@0.1.0","manifest_path":"/h/faces/cli/Cargo.toml","target":{"name":"handover","src_path":"/h/faces/cli/src/main.rs"},"profile":{"test":false},"executable":"/t/handover"}
{"reason":"compiler-artifact","package_id":"path+file:///h/tidy#0.1.0","manifest_path":"/h/tidy/Cargo.toml","target":{"name":"tidy","src_path":"/h/tidy/src/lib.rs"},"profile":{"test":true},"executable":"/t/tidy-2"}
{"reason":"build-finished","success":true}
"#;
        let found = programs(messages);
        let names: Vec<_> = found.iter().map(|one| (&*one.package, &*one.target)).collect();
        assert_eq!(names, [("handover-store", "it"), ("tidy", "tidy")]);
        assert_eq!(found[0].folder, Path::new("/h/lab/store"));
        assert_eq!(found[0].source, Path::new("tests/it/main.rs"));
        assert_eq!(found[1].path, Path::new("/t/tidy-2"));
    }
}
